"""Analysis of a recording: busiest nodes, the critical path, and causes of idle time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

from actorgraph import tables
from actorgraph.errors import printable
from actorgraph.trace.records import MessageSpan, Records, Slice

_SECONDS = attrgetter("seconds")
_Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

CAUSES = ("no run", "hand-over", "asynchronous call", "dependencies")
"""Why a worker is idle: no run is in flight; a task is ready, but not yet taken; all wait for a
call on the event loop; or all tasks that can run are running on other workers."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Totals over the turns of one actor."""

    name: str
    direction: str
    machine: str
    firings: int
    seconds: float
    waited_s: float
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a critical path; `waited_s` is from its last message to its start."""

    name: str
    direction: str
    lane: str
    waited_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Tables on a recording; `str` gives them as text, and rich draws them.

    Attributes
    ----------
    admission_wait_s : float
        The sum over all runs.
    busy_s, idle_s : dict
        Seconds of work by lane, and idle seconds of all `workers` by cause (see `CAUSES`).
    workers : int
        Workers of the largest machine, or lanes if these are fewer, plus lanes of pipelines.
    path : tuple of PathStep
        The longest run, traced back from its last slice along the messages that came last; in a
        pipeline's lane along the slice before, if that ended later.
    path_run : int or None
        The number of that run.
    """

    duration_s: float
    runs: int
    failed: int
    admission_wait_s: float
    workers: int
    busy_s: dict[str, float]
    idle_s: dict[str, float]
    busiest: tuple[Busy, ...]
    path: tuple[PathStep, ...]
    path_run: int | None
    path_length: int

    def tables(self) -> Iterator[_Table]:
        """Yield title, column heads and rows of each table, with printable texts."""
        for title, heads, rows in self._tables():
            yield title, heads, [tuple(map(printable, row)) for row in rows]

    def _tables(self) -> Iterator[_Table]:
        yield "busiest", ("node", "firings", "ms", "us each", "wait us", "sent"), [
            (
                one.name, f"{one.firings}", f"{one.seconds * 1e3:.3f}",
                f"{one.seconds / one.firings * 1e6:.1f}", f"{one.waited_s / one.firings * 1e6:.1f}",
                _bytes(one.sent_bytes),
            )
            for one in self.busiest
        ]  # fmt: skip
        work = sum(step.seconds for step in self.path) * 1e3
        waited = sum(step.waited_s for step in self.path) * 1e3
        title = f"critical path of run {self.path_run}: {work:.3f} ms work, {waited:.3f} ms waits"
        if self.path_run is None:
            title = "critical path: no run has ended"
        if self.path_length > len(self.path):
            title += f" in the longest {len(self.path)} of {self.path_length} steps"
        yield title, ("node", "lane", "wait us", "us"), [
            (step.name, step.lane, f"{step.waited_s * 1e6:.1f}",
             f"{step.seconds * 1e6:.1f}")
            for step in self.path
        ]  # fmt: skip
        lanes: list[tuple[str, ...]] = [
            (lane, f"{s * 1e3:.3f}", f"{s / self.duration_s:.0%}" if self.duration_s else "-")
            for lane, s in self.busy_s.items()
        ]
        yield "busy by lane", ("lane", "ms", "share"), lanes
        idle: list[tuple[str, ...]] = [
            (cause, f"{s * 1e3:.3f}") for cause, s in self.idle_s.items()
        ]
        together = f", {self.workers} workers together" if self.workers > 1 else ""
        yield f"idle by cause{together}", ("cause", "ms"), idle

    def head(self) -> str:
        """Return the line above the tables."""
        runs = "run" if self.runs == 1 else "runs"
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"{self.runs} {runs}{failed} in {self.duration_s * 1e3:.3f} ms, "
            f"{self.admission_wait_s * 1e3:.3f} ms of waiting for admission"
        )

    def __str__(self) -> str:
        lines = [self.head()]
        for title, heads, rows in self.tables():
            lines += ["", title, *[f"  {line}" for line in tables.lines(heads, rows)]]
        return "\n".join(lines)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        yield self.head()
        for title, heads, rows in self.tables():
            yield tables.drawn(heads, rows, title=Text(title), title_justify="left")


def summarise(records: Records, count: int) -> Summary:
    """Return the summary of a recording, with at most `count` rows per table."""
    path, number = critical_path(records)
    longest = sorted(path, key=_taken, reverse=True)[:count]
    shown = {id(step) for step in longest}
    return Summary(
        duration_s=records.duration_s,
        runs=len(records.runs),
        failed=sum(run.error is not None for run in records.runs),
        admission_wait_s=sum(run.admission_wait_s for run in records.runs),
        workers=_workers(records),
        busy_s={
            lane: sum(end - start for start, end in _busy(records.slices, lane))
            for lane in records.lanes
        },
        idle_s=idle_by_cause(records),
        busiest=tuple(sorted(by_actor(records).values(), key=_SECONDS, reverse=True)[:count]),
        path=tuple([step for step in path if id(step) in shown]),
        path_run=number,
        path_length=len(path),
    )


def by_actor(records: Records) -> dict[int, Busy]:
    """Return the totals of each actor that has turns, by its index."""
    of: dict[int, list[Slice]] = {}
    for part in records.slices:
        if part.actor is not None:
            of.setdefault(part.actor, []).append(part)
    return {
        actor: Busy(
            name=records.actors[actor].name,
            direction=records.actors[actor].direction,
            machine=records.actors[actor].machine,
            firings=len({(part.run, part.microbatch) for part in parts}),
            seconds=sum(part.seconds for part in parts),
            waited_s=sum(part.waited_s for part in parts),
            sent_bytes=sum(part.sent_bytes for part in parts),
        )
        for actor, parts in of.items()
    }


def critical_path(records: Records) -> tuple[list[PathStep], int | None]:
    """Return the critical path of the longest run, first step first, and the run's number."""
    lengths: dict[tuple[str, int], tuple[float, float]] = {}
    for part in records.slices:
        if part.actor is not None:
            key = part.machine, part.run
            start, end = lengths.get(key, (part.start, part.end))
            lengths[key] = min(start, part.start), max(end, part.end)
    if not lengths:
        return [], None
    spans = {key: end - start for key, (start, end) in lengths.items()}
    longest = max(spans, key=spans.__getitem__)
    ours = [
        index
        for index, part in enumerate(records.slices)
        if (part.machine, part.run) == longest and part.actor is not None
    ]
    arrived: dict[int, MessageSpan] = {}
    for message in records.messages:  # by time, so the latest stays
        arrived[message.target] = message
    before = _before(records, ours)
    at: int | None = max(ours, key=[part.end for part in records.slices].__getitem__)
    steps: list[PathStep] = []
    while at is not None:
        part = records.slices[at]
        previous = before.get(at)
        waited_s = part.waited_s
        if previous is None:
            at = arrived[at].source if at in arrived else None
        else:
            at, waited_s = previous, min(waited_s, part.start - records.slices[previous].end)
        steps.append(PathStep(part.name, part.kind, part.lane, waited_s, part.seconds))
    return steps[::-1], longest[1]


def _before(records: Records, ours: Sequence[int]) -> dict[int, int]:
    """Return the slices that slices of a run waited for longer than for messages.

    These are the turn before an asynchronous call of the same firing, and in a pipeline's lane the
    slice before.
    """
    before: dict[int, int] = {}
    latest: dict[Any, int] = {}
    for index in ours:
        part = records.slices[index]
        assert part.actor is not None
        lane = records.actors[part.actor].lane
        key = (part.actor, part.microbatch) if lane is None else lane
        previous = latest.get(key)
        if previous is not None and (lane is None or records.slices[previous].end > part.ready):
            before[index] = previous
        latest[key] = index
    return before


def idle_by_cause(records: Records) -> dict[str, float]:
    """Return the idle seconds of all workers, by cause."""
    idle = dict.fromkeys(CAUSES, 0.0)
    own = _own_lanes(records)
    runs: list[tuple[float, int, int]] = [(0.0, 0, 0), (records.duration_s, 0, 0)]
    for run in records.runs:
        if run.started is not None:
            start = run.started if run.admitted is None else run.admitted
            _span(runs, start, records.duration_s if run.ended is None else run.ended, 0)
    points = list(runs)
    for part in records.slices:
        if part.actor is not None and part.lane not in own:
            _span(points, part.ready, part.start, 1)
    for call in records.calls:
        _span(points, call.start, call.end, 2)
    for lane in records.lanes:
        if lane not in own:
            for start, end in _busy(records.slices, lane):
                _span(points, start, end, 3)
    _count_idle(points, _workers(records) - len(own), idle)
    for lane in own:
        # A ready action first waits for the actions before it in the lane's order.
        points, ended = list(runs), 0.0
        for part in records.slices:
            if part.lane == lane:
                _span(points, max(part.ready, ended), part.start, 1)
                _span(points, part.start, part.end, 3)
                ended = part.end
        _count_idle(points, 1, idle)
    return idle


def _count_idle(points: list[tuple[float, int, int]], workers: int, idle: dict[str, float]) -> None:
    """Add idle time to `idle`, given the starts and ends of runs, waits, calls and turns."""
    points.sort()
    counts = [0, 0, 0, 0]
    for (time, step, what), (following, _, _) in pairwise(points):
        counts[what] += step
        in_flight, ready, calls, busy = counts
        if not in_flight:
            cause = "no run"
        elif ready:
            cause = "hand-over"
        elif calls:
            cause = "asynchronous call"
        else:
            cause = "dependencies"
        idle[cause] += (following - time) * max(0, workers - busy)


def _own_lanes(records: Records) -> list[str]:
    """Return the lanes of pipelines; the others are those of any worker."""
    own = {actor.lane for actor in records.actors}
    return [lane for lane in records.lanes if lane in own]


def _workers(records: Records) -> int:
    # A thread that waits for its run works in a slot of the machine: it adds a lane, no worker.
    own = len(_own_lanes(records))
    return min(records.workers, len(records.lanes) - own) + own


def _span(points: list[tuple[float, int, int]], start: float, end: float, what: int) -> None:
    if end > start:
        points += [(start, 1, what), (end, -1, what)]


def _busy(slices: Sequence[Slice], lane: str) -> list[tuple[float, float]]:
    """Return the spans in which a lane worked; slices of a machine that an op runs are nested."""
    spans: list[tuple[float, float]] = []
    for part in slices:
        if part.lane != lane:
            continue
        if spans and part.start < spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], part.end)
        else:
            spans.append((part.start, part.end))
    return spans


def _taken(step: PathStep) -> float:
    return step.waited_s + step.seconds


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 10_000_000 else f"{count / 1e6:.1f} MB"
