"""`Microbatches`: makes the runs of a pipeline; a batch is one run, with a part a microbatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.devices.cpu import Crowding, available_cores
from actorgraph.errors import FeedError, GraphError, ScheduleError
from actorgraph.graph import Node
from actorgraph.lower.deadlock import Action, Arc, Credit, check
from actorgraph.lower.joint import Mode
from actorgraph.machines.batching import Batching, BatchSlice
from actorgraph.machines.claim import Claim, fitted
from actorgraph.machines.feeds import check_dims, check_like
from actorgraph.machines.process import THIS
from actorgraph.machines.rows import Reduce
from actorgraph.machines.run import Run
from actorgraph.options import whole
from actorgraph.pipeline.automatic import Choice, Chosen
from actorgraph.pipeline.claims import claim_of
from actorgraph.pipeline.lanes import Lanes
from actorgraph.pipeline.staged import KINDS, Microbatch, StagedPlan
from actorgraph.schedules.actions import Schedule

if TYPE_CHECKING:
    from actorgraph.machines.base import Machine

_PATIENCE_S = 0.005
"""How long an idle worker watches the flag: about one or two actions of another lane.  After that
a wake-up costs little beside the wait."""


class Microbatches:
    """Makes the runs of a pipeline out of batches, and their plans.

    `outputs`, `wrt`, `dim` and `reduce` are as `Pipeline` takes them; `chosen` is the schedule, or
    the choice that the first run makes; `trains` says whether runs differentiate by default.
    Raises `GraphTypeError` or `ShapeError` for a result that cannot be cut along the dim and
    joined.
    """

    def __init__(
        self, outputs: Sequence[Node], wrt: Sequence[Node], *, dim: str, reduce: Reduce | None,
        chosen: Choice | Chosen, trains: bool,
    ) -> None:  # fmt: skip
        self._new = partial(Batching, tuple(outputs), tuple(wrt), dim=dim, reduce=reduce)
        self.batching = self._new()
        self._chosen, self._trains, self._choosing = chosen, trains, Lock()
        self._plans: dict[Any, StagedPlan] = {}
        self._cores, self._crowding = available_cores(), Crowding()

    @property
    def schedule(self) -> Schedule:
        """The actions of each device; `GraphError` before a first run that chooses them."""
        if isinstance(self._chosen, Choice):
            raise GraphError("the schedule is known after a first run, which chooses it")
        return self._chosen.schedule

    def unplanned(self) -> GraphError:
        """Return the error for a mode that has no plan, as its first run makes that."""
        return GraphError("the stages of a pipeline are known after a first run")

    def _planned(
        self, machine: Machine, batching: Batching, mode: Mode, symbols: Mapping[str, int]
    ) -> StagedPlan:
        plan = self._plans.get(mode.key)
        if plan is None:
            with THIS.starting:  # two threads may start the first run
                plan = self._plans.get(mode.key) or self._staged(machine, batching, mode, symbols)
                self._plans[mode.key] = machine._plans[mode.key] = plan
        return plan

    def _staged(
        self, machine: Machine, batching: Batching, mode: Mode, symbols: Mapping[str, int]
    ) -> StagedPlan:
        if mode.kind == "backward" and not self.schedule.trains:
            raise ScheduleError(
                f"{self.schedule!r} has forward actions only; run with backward=False, make the "
                "pipeline with training=False, or take a schedule with backward actions"
            )
        assert isinstance(self._chosen, Chosen)
        plan = StagedPlan(machine, batching, mode, self.schedule, symbols, self._chosen.credits)
        _check_lanes(plan)
        plan.network = partial(Lanes, flag=machine._started().scheduler.flag)
        plan.note = self._chosen.note
        return plan

    # -- runs -----------------------------------------------------------------------------------

    def run(
        self, machine: Machine, given: Mapping[Node, Any], mode: Mode, seeds: Mapping[Node, Any],
        priority: int, run_number: int | None,
        host: Callable[[Callable[[], object]], object] | None,
    ) -> Run:  # fmt: skip
        """Check the arguments of a run, and make it, with its parts.

        Raises `FeedError` or `MemoryLimitError` if an argument does not fit, or if there are too
        few rows; nothing has started then.
        """
        priority = whole("priority", priority)
        batching = self.batching
        if mode.kind == "tangents":  # nodes that they reach are computed by microbatch
            known = self._plans.get(mode.key)
            batching = self._new(tangents=mode.nodes) if known is None else known.batching
        arrays, sizes = batching.bind(given)
        if isinstance(self._chosen, Choice):
            with self._choosing:  # two threads may start the first run
                if isinstance(self._chosen, Choice):
                    self._chosen = self._chosen.made(batching, arrays, sizes, self._trains)
        microbatches, rows = self.schedule.microbatches, sizes[batching.dim]
        if rows < microbatches:
            raise FeedError(
                f"{batching.dim} is {rows}: cannot be cut into {microbatches} microbatches; feed "
                "at least as many rows, or take fewer microbatches"
            )
        backward = mode.kind == "backward"
        what = "seed" if backward else "tangent"
        checked = {node: check_like(seeds[node], node, sizes, what) for node in seeds}
        slices = batching.cut(arrays, sizes, microbatches)
        symbols = {one.rows: sizes | {batching.dim: one.rows} for one in slices}
        largest = symbols[slices[0].rows]
        plan = self._planned(machine, batching, mode, largest)
        for bound in symbols.values():
            check_dims(plan.compiled.checked, bound)
        core = machine._started()
        patient = machine._placing is None and machine.workers <= self._cores
        core.scheduler.patience_s = _PATIENCE_S if patient and not self._crowding.found() else 0.0
        plan, claim = _fitted(machine, plan, largest)
        number = next(core.numbers)
        drawn = microbatches * (number if run_number is None else run_number)
        cut = batching.seeds if backward else batching.tangents
        bindings = {rows: plan.bind(bound) for rows, bound in symbols.items()}
        parts = []
        for one in slices:
            part = Run(core, plan, bindings[one.rows], number, priority)
            part.microbatch = one.number
            part.leaves = _leaves(plan, one, cut(checked, one), drawn + one.number)
            part.regular = all(array.flags.c_contiguous for array in part.leaves)
            parts.append(Microbatch(one, part))
        batch = Run(core, plan, parts[0].run.binding, number, priority)
        batch.microbatches, batch.claim, batch.host = parts, claim, host
        batch.leaves = [None] * len(plan.compiled.passed_places)  # its parts have them
        return batch


def _fitted(
    machine: Machine, plan: StagedPlan, largest: Mapping[str, int]
) -> tuple[StagedPlan, Claim | None]:
    """Return the plan by which a batch fits into `max_bytes`, and its claim."""
    if machine.max_bytes is None:
        return plan, None
    fitting, _, claim = fitted(
        plan, plan.bind(largest), True, machine.max_bytes, machine.workers, claim_of,
        StagedPlan.one_by_one,
    )  # fmt: skip
    assert isinstance(fitting, StagedPlan)
    return fitting, claim


def _leaves(
    plan: StagedPlan, part: BatchSlice, seeded: Mapping[Node, Any], drawn: int
) -> list[Any]:
    """Return the leaves of a microbatch; variables are read at admission."""
    brought = {"feed": part.feeds, "whole": part.whole, "seed": seeded, "tangent": seeded}
    return [
        np.array(drawn, np.int64) if kind == "run_number" else brought[kind][source]
        for kind, source in plan.compiled.passed
    ]


def _check_lanes(plan: StagedPlan) -> None:
    """Raise `ScheduleError` unless every lane reaches the end of a batch; in linear time.

    The error names a cycle of lanes, each waiting for the next.  A `Schedule` is checked when it is
    made, for stages that form a chain.  Here the token game of `Machine.check` is played with the
    tasks of the graph and their actual messages; a microbatch is a run of the game.  Inboxes have
    room for everything, and a lane starts a later batch only if the earlier one waits for others,
    so checking one batch suffices.
    """
    schedule, stages = plan.schedule, plan.schedule.stages
    tasks = [
        f"{KINDS[spec.direction]} of stage {spec.region.index}"
        if spec.region.index < stages
        else f"the sum for {spec.name}"
        for spec in plan.partition.tasks
    ]
    pairs = {
        (plan.task_of[number], index): None
        for index, task in enumerate(plan.stage_tasks)
        for number in task.inputs
        if number in plan.task_of
    }
    edges = [
        Arc(source, target, None, f"{tasks[source]} -> {tasks[target]}", fifo=False)
        for source, target in pairs
    ]
    every = range(schedule.microbatches)
    free = range(len(tasks)) if plan.credits is not None else plan.unstaged
    lanes: list[list[Action]] = [
        [
            (index, microbatch)
            for stage, kind, microbatch, _ in lane
            for index in plan.tasks_of(stage, kind)
        ]
        for lane in (schedule.lanes if plan.credits is None else ())
    ]
    shown = len(lanes)
    lanes += [[(index, microbatch) for microbatch in every] for index in free]
    bounds = []
    for device, limit in enumerate(plan.credits or ()):
        spender, giver = plan.at.get((device, "forward")), plan.at.get((device, "backward"))
        if spender is not None and giver is not None:
            bounds.append(Credit(spender, giver, limit, f"microbatches on device {device}"))
    verdict = check(tasks, edges, lanes, bounds, shown=shown, unit="microbatch")
    if not verdict.ok:
        raise ScheduleError(
            f"{schedule!r} would never end: {'; '.join(verdict.blocked)}; "
            "change the order of a lane"
        )
