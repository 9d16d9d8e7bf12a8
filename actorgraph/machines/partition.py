"""`Partition`: the tasks that a cut makes of a mode, and the memory that they write into."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from actorgraph.devices import Lane
from actorgraph.graph import Node
from actorgraph.lower.cuts import Costs, Cut, by_cost, sequential
from actorgraph.lower.fusion import gains, is_heavy, one_after_another, sharing
from actorgraph.lower.kernels import depends_on_symbols
from actorgraph.lower.matmul import tile_count
from actorgraph.lower.regions import TaskSpec, accumulating, connect
from actorgraph.machines.compiled import Compiled
from actorgraph.memory.arenas import Arenas, Layout, in_parts
from actorgraph.memory.buffers import bulky, leaving, regular, size_in_bytes, writable
from actorgraph.memory.free_lists import RECYCLED_BYTES, FreeList, FreeLists
from actorgraph.types import bind_shape

__all__ = ["Partition", "UNCUT", "partitioned", "spent_us"]

_LEASING_US = 5.0
"""Turns predicted to take less allocate what they write: leasing memory costs a turn 0.5 us."""

_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The tasks of a mode.

    Attributes
    ----------
    tasks : sequence of TaskSpec
        With their ports and sends.
    bound : sequence of Node
        The steps whose kernels depend on the symbols of a run.
    long_steps, bulky : set of int
        The steps that take long, and those with large values, by the sizes of the first run.
    buffered, leaving : sequence of frozenset of int
        Per task: the steps that write into memory which the machine keeps, and those that write
        into arrays which leave the turn.
    over : frozenset of int
        The steps that write over their first operand.
    lanes : sequence of Lane or None
        Per task: where it runs, None for the host; empty where all do so there.
    """

    tasks: Sequence[TaskSpec]
    bound: Sequence[Node]
    long_steps: set[int]
    bulky: set[int]
    buffered: Sequence[frozenset[int]]
    leaving: Sequence[frozenset[int]]
    over: frozenset[int]
    lanes: Sequence[Lane | None] = ()

    @property
    def lane_of(self) -> dict[int, Lane | None]:
        """The lane of each step, by its id; nothing where all run on the host."""
        placed = zip(self.tasks, self.lanes, strict=False)
        return {step.id: lane for spec, lane in placed for step in spec.steps}

    def layout(
        self,
        index: int,
        symbols: Mapping[str, int],
        in_buffers: bool,
        arenas: Arenas,
        free_lists: FreeLists | None,
        sizes: Sequence[int],
    ) -> Callable[[], list[Any]]:
        """Return a function that gives a turn of a task its arrays, and at last their arena.

        Without buffers each of them is None.  They are in lists of these `sizes` where the task has
        parts.
        """
        planned, out = self.buffered[index], self.leaving[index]
        if not in_buffers:
            return partial(list, in_parts([None] * (len(planned) + len(out) + 1), sizes))
        from actorgraph.memory.packing import assign

        spec = self.tasks[index]
        results = {node.id for node, _ in spec.results}
        found: dict[int, FreeList | None] = {}
        for step in spec.steps:
            if step.id in out:
                shape, handed_out = bind_shape(step.dims, symbols, 0), step.id in results
                free_list = (
                    None if free_lists is None else free_lists.of(shape, step.dtype, handed_out, 2)
                )
                found[step.id] = free_list
        preallocated = () if free_lists is None else self.preallocated(index, symbols)
        buffers = assign(spec.steps, spec.kept, planned, symbols, preallocated)
        return Layout(arenas, buffers, spec.steps, symbols, found, sizes).lease

    def preallocated(self, index: int, symbols: Mapping[str, int]) -> list[int]:
        """Return the steps of a task whose arrays leave the turn, but exist from its beginning."""
        out = self.leaving[index]
        return [
            step.id
            for step in self.tasks[index].steps
            if step.id in out and size_in_bytes(step, symbols) >= RECYCLED_BYTES
        ]


UNCUT = Partition((), (), set(), set(), (), (), _NONE)
"""Of a mode that has not run yet."""


def partitioned(
    compiled: Compiled, cut: Cut, costs: Costs, symbols: Mapping[str, int], workers: int
) -> tuple[Partition, str | None]:
    """Return the tasks that a cut makes, and why they are one sequence if that is better.

    What `by_cost` makes is weighed: where several tasks gain too little, one sequence stands for
    them.
    """
    reason = None
    tasks: Sequence[TaskSpec] = ()
    if cut is by_cost:
        reason = one_after_another(compiled.joint.order, costs, workers)
    if reason is None:
        tasks, bound, lanes = _connected(compiled, cut, costs, symbols)
        weighed = cut is by_cost and not compiled.waits
        if weighed and not _gain(compiled, tasks, costs, symbols, workers):
            reason = f"{workers} workers would end hardly sooner than one"
    if reason is not None:
        tasks, bound, lanes = _connected(compiled, sequential, costs, symbols)
    over = accumulating(tasks) if compiled.on_host else _NONE
    buffered, out = _buffers(compiled, tasks, costs, over)
    long_steps = {number for number, cost in costs.items() if is_heavy(cost)}
    large = bulky(compiled.joint.order, symbols)
    if lanes:
        large = set(costs)  # the parts of a program are for what one thread computes
    return Partition(tasks, bound, long_steps, large, buffered, out, over, lanes), reason


def spent_us(spec: TaskSpec, costs: Costs) -> float:
    """Return what workers spend; what steps share (`lower.sharing`) is a part of what they cost."""
    return sum([costs.get(node.id, 0.0) for node in spec.steps if not node.op.waits])


def _gain(
    compiled: Compiled,
    tasks: Sequence[TaskSpec],
    costs: Costs,
    symbols: Mapping[str, int],
    workers: int,
) -> bool:
    """Return whether the tasks are expected to end clearly sooner than one sequence."""
    before = [[port.producer for port in spec.ports if port.producer is not None] for spec in tasks]
    alone_us = sum(
        costs[node.id] / sharing(tile_count(node, symbols), workers)
        for node in compiled.joint.order
    )
    return gains(before, [spent_us(spec, costs) for spec in tasks], workers, alone_us)


def _connected(
    compiled: Compiled, cut: Cut, costs: Costs, symbols: Mapping[str, int]
) -> tuple[list[TaskSpec], Sequence[Node], list[Lane | None]]:
    """Return the tasks with their ports and sends, the steps that depend on symbols, and lanes."""
    from actorgraph.lower.simplify import combined

    joint = compiled.joint
    tasks = combined(cut(joint, costs), joint, compiled.late)
    steps: Sequence[Node] = [step for spec in tasks for step in spec.steps]
    if compiled.jit:
        from actorgraph.jit import lowering as jit

        steps = jit.fuse(tasks, compiled.result_of, symbols)
    elif compiled.shares:
        from actorgraph.lower.sharing import shared

        for spec in tasks:
            spec.steps = shared(spec.steps, joint)
    specs, lanes = _with_ports(compiled, tasks, costs, symbols)
    if lanes:
        steps = [step for spec in specs for step in spec.steps]
    return specs, [step for step in steps if depends_on_symbols(step)], lanes


def _with_ports(
    compiled: Compiled, tasks: list[TaskSpec], costs: Costs, symbols: Mapping[str, int]
) -> tuple[list[TaskSpec], list[Lane | None]]:
    from actorgraph.lower.deadlock import check_order

    placing = compiled.placing
    if placing is not None:
        return placing.connected(tasks, compiled.result_of, compiled.joint, costs, symbols)
    specs = connect(tasks, compiled.result_of)
    check_order(specs)
    return specs, []


def _buffers(
    compiled: Compiled, tasks: Sequence[TaskSpec], costs: Costs, over: frozenset[int]
) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """Return which steps of each task write into buffers, and which into arrays that leave."""
    buffered, out = [_NONE] * len(tasks), [_NONE] * len(tasks)
    if compiled.interpreter is not None or not compiled.on_host:
        return buffered, out
    regular_ids = regular(compiled.joint.order)
    for index, spec in enumerate(tasks):
        if spent_us(spec, costs) < _LEASING_US:
            continue
        # What begins several steps (`lower.sharing`) is laid out like its operand.
        begun = [step for step in spec.steps if step.id < 0] if compiled.shares else ()
        regular_ids.update([step.id for step in begun if step.inputs[0].id in regular_ids])
        if len(spec.steps) > 1:
            buffered[index] = writable(spec.steps, spec.kept, regular_ids)
        out[index] = leaving(spec.steps, buffered[index], regular_ids) - over
    return buffered, out
