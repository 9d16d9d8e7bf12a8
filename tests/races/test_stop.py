"""Runs are cancelled, machines closed and given up while workers work: every run ends, once."""

from __future__ import annotations

import pytest

from actorgraph.errors import GraphError, MachineClosedError, RunCancelled
from actorgraph.lower.kernels import Waiting
from actorgraph.machines.calls import Call
from actorgraph.machines.core import Core
from actorgraph.node_actor import Dead
from tests.races._interleave import assert_found, assert_holds, pause, planted
from tests.races._wires import Machine, chain, join

FOCUS = ("abort", "remove", "finish", "_admit", "admitted", "stop_admitting", "_end_now", "actor")


class Stopped(Machine):
    """Two runs are in flight and one is queued while a thread stops something."""

    def __init__(self, build=join, **options):
        super().__init__(build, max_in_flight=2, **options)
        self.begin(3)
        self.stopped = False
        self.notified: list[int] = []
        for run in self.runs:
            run.add_done_callback(lambda run=run: self.notified.append(run.number))

    def threads(self):
        return [self.drain, self.drain, self.stop_it]

    def drain(self):
        self.serve(until=lambda: self.stopped)

    def stop_it(self):
        self.stop()
        self.stopped = True

    def stop(self):
        raise NotImplementedError

    def check(self):
        for run in self.runs:
            if run.dead is not None:
                assert isinstance(run.dead, self.allowed), f"{run} died of {run.dead!r}"
        super().check(dead=tuple(self.runs))
        assert sorted(self.notified) == [run.number for run in self.runs]


class Cancelled(Stopped):
    """Two threads cancel the same run; the machine goes on."""

    allowed = RunCancelled

    def __init__(self, which, **options):
        super().__init__(**options)
        self.which = which

    def threads(self):
        return [self.drain, self.stop_it, lambda: self.runs[self.which].cancel()]

    def stop(self):
        self.runs[self.which].cancel()

    def check(self):
        self.begin(1)
        self.runs[-1].add_done_callback(lambda: self.notified.append(3))
        super().check()
        others = [run for n, run in enumerate(self.runs) if n != self.which]
        assert all(run.dead is None for run in others)
        alive = self.network.channels
        assert all(not channel.messages for channel in alive), "a message was left over"


class Closed(Stopped):
    """The machine is closed while another thread still starts a run."""

    allowed = MachineClosedError

    def __init__(self):
        super().__init__()
        self.late = self.run()
        self.late.add_done_callback(lambda: self.notified.append(self.late.number))

    def threads(self):
        return [self.drain, self.stop_it, self.start_late]

    def start_late(self):
        try:
            self.start(self.late)
        except MachineClosedError:
            self.runs.remove(self.late)

    def stop(self):
        core = self.core
        for run in core.stop_admitting():
            core.help(run)
            while not run.done:
                pause()
        core.close()

    def check(self):
        assert self.core.closed
        super().check()


class Abandoned(Stopped):
    """The machine is given up in the middle; workers finish their turns for nothing."""

    allowed = GraphError

    def __init__(self):
        super().__init__(chain)

    def stop(self):
        self.core.abandon(GraphError("given up"))

    def check(self):
        for _, queues in self.scheduler.classes:
            for queue in queues:
                queue.clear()
        super().check()


def cancelled_in_flight():
    return Cancelled(0)


def cancelled_in_flight_with_credits():
    return Cancelled(1, capacity=1)


def cancelled_in_the_queue():
    return Cancelled(2)


def closed():
    return Closed()


def abandoned():
    return Abandoned()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "make",
    [
        cancelled_in_flight,
        cancelled_in_flight_with_credits,
        cancelled_in_the_queue,
        closed,
        abandoned,
    ],
)
def test_every_run_ends_once(make):
    assert_holds(make, f"stop {make.__name__}", 2000, FOCUS)


def test_an_asynchronous_op_does_not_start_for_a_run_that_is_dead():
    machine = Machine()
    run = machine.run()
    run.host = lambda function: pytest.fail("the loop was asked")
    run.cancel()
    task, kernel = machine.network.tasks[0], Waiting(abs, "loop", None)
    with pytest.raises(Dead):
        machine.core.calls.issue(Call(run, None, task, task, pytest.fail, None, kernel, ()))
    assert not machine.core.calls


class AbortsWithoutTheLock(Core):
    """A run may be admitted between the look at the queue and its end."""

    abort = planted(
        Core.abort,
        """
            queued = self.admission.remove(run)
        for call in calls:
        """,
        """
        queued = self.admission.remove(run)
        for call in calls:
        """,
    )


def aborts_without_the_lock():
    return Cancelled(2, core=AbortsWithoutTheLock)


def test_a_planted_bug_is_found():
    assert_found(aborts_without_the_lock, "stop aborts_without_the_lock", 5000, ["abort", "remove"])
