"""`Looped`: a small run that its caller's event loop computes, up to each call and after it.

To hand it to a worker and back would cost a run of a few microseconds a hundred times as much, and
hold up the loop no less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorgraph.machines.calls import Answer, Call, resumed
from actorgraph.node_actor import Dead, blamed

if TYPE_CHECKING:
    from actorgraph.machines.run import Run

__all__ = ["Looped"]


class Looped:
    """A run on the loop.

    Parameters
    ----------
    run : Run
        Of one part, with the arrays of its leaves.
    """

    __slots__ = ("_program", "_steps", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self._program: Any = None
        self._steps: Any = None

    def go_on(self, answer: Answer | None = None) -> None:
        """Compute up to the first call, or with its answer up to the next one or to the end.

        In another thread than the loop's only where the run is dead or the loop was closed.
        """
        run = self.run
        core, context = run.core, run.context
        assert context is not None
        try:
            if run.dead is not None:
                raise Dead
            found = core.scheduler.call(context.copy().run, self._computed, answer)
            if type(found) is tuple:
                core.calls.issue(Call(run, self, None, None, None, None, *found))
                return
            run.results = found
        except Dead:
            self._program = None
        except BaseException as error:
            self._program = None
            core.abort(run, blamed(run.plan.joint, run.plan.direct, None, error))
            if isinstance(error, KeyboardInterrupt) and answer is None:
                self._end()
                raise  # Ctrl-C in the thread of the caller, who starts the run
        self._end()

    def _end(self) -> None:
        run, self._steps = self.run, None
        run.core.leave_loop(run)
        if self._program is not None:
            run.plan.give_direct(run.binding, run.regular, self._program)

    def _computed(self, answer: Answer | None) -> Any:
        """Return the next call, or the results."""
        if self._steps is None:
            run = self.run
            self._program = run.plan.take_direct(run.binding, run.regular)
            self._steps = self._program(*run.values)
        return resumed(self._steps, answer)
