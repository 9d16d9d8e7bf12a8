"""`Statistics`: counts and times of a model since it was made."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from time import time
from typing import TYPE_CHECKING

from actorgraph.errors import RunCancelled
from actorgraph.graph import Node
from actorgraph.machines import Machine, Run
from actorgraph.machines.instrument import Instrument
from actorgraph.serving.errors import ClientGone, DeadlineExceeded, NotReady, Overloaded
from actorgraph.serving.request import Answer

if TYPE_CHECKING:
    from actorgraph.devices.base import Job
    from actorgraph.node_actor import Task

_OUTCOMES = ("ok", "error", "rejected", "cancelled", "deadline")

_SECONDS = (
    *(scale * 10**power for power in range(-4, 1) for scale in (1.0, 2.0, 5.0)), 10.0, 30.0, 60.0,
)  # fmt: skip


class Histogram:
    """Counts of values in buckets, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...] = _SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bound, the last one infinite, with the number of values up to it."""
        bounds = (*self._bounds, float("inf"))
        return list(zip(bounds, accumulate(self._counts), strict=True))

    def quantile(self, share: float) -> float:
        """Return the least bound that has this share of the values below it; 0 without values."""
        rank = share * self.count
        return next((bound for bound, below in self.cumulative() if 0 < rank <= below), 0.0)


@dataclass(slots=True)
class Phases:
    """The runs of one batch size: their number, and the seconds of their phases."""

    runs: int = 0
    compute_input: float = 0.0
    compute_infer: float = 0.0
    compute_output: float = 0.0


class Statistics:
    """Changed under the model's lock; times are seconds since a request's arrival."""

    def __init__(self, max_batch_size: int) -> None:
        # Requests by outcome, and "executions" (runs) and "inferences" (requests in runs).
        self.counts = Counter[str]()
        self.durations = {outcome: Histogram() for outcome in _OUTCOMES}  # to the answer
        self.requests = Counter[tuple[str, str]]()  # by outcome and protocol
        self.refusals = Counter[str]()  # requests that were not started, by reason
        self.first_responses = Histogram()  # to the answer, or to the first part of a stream
        self.queue_waits = defaultdict[int, Histogram](Histogram)  # to the run, by priority
        self.batch_waits = Histogram()  # the longest queue wait of each batch
        powers = [float(1 << power) for power in range((max_batch_size - 1).bit_length())]
        self.sizes = Histogram((*powers, float(max_batch_size)))  # rows of batches
        self.reasons = Counter[str]()  # batches, by the reason for sending them
        self.batches = defaultdict[int, Phases](Phases)  # by rows
        self.last_s = 0.0  # when a batch was last formed, since 1970

    def formed(self, rows: int, reason: str, waits: Iterable[tuple[int, float]]) -> None:
        """Count a batch; `waits` has the priority and the queue wait of each request."""
        longest_s = 0.0
        for priority, wait_s in waits:
            self.counts["inferences"] += 1
            self.queue_waits[priority].observe(wait_s)
            longest_s = max(longest_s, wait_s)
        self.counts["executions"] += 1
        self.reasons[reason] += 1
        self.sizes.observe(rows)
        self.batch_waits.observe(longest_s)
        self.last_s = time()

    def ran(self, rows: int, joining_s: float, running_s: float, splitting_s: float) -> None:
        """Count a run that succeeded."""
        phases = self.batches[rows]
        phases.runs += 1
        phases.compute_input += joining_s
        phases.compute_infer += running_s
        phases.compute_output += splitting_s

    def answered(self, answer: Answer, duration_s: float, protocol: str, first: bool) -> None:
        """Count an answered request; `first` if it is no later step of a stream."""
        outcome, why = _outcome(answer), getattr(answer, "why", None)
        self.counts[outcome] += 1
        self.requests[outcome, protocol] += 1
        self.durations[outcome].observe(duration_s)
        if why is not None:
            self.refusals[why] += 1
        if first and outcome == "ok":
            self.first_responses.observe(duration_s)


class NodeTimes(Instrument):
    """Durations of a machine's nodes, and the busy time of each thread or lane.

    A node that a device lane computes is timed there; its launch is not counted.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine, self._lock = machine, threading.Lock()
        self._on_lanes = dict[int, Node]()  # the machine's steps that lanes compute, by identity
        self.turns = defaultdict[tuple[str, str], Histogram](Histogram)  # by node and device
        self.busy_s = defaultdict[str, float](float)  # by thread or lane

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        if run.core is not self._machine._core:
            return
        lanes = run.plan.partition.lanes
        if lanes and lanes[task.spec.index] is not None:
            self._on_lanes.update((id(step), step) for step in task.spec.steps)
            return
        device = "cpu" if lanes else self._machine.device.name
        worker = threading.current_thread().name
        self._add(task.spec.name, device, worker, ended - started)

    def on_job(self, job: Job, started: float, ended: float) -> None:
        if id(job.node) in self._on_lanes:
            self._add(job.name, job.lane.device.name, job.lane.name, ended - started)

    def _add(self, node: str, device: str, worker: str, spent_s: float) -> None:
        with self._lock:
            self.turns[node, device].observe(spent_s)
            self.busy_s[worker] += spent_s


def _outcome(answer: Answer) -> str:
    if isinstance(answer, dict):
        return "ok"
    if isinstance(answer, (Overloaded, NotReady)):
        return "rejected"
    if isinstance(answer, DeadlineExceeded):
        return "deadline"
    return "cancelled" if isinstance(answer, (ClientGone, RunCancelled)) else "error"
