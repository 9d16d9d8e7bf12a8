"""A trial whether the answer to a request depends on the requests it is batched with."""

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
"""Sizes to try for other symbolic dims: windows and strides may need more than 2."""


def changed_by_others(
    outputs: Mapping[str, Node], axes: Mapping[Node, int], out_axes: Mapping[str, int], dim: str
) -> str | None:
    """Return an output of which one row changes when the others do; None if none is seen to.

    `axes` and `out_axes` say where rows are.  Feeds are random, and all bits of the row count: sums
    of one row are the same in all batches of one size.  None too if user ops would be called, or if
    no random feeds can be computed.
    """
    nodes = topological_order(outputs.values())
    if any(node.op.checked or node.op.waits for node in nodes):
        return None
    for size in _SIZES:
        draw = np.random.default_rng(0)
        try:
            values = {node: _leaf_value(node, dim, size, draw) for node in nodes if node.is_leaf}
            fed = {node: value for node, value in values.items() if value is not None}
            redrawn = {node: _redrawn(fed[node], axis, draw) for node, axis in axes.items()}
            with np.errstate(all="ignore"):
                before = evaluate(outputs.values(), fed)
                after = evaluate(outputs.values(), {**fed, **redrawn})
        except Exception:  # noqa: BLE001 - an index is out of range, sizes do not fit, and the like
            continue
        for name, *pair in zip(outputs, before, after, strict=True):
            old, new = (np.take(value, _KEPT, out_axes[name]).tobytes() for value in pair)
            if old != new:
                return name
        return None
    return None


def _leaf_value(node: Node, dim: str, size: int, draw: np.random.Generator) -> Any:
    """Return the value to feed to a leaf, None for a constant."""
    if node.op is INPUT:
        symbols = defaultdict(partial(int, size), {dim: _ROWS})
        shape = [size if own is UNKNOWN else bind_dims(own, symbols) for own in node.dims]
        return _random(shape, node.dtype, draw)
    if node.op is RUN_NUMBER:
        return np.array(0)
    return node.value if isinstance(node, Variable) else None


def _redrawn(array: Any, axis: int, draw: np.random.Generator) -> Any:
    """Return the array with other values in all rows but `_KEPT`."""
    rows = np.moveaxis(_random(array.shape, array.dtype, draw), axis, 0)
    rows[_KEPT] = np.moveaxis(array, axis, 0)[_KEPT]
    return np.moveaxis(rows, 0, axis)


def _random(shape: Any, dtype: np.dtype[Any], draw: np.random.Generator) -> Any:
    integral = dtype.kind in "iub"  # 0 and 1 are mostly valid, as classes or masks
    values = draw.integers(0, 2, shape) if integral else draw.uniform(0.25, 1.75, shape)
    return values.astype(dtype)
