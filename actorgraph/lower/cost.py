"""The predicted cost of a node.  It decides where nodes run; results never depend on it.

An op states its flops in units of an addition; `rates` says how fast this computer does them.
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
"""Least flops an element for which an op counts as transcendental, not as additions."""


def predicted_us(node: Node, symbols: Mapping[str, int], walked: bool = False) -> float:
    """Return the predicted microseconds of one call; unknown dims count as 1.

    A user's op that states no cost counts as long: it gets an actor of its own, so that a run can
    be cancelled before and after it, and it never runs in a caller's event loop.  Steps that are
    `walked` (`lower.table`) read from the cache and have no cost of a call.

    Raises
    ------
    GraphTypeError
        If the op's `cost` raises or does not return a number.
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
    speeds = rates()
    computing = _computing_us(node, flops, elements, speeds)
    return computing if walked else speeds.call_us + computing + moved / speeds.bytes_per_us


def _computing_us(node: Node, flops: float, elements: int, speeds: Rates) -> float:
    if node.op.in_blas:
        large = flops >= blas.LEAST_FLOPS and node.dtype.char in blas.BLAS_DTYPES
        return speeds.product_us(flops, blas.provider().name if large else "numpy")
    if flops < _TRANSCENDENTAL * elements:
        return flops / speeds.additions_per_us
    # The rate is that of float32.
    return flops * node.dtype.itemsize / 4 / speeds.transcendental_flops_per_us
