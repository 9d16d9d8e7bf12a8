"""`Statistics`: what a model has counted and timed since it was made."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from time import time

from actorgraph.errors import RunCancelled
from actorgraph.serving.errors import DeadlineExceeded, NotReady, Overloaded
from actorgraph.serving.request import Answer

_OUTCOMES = ("ok", "error", "rejected", "cancelled", "deadline")

_SECONDS = tuple(scale * 10**power for power in range(-4, 2) for scale in (1.0, 2.5, 5.0))
_ROWS = tuple(float(1 << power) for power in range(13))


class Histogram:
    """How many values were at most each bound, and their sum.

    Examples
    --------
    >>> histogram = Histogram((1.0, 2.0))
    >>> for value in (0.5, 1.5, 1.6, 9.0):
    ...     histogram.observe(value)
    >>> histogram.cumulative()
    [(1.0, 1), (2.0, 3), (inf, 4)]
    """

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
    joining_s: float = 0.0
    running_s: float = 0.0
    splitting_s: float = 0.0


@dataclass(eq=False, slots=True)
class Statistics:
    """Changed under the model's lock.

    Attributes
    ----------
    counts : Counter
        Requests by outcome, ``"executions"`` and ``"inferences"``: runs, and requests in them.
    durations : dict of outcome to Histogram
        Seconds from a request's coming to its answer.
    requests : Counter
        Requests by outcome and protocol.
    refusals : Counter
        Requests that were not begun, by reason.
    firsts : Histogram
        Seconds from a request's coming to its answer, or to the first part of its stream.
    waits : dict of priority to Histogram
        Seconds from a request's coming to its run.
    companies : Histogram
        The longest of these, of each batch.
    sizes : Histogram
        Rows of batches.
    reasons : Counter
        Batches, by why they were sent when they were.
    batches : dict of rows to Phases
    last_s : float
        When a batch was last formed, in seconds since 1970.
    """

    counts: Counter[str] = field(default_factory=Counter)
    durations: dict[str, Histogram] = field(
        default_factory=lambda: {outcome: Histogram() for outcome in _OUTCOMES}
    )
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    firsts: Histogram = field(default_factory=Histogram)
    waits: dict[int, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    companies: Histogram = field(default_factory=Histogram)
    sizes: Histogram = field(default_factory=lambda: Histogram(_ROWS))
    reasons: Counter[str] = field(default_factory=Counter)
    batches: dict[int, Phases] = field(default_factory=lambda: defaultdict(Phases))
    last_s: float = 0.0

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
        phases.joining_s += joining_s
        phases.running_s += running_s
        phases.splitting_s += splitting_s

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
