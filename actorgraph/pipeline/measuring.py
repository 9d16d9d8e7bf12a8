"""What schedules take when they are run: makespans, pictures, and the predictions beside them.

A run's makespan is what the simulator means by it: from the start of the first action of any
device to the end of the last.  A whole run is longer by what happens before and after: cutting
feeds, starting the lanes, joining results.

A prediction is simulated with what the same runs have shown, all of it means: the times of
actions, the *overhead* between two actions of a device that does not wait, which counts to the
first, and the *latency* from the end of an action to the start of one on another device that has
waited for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from actorgraph.instrument import Instrument, listen, silence
from actorgraph.machines.options import positive
from actorgraph.pipeline.actions import Schedule
from actorgraph.pipeline.grids import Bar
from actorgraph.pipeline.runner import Pipeline
from actorgraph.pipeline.simulation import Simulation, simulate

if TYPE_CHECKING:
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task

__all__ = ["Measured", "measure"]

KINDS = {"forward": "F", "backward": "B", "weights": "W"}
SUM = "+"
"""The kind of what adds the gradients that several stages give to one weight."""


@dataclass(frozen=True)
class Measured:
    """What runs by a schedule took, in seconds.

    Attributes
    ----------
    schedule : Schedule
    makespan_s : float
        Median over the runs.
    global_bubble_s : float
        Of the run that took this: idle time of the busiest device within the makespan.
    run_s : float
        What the caller waited for, median.
    rows : list of list of Bar
        For each device what it did in that run, from the run's first start on.
    predicted : Simulation
    costs : sequence of (F, B, W)
        Of each stage, as the simulation took them: with the overhead.
    overhead_s, latency_s : float
    """

    schedule: Schedule
    makespan_s: float
    global_bubble_s: float
    run_s: float
    rows: list[list[Bar]]
    predicted: Simulation
    costs: Sequence[tuple[float, ...]]
    overhead_s: float
    latency_s: float


def measure(
    pipelines: Sequence[Pipeline], feeds: Mapping[Any, Any], *, runs: int
) -> list[Measured]:
    """Run a batch by each of the pipelines and return what that took, the fastest first.

    Blocks until all runs have ended.  They take turns, so what else the machine has to do meets
    all alike.  A first run of each, which compiles, does not count.

    Parameters
    ----------
    pipelines : sequence of Pipeline
    feeds : mapping
        As `Pipeline.run` takes them.
    runs : int
        Of each pipeline, at least one.

    Raises
    ------
    ValueError
        `runs` is below one.
    FeedError, NodeError
        As `Pipeline.run`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> h = g.input("x", shape=("batch", 2))
    >>> for stage in range(2):
    ...     h = np.tanh(h @ g.parameter(f"W{stage}", np.ones((2, 2), "float32")))
    >>> with ag.pipeline.Pipeline(h.mean(), stages=2, microbatches=2) as pipeline:
    ...     (found,) = measure([pipeline], {"x": np.ones((4, 2), "float32")}, runs=3)
    >>> [[bar.label for bar in row] for row in found.rows]
    [['F0', 'F1', 'BW0', 'BW1'], ['F0', 'BW0', 'F1', 'BW1']]
    >>> 0 < found.makespan_s < found.run_s
    True
    """
    positive("runs", runs)
    for pipeline in pipelines:
        pipeline.run_sync(feeds)
    watched = [_Watched(pipeline) for pipeline in pipelines]
    for _ in range(runs):
        for one in watched:
            one.run(feeds)
    return sorted([one.measured() for one in watched], key=attrgetter("makespan_s"))


class _Turn(NamedTuple):
    """A turn of a stage's task, as an instrument is told of it."""

    task: Task
    microbatch: int
    started: float
    ended: float


class _Turns(Instrument):
    """The turns of the pipelines that run while it listens."""

    def __init__(self) -> None:
        self.turns: list[_Turn] = []

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """Note a turn."""
        if run.microbatch is not None:
            self.turns.append(_Turn(task, run.microbatch, started, ended))


class _Watched:
    """A pipeline and the turns of its runs."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.schedule = pipeline, pipeline.schedule
        self.plan = pipeline._after_a_run("measurements")
        self.whole: list[float] = []
        self.makespans: list[float] = []
        self.runs: list[dict[str | None, list[_Turn]]] = []
        self.times: dict[tuple[int, str], list[float]] = defaultdict(list)
        self.overheads: list[float] = []
        self.latencies: list[float] = []

    def run(self, feeds: Mapping[Any, Any]) -> None:
        """Run a batch and note it."""
        heard = _Turns()
        listen(heard)
        try:
            started = perf_counter()
            self.pipeline.run_sync(feeds)
            whole = perf_counter() - started
        finally:
            silence(heard)
        self.note(sorted(heard.turns, key=attrgetter("started")), whole)

    def note(self, turns: Sequence[_Turn], whole: float) -> None:
        """Note a run: how long its turns took, by their start, and what was between them."""
        self.whole.append(whole)
        self.makespans.append(max([turn.ended for turn in turns]) - turns[0].started)
        lanes: dict[str | None, list[_Turn]] = {name: [] for name in self.schedule.lane_names}
        for turn in turns:
            lanes[turn.task.lane].append(turn)
        self.runs.append(lanes)
        ended = {(turn.task.spec.index, turn.microbatch): turn.ended for turn in turns}
        for turn in turns:
            region, direction = turn.task.spec.region.index, turn.task.spec.direction
            self.times[region, direction].append(turn.ended - turn.started)
        for lane in lanes.values():
            free = 0.0
            for turn in lane:
                arrived = max([ended[one] for one in self._senders(turn)], default=0.0)
                if arrived > free:
                    self.latencies.append(max(0.0, turn.started - arrived))
                elif free:
                    self.overheads.append(turn.started - free)
                free = turn.ended

    def _senders(self, turn: _Turn) -> Iterator[tuple[int, int]]:
        """Yield the turns on other lanes that a turn needs, as index and microbatch."""
        for number in self.plan.stage_tasks[turn.task.spec.index].foreign:
            index = self.plan.task_of.get(number)
            if index is not None:  # else a buffer that the microbatch before has assigned
                yield index, turn.microbatch

    def measured(self) -> Measured:
        """Return what is known of the runs."""
        order = sorted(range(len(self.makespans)), key=self.makespans.__getitem__)
        typical = order[len(order) // 2]
        rows = self._rows(self.runs[typical])
        busiest = max([sum([bar.end - bar.start for bar in row]) for row in rows])
        overhead, latency = _mean(self.overheads), _mean(self.latencies)
        costs = [
            tuple([self._cost(stage, direction, overhead) for direction in KINDS])
            for stage in range(self.schedule.stages)
        ]
        return Measured(
            self.schedule,
            median(self.makespans),
            self.makespans[typical] - busiest,
            median(self.whole),
            rows,
            # Latency counts from the end of a turn, the simulator's from the end of an action.
            simulate(self.schedule, costs=costs, latency=max(0.0, latency - overhead)),
            costs,
            overhead,
            latency,
        )

    def _cost(self, stage: int, direction: str, overhead: float) -> float:
        """Return the time of an action, 0 where a stage has nothing to do in a direction."""
        found = self.times.get((stage, direction))
        return _mean(found) + overhead if found else 0.0

    def _rows(self, lanes: Mapping[str | None, Sequence[_Turn]]) -> list[list[Bar]]:
        many = self.schedule.stages > self.schedule.devices
        split = any(action.kind == "W" for lane in self.schedule.lanes for action in lane)
        kinds = KINDS if split else KINDS | {"backward": "BW"}
        began = min([turn.started for lane in lanes.values() for turn in lane])
        rows: list[list[Bar]] = [[] for _ in lanes]
        for row, lane in zip(rows, lanes.values(), strict=True):
            for task, microbatch, started, ended in lane:
                stage = task.spec.region.index
                kind = kinds[task.spec.direction] if stage < self.schedule.stages else SUM
                label = f"{stage if many and kind != SUM else ''}{kind}{microbatch}"
                row.append(Bar(started - began, ended - began, label, kind))
        return rows


def _mean(found: Sequence[float]) -> float:
    return fmean(found) if found else 0.0
