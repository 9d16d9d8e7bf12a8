"""Calls of asynchronous and blocking ops: how they run on an event loop, or in a thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio

from actorgraph import instrument
from actorgraph.gates import Gate
from actorgraph.lower.kernels import Waiting
from actorgraph.machines.event_loops import in_trio
from actorgraph.machines.run import Run
from actorgraph.node_actor import Dead, Task

if TYPE_CHECKING:
    from actorgraph.machines.looped import Looped

Answer = Callable[[], Any]
"""Returns the result of a call, or raises what it has raised."""


class Call:
    """One call of an asynchronous or blocking op, on behalf of `owner`.

    When it is answered, it is passed to `put`, and `task` is made ready if it waits for `signal`;
    `known` is the task that instruments are told of.
    """

    __slots__ = (
        "_ahead", "_begun", "_cancel", "_inside", "_started", "answer", "args", "kernel", "known",
        "owner", "put", "run", "signal", "task",
    )  # fmt: skip

    def __init__(
        self, run: Run, owner: Any, task: Task, known: Task, put: Callable[[Any], object],
        signal: object, kernel: Waiting, args: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self.run, self.owner, self.task, self.known = run, owner, task, known
        self.put, self.signal = put, signal
        self.kernel, self.args = kernel, args
        self.answer: Answer | None = None
        self._begun = False  # it has passed all gates
        self._started: float | None = None
        self._cancel: Callable[[], object] | None = None
        self._inside: list[Gate] = []
        self._ahead: list[Gate] = []
        if kernel.runs_on == "thread":
            self._ahead.append(run.core.scheduler.waiting)
        if kernel.gate is not None:
            self._ahead.append(kernel.gate)

    def go_on(self) -> None:
        """Wait at the next gate, or start the call."""
        if self._ahead:
            gate = self._ahead.pop()
            gate.enter(partial(self._passed, gate), self.run.priority)
            return
        core, host, self._begun = self.run.core, self.run.on_loop or self.run.host, True
        if self.kernel.runs_on == "lane":
            self.kernel.call(self.end, *self.args)
        elif self.kernel.runs_on == "thread":
            if not core.pool.wait(core.scheduler, self._in_thread):
                self.end(partial(raised, RuntimeError("the machine was closed")))
        elif host is None or not host(self._on_loop):
            self.end(partial(raised, RuntimeError("the event loop of the run was closed")))

    def _passed(self, gate: Gate) -> bool:
        with self.run.core.lock:
            if self.answer is not None:
                return False
            self._inside.append(gate)
        self.go_on()
        return True

    def give_up(self) -> None:
        """Cancel the call of a dead run; a function that runs in a thread goes on to its end."""
        host = self.run.host
        if not self._begun:
            self.end(_DEAD)
        elif self.kernel.runs_on == "loop" and not (host and host(self._cancel_on_loop)):
            self.end(_DEAD)  # the loop was closed, perhaps before the call started

    def end(self, answer: Answer, works: bool = False) -> None:
        """Answer the call; only the first answer counts.

        The calling thread `works` on what follows, or leaves it to a worker.
        """
        if instrument.listening and self._started is not None:
            instrument.tell("on_call", self.known, self.run, self._started, perf_counter())
        core = self.run.core
        if core.calls.take(self, answer):
            while self._inside:
                self._inside.pop().leave()
            # Tasks of other runs are worked on, too, and may call ops of users.
            if works and all(run.on_loop for run in [*core.admission.in_flight.values()]):
                core.work(self.run, briefly=True)  # `Machine.run` tells of Ctrl-C
            else:
                core.scheduler.offer()

    def _in_thread(self) -> None:
        run, answer = self.run, _DEAD
        if run.dead is None:
            self._started = perf_counter()
            assert run.context is not None
            function = partial(run.context.copy().run, self.kernel.call, *self.args)
            try:
                answer = partial(returned, run.core.scheduler.call(function))
            except BaseException as error:  # noqa: BLE001 - becomes a `NodeError` in the actor
                answer = partial(raised, error)
        self.end(answer)

    def _on_loop(self) -> None:
        if self.run.dead is None:
            self._cancel = spawn(self._awaited, self.run.context)
        else:
            self.end(_DEAD)

    async def _awaited(self) -> None:
        self._started = perf_counter()
        answer, works = GAVE_UP, self.run.on_loop is not None
        try:
            answer = partial(returned, await self.kernel.call(*self.args))
        except GeneratorExit as error:  # of the op, or its loop was closed: then no loop runs here
            answer, works = partial(raised, error), False
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            answer = partial(raised, error)
            works = works and not isinstance(error, KeyboardInterrupt)
            # In trio Ctrl-C is not raised in such a task, so the op has raised it.
            if isinstance(error, KeyboardInterrupt) and not in_trio():
                raise
        finally:
            self.end(answer, works)

    def _cancel_on_loop(self) -> None:
        if self._cancel is not None:
            self._cancel()
        if self._started is None:  # a task cancelled before its first step never runs
            self.end(_DEAD)


class Calls:
    """Open calls of a machine: issued and not answered, and `Looped` runs.

    They change under the lock of the core.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._open: dict[Call | Looped, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def issue(self, call: Call) -> None:
        """Make the call as soon as its gates let it in; raise `Dead` if its run is dead."""
        with self._lock:
            if call.run.dead is not None:
                raise Dead
            self._open[call] = None
        call.go_on()

    def hold(self, looped: Looped) -> None:
        """Add a run that a loop computes."""
        self._open[looped] = None

    def drop(self, looped: Looped) -> bool:
        """Remove such a run; return False if it was removed before."""
        return self._open.pop(looped, self) is None

    def take(self, call: Call, answer: Answer) -> bool:
        """Answer a call, and make its task ready; return False if it was answered before.

        The caller has a thread work then.
        """
        with self._lock:
            if call not in self._open:
                return False
            del self._open[call]
            call.answer = answer if call.run.dead is None else _DEAD
            call.args = ()
            task = call.task
            call.put(call)
            if task.wait is call.signal:
                task.ready[0].append(task)
        return True

    def of(self, run: Run | None = None) -> list[Call | Looped]:
        """Return the open calls of a run, or all."""
        return [one for one in self._open if run in (None, one.run)]


def returned(value: Any) -> Any:
    """Return the result: an answer."""
    return value


def raised(error: BaseException | Callable[[], BaseException]) -> Any:
    """Raise an exception, or the one that a function makes: an answer."""
    raise error if isinstance(error, BaseException) else error()


_DEAD: Answer = partial(raised, Dead)
GAVE_UP: Answer = partial(raised, partial(RuntimeError, "the event loop gave up the call"))
"""The answer of a call that its loop has cancelled, though its run is not dead."""


def resumed(steps: Generator[Any, Any, Any], answer: Answer | None) -> Any:
    """Send steps the answer of their call; return their next call, or their results.

    A call is a tuple of kernel and operands; results are a list.
    """
    try:
        if answer is None:
            return next(steps)
        try:
            value = answer()
        except BaseException as error:  # noqa: BLE001 - raised in the step that made the call
            return steps.throw(error)
        return steps.send(value)
    except StopIteration as ended:
        return ended.value
    except RuntimeError as error:
        if error.args == ("generator raised StopIteration",):
            raise (error.__cause__ or error) from None  # as the op has raised it
        raise


_background: set[Any] = set()


def spawn(
    call: Callable[[], Coroutine[Any, Any, None]], context: Context | None = None
) -> Callable[[], object]:
    """Start `call` in a task of the running loop, outside of any task group.

    It runs in a copy of `context`, default the current one.  Returns a function that cancels it.
    """
    context = None if context is None else context.copy()
    if in_trio():
        trio = sys.modules["trio"]
        scope = trio.CancelScope()

        async def scoped() -> None:
            with scope:
                await call()

        trio.lowlevel.spawn_system_task(scoped, context=context)
        cancel: Callable[[], object] = scope.cancel
        return cancel
    import asyncio

    task = asyncio.get_running_loop().create_task(call(), context=context)
    _background.add(task)  # the loop keeps only weak references
    task.add_done_callback(_background.discard)
    return task.cancel
