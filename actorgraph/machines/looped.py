"""`Looped`: a small run with asynchronous ops, computed on its caller's event loop.

Between its calls such a run takes a few microseconds.  Going to a worker and back would take a
hundred times as long, and block the loop no less.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio

from actorgraph.lower.kernels import Waiting
from actorgraph.machines.calls import GAVE_UP, Answer, raised, resumed, returned, spawn
from actorgraph.machines.event_loops import in_trio, loop_notifier
from actorgraph.node_actor import blamed
from actorgraph.tiles import here
from actorgraph.warned import runs_steps

if TYPE_CHECKING:
    from actorgraph.machines.run import Run


class Looped:
    """A run on the loop: await it in the task that waits for the run, or `begin` a task of its own.

    Its ops are awaited in that task, each in a copy of the context of the run's caller.  The run
    has no microbatches, and its leaves have values.  `suspended` tells whether the loop has run
    other tasks meanwhile.
    """

    __slots__ = (
        "_before", "_cancel", "_due", "_inline", "_inside", "_program", "_seconds", "_steps",
        "_stopped", "_task", "_thrown", "run", "suspended",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.run = run
        self.suspended = False
        self._inside = False  # the task is suspended in an op
        self._due = False  # the run is dead, so the op has to be cancelled
        self._stopped = False  # we have cancelled the task for that
        self._before = 0  # earlier cancellations of the task
        self._thrown: BaseException | None = None  # the cancellation that the op got
        self._task: Any = None  # asyncio's, if it runs the loop
        self._cancel: Callable[[], object] = self._stop
        self._program: Any = None
        self._inline = run.plan.inline
        self._steps: Any = None
        self._seconds = 0.0  # of the steps between calls

    def begin(self) -> None:
        """Compute the run in a task of its own."""
        cancel = spawn(self._awaited, self.run.context)
        if in_trio():
            self._cancel = cancel

    async def _awaited(self) -> None:
        await self

    def __await__(self) -> Generator[Any, Any, None]:
        if not in_trio():
            import asyncio

            self._task = task = asyncio.current_task()
            self._before = 0 if task is None else task.cancelling()
        try:
            call = self._computed(None)
            while call is not None:
                answer = yield from self._called(*call)
                if self._thrown is not None and self._task is not None:
                    self._raise_if_cancelled()
                call = self._computed(answer)
        finally:
            self._end()

    def _raise_if_cancelled(self) -> None:
        """Raise if the task itself was cancelled, even if the op has suppressed that."""
        thrown, self._thrown = self._thrown, None
        if self._stopped:
            self._stopped = False
            self._task.uncancel()
        if thrown is not None and self._task.cancelling() > self._before:
            self.run.cancel()
            raise thrown

    def give_up(self) -> None:
        """Cancel the op that a dead run awaits; called from any thread."""
        host = self.run.host
        if not (host and host(self._cancel_op)):
            self._end()  # the loop was closed

    def _cancel_op(self) -> None:
        self._cancel()  # looked up late: a run may die before its trio task exists

    def _stop(self) -> None:
        """Cancel the op in asyncio, as its timeouts do: the task is uncancelled afterwards."""
        self._due = True
        if self._inside:
            self._stop_op()

    def _stop_op(self) -> None:
        task = self._task
        # If the task is being cancelled, so is the op, and a scope of anyio recognises its own
        # error.  But that may be a timeout inside the op, which then goes on.
        if not self._stopped and task is not None and task.cancelling() <= self._before:
            self._stopped = True
            task.cancel()

    def _called(self, kernel: Waiting, args: tuple[Any, ...]) -> Generator[Any, Any, Answer]:
        """Await an op; return its answer."""
        run = self.run
        assert run.context is not None
        call = kernel.call(*args) if kernel.gate is None else self._in_turn(kernel, args)
        step = run.context.copy().run
        move: Callable[..., Any] = call.send
        given: Any = None
        while True:
            try:
                awaited = step(move, given)
            except StopIteration as ended:
                return partial(returned, ended.value)
            except BaseException as error:
                given = None
                if not isinstance(error, anyio.get_cancelled_exc_class()):
                    return partial(raised, error)
                if in_trio():
                    run.cancel()
                    raise
                return GAVE_UP
            self._inside = self.suspended = True
            if self._due:
                self._stop_op()
            try:
                given = yield awaited
                move = call.send
            except GeneratorExit:  # the loop was closed, and nothing can be awaited any more
                run.cancel()
                step(call.close)
                raise
            except BaseException as error:  # noqa: BLE001 - thrown into the op first
                move, given = call.throw, error
                if isinstance(error, anyio.get_cancelled_exc_class()):
                    self._thrown = error
            finally:
                self._inside = False

    async def _in_turn(self, kernel: Waiting, args: tuple[Any, ...]) -> Any:
        """Await an op after passing its gate."""
        gate, event, waiting = kernel.gate, anyio.Event(), [True]
        assert gate is not None
        notify = loop_notifier(at_once=True)

        def go_on() -> bool:
            return bool(_popped(waiting) and notify(event.set))

        gate.enter(go_on, self.run.priority)
        try:
            if not event.is_set():
                await event.wait()
            return await kernel.call(*args)
        finally:
            if not _popped(waiting):  # it has passed the gate
                gate.leave()

    @runs_steps("self._inline")
    def _computed(self, answer: Answer | None) -> Any:
        """Compute up to the next call and return it, None at the end."""
        run, outer = self.run, getattr(here, "held", None)
        assert run.context is not None
        began = perf_counter()
        try:
            if run.dead is None:
                here.held = run.core.scheduler, None, outer  # inlined `Scheduler.call`
                if self._steps is None:
                    self._inline = run.plan.inline
                    self._program = self._inline.take(run.binding, run.regular)
                    self._steps = self._program(*run.values)
                found = run.context.copy().run(resumed, self._steps, answer)
                if type(found) is not tuple:
                    run.results, self._steps = found, None
                elif run.dead is None:
                    return found
        except BaseException as error:
            self._program = None
            plan = run.plan
            run.core.abort(run, blamed(plan.compiled.joint, self._inline.program, None, error))
            # In trio Ctrl-C is not raised in such a task, so the op has raised it.
            if isinstance(error, KeyboardInterrupt) and not in_trio():
                raise
        finally:
            here.held = outer
            self._seconds += perf_counter() - began
        return None

    def _end(self) -> None:
        run = self.run
        if run.core.leave_loop(self) and self._steps is None and self._program is not None:
            inline, binding = self._inline, run.binding
            binding.direct_turns += 1
            binding.direct_seconds += self._seconds
            if inline.give(binding, run.regular, self._program):
                run.plan.walk_inline(inline)
        self._steps = self._program = self._thrown = None


def _popped(tokens: list[bool]) -> bool:
    """Take the token atomically; return False if it was taken before."""
    try:
        return tokens.pop()
    except IndexError:
        return False
