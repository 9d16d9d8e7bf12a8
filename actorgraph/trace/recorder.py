"""`Recorder`: an instrument that records runs.

For each turn it appends five fields to a flat list of the thread: without a lock, and without a
tuple that the garbage collector would have to visit.  All else is computed when the recording ends.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorgraph.instrument import Turns
from actorgraph.machines.instrument import Instrument

if TYPE_CHECKING:
    from actorgraph.devices.base import Job
    from actorgraph.machines.core import Core
    from actorgraph.machines.network import Network
    from actorgraph.machines.plan import Plan
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task


@dataclass(slots=True)
class RunNotes:
    """The notes on a run; they keep no array alive."""

    plan: Plan
    core: Core
    number: int
    microbatch: int | None
    symbols: dict[str, int]
    network: Network | None = None
    feeds: tuple[float, float, str] | None = None
    direct: tuple[float, float, str] | None = None
    started: float | None = None
    admitted: float | None = None
    ended: float | None = None
    error: str | None = None
    calls: list[tuple[str, float, float]] = field(default_factory=list)


class Recorder(Instrument):
    """Notes the events of runs."""

    def __init__(self) -> None:
        self.began = perf_counter()
        # By thread: its name, and for each turn task, run, microbatch, start and end.
        self.lanes: list[tuple[str, list[Any]]] = []
        self.runs: dict[tuple[Core, int], RunNotes] = {}
        self.networks: dict[Network, None] = {}  # in the order in which they took runs
        self.jobs: list[tuple[Job, float, float]] = []  # of devices, with start and end
        self.turns = Turns(self.lanes)

    def on_job(self, job: Job, started: float, ended: float) -> None:
        self.jobs.append((job, started, ended))

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        self.turns.extend((task, run.number, run.microbatch, started, ended))

    def _notes(self, run: Run) -> RunNotes:
        notes = self.runs.get((run.core, run.number))
        if notes is None:
            symbols = dict(run.binding.symbols)
            notes = RunNotes(run.plan, run.core, run.number, run.microbatch, symbols)
            self.runs[run.core, run.number] = notes
        return notes

    def on_feeds(self, run: Run, started: float, ended: float) -> None:
        """Note how long feeds were checked."""
        self._notes(run).feeds = started, ended, threading.current_thread().name

    def on_run_start(self, run: Run) -> None:
        notes = self._notes(run)
        notes.started, notes.microbatch = perf_counter(), run.microbatch

    def on_run_admitted(self, run: Run) -> None:
        """Note the admission, and the network that the run passes through."""
        notes = self._notes(run)
        notes.admitted, notes.network = perf_counter(), run.network
        self.networks[run.network] = None

    def on_direct(self, run: Run, started: float, ended: float) -> None:
        self._notes(run).direct = started, ended, threading.current_thread().name

    def on_call(self, task: Task, run: Run, started: float, ended: float) -> None:
        self._notes(run).calls.append((task.spec.name, started, ended))

    def on_error(self, run: Run, error: BaseException) -> None:
        self._notes(run).error = type(error).__name__

    def on_run_end(self, run: Run) -> None:
        self._notes(run).ended = perf_counter()
