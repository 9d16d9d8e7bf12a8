"""`Choice`: chooses schedule, microbatches and stages, once, by trials.

One core computes the whole batch, and for each number of microbatches worth trying a pipeline runs
some batches.  So the costs of actions include that stages are cut unevenly, that lanes share
caches, memory and the GIL, and that gradients are added; the time of a run outside its actions is
measured too.  The simulator compares the schedules by these costs.  Matrix products of few rows
take longer for each row, so that many small microbatches may cost more than they save in bubbles.
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
from actorgraph.errors import FeedError, ScheduleError, counted
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
"""Runs of a trial after the first, which compiles and allocates: the fastest counts."""

_WORSE = 1.1
"""If twice the microbatches take this much longer, more are not tried."""

_SPLIT = "zb-h1"
"""The schedule of trials when all are compared: it has B and W apart."""

_MAX_MICROBATCHES = 64
"""More gain nothing, even with many rows."""

_M = TypeVar("_M", bound=Machine)

_Found: TypeAlias = tuple[float, Schedule, list[int] | None]
"""Predicted seconds of a step, the schedule, and the credits of its lanes."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen schedule."""

    schedule: Schedule
    credits: list[int] | None
    note: str  # why, for `explain`


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice to be made if options of a pipeline are ``"auto"``.

    Parameters are those of `Pipeline`; `outputs` are all of them, the loss first, and `trial` makes
    a pipeline of the same options for a given schedule.
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
        """Time the batch and its microbatches, and choose; blocks the calling thread.

        Raises `FeedError` for too few rows; `ScheduleError` if no schedule fits the options, or if
        there are ops that wait, whose time is not a core's.
        """
        if any(node.op.waits for node in topological_order(self.outputs)):
            raise ScheduleError(
                "the time of an op that waits cannot be measured beforehand: give stages=, "
                "schedule= and microbatches= as numbers and a name"
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
        with _with_tables(TapeMachine(self.outputs, wrt=self.wrt, workers=1)) as machine:
            whole_s = _shortest_s(machine, arrays, trains)
        predictions = self._found(counts, partial(self._simulated, feeds=arrays, trains=trains))
        best_s, schedule, credits_ = min(predictions, key=itemgetter(0))
        note = (
            f"chosen among {len(predictions)}: {schedule.name}, "
            f"{counted(schedule.stages, 'stage')}, "
            f"{counted(schedule.microbatches, 'microbatch')}, {best_s * 1e3:.3g} ms predicted; "
            f"one core takes {whole_s * 1e3:.3g} ms for the whole batch"
        )
        if whole_s <= best_s:
            note += ", which is less: train by a TapeMachine or an ActorMachine"
            warnings.warn(f"pipeline of {self.outputs[0].name}: {note}", stacklevel=2)
        return Chosen(schedule, credits_, note)

    def _found(
        self, counts: Mapping[int, Sequence[int]], simulated: Callable[[int, int], list[_Found]]
    ) -> list[_Found]:
        """Return predictions for the numbers of stages and microbatches; raises if none fits."""
        predictions: list[_Found] = []
        refusal = None
        for stages, possible in counts.items():
            least_s = inf
            for count in possible:
                try:
                    fitting = simulated(stages, count)
                except ScheduleError as error:
                    refusal = error
                    continue
                predictions += fitting
                took_s = min(fitting, key=itemgetter(0))[0]
                if took_s > _WORSE * least_s:
                    break
                least_s = min(least_s, took_s)
        if not predictions:
            assert refusal is not None
            raise refusal
        return predictions

    def _stages(self) -> list[int]:
        """Return the numbers of devices to try."""
        count = placed_stages([*self.outputs, *self.wrt])
        if isinstance(self.stages, int):
            return [self.stages]
        if count is not None:
            return [devices_of(count, self.schedule, self.chunks)]
        cores = max(1, min(self.workers, available_cores()))
        return sorted({min(2, cores), cores})

    def _counts(self, stages: int) -> list[int]:
        """Return the numbers of microbatches to try."""
        if isinstance(self.microbatches, int):
            return [self.microbatches]
        return [count for count in (stages * 2**i for i in range(5)) if count <= _MAX_MICROBATCHES]

    def _simulated(
        self, stages: int, count: int, feeds: Mapping[Node, Any], trains: bool
    ) -> list[_Found]:
        made = partial(
            scheduled, nodes=[*self.outputs, *self.wrt], stages=stages, microbatches=count,
            chunks=self.chunks, extra_warmup=self.extra_warmup,
        )  # fmt: skip
        automatic = self.schedule == "auto"
        tried, credits_ = made(_SPLIT if automatic else self.schedule)
        with _with_tables(self.trial(schedule=tried)) as pipeline:
            shown = _fastest_run(pipeline, feeds, trains)
        beside_s = shown.run_s - shown.makespan_s
        if not automatic:
            return [(float(shown.predicted.makespan) + beside_s, tried, credits_)]
        ranked = recommend(
            stages=stages, microbatches=count, costs=shown.costs, chunks=(self.chunks or 1,),
            latency=max(0.0, shown.latency_s - shown.overhead_s),
        )  # fmt: skip
        return [(float(one.makespan) + beside_s, *made(one.schedule)) for one in ranked]


def _with_tables(machine: _M) -> _M:
    """Return a machine that waits for its tables, which are otherwise made after many runs."""
    machine.native = machine.native and "wait"
    return machine


def _shortest_s(machine: Machine, feeds: Mapping[Node, Any], trains: bool) -> float:
    """Return the seconds of the fastest run."""
    times_s = []
    for _ in range(1 + _TIMES):
        run = _prepared(machine, feeds, trains)
        started = perf_counter()
        machine._run_now(run)
        times_s.append(perf_counter() - started)
    return min(times_s[1:])


def _fastest_run(pipeline: Pipeline, feeds: Mapping[Node, Any], trains: bool) -> Measured:
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
    """Return no results and no new buffers, for runs that are only timed."""
    return {}, ()
