"""Whether the answer to a request depends on those that it is joined with, found by trying."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from actorgraph.graph import Node, topological_order
from actorgraph.node import Variable
from actorgraph.op import INPUT, RUN_NUMBER
from actorgraph.testing import evaluate
from actorgraph.types import UNKNOWN, bind_dims

_ROWS, _KEPT = 4, 1
_SIZES = 2, 32
"""Of other symbolic dims: windows and strides may need more than 2."""


def changed_by_others(
    outputs: Mapping[str, Node], axes: Mapping[Node, int], out_axes: Mapping[str, int], dim: str
) -> str | None:
    """Return an output whose first row changes when other rows do; None where none is seen to.

    `axes` and `out_axes` say where rows are.  What is computed has random feeds and all bits of the
    first row count: sums of one row are the same in all batches of one size.  Nothing is told where
    ops of the user's own would be called, or no random feeds can be computed.
    """
    nodes = topological_order(outputs.values())
    if any(node.op.checked or node.op.waits for node in nodes):
        return None
    for size in _SIZES:
        draw = np.random.default_rng(0)
        try:
            fed = {node: _given(node, dim, size, draw) for node in nodes if node.is_leaf}
            fed = {node: value for node, value in fed.items() if value is not None}
            others = {node: _redrawn(fed[node], axis, draw) for node, axis in axes.items()}
            with np.errstate(all="ignore"):
                one = evaluate(outputs.values(), fed)
                two = evaluate(outputs.values(), {**fed, **others})
        except Exception:  # noqa: BLE001 - an index is out of range, sizes do not fit, and the like
            continue
        for name, left, right in zip(outputs, one, two, strict=True):
            firsts = [np.take(value, _KEPT, out_axes[name]).tobytes() for value in (left, right)]
            if firsts[0] != firsts[1]:
                return name
        return None
    return None


def _given(node: Node, dim: str, size: int, draw: np.random.Generator) -> Any:
    """Return what a leaf has, None for one that says so itself."""
    if node.op is INPUT:
        symbols = defaultdict(partial(int, size), {dim: _ROWS})
        shape = [size if one is UNKNOWN else bind_dims(one, symbols) for one in node.dims]
        return _random(shape, node.dtype, draw)
    if node.op is RUN_NUMBER:
        return np.array(0)
    return node.value if isinstance(node, Variable) else None


def _redrawn(array: Any, axis: int, draw: np.random.Generator) -> Any:
    """Return the array with other rows than the first."""
    rows = np.moveaxis(_random(array.shape, array.dtype, draw), axis, 0)
    rows[_KEPT] = np.moveaxis(array, axis, 0)[_KEPT]
    return np.moveaxis(rows, 0, axis)


def _random(shape: Any, dtype: np.dtype[Any], draw: np.random.Generator) -> Any:
    integral = dtype.kind in "iub"  # of which 0 and 1 are valid most often, as classes or masks
    made = draw.integers(0, 2, shape) if integral else draw.uniform(0.25, 1.75, shape)
    return made.astype(dtype)
