"""`Choice`: a schedule, microbatches and stages by what microbatches take, measured once.

One core computes the whole batch, and one microbatch of every size that comes into question, with
nothing beside it.  By these costs the simulator compares the schedules.  Products of few rows take
longer a row, so many small microbatches may take longer than they fill of the bubble.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import Any, TypeAlias

from actorgraph.devices.cpu import available_cores
from actorgraph.errors import FeedError, ScheduleError
from actorgraph.graph import Node, topological_order
from actorgraph.machines.batching import Batching
from actorgraph.machines.reader import Collected
from actorgraph.machines.tape import TapeMachine
from actorgraph.pipeline.choosing import devices_of, placed_stages, scheduled
from actorgraph.runs import AbstractRun
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.recommendation import recommend
from actorgraph.schedules.simulation import simulate

_ACTION_S = 40e-6
"""What an action takes beside its ops: messages, sums, the turn itself."""

_HAND_OFF_S = 50e-6
"""From the end of an action to the start of one on another worker that has waited for it."""

_TIMES = 3
_MOST = 64
"""Microbatches; more than that gain nothing where rows are many."""

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

    Parameters are those of `Pipeline`; `outputs` are all of them, the loss first.
    """

    outputs: Sequence[Node]
    wrt: Sequence[Node]
    stages: int | str | None
    schedule: str | Schedule
    microbatches: int | str | None
    chunks: int | None
    extra_warmup: int
    workers: int

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
        pairs = [(stages, count) for stages in self._stages() for count in self._counts(stages)]
        pairs = [(stages, count) for stages, count in pairs if count <= rows]
        if not pairs:
            raise FeedError(
                f"{batching.dim} is {rows}: too few rows to cut them into microbatches; feed more, "
                "or take fewer microbatches"
            )
        found: list[_Found] = []
        refusal = None
        with TapeMachine(list(self.outputs), wrt=list(self.wrt), workers=1) as machine:
            clock = _Clock(machine, batching, arrays, sizes, trains)
            whole_s = sum(clock.costs(1))
            for stages, count in pairs:
                try:
                    found += self._simulated(stages, count, clock.costs(count))
                except ScheduleError as error:
                    refusal = error
        if not found:
            assert refusal is not None
            raise refusal
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
        self, stages: int, count: int, costs: tuple[float, float, float]
    ) -> list[_Found]:
        each: Any = tuple([cost / stages + _ACTION_S for cost in costs])
        made = partial(
            scheduled, nodes=[*self.outputs, *self.wrt], stages=stages, microbatches=count,
            chunks=self.chunks, extra_warmup=self.extra_warmup,
        )  # fmt: skip
        if self.schedule == "auto":
            ranked = recommend(
                stages=stages, microbatches=count, costs=each, chunks=(self.chunks or 1,),
                latency=_HAND_OFF_S,
            )  # fmt: skip
            return [(float(one.makespan), *made(one.schedule)) for one in ranked]
        schedule, credits_ = made(self.schedule)
        found = simulate(schedule, costs=each, latency=_HAND_OFF_S)
        return [(float(found.makespan), schedule, credits_)]


class _Clock:
    """Seconds that F, B and W of a microbatch take on one core, by the number of microbatches."""

    def __init__(
        self,
        machine: TapeMachine,
        batching: Batching,
        arrays: Mapping[Node, Any],
        sizes: Mapping[str, int],
        trains: bool,
    ) -> None:
        self._machine, self._batching, self._trains = machine, batching, trains
        self._arrays, self._sizes = arrays, sizes
        self._known: dict[int, tuple[float, float, float]] = {}

    def costs(self, count: int) -> tuple[float, float, float]:
        """Return the costs of one microbatch where a batch has so many."""
        if count not in self._known:
            first = self._batching.cut(self._arrays, self._sizes, count)[0]
            forward = self._least(first.feeds, backward=False)
            both = self._least(first.feeds, backward=True) if self._trains else forward
            half = max(0.0, both - forward) / 2
            self._known[count] = forward, half, half
        return self._known[count]

    def _least(self, feeds: Mapping[Node, Any], *, backward: bool) -> float:
        found = []
        for _ in range(_TIMES):
            run = self._machine._prepare(feeds, backward, None, 0, None, None)
            run.plan.collect = _nothing
            started = perf_counter()
            self._machine._run_now(run)
            found.append(perf_counter() - started)
        return min(found[1:])


def _nothing(run: AbstractRun) -> Collected:
    """Return what is left of a run that is only timed: it sets no buffer."""
    return {}, ()
