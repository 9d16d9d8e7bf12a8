"""`Looped`: a small run that its caller's event loop computes, up to each call and after it.

A worker to and fro would cost a run of a few microseconds a hundred times as much, and would hold
up the loop no less.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from actorgraph.lower.kernels import Waiting
from actorgraph.machines.calls import GAVE_UP, Answer, raised, resumed, returned, spawn
from actorgraph.machines.event_loops import in_trio, loop_notifier
from actorgraph.node_actor import blamed
from actorgraph.warned import runs_steps

if TYPE_CHECKING:
    from actorgraph.machines.run import Run


class Looped:
    """A run on the loop: await it in the task that waits for the run, or have it `begin` its own.

    Its ops are awaited in that task, each in a copy of the context of the run's caller.  The run is
    of one part and has the arrays of its leaves.  It was `suspended` where the loop has done
    something else in the meantime.
    """

    __slots__ = (
        "_before", "_cancel", "_due", "_inline", "_inside", "_program", "_steps", "_stopped",
        "_task", "_thrown", "run", "suspended",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.run = run
        self.suspended = False
        self._inside = False  # the task is suspended, in an op
        self._due = False  # the run died, so the op is to be cancelled
        self._stopped = False  # the task was cancelled for that
        self._before = 0  # times that it was cancelled before
        self._thrown: BaseException | None = None  # what has cancelled the op
        self._task: Any = None  # of asyncio
        self._cancel: Callable[[], object] = self._stop
        self._program: Any = None
        self._inline = run.plan.inline
        self._steps: Any = None

    def begin(self) -> None:
        """Compute in a task of its own."""
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
        """Raise where the task itself was cancelled, whatever the op has made of that."""
        thrown, self._thrown = self._thrown, None
        if self._stopped:
            self._stopped = False
            self._task.uncancel()
        if thrown is not None and self._task.cancelling() > self._before:
            self.run.cancel()
            raise thrown

    def give_up(self) -> None:
        """Cancel the op that is awaited, of a dead run; called from any thread."""
        host = self.run.host
        if not (host and host(self._cancel_op)):
            self._end()  # the loop was closed

    def _cancel_op(self) -> None:
        self._cancel()  # looked up late: a run may die before its task in trio is there

    def _stop(self) -> None:
        """Cancel the op in asyncio, as its timeouts do: the task is not cancelled in the end."""
        self._due = True
        if self._inside:
            self._stop_op()

    def _stop_op(self) -> None:
        task = self._task
        # Where the task is cancelled, so is the op, and a scope of anyio knows its own error; but
        # that may be a timeout of the op, which goes on.
        if not self._stopped and task is not None and task.cancelling() <= self._before:
            self._stopped = True
            task.cancel()

    def _called(self, kernel: Waiting, args: tuple[Any, ...]) -> Generator[Any, Any, Answer]:
        """Await an op; return what it answers."""
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
            except BaseException as error:  # noqa: BLE001 - the op's, to begin with
                move, given = call.throw, error
                if isinstance(error, anyio.get_cancelled_exc_class()):
                    self._thrown = error
            finally:
                self._inside = False

    async def _in_turn(self, kernel: Waiting, args: tuple[Any, ...]) -> Any:
        """Await an op when its gate lets it in."""
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
            if not _popped(waiting):  # else it has given up before
                gate.leave()

    def _computed(self, answer: Answer | None) -> Any:
        """Return the next call, None where there is none."""
        run = self.run
        assert run.context is not None
        try:
            if run.dead is None:
                found = run.core.scheduler.call(run.context.copy().run, self._resumed, answer)
                if type(found) is not tuple:
                    run.results, self._steps = found, None
                elif run.dead is None:
                    return found
        except BaseException as error:
            self._program = None
            plan = run.plan
            run.core.abort(run, blamed(plan.compiled.joint, self._inline.program, None, error))
            # In trio no Ctrl-C is raised in such a task: it was the op.
            if isinstance(error, KeyboardInterrupt) and not in_trio():
                raise
        return None

    @runs_steps("self._inline")
    def _resumed(self, answer: Answer | None) -> Any:
        if self._steps is None:
            run = self.run
            self._inline = run.plan.inline
            self._program = self._inline.take(run.binding, run.regular)
            self._steps = self._program(*run.values)
        return resumed(self._steps, answer)

    def _end(self) -> None:
        run = self.run
        if run.core.leave_loop(self) and self._steps is None and self._program is not None:
            inline = self._inline
            if inline.give(run.binding, run.regular, self._program):
                run.plan.walk_inline(inline)
        self._steps = self._program = self._thrown = None


def _popped(tokens: list[bool]) -> bool:
    """Take the token, in one step; False where it was taken."""
    try:
        return tokens.pop()
    except IndexError:
        return False
