"""`Partition`: the tasks that a cut makes of a mode, and the memory that their turns use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from actorgraph.devices import Lane
from actorgraph.graph import Node
from actorgraph.lower.cuts import Costs, Cut, by_cost, sequential
from actorgraph.lower.fusion import (
    gains,
    heavy_ids,
    may_gain,
    one_after_another,
    parallel_us,
    sharing,
)
from actorgraph.lower.kernels import depends_on_symbols
from actorgraph.lower.matmul import tile_count
from actorgraph.lower.program import FEWEST_ROWS, Program
from actorgraph.lower.rates import rates
from actorgraph.lower.regions import TaskSpec, accumulating, connect
from actorgraph.machines.compiled import Compiled
from actorgraph.memory.arenas import Arenas, Layout, in_parts
from actorgraph.memory.buffers import (
    Buffers,
    bulky,
    escaping,
    is_view,
    regular,
    size_in_bytes,
    writing,
)
from actorgraph.memory.free_lists import RECYCLED_BYTES, FreeList, FreeLists
from actorgraph.memory.travelling import Places, RunMemory
from actorgraph.store import CACHE_LINE
from actorgraph.types import bind_shape

_LEASING_US = 5.0
"""Turns predicted to take less allocate their arrays: leasing memory costs a turn 0.5 us."""

_BRIEF_US = 0.2
"""Least time of a row of a table for which, with many others, another worker is worth it."""

_NONE: frozenset[int] = frozenset()

_Connected: TypeAlias = tuple[list[TaskSpec], Sequence[Node], list[Lane | None]]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The tasks of a mode, and properties of their steps, as sets of ids.

    For each task, `buffered` are the steps that write into the machine's planned memory, `leaving`
    those that write into arrays which leave the turn.
    """

    tasks: Sequence[TaskSpec]  # with their ports and sends
    bound: Sequence[Node]  # steps whose kernels depend on the symbols of a run
    long_steps: set[int]  # slow for the sizes of the first run
    bulky: set[int]  # with large values for these sizes
    buffered: Sequence[frozenset[int]]
    leaving: Sequence[frozenset[int]]
    over: frozenset[int]  # steps that write over their first operand
    lanes: Sequence[Lane | None] = ()  # per task, None for the host; empty if all run there
    ordered: Collection[int] = _NONE  # results in C order in every run whose leaves are
    _laid: dict[Any, Buffers] = field(default_factory=dict)  # the latest, for other networks

    def lane(self, index: int) -> Lane | None:
        """Return the lane of a task, None for the host."""
        return self.lanes[index] if self.lanes else None

    @property
    def lane_of(self) -> dict[int, Lane | None]:
        """The lane of each step by its id; empty if all run on the host."""
        placed = zip(self.tasks, self.lanes, strict=False)
        return {step.id: lane for spec, lane in placed for step in spec.steps}

    def layout(
        self, index: int, symbols: Mapping[str, int], in_buffers: bool, arenas: Arenas,
        free_lists: FreeLists | None, program: Program | None, of_run: RunMemory | None = None,
    ) -> Callable[[Any], list[Any]]:  # fmt: skip
        """Return a function that leases the arrays of a run's turn of a task, with the arena last.

        Without `in_buffers` each item is None.  If the task's program has parts, the items are in
        lists.
        """
        planned, out = self.buffered[index], self.leaving[index]
        sizes = () if program is None else program.arrays
        if not in_buffers:
            return partial(_copied, in_parts([None] * (len(planned) + len(out) + 1), sizes))
        spec = self.tasks[index]
        results = {node.id for node, _ in spec.results}
        free_list_of: dict[int, FreeList | None] = {}
        for step in spec.steps:
            if step.id in out:
                shape, handed_out = bind_shape(step.dims, symbols, 0), step.id in results
                free_list_of[step.id] = (
                    None
                    if free_lists is None
                    else free_lists.of(shape, step.dtype, handed_out, 2, step.id)
                )
        buffers = self.buffers(index, program, free_lists is not None, symbols)
        return Layout(arenas, buffers, spec.steps, symbols, free_list_of, sizes, of_run).lease

    def places(self, symbols: Mapping[str, int]) -> Places | None:
        """Return where values lie in memory that tasks of a run share, None if there is none."""
        if len(self.tasks) < 2:
            return None
        from actorgraph.machines.sharing import placed

        return placed(self.tasks, self.leaving, self.over, self.ordered, symbols)

    def run_memory(self, free_lists: FreeLists, symbols: Mapping[str, int]) -> RunMemory | None:
        """Return the memory that tasks of a run share, whose leaves are all in C order."""
        places = self.places(symbols)
        if places is None:
            return None
        step_of = {step.id: step for spec in self.tasks for step in spec.steps}
        results = {node.id for spec in self.tasks for node, _ in spec.results}
        lists = []
        for number in places.hosts:
            step, handed_out = step_of[number], number in results
            shape = bind_shape(step.dims, symbols, 0)
            lists.append(free_lists.of(shape, step.dtype, handed_out, 0))
        size = places.total_bytes + CACHE_LINE
        room = free_lists.of((size,), np.dtype(np.uint8), False, 2) if places.total_bytes else None
        return RunMemory(places, room, [one for one in lists if one is not None])

    def buffers(
        self, index: int, program: Program | None, recycling: bool, symbols: Mapping[str, int]
    ) -> Buffers:
        """Return where the steps of a task write, for runs whose leaves are all in C order."""
        from actorgraph.memory.packing import assign

        spec = self.tasks[index]
        together = () if program is None else program.stretches
        key = index, recycling, tuple(symbols.items()), tuple(together)
        found = self._laid.get(key)
        if found is None:
            if len(self._laid) > 2 * len(self.tasks):
                self._laid.clear()
            preallocated = self.preallocated(index, symbols) if recycling else ()
            planned = self.buffered[index]
            found = assign(spec.steps, spec.kept, planned, symbols, preallocated, together, True)
            self._laid[key] = found
        return found

    def preallocated(self, index: int, symbols: Mapping[str, int]) -> list[int]:
        """Return the steps of a task whose arrays leave the turn, and are taken at its start."""
        out = self.leaving[index]
        return [
            step.id
            for step in self.tasks[index].steps
            if step.id in out and size_in_bytes(step, symbols) >= RECYCLED_BYTES
        ]


def _copied(arrays: list[Any], run: Any) -> list[Any]:
    return [*arrays]


UNCUT = Partition((), (), set(), set(), (), (), _NONE)
"""The partition of a mode that has not run yet."""


def partitioned(
    compiled: Compiled, cut: Cut, costs: Costs, symbols: Mapping[str, int], workers: int,
    measured: bool = False,
) -> tuple[Partition, str | None]:  # fmt: skip
    """Return the partition of a mode, and why it is one sequence, if it is.

    For the cut `by_cost`, one sequence replaces the tasks if these gain too little.  `measured`
    says that costs were refined by measurement.
    """
    reason, ordered = None, regular(compiled.joint.order)
    weighed, connected = costs, None
    if cut is by_cost:
        rows_us = _rows_us(compiled, costs, symbols, ordered, measured) if workers > 1 else {}
        weighed = costs = {**costs, **rows_us}
        if rows_us and not measured:
            weighed = _without_calls(costs, rows_us)
        reason = one_after_another(compiled.joint.order, weighed, workers, rows_us)
    if reason is None:
        connected = _worthwhile(compiled, cut, (costs, weighed), symbols, workers)
        reason = None if connected else f"{workers} workers would end hardly sooner than one"
    if connected is None:
        connected = _connected(compiled, sequential(compiled.joint, costs), costs, symbols)
    tasks, bound, lanes = connected
    over = accumulating(tasks) if compiled.placing is None else _NONE
    buffered, out = _buffers(compiled, tasks, costs, over, ordered)
    long_steps = heavy_ids(costs)
    large = bulky(compiled.joint.order, symbols)
    if lanes:
        large = set(costs)  # programs have parts only for steps that one thread computes
    return Partition(tasks, bound, long_steps, large, buffered, out, over, lanes, ordered), reason


def _rows_us(
    compiled: Compiled, costs: Costs, symbols: Mapping[str, int], ordered: Collection[int],
    measured: bool,
) -> dict[int, float]:  # fmt: skip
    """Return the costs of steps that become rows of tables: without the call, if predicted.

    Steps of less than `_BRIEF_US` are left out: a second thread gains nothing by them.  Views are
    no rows.  Nothing is asked of tables if all steps together are not worth a second thread.
    """
    call_us = 0.0 if measured else rates().call_us
    order = [node for node in compiled.joint.order if costs[node.id] - call_us >= _BRIEF_US]
    if sum([costs[node.id] for node in order]) < parallel_us():
        return {}
    if compiled.tabling(symbols, ordered) is None:
        return {}
    from actorgraph.lower.walkable import kinds

    found = kinds(order, symbols, ordered, classes=compiled.classes)
    with_kinds = zip(order, found, strict=True)
    return {node.id: costs[node.id] - call_us for node, kind in with_kinds if kind == "row"}


def table_us(tasks: Sequence[TaskSpec], costs: Costs) -> list[float]:
    """Return for each task the time of its table rows that are long enough for another worker."""
    least = rates().call_us + _BRIEF_US
    totals = []
    for spec in tasks:
        if len(spec.steps) < FEWEST_ROWS:  # a table has at least as many
            totals.append(0.0)
            continue
        long = [step for step in spec.steps if costs.get(step.id, 0.0) >= least]
        walks = bool(long) and sum([not is_view(step) for step in spec.steps]) >= FEWEST_ROWS
        totals.append(sum([costs[step.id] for step in long if walks and not is_view(step)], 0.0))
    return totals


def work_us(steps: Iterable[Node], costs: Costs) -> float:
    """Return the time that workers spend on steps."""
    # `runs_on` says what `Op.waits` does, in half the time.
    return sum([costs.get(node.id, 0.0) for node in steps if node.op.runs_on == "worker"])


def _without_calls(costs: Costs, rows: Collection[int]) -> dict[int, float]:
    """Return the costs, without the call for brief steps that are no rows: they hold the GIL."""
    call_us = rates().call_us
    return {
        number: cost - call_us if number not in rows and cost - call_us < _BRIEF_US else cost
        for number, cost in costs.items()
    }


def _worthwhile(
    compiled: Compiled, cut: Cut, costs: tuple[Costs, Costs], symbols: Mapping[str, int],
    workers: int,
) -> _Connected | None:  # fmt: skip
    """Return the tasks of a cut, None if it is `by_cost` and hardly faster than one sequence.

    The cut uses the first costs, the comparison the second.
    """
    tasks_made = cut(compiled.joint, costs[0])
    if cut is not by_cost or compiled.waits:
        return _connected(compiled, tasks_made, costs[0], symbols)
    weighed = costs[1]
    alone_us = 0.0
    for node in compiled.joint.order:
        shared = sharing(tile_count(node, symbols), workers) if node.op.in_blas else 1.0
        alone_us += weighed[node.id] / shared
    if not may_gain(len(tasks_made), workers, alone_us):
        return None
    if not (compiled.jit or compiled.has_waves):
        # Connecting takes five times as long as this, and makes tasks only a little shorter.
        work = [work_us(spec.steps, weighed) for spec in tasks_made]
        if not gains(_needed(tasks_made), work, workers, alone_us, worth=1.0):
            return None
    connected = _connected(compiled, tasks_made, costs[0], symbols)
    tasks = connected[0]
    before = [[port.producer for port in spec.ports if port.producer is not None] for spec in tasks]
    sooner = gains(before, [work_us(spec.steps, weighed) for spec in tasks], workers, alone_us)
    return connected if sooner else None


def _needed(tasks: Sequence[TaskSpec]) -> list[set[int]]:
    """Return for each task the numbers of those that it waits for."""
    of = {step.id: number for number, spec in enumerate(tasks) for step in spec.steps}
    return [
        {of[part.id] for step in spec.steps for part in step.inputs if part.id in of} - {number}
        for number, spec in enumerate(tasks)
    ]


def _connected(
    compiled: Compiled, cut_tasks: list[TaskSpec], costs: Costs, symbols: Mapping[str, int]
) -> _Connected:
    """Return the tasks with their ports and sends, the steps that depend on symbols, and lanes."""
    from actorgraph.lower.simplify import combined

    joint = compiled.joint
    tasks = combined(cut_tasks, joint, compiled.late)
    parts = compiled.lowered([spec.steps for spec in tasks], symbols)
    for spec, steps in zip(tasks, parts, strict=True):
        spec.steps = steps
    specs, lanes = _with_ports(compiled, tasks, costs, symbols)
    bound = [
        step
        for spec in specs
        for step in spec.steps
        # Most have nothing that could.
        if (step.attrs or step.op.calls_others) and depends_on_symbols(step)
    ]
    return specs, bound, lanes


def _with_ports(
    compiled: Compiled, tasks: list[TaskSpec], costs: Costs, symbols: Mapping[str, int]
) -> tuple[list[TaskSpec], list[Lane | None]]:
    placing = compiled.placing
    if placing is not None:
        return placing.connected(tasks, compiled.result_of, compiled.joint, costs, symbols)
    return connect(tasks, compiled.result_of), []


def _buffers(
    compiled: Compiled, tasks: Sequence[TaskSpec], costs: Costs, over: frozenset[int],
    regular_ids: set[int],
) -> tuple[list[frozenset[int]], list[frozenset[int]]]:  # fmt: skip
    """Return for each task the steps that write into buffers, and into arrays that leave."""
    buffered, out = [_NONE] * len(tasks), [_NONE] * len(tasks)
    if compiled.interpreter is not None or compiled.placing is not None:
        return buffered, out
    most_us = max(costs.values(), default=0.0)
    for index, spec in enumerate(tasks):
        # Most tasks of one node need not be weighed.
        if len(spec.steps) * most_us < _LEASING_US or work_us(spec.steps, costs) < _LEASING_US:
            continue
        written = writing(spec.steps, regular_ids)
        if len(spec.steps) > 1:
            buffered[index] = written - escaping(spec.steps, spec.kept)
        out[index] = written - buffered[index] - over
    return buffered, out
