"""`Instrument`: the hooks that machines call while they work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorgraph.devices.base import Job
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task


class Instrument:
    """What a tool overrides to be told of runs; every method does nothing by itself.

    Hooks are called in the thread where the thing happens, several threads at once.  They must
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
        """A run was started; it may have to wait for its admission."""

    def on_run_admitted(self, run: Run) -> None:
        """A run is in flight; not called for one that its caller computes directly."""

    def on_direct(self, run: Run, started: float, ended: float) -> None:
        """A small run was computed by the calling thread, without actors."""

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """An actor has computed and sent what it makes of one run's messages.

        ``task.spec`` tells its name, direction and steps.  An actor with ops that wait has several
        turns for one run: up to each call, and up to its end.
        """

    def on_call(self, task: Task, run: Run, started: float, ended: float) -> None:
        """A call of an op that waits has ended, on its loop or in its thread, however it did."""

    def on_job(self, job: Job, started: float, ended: float) -> None:
        """A lane of a device has done a job; ``job.launched`` says in whose turn it was put there.

        Called in the thread that does it.
        """

    def on_error(self, run: Run, error: BaseException) -> None:
        """A run ends without results: it failed, was cancelled or is late; told before its end."""

    def on_run_end(self, run: Run) -> None:
        """A run has ended; its results can be read."""

    @property
    def hears_turns(self) -> bool:
        """Whether it has an `on_turn` of its own: others are told of no turns, which cost more."""
        return type(self).on_turn is not Instrument.on_turn
