"""What a node is predicted to cost, for placement only: results never depend on it.

An op states its flops, additions as the unit; `rates` says how fast this machine does them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from actorgraph.devices import blas
from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.lower.rates import Rates, rates
from actorgraph.types import bind_shape

_UNKNOWN_US = 100.0  # a user's op may do anything, such as sleep

_TRANSCENDENTAL = 4.0
"""Flops an element from which an op is taken for a transcendental function, not a pass of sums."""


def predicted_us(node: Node, symbols: Mapping[str, int], walked: bool = False) -> float:
    """Return the predicted microseconds of one call; unknown dims count as 1.

    A user's op that states no cost is taken for a long one: it gets an actor of its own, so that
    a run can be cancelled before and after it, and it never runs in a caller's event loop.
    Where steps are `walked` (`lower.table`), what they read is in the cache and calls cost nothing.

    Raises
    ------
    GraphTypeError
        The `cost` of the op raises, or returns something else than a number.
    """
    if node.op.predicted is not None:
        return node.op.predicted(node, symbols)
    if node.op.checked and node.op.cost is None:
        return _UNKNOWN_US
    shapes = tuple(bind_shape(part.dims, symbols, 1) for part in node.inputs)
    result = bind_shape(node.dims, symbols, 1)
    try:
        flops = node.op.flops(shapes, result, node.attrs)
    except Exception as error:
        raise GraphTypeError(
            f"node {node.name!r} ({node.op.name}, built at {node.where_built()}): predicting its "
            f"cost failed with {type(error).__name__}: {error}"
        ) from error
    elements = prod(result)
    moved = elements * node.dtype.itemsize
    for shape, part in zip(shapes, node.inputs, strict=True):
        elements = max(elements, prod(shape))
        moved += prod(shape) * part.dtype.itemsize
    found = rates()
    computing = _computing_us(node, flops, elements, found)
    return computing if walked else found.call_us + computing + moved / found.bytes_per_us


def _computing_us(node: Node, flops: float, elements: int, found: Rates) -> float:
    if node.op.in_blas:
        large = flops >= blas.LEAST_FLOPS and node.dtype.char in blas.BLAS_DTYPES
        return found.product_us(flops, blas.provider().name if large else "numpy")
    if flops < _TRANSCENDENTAL * elements:
        return flops / found.additions_per_us
    # The rate is that of float32.
    return flops * node.dtype.itemsize / 4 / found.transcendental_flops_per_us
