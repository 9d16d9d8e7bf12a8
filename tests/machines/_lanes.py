"""A reference executor: real tasks, channels and scheduler, but each lane keeps its order.

    scheduler -> Task.send -> the gate: is it this task's turn in its lane? -> the task itself

Real runs have no lanes; what `Machine.check` says about them is compared with this.
"""

import threading
from functools import partial

import actorgraph as ag
from actorgraph.machines import network as network_module
from actorgraph.machines.network import Network


def run_in_lanes(machine, lanes, limits, runs, feeds, **mode):
    """Start runs in order, each lane doing its (task, run) in order; return whether all end.

    `limits` are credits: ``{(spender, giver): n}`` by numbers of tasks.
    """

    class Laned(Network):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            gates = Gates(self.tasks, lanes, limits)
            for task in self.tasks:
                task.send = partial(gates.send, task, task.send)

    original, network_module.Network = network_module.Network, Laned
    try:
        started = [machine.start(feeds, **mode) for _ in range(runs)]
        ended = 0
        for run in started:
            try:
                run.result()
                ended += 1
            except ag.DeadlockError:
                pass
        return ended == runs
    finally:
        network_module.Network = original


class Gates:
    """Lets a task fire where it is next in its lane and has the credits."""

    def __init__(self, tasks, lanes, limits):
        self.tasks, self.lanes, self.limits = tasks, lanes, limits
        self.lane_of = {task: number for number, lane in enumerate(lanes) for task, _ in lane}
        self.position = [0] * len(lanes)
        self.fired = [0] * len(tasks)
        self.lock = threading.Lock()

    def next_of(self, lane):
        at = self.position[lane]
        return self.lanes[lane][at] if at < len(self.lanes[lane]) else None

    def may_fire(self, number):
        lane = self.lane_of.get(number)
        if lane is not None and self.next_of(lane) != (number, self.fired[number]):
            return False
        return all(
            self.fired[number] - self.fired[giver] < limit
            for (spender, giver), limit in self.limits.items()
            if spender == number
        )

    def send(self, task, send, push):
        number = task.spec.index
        with self.lock:
            if not self.may_fire(number):
                task.wait = ()  # whoever changes that makes it ready
                return None
            following = send(push)
            if task.ports[0].statistics().received == self.fired[number]:
                return following  # it has parked
            self.fired[number] += 1
            lane = self.lane_of.get(number)
            if lane is not None:
                self.position[lane] += 1
                following_action = self.next_of(lane)
                if following_action is not None:
                    push(self.tasks[following_action[0]])
            for spender, giver in self.limits:
                if giver == number:
                    push(self.tasks[spender])
            return following
