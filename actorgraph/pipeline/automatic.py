"""`Choice`: a schedule, microbatches and stages by what trials have shown, once.

One core computes the whole batch, and a pipeline of every number of microbatches that comes into
question some batches.  The costs of its actions are those of stages as they are cut, of lanes that
share caches, memory and Python's lock, with the sums that they add to; a run takes longer than its
actions by what comes before and after them.  By all this the simulator compares the schedules.
Products of few rows take longer a row, so many small microbatches may take longer than they fill of
the bubble.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter, itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from actorgraph.devices.cpu import available_cores
from actorgraph.errors import FeedError, ScheduleError
from actorgraph.graph import Node, topological_order
from actorgraph.machines.base import Machine
from actorgraph.machines.batching import Batching
from actorgraph.machines.reader import Collected
from actorgraph.machines.run import Run
from actorgraph.machines.tape import TapeMachine
from actorgraph.pipeline.choosing import devices_of, placed_stages, scheduled
from actorgraph.runs import AbstractRun
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.recommendation import recommend

if TYPE_CHECKING:
    from actorgraph.pipeline.measuring import Measured
    from actorgraph.pipeline.runner import Pipeline

_TIMES = 3
"""Runs of a trial after the first, which compiles and gets memory: the fastest counts."""

_WORSE = 1.1
"""Where twice the microbatches take so much longer, still more of them are not tried."""

_SPLIT = "zb-h1"
"""The schedule of trials where all are compared: it has B and W apart."""

_MOST = 64
"""Microbatches; more than that gain nothing where rows are many."""

_M = TypeVar("_M", bound=Machine)

_Found: TypeAlias = tuple[float, Schedule, list[int] | None]
"""Seconds of a step as predicted, the schedule, and the credits of its lanes."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen.

    Attributes
    ----------
    schedule : Schedule
    credits : list of int or None
    note : str
        Why, for `explain`.
    """

    schedule: Schedule
    credits: list[int] | None
    note: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What is left to choose where options of a pipeline are ``"auto"``.

    Parameters are those of `Pipeline`; `outputs` are all of them, the loss first, and `trial` makes
    a pipeline like the one that chooses, by a schedule.
    """

    outputs: Sequence[Node]
    wrt: Sequence[Node]
    stages: int | str | None
    schedule: str | Schedule
    microbatches: int | str | None
    chunks: int | None
    extra_warmup: int
    workers: int
    trial: Callable[..., Pipeline]

    def made(
        self, batching: Batching, arrays: Mapping[Node, Any], sizes: Mapping[str, int], trains: bool
    ) -> Chosen:
        """Measure what a batch and its microbatches take, and choose; blocks the calling thread.

        Raises
        ------
        FeedError
            There are too few rows.
        ScheduleError
            Nothing fits what was given, or there are ops that wait, which take no time of a core.
        """
        if any(node.op.waits for node in topological_order(self.outputs)):
            raise ScheduleError(
                "what an op that waits will take cannot be measured before: say stages=, schedule= "
                "and microbatches= in numbers and by name"
            )
        rows = sizes[batching.dim]
        counts = {
            stages: [count for count in self._counts(stages) if count <= rows]
            for stages in self._stages()
        }
        if not any(counts.values()):
            raise FeedError(
                f"{batching.dim} is {rows}: too few rows to cut them into microbatches; feed more, "
                "or take fewer microbatches"
            )
        with _walking(TapeMachine(self.outputs, wrt=self.wrt, workers=1)) as machine:
            whole_s = _least_s(machine, arrays, trains)
        found = self._found(counts, partial(self._simulated, feeds=arrays, trains=trains))
        best_s, schedule, credits_ = min(found, key=itemgetter(0))
        note = (
            f"chosen among {len(found)}: {schedule.name}, {schedule.stages} stages, "
            f"{schedule.microbatches} microbatches, {best_s * 1e3:.3g} ms predicted; "
            f"one core takes {whole_s * 1e3:.3g} ms for the whole batch"
        )
        if whole_s <= best_s:
            note += ", which is less: train by a TapeMachine or an ActorMachine"
            warnings.warn(f"pipeline of {self.outputs[0].name}: {note}", stacklevel=2)
        return Chosen(schedule, credits_, note)

    def _found(
        self, counts: Mapping[int, Sequence[int]], simulated: Callable[[int, int], list[_Found]]
    ) -> list[_Found]:
        """Return what numbers of stages and microbatches take; raises where none fits."""
        found: list[_Found] = []
        refusal = None
        for stages, possible in counts.items():
            least_s = inf
            for count in possible:
                try:
                    some = simulated(stages, count)
                except ScheduleError as error:
                    refusal = error
                    continue
                found += some
                took_s = min(some, key=itemgetter(0))[0]
                if took_s > _WORSE * least_s:
                    break
                least_s = min(least_s, took_s)
        if not found:
            assert refusal is not None
            raise refusal
        return found

    def _stages(self) -> list[int]:
        """Return the numbers of devices that come into question."""
        count = placed_stages([*self.outputs, *self.wrt])
        if isinstance(self.stages, int):
            return [self.stages]
        if count is not None:
            return [devices_of(count, self.schedule, self.chunks)]
        cores = max(1, min(self.workers, available_cores()))
        return sorted({min(2, cores), cores})

    def _counts(self, stages: int) -> list[int]:
        """Return the numbers of microbatches that come into question."""
        if isinstance(self.microbatches, int):
            return [self.microbatches]
        return [count for count in (stages * 2**i for i in range(5)) if count <= _MOST]

    def _simulated(
        self, stages: int, count: int, feeds: Mapping[Node, Any], trains: bool
    ) -> list[_Found]:
        made = partial(
            scheduled, nodes=[*self.outputs, *self.wrt], stages=stages, microbatches=count,
            chunks=self.chunks, extra_warmup=self.extra_warmup,
        )  # fmt: skip
        automatic = self.schedule == "auto"
        tried, credits_ = made(_SPLIT if automatic else self.schedule)
        with _walking(self.trial(schedule=tried)) as pipeline:
            shown = _shown(pipeline, feeds, trains)
        beside_s = shown.run_s - shown.makespan_s
        if not automatic:
            return [(float(shown.predicted.makespan) + beside_s, tried, credits_)]
        ranked = recommend(
            stages=stages, microbatches=count, costs=shown.costs, chunks=(self.chunks or 1,),
            latency=max(0.0, shown.latency_s - shown.overhead_s),
        )  # fmt: skip
        return [(float(one.makespan) + beside_s, *made(one.schedule)) for one in ranked]


def _walking(machine: _M) -> _M:
    """Return a machine that waits for its tables, which others get after many runs."""
    machine.native = machine.native and "wait"
    return machine


def _least_s(machine: Machine, feeds: Mapping[Node, Any], trains: bool) -> float:
    """Return the least seconds of a run."""
    found = []
    for _ in range(1 + _TIMES):
        run = _prepared(machine, feeds, trains)
        started = perf_counter()
        machine._run_now(run)
        found.append(perf_counter() - started)
    return min(found[1:])


def _shown(pipeline: Pipeline, feeds: Mapping[Node, Any], trains: bool) -> Measured:
    """Return what the fastest of some runs has shown."""
    from actorgraph.pipeline.measuring import timed_run

    def run() -> None:
        pipeline._run_now(_prepared(pipeline, feeds, trains))

    run()
    timed = [timed_run(pipeline, run) for _ in range(_TIMES)]
    return min(timed, key=attrgetter("whole")).measured()


def _prepared(machine: Machine, feeds: Mapping[Node, Any], backward: bool) -> Run:
    run = machine._prepare(feeds, backward, None, 0, None, None)
    run.plan.collect = _nothing
    return run


def _nothing(run: AbstractRun) -> Collected:
    """Return what is left of a run that is only timed: it sets no buffer."""
    return {}, ()
