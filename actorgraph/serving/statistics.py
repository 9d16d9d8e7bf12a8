"""`Statistics`: what a model has counted and timed since it was made."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from time import time

from actorgraph.errors import RunCancelled
from actorgraph.serving.errors import DeadlineExceeded, NotReady, Overloaded
from actorgraph.serving.request import Answer

_OUTCOMES = ("ok", "error", "rejected", "cancelled", "deadline")

_SECONDS = tuple(scale * 10**power for power in range(-4, 2) for scale in (1.0, 2.5, 5.0))
_ROWS = tuple(float(1 << power) for power in range(13))


class Histogram:
    """How many values were at most each bound, and their sum."""

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
        """How many values there were."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bound, the last one infinite, with how many values are at most it."""
        bounds = (*self._bounds, float("inf"))
        return list(zip(bounds, accumulate(self._counts), strict=True))

    def quantile(self, share: float) -> float:
        """Return the bound below which that share of the values is; 0 without values."""
        wanted = share * self.count
        return next((bound for bound, below in self.cumulative() if 0 < wanted <= below), 0.0)


@dataclass(slots=True)
class Phases:
    """Runs of batches of one size: how many, and the seconds of their parts."""

    runs: int = 0
    compute_input: float = 0.0
    compute_infer: float = 0.0
    compute_output: float = 0.0


class Statistics:
    """Changed under the model's lock; times are seconds, from a request's coming."""

    def __init__(self) -> None:
        # Requests by outcome, "executions" and "inferences": runs, and requests in them.
        self.counts = Counter[str]()
        self.durations = {outcome: Histogram() for outcome in _OUTCOMES}  # to the answer
        self.requests = Counter[tuple[str, str]]()  # by outcome and protocol
        self.refusals = Counter[str]()  # not begun, by reason
        self.firsts = Histogram()  # to the answer, or to the first part of a stream
        self.waits = defaultdict[int, Histogram](Histogram)  # to the run, by priority
        self.companies = Histogram()  # the longest of these, of each batch
        self.sizes = Histogram(_ROWS)  # rows of batches
        self.reasons = Counter[str]()  # batches, by why they were sent when they were
        self.batches = defaultdict[int, Phases](Phases)  # by rows
        self.last_s = 0.0  # when a batch was last formed, since 1970

    def formed(self, rows: int, reason: str, waits: Iterable[tuple[int, float]]) -> None:
        """Count a batch whose requests, of such priorities, have waited so long."""
        longest_s = 0.0
        for priority, wait_s in waits:
            self.counts["inferences"] += 1
            self.waits[priority].observe(wait_s)
            longest_s = max(longest_s, wait_s)
        self.counts["executions"] += 1
        self.reasons[reason] += 1
        self.sizes.observe(rows)
        self.companies.observe(longest_s)
        self.last_s = time()

    def ran(self, rows: int, joining_s: float, running_s: float, splitting_s: float) -> None:
        """Count a run that has given results."""
        phases = self.batches[rows]
        phases.runs += 1
        phases.compute_input += joining_s
        phases.compute_infer += running_s
        phases.compute_output += splitting_s

    def answered(self, answer: Answer, duration_s: float, protocol: str, first: bool) -> None:
        """Count a request that has its answer; whether it is the first of a stream, or the only."""
        outcome, why = _outcome(answer), getattr(answer, "why", None)
        self.counts[outcome] += 1
        self.requests[outcome, protocol] += 1
        self.durations[outcome].observe(duration_s)
        if why is not None:
            self.refusals[why] += 1
        if first and outcome == "ok":
            self.firsts.observe(duration_s)


def _outcome(answer: Answer) -> str:
    if isinstance(answer, dict):
        return "ok"
    if isinstance(answer, (Overloaded, NotReady)):
        return "rejected"
    if isinstance(answer, DeadlineExceeded):
        return "deadline"
    return "cancelled" if isinstance(answer, RunCancelled) else "error"
