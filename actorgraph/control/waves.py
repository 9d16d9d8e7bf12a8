"""Waves: loops that feed one another, run concurrently as a wavefront.

A loop over the rows that another one stacks needs only the rows that exist already; so the layers
of a recurrent net overlap in time.  A *stage* is such a loop, or an op between two of them that
computes each row by itself.  Rows are cut into blocks.  A block of a stage waits for the same block
of the stage before, and in a loop for its own block before.

The stages become one step, a *wave*; their values are fields of its record.  Invariants: bits do
not depend on the thread that computes a block; and a wave has no side effects: if anything raises,
or there is a floating-point error that is not ignored, all stages are computed again in sequence,
which raises or warns as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import lcm, prod
from typing import Any

import numpy as np

from actorgraph.control.in_blocks import IN_BLOCKS, block_of
from actorgraph.control.layers import made_beside
from actorgraph.control.loop import KEPT_BYTES
from actorgraph.devices import structs
from actorgraph.graph import Node
from actorgraph.lower.joint import Joint
from actorgraph.lower.kernels import kernel
from actorgraph.lower.program import lower_directly
from actorgraph.memory.buffers import fresh
from actorgraph.memory.free_lists import FreeLists
from actorgraph.op import CONSTANT, Op
from actorgraph.ops._records import ITEM, any_types
from actorgraph.rewrite.exact import is_pure, restated
from actorgraph.tiles import workers_here
from actorgraph.types import Checks


def with_waves(steps: Sequence[Node], joint: Joint) -> list[Node]:
    """Return the steps of a task with chains of loops replaced by waves.

    Waves have negative ids; their user's nodes are added to ``joint.sources``.
    """
    result: list[Node] = []
    segment: list[Node] = []
    stages = _Stages()
    for step in steps:
        if not stages.takes(step) and "loop" in step.attrs and stages.needs(step):
            result += stages.written(segment, joint)
            segment, stages = [], _Stages()
            stages.takes(step)
        segment.append(step)
    return [*result, *stages.written(segment, joint)]


class _Stages:
    """Collects the stages of a wave from steps in order."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        # By id of a value that depends on the wave: whether its rows come block by block.
        self._made: dict[int, bool] = {}
        self._last = 0  # number of nodes up to the last loop
        self._loops = 0

    def needs(self, step: Node) -> bool:
        """Return whether a step depends on the wave."""
        return any(part.id in self._made for part in step.inputs)

    def takes(self, step: Node) -> bool:
        """Return whether a step becomes a stage; of others note those that depend on the wave."""
        rows = [self._made.get(part.id) for part in step.inputs]
        spec = step.attrs.get("loop")
        if spec is not None and self._is_loop(step, rows):
            self._made[step.id] = False
            self._nodes.append(step)
            self._last, self._loops = len(self._nodes), self._loops + 1
        elif step.op is ITEM and any(step.inputs[0].id == one.id for one in self._nodes):
            field, of = step.attrs["field"], step.inputs[0].attrs["loop"]
            self._made[step.id] = of.carries <= field != of.trips  # it has a row for each trip
            self._nodes.append(step)
        elif any(rows) and _is_by_rows(step, rows):
            self._made[step.id] = True
            self._nodes.append(step)
        else:
            if self.needs(step):
                self._made[step.id] = False
            return False
        return True

    def _is_loop(self, step: Node, rows: Sequence[bool | None]) -> bool:
        spec = step.attrs["loop"]
        if spec.test is not None or False in rows:
            return False
        if not all(is_pure(node.op) and node.op.kernel is None for node in spec.body.nodes):
            return False
        number, consts, _, carries, xs = spec.split(rows)
        if any([number, *consts, *carries]):
            return False
        first = next((one for one in self._nodes if "loop" in one.attrs), None)
        return first is None or (any(xs) and spec.reverse == first.attrs["loop"].reverse)

    def written(self, segment: list[Node], joint: Joint) -> list[Node]:
        """Return the steps of the segment, with the wave if there is one."""
        if self._loops < 2:
            return segment
        nodes = self._nodes[: self._last]
        stages = [node for node in nodes if node.op is not ITEM]
        members = {node.id for node in nodes}
        inputs = {
            part.id: part for node in nodes for part in node.inputs
            if part.id not in members and part.op is not CONSTANT
        }  # fmt: skip
        program = lower_directly(nodes, [*inputs.values()], stages, bound=())
        number = ~stages[0].id
        joint.sources[number] = joint.source(stages[0])
        attrs = {"nodes": tuple(nodes), "given": tuple(inputs), "program": program}
        wave = Node(
            stages[0].graph, number, WAVE, tuple(inputs.values()), attrs, stages[0].type, Checks(),
            stages[0].line, None, f"wave of {stages[0].name}",
        )  # fmt: skip
        fields = {stage.id: field for field, stage in enumerate(stages)}
        after = [
            restated(step, ITEM, (wave,), {"field": fields[step.id]}) if step.id in fields else step
            for step in segment
            if step.id in self._made
        ]
        return [*[step for step in segment if step.id not in self._made], wave, *after]


def _is_by_rows(step: Node, rows: Sequence[bool | None]) -> bool:
    """Return whether each row of the result depends on one row of each operand with rows."""
    if step.op is IN_BLOCKS:
        return rows[1] is None
    if step.op.ufunc in (None, "matmul") or step.attrs or not is_pure(step.op):
        return False
    return all(
        part.dims == step.dims or (row is None and part.ndim < step.ndim)
        for part, row in zip(step.inputs, rows, strict=True)
    )


class _RowStage:
    """A stage that computes a block of rows from blocks of its operands' rows."""

    def __init__(
        self, node: Node, call: Callable[..., Any], operands: Sequence[Any],
        room: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._call, self._operands = call, operands
        self._writes = node.op is IN_BLOCKS or isinstance(call, np.ufunc)
        self._cut = [part.ndim == node.ndim and node.op is not IN_BLOCKS for part in node.inputs]
        self._cut[0] |= node.op is IN_BLOCKS
        first = operands[self._cut.index(True)]
        width = operands[1].shape[-1] if node.op is IN_BLOCKS else first.shape[-1]
        self.made = room((*first.shape[:-1], width), node.dtype)

    def advance(self, positions: range) -> None:
        """Compute the rows of consecutive positions."""
        low, high = sorted((positions[0], positions[-1]))
        pairs = zip(self._operands, self._cut, strict=True)
        rows = slice(low, high + 1)
        given = [one[rows] if cut else one for one, cut in pairs]
        if self._writes:
            self._call(*given, out=self.made[rows])
        else:
            self.made[rows] = self._call(*given)


class _WaveKernel:
    """A wave compiled for one binding: called with the run and the operands."""

    def __init__(self, node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> None:
        self._nodes, self._given = node.attrs["nodes"], node.attrs["given"]
        self._stages = [step for step in self._nodes if step.op is not ITEM]
        kernels = [kernel(step, np, symbols, watch=watch) for step in self._nodes]
        self._kernels = dict(zip([step.id for step in self._nodes], kernels, strict=True))
        program = node.attrs["program"]
        self._in_turn = program.make(*kernels, *[step.attrs["value"] for step in program.constants])
        loops = [step for step in self._stages if "loop" in step.attrs]
        for step in loops:
            self._kernels[step.id].parts = None
        self._total_us = sum([self._kernels[step.id].body_us for step in loops])
        self._stored = all(self._kernels[step.id].stored for step in loops)
        self._lists = FreeLists()

    def allow_tables(self, wait: bool, quick: bool, threads: int = 1) -> None:
        """Allow machine code to walk the loops; see `InnerLoop.allow_tables`.

        One thread walks each loop, since the others may walk other loops of the wave.
        """
        if quick:
            from actorgraph.lower.quick_rows import quick_product

            products = [node.id for node in self._nodes if node.op is IN_BLOCKS]
            self._kernels |= {one: quick_product(self._kernels[one], wait) for one in products}
        for one in self._kernels.values():
            if hasattr(one, "allow_tables"):
                one.allow_tables(wait, quick)

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept between calls and nobody else holds."""
        loops = [getattr(one, "kept_bytes", 0) for one in self._kernels.values()]
        idle: int = sum([one.nbytes for free in self._lists.values() for one in free.kept()[0]])
        return sum(loops) + idle

    @property
    def notes(self) -> list[tuple[Node, str]]:
        """How its loops run where several workers could share them, for users."""
        loops = [one for one in self._stages if "loop" in one.attrs]
        split = [line for one in loops for line in self._kernels[one.id].notes if "as " in line[1]]
        return [*[(one, f"in a wave of {len(loops)} loops") for one in loops], *split]

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        most = 2 * len(self._nodes)
        if len(self._lists) > most:  # of other lengths
            self._lists.clear()
        free = self._lists.of(shape, dtype, True, 0)
        if free is None or prod(shape) * dtype.itemsize > KEPT_BYTES:
            return fresh(shape, dtype)
        free.limit = most
        return free.take()

    def __call__(self, run: Any, *operands: Any) -> Sequence[Any]:
        run, workers = structs.IDLE if run is None else run, workers_here()
        stages: list[Any] = []

        def begin() -> Any:
            stages[:], step, longest_us, direction = self._begun(run, operands, workers)
            return _layers(stages), step, longest_us, direction

        if self._stored and workers > 1 and made_beside(run, begin):
            return [one.made if type(one) is _RowStage else one.fields() for one in stages]
        result: Sequence[Any] = self._in_turn(run, (), *operands)
        return result

    def _begun(
        self, run: Any, operands: Sequence[Any], workers: int
    ) -> tuple[list[Any], int, float, int]:
        """Return the fresh stages, and the other values that `made_beside` needs."""
        values = dict(zip(self._given, operands, strict=True))
        begun: dict[int, Any] = {}
        step = 1
        for node in self._nodes:
            arguments: list[Any] = [
                part.attrs["value"] if part.op is CONSTANT else values.get(part.id)
                for part in node.inputs
            ]
            call = self._kernels[node.id]
            if node.op is ITEM:
                values[node.id] = begun[node.inputs[0].id].made.get(node.attrs["field"])
            elif "loop" in node.attrs:
                share = self._total_us / (workers * max(call.body_us, 0.1))
                begun[node.id] = call.begun(run, arguments, share)
            else:
                begun[node.id] = rows = _RowStage(node, call, arguments, self._room)
                values[node.id] = rows.made
                if node.op is IN_BLOCKS:
                    step = lcm(step, block_of(arguments[0].shape))
        longest_us = max([one.longest_us for one in begun.values() if type(one) is not _RowStage])
        direction = -1 if self._stages[0].attrs["loop"].reverse else 1
        return [*begun.values()], step, longest_us, direction


def _layers(stages: Sequence[Any]) -> list[list[Any]]:
    """Return the layers: each loop, with the stages before it that feed it."""
    layers: list[list[Any]] = [[]]
    for stage in stages:
        for course in getattr(stage, "stages", (stage,)):
            layers[-1].append(course)
            if type(course) is not _RowStage:
                layers.append([])
    return layers[:-1]


WAVE = Op(
    "wave", any_types, lambda xp, *arrays, **attrs: None, kernel=_WaveKernel,
    doc="Loops that feed one another, made at the same time.",
)  # fmt: skip
"""The op of waves."""
