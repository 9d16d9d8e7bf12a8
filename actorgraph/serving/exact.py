"""Batches in which each request has the bits that it would have alone.

A matrix product of eight rows has other bits than eight products of one row: BLAS adds in another
order.  So ops are applied to the rows of each request separately, in the memory layout that they
would have alone.  Elementwise sums, products, comparisons and the like have only one correct
rounding, and are computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from actorgraph.errors import GraphError
from actorgraph.graph import Node, topological_order
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.kernels import kernel
from actorgraph.machines.batching import Batching
from actorgraph.op import RUN_NUMBER, Attrs, Op, never
from actorgraph.ops._records import any_types
from actorgraph.types import Checks, Tensor

Array = np.ndarray[Any, Any]

_ROUNDED = frozenset(
    """absolute add bitwise_and bitwise_or bitwise_xor divide equal greater greater_equal invert
    less less_equal logical_and logical_not logical_or logical_xor maximum minimum multiply negative
    not_equal sqrt square subtract""".split()
)
"""Ufuncs whose result for real numbers is correctly rounded, so that layouts do not matter."""

_numbers = count()


class _Applied(NamedTuple):
    """The node to apply to each block."""

    node: Node
    has_rows: tuple[bool, ...]  # for each operand
    dim: str


class _Blocks:
    """The kernel: called with the run, the ends of blocks, and the operands."""

    def __init__(self, node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> None:
        self._step: _Applied = node.attrs["step"]
        self._symbols, self._watch = symbols, watch
        self._kernels: dict[int, Any] = {}

    def __call__(self, run: Any, ends: Array, *operands: Array) -> Array:
        has_rows, start, results = self._step.has_rows, 0, []
        for end in ends.tolist():
            parts = [
                np.ascontiguousarray(operand[start:end]) if cut else operand
                for operand, cut in zip(operands, has_rows, strict=True)
            ]
            results.append(self._kernel(end - start)(*parts))
            start = end
        return results[0] if len(results) == 1 else np.concatenate(results)

    def _kernel(self, rows: int) -> Any:
        if rows not in self._kernels:
            symbols = {**self._symbols, self._step.dim: rows}
            self._kernels[rows] = kernel(self._step.node, np, symbols, watch=self._watch)
        return self._kernels[rows]


def _type(checks: Checks, types: tuple[Tensor, ...], attrs: Attrs) -> Any:
    return attrs["step"].node.type


def _predicted(node: Node, symbols: Mapping[str, int]) -> float:
    return predicted_us(node.attrs["step"].node, symbols)


_BY_BLOCKS = Op(
    "by_blocks", any_types, never, typing=_type, kernel=_Blocks, predicted=_predicted,
    doc="An op applied to the rows of each request.",
)  # fmt: skip


def by_blocks(outputs: Mapping[str, Node], dim: str) -> tuple[dict[str, Node], Node]:
    """Return outputs that compute each request by itself, and the input for the ends of blocks.

    Raises `GraphError` for an op that cannot be applied to single requests, or mixes their rows.
    """
    nodes = topological_order(outputs.values())
    graph, rows = nodes[0].graph, Batching(outputs.values(), (), dim=dim).rows
    assigned = {value for _, value, on in graph.assignments if on in nodes}
    ends = graph.input(f"blocks_{next(_numbers)}", (f"blocks_of_{dim}",), "int64")
    copies: dict[Node, Node] = {}
    for node in nodes:
        copies[node] = node
        if node in assigned or any(part.op is RUN_NUMBER for part in node.inputs):
            why = "sets a buffer" if node in assigned else "draws by the number of the run"
            raise _refusal(node, f"{why}, which other requests change")
        if node.is_leaf or not rows.has(node):
            continue
        inputs = [copies[part] for part in node.inputs]
        has_rows = tuple([rows.has(part) for part in node.inputs])
        for part in (node, *[one for one in node.inputs if rows.has(one)]):
            if str(part.dims[0]) != dim:
                raise _refusal(node, f"the first dim of {part.name!r} is not {dim!r}")
        if node.op.waits or node.op.kernel is not None:
            raise _refusal(node, f"the op {node.op.name!r} is not applied to parts of a batch")
        real = all(part.dtype.kind in "biuf" for part in (node, *node.inputs))
        if node.op.ufunc in _ROUNDED and real and not node.attrs:
            copies[node] = graph.apply(node.op, inputs)
        else:
            step = _Applied(node, has_rows, dim)
            copies[node] = graph.apply(_BY_BLOCKS, [ends, *inputs], {"step": step})
    return {name: copies[node] for name, node in outputs.items()}, ends


def _refusal(node: Node, why: str) -> GraphError:
    return GraphError(
        f"exact_batches=True is impossible at {node.name!r} (built at {node.where_built()}): "
        f"{why}; leave exact_batches out, or max_batch_size"
    )
