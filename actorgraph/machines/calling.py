"""`Calling`: a task with asynchronous or blocking ops, which serves other runs during their calls.

It takes the messages of run after run, does the steps of each up to the next call, and sends
results in the order of the runs.  So as many calls are under way as runs are in flight.

Invariants:

- Firings start, and send their results, in the same order, so channels keep the order of runs.
- A firing has at most one call under way; for a dead run it sends poison, like any task.
- ``task.wait`` is the `Calling`, which is true while there is something to do: an answered call, a
  message on every port, or a first firing that is done and has room for its results.  Whoever
  provides one of these first stores it, and then checks ``task.wait``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorgraph import instrument
from actorgraph.channels import Channel
from actorgraph.machines.calls import Answer, Call, resumed
from actorgraph.node_actor import Message, Poison, Task, guarded

if TYPE_CHECKING:
    from actorgraph.machines.run import Run

Push = Callable[[Task], object]
Steps = Callable[..., Generator[Any, Any, list[Any]]]
"""A generator function of a run, ``()`` and the values that the task receives.

It yields the kernel and the operands of each call, is sent the call's result, and returns the
task's outputs."""


class _Firing:
    """The task's work for one run; `outputs` is set when it is done."""

    __slots__ = ("outputs", "run", "steps")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps: Generator[Any, Any, list[Any]] | None = None
        self.outputs: Sequence[Any] | Poison | None = None


class Calling:
    """The coroutine of a task with asynchronous or blocking ops, and what it waits for."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._firings: deque[_Firing] = deque()
        self._answered: deque[Call] = deque()
        spec, place = task.spec, {node.id: i for i, node in enumerate(task.spec.outputs)}
        self._results = [(place[node.id], index) for node, index in spec.results]
        self._sends = [place[node.id] for node, _ in spec.sends]
        self._bundles = [[place[node.id] for node in nodes] for nodes, _ in spec.bundles]

    def start(
        self, steps: Steps, ports: Sequence[Channel], credited: Sequence[tuple[Any, Any, Task]],
        targets: Sequence[tuple[Any, Any, Task]], spent: Sequence[Any],
    ) -> None:  # fmt: skip
        """Set the steps and the channels, and park the task.

        For each port with credits, `credited` has the function that returns a credit, what its
        producer waits for, and the producer.  For each send, then each bundle, `targets` has what
        the consumer waits for, its queue of messages, and the consumer.  `spent` are the credits of
        these channels.
        """
        self._steps, self._credited, self._spent = steps, credited, spent
        self._targets = [(wait, queue.append, consumer) for wait, queue, consumer in targets]
        self._messages = [channel.messages for channel in ports]
        self._takes = [channel.queue.popleft for channel in ports]
        task = self._task
        task.start(self._turns(), self)
        task.observed = task.send  # it reports its turns itself

    def __bool__(self) -> bool:
        """Return whether there is something to do."""
        return bool(self._answered) or all(self._messages) or self._may_send()

    def lacks(self) -> Any:
        """Return the first empty queue that it waits for, None if it waits for calls."""
        if self._firings:
            return next((held for held in self._spent if not held), None)
        return next((queue for queue in self._messages if not queue), None)

    def _may_send(self) -> bool:
        firings = self._firings
        try:
            return bool(firings) and firings[0].outputs is not None and all(self._spent)
        except IndexError:  # another worker has sent it meanwhile
            return False

    def _turns(self) -> Generator[None, Push, None]:
        push = yield
        while True:
            if self._answered:
                call = self._answered.popleft()
                self._go_on(call.owner, call.answer)
                del call
            self._send_done(push)
            if all(self._messages):
                self._take(push)
                self._send_done(push)  # it mostly ends at once
            push = yield

    def _send_done(self, push: Push) -> None:
        """Send the outputs of the first firings that have ended, as far as there is room."""
        while self._may_send():
            self._send(self._firings.popleft(), push)

    def _take(self, push: Push) -> None:
        """Take a message from each port, and start the steps."""
        messages = [take() for take in self._takes]
        for give_back, queue, producer in self._credited:
            give_back(None)
            if producer.wait is queue:
                push(producer)
        firing = _Firing(messages[0].run)
        self._firings.append(firing)
        if Poison in map(type, messages):
            firing.outputs = Poison(firing.run)
            return
        values: list[Any] = []
        for port, message in zip(self._task.spec.ports, messages, strict=True):
            if port.kind == "value":
                values.append(message.value)
            elif port.kind != "trigger":
                values += message
        firing.steps = self._steps(firing.run, (), *values)
        del messages, message, values  # the steps drop values after their last use
        self._go_on(firing, None)

    def _go_on(self, firing: _Firing, answer: Answer | None) -> None:
        """Do the steps up to the next call, or to the end."""
        task, run = self._task, firing.run
        started = perf_counter()
        found = guarded(run, task, self._resumed, firing, answer)
        if type(found) is not tuple:
            firing.outputs = Poison(run) if found is None else found
            firing.steps = task.step = None
        if instrument.listening_to_turns:
            instrument.tell("on_turn", task, run, started, perf_counter())

    def _resumed(self, firing: _Firing, answer: Answer | None) -> Any:
        """Return the outputs, or the next call, which has been issued."""
        task, run = self._task, firing.run
        assert firing.steps is not None
        found = resumed(firing.steps, answer)
        if type(found) is tuple:
            put = self._answered.append
            run.core.calls.issue(Call(run, firing, task, task, put, self, *found))
        return found

    def _send(self, firing: _Firing, push: Push) -> None:
        """Send the outputs of a firing, or poison."""
        run = firing.run
        outputs: Any = firing.outputs
        for held in self._spent:
            held.popleft()
        dead = type(outputs) is Poison
        for place, index in self._results:
            run.deliver(index, outputs if dead else outputs[place])
        if not self._targets:
            return
        messages: list[Any]
        if dead:
            messages = [outputs] * len(self._targets)
        else:
            messages = [Message(outputs[place], run) for place in self._sends]
            messages += [tuple([outputs[place] for place in places]) for places in self._bundles]
        for message, (queue, put, consumer) in zip(messages, self._targets, strict=True):
            put(message)
            if consumer.wait is queue:
                push(consumer)
