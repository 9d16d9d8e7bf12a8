"""What a node is predicted to cost, for placement only: results never depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod

import numpy as np

from actorgraph.graph import Node
from actorgraph.types import bind_dims

__all__ = ["predicted_us"]

# A middling core: measured on the reference machines of docs/performance.md, within a factor of
# two for elementwise work and for matrix products above 64x64.
_CALL_US = 0.6
_FLOPS_PER_US = 20_000.0
_ELEMENT_OPS_PER_US = 1_000.0
_BYTES_PER_US = 8_000.0


def predicted_us(node: Node, symbols: Mapping[str, int]) -> float:
    """Return the predicted microseconds of one call; unknown dims count as 1."""
    shapes = tuple(_concrete(part, symbols) for part in node.inputs)
    result = _concrete(node, symbols)
    flops = node.op.flops(shapes, result, node.attrs)
    moved = prod(result) * _itemsize(node)
    for shape, part in zip(shapes, node.inputs, strict=True):
        moved += prod(shape) * _itemsize(part)
    # An op that declares a cost of its own is arithmetic in a library's inner loop; an
    # elementwise op does one library call of some 1 ns an element.
    rate = _FLOPS_PER_US if node.op.cost is not None else _ELEMENT_OPS_PER_US
    return _CALL_US + flops / rate + moved / _BYTES_PER_US


def _concrete(node: Node, symbols: Mapping[str, int]) -> tuple[int, ...]:
    sizes = []
    for dim in node.dims:
        try:
            sizes.append(bind_dims(dim, symbols))
        except KeyError:
            sizes.append(1)
    return tuple(sizes)


@cache
def _size_of_dtype(name: str) -> int:
    return np.dtype(name).itemsize


def _itemsize(node: Node) -> int:
    return _size_of_dtype(str(node.type.dtype))
