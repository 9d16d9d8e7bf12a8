"""Measures runs by schedules: makespans, pictures, and predictions for the same costs.

As in the simulator, the makespan of a run is from the start of the first action of any device to
the end of the last.  A whole run is longer: it also cuts feeds, starts the lanes and joins results.

A prediction is a simulation with the means that the same run has shown: the times of actions, the
*overhead* between two actions of a device that does not wait, which counts to the first, and the
*latency* from the end of an action to the start of one on another device that waited for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from actorgraph.errors import GraphTypeError, shown
from actorgraph.instrument import listen, silence
from actorgraph.machines.instrument import Instrument
from actorgraph.options import positive, several
from actorgraph.pipeline.runner import Pipeline
from actorgraph.pipeline.staged import KINDS, costs_of
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.grids import Bar
from actorgraph.schedules.simulation import Simulation, simulate

if TYPE_CHECKING:
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task

SUM = "+"
"""The kind of a task that adds the gradients of several stages for one weight."""


@dataclass(frozen=True)
class Measured:
    """The times of a run by a schedule, in seconds; of several runs, the one of median makespan.

    Attributes
    ----------
    schedule : Schedule
    makespan_s : float
    global_bubble_s : float
        Idle time of the busiest device within the makespan.
    run_s : float
        The time that the caller waited.
    rows : list of list of Bar
        The actions of each device, from the first start.
    predicted : Simulation
    costs : sequence of (F, B, W)
        Of each stage, overhead included, as the simulation used them.
    overhead_s, latency_s : float
        Overhead between actions, and latency from the end of the sender's ops.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x = g.input("x", ("batch", 2))
    >>> loss = np.tanh(x @ g.parameter("W", np.ones((2, 2), "float32"))).mean()
    >>> with ag.pipeline.Pipeline(loss, stages=1, microbatches=2) as pipeline:
    ...     (found,) = ag.pipeline.measure([pipeline], {"x": np.ones((4, 2), "float32")}, runs=1)
    >>> isinstance(found, ag.pipeline.Measured), found.makespan_s < found.run_s
    (True, True)
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
    """Run a batch by each of the pipelines and return their times, the fastest first.

    Blocks until all runs have ended.  The pipelines take turns, so that other load affects all of
    them alike.  The first run of each, which compiles, does not count.

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
    ...     (timed,) = measure([pipeline], {"x": np.ones((4, 2), "float32")}, runs=3)
    >>> [[bar.label for bar in row] for row in timed.rows]
    [['F0', 'F1', 'BW0', 'BW1'], ['F0', 'BW0', 'F1', 'BW1']]
    >>> 0 < timed.makespan_s < timed.run_s
    True
    """
    positive("runs", runs)
    for pipeline in (pipelines := several("a list of pipelines", pipelines)):
        if not isinstance(pipeline, Pipeline):
            raise GraphTypeError(f"expected a pipeline, got {shown(pipeline)}")
    for pipeline in pipelines:
        pipeline.run_sync(feeds)
    timed = [
        [timed_run(pipeline, partial(pipeline.run_sync, feeds)) for pipeline in pipelines]
        for _ in range(runs)
    ]
    took = attrgetter("makespan")
    typical = [sorted(of_one, key=took)[runs // 2] for of_one in zip(*timed, strict=True)]
    return [one.measured() for one in sorted(typical, key=took)]


class _Turn(NamedTuple):
    """A turn of a stage's task."""

    task: Task
    microbatch: int
    started: float
    ended: float


class _Turns(Instrument):
    """Records the turns of one pipeline while it listens."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._core = pipeline._core
        self.turns: list[_Turn] = []

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        if run.microbatch is not None and run.core is self._core:
            self.turns.append(_Turn(task, run.microbatch, started, ended))


def timed_run(pipeline: Pipeline, run: Callable[[], object]) -> TimedRun:
    """Run a batch, not the first, and record its turns."""
    recorder = _Turns(pipeline)
    held = listen(recorder)
    try:
        started = perf_counter()
        run()
        whole = perf_counter() - started
    finally:
        silence(held)
    return TimedRun(pipeline, recorder.turns, whole)


class TimedRun:
    """A run: its turns by lane, their durations, and the gaps between them."""

    def __init__(self, pipeline: Pipeline, turns: Sequence[_Turn], whole: float) -> None:
        self.schedule, self.whole = pipeline.schedule, whole
        self.plan = pipeline._staged("measurements")
        self.began = min([turn.started for turn in turns])
        self.makespan = max([turn.ended for turn in turns]) - self.began
        self.lanes: dict[str | None, list[_Turn]] = {name: [] for name in self.schedule.lane_names}
        self.times: dict[tuple[int, str], list[float]] = defaultdict(list)
        for turn in sorted(turns, key=attrgetter("started")):
            self.lanes[turn.task.lane].append(turn)
            spec = turn.task.spec
            self.times[spec.region.index, spec.direction].append(turn.ended - turn.started)
        self.overheads: list[float] = []
        self.latencies: list[float] = []
        ended = {(turn.task.spec.index, turn.microbatch): turn.ended for turn in turns}
        for lane in self.lanes.values():
            free = 0.0
            for turn in lane:
                needed = map(
                    self.plan.task_of.get, self.plan.stage_tasks[turn.task.spec.index].foreign
                )
                # None for a buffer that the previous microbatch assigns.
                senders = [(index, turn.microbatch) for index in needed if index is not None]
                arrived = max([ended[one] for one in senders], default=0.0)
                if arrived > free:
                    self.latencies.append(max(0.0, turn.started - arrived))
                elif free:
                    self.overheads.append(turn.started - free)
                free = turn.ended

    def measured(self) -> Measured:
        """Return the measured and the predicted times of the run."""
        rows = list(map(self._row, self.lanes.values()))
        busiest = max([sum([bar.end - bar.start for bar in row]) for row in rows])
        overhead, latency = _mean(self.overheads), _mean(self.latencies)
        cost_of = {key: _mean(times) + overhead for key, times in self.times.items()}
        costs = costs_of(cost_of, self.schedule.stages)
        return Measured(
            self.schedule,
            self.makespan,
            self.makespan - busiest,
            self.whole,
            rows,
            # The simulator's latency counts from the end of an action, overhead included.
            simulate(self.schedule, costs=costs, latency=max(0.0, latency - overhead)),
            costs,
            overhead,
            latency,
        )

    def _row(self, lane: Sequence[_Turn]) -> list[Bar]:
        many = self.schedule.stages > self.schedule.devices
        kinds = KINDS if self.schedule.splits else KINDS | {"backward": "BW"}
        row = []
        for task, microbatch, started, ended in lane:
            stage = task.spec.region.index
            kind = kinds[task.spec.direction] if stage < self.schedule.stages else SUM
            label = f"{stage if many and kind != SUM else ''}{kind}{microbatch}"
            row.append(Bar(started - self.began, ended - self.began, label, kind))
        return row


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
