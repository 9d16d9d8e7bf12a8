"""What a node is predicted to cost, for placement only: results never depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod

import numpy as np

from actorgraph.graph import Node
from actorgraph.types import bind_dims

__all__ = ["predicted_us"]

# A middling core, measured within a factor of two on NumPy's own loops and on matrix products
# from 8x64x64 to 128x512x512.
_CALL_US = 0.5
_ADDITIONS_PER_US = 8_000.0
_BLAS_FLOPS_PER_US = 80_000.0
_BYTES_PER_US = 16_000.0
_UNKNOWN_US = 100.0  # a user's op may do anything, such as sleep


def predicted_us(node: Node, symbols: Mapping[str, int]) -> float:
    """Return the predicted microseconds of one call; unknown dims count as 1.

    A user's op that states no cost is taken for a long one: it gets an actor of its own, so that
    a run can be cancelled before and after it, and it never runs in a caller's event loop.
    """
    if node.op.checked and node.op.cost is None:
        return _UNKNOWN_US
    shapes = tuple(_concrete(part, symbols) for part in node.inputs)
    result = _concrete(node, symbols)
    flops = node.op.flops(shapes, result, node.attrs)
    moved = prod(result) * _itemsize(node)
    for shape, part in zip(shapes, node.inputs, strict=True):
        moved += prod(shape) * _itemsize(part)
    # More than a flop a byte is work on data that is in the cache: BLAS, not a pass over memory.
    rate = _BLAS_FLOPS_PER_US if flops > moved else _ADDITIONS_PER_US
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
