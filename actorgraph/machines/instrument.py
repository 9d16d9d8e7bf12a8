"""`Instrument`: the hooks that machines call during runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorgraph.devices.base import Job
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task


class Instrument:
    """Base class of tools that observe runs; its hooks do nothing.

    Hooks are called in the thread where the event happens, by several threads at once.  They must
    return soon, and must not wait for a run.  Times are in seconds of `time.perf_counter`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> class Counter(ag.trace.Instrument):
    ...     ended = 0
    ...     def on_run_end(self, run):
    ...         self.ended += 1
    """

    def on_feeds(self, run: Run, started: float, ended: float) -> None:
        """Feeds were checked and the run made (the first of its mode compiles the machine)."""

    def on_run_start(self, run: Run) -> None:
        """A run was started; it may have to wait for admission."""

    def on_run_admitted(self, run: Run) -> None:
        """A run was admitted; not called for runs that their caller computes directly."""

    def on_direct(self, run: Run, started: float, ended: float) -> None:
        """A small run was computed by the calling thread, without actors."""

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """An actor has handled the messages of one run.

        ``task.spec`` has its name, direction and steps.  An actor with asynchronous or blocking ops
        has several turns for one run: up to each call, and up to its end.
        """

    def on_call(self, task: Task, run: Run, started: float, ended: float) -> None:
        """A call of an asynchronous or blocking op has ended, successfully or not."""

    def on_job(self, job: Job, started: float, ended: float) -> None:
        """A lane of a device has done a job, in the calling thread.

        ``job.launched`` is the name of the thread that launched it, and the time.
        """

    def on_error(self, run: Run, error: BaseException) -> None:
        """A run failed, was cancelled or has expired; called before `on_run_end`."""

    def on_run_end(self, run: Run) -> None:
        """A run has ended; its results can be read."""

    @property
    def hears_turns(self) -> bool:
        """Whether it overrides `on_turn`; if not, turns are not observed, which costs time."""
        return type(self).on_turn is not Instrument.on_turn
