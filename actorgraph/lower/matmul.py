"""The kernel of matrix products: the provider that computes them, and their tiles.

NumPy computes small products, those of two matrices by `ndarray.dot`: it calls the same BLAS in
half the time of `np.matmul` (0.5 us, not 1.0, for 8x64x64).  Larger ones of float and complex
matrices go to the process's provider (`devices.blas`), and from `CUT_FLOPS` on they are cut along
the longer side of the result into tiles, which idle workers share.

Invariant: provider and tiles follow from the shapes alone, because they change bits.  So every
machine computes the same tiles, with any number of workers.

Measured with OpenBLAS, one thread computes two tiles 1 to 4 % slower than the whole, four 2 to
7 %, eight 8 to 15 %: each tile packs the other operand again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from actorgraph.devices import blas
from actorgraph.graph import Node
from actorgraph.ops._arrays import dot_tells
from actorgraph.scratch import scratch
from actorgraph.tiles import CUT_FLOPS, compute_parts, evenly
from actorgraph.types import bind_shape

_TILE_FLOPS = 2.0**25
_NARROWEST = 128
"""Rows or columns below which a tile spends too much on packing."""

Array = np.ndarray[Any, Any]
Product = Callable[..., Array]


def product(node: Node, symbols: Mapping[str, int]) -> Product:
    """Return the kernel of a matmul node: ``kernel(x, y, out=None)``.

    If the dims say that the product is small, it is NumPy's own function.
    """
    if is_small(node, symbols):
        return _small(node)
    return _product_by(blas.provider(), _small(node))


def is_small(node: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether the dims say that NumPy itself computes a matmul node."""
    # An unknown dim may be large.
    x, y = (bind_shape(part.dims, symbols, sys.maxsize) for part in node.inputs)
    flops = 2 * prod(x) * y[-1]
    return flops < min(blas.LEAST_FLOPS, CUT_FLOPS) or flops < _least(blas.provider())


def _small(node: Node) -> Product:
    """Return the function for small products, which depends on ranks and dtype alone."""
    x, y = [part.ndim for part in node.inputs]
    if y != 2 or x < 2 or node.dtype.char not in blas.BLAS_DTYPES:
        return np.matmul
    return _dot() if x == 2 else _tall


@cache
def _dot() -> Product:
    """Return `dot` for two matrices, or `matmul` where `dot` does not report overflow."""
    return np.ndarray.dot if dot_tells() else np.matmul


def _tall(x: Array, y: Array, out: Array | None = None) -> Array:
    """Multiply a stack by a matrix as one tall matrix: `np.matmul` packs y again for each entry."""
    if not (x.size and y.size):
        return np.matmul(x, y, out)
    if not x.flags.c_contiguous:
        given, x = x, scratch(np, x.shape, x.dtype)
        x[...] = given
    result = np.empty((*x.shape[:-1], y.shape[-1]), x.dtype) if out is None else out
    _dot()(x.reshape(-1, x.shape[-1]), y, result.reshape(-1, y.shape[-1]))
    return result


def _least(provider: blas.Provider) -> float:
    return CUT_FLOPS if provider.name == "numpy" else min(blas.LEAST_FLOPS, CUT_FLOPS)


@cache
def _product_by(provider: blas.Provider, small: Product) -> Product:
    least = _least(provider) / 2  # multiplications
    dtypes = blas.BLAS_DTYPES

    def matrix_product(x: Array, y: Array, out: Array | None = None) -> Array:
        if x.size * y.shape[-1] < least or x.dtype.char not in dtypes:
            return small(x, y, out)
        return _large(provider, x, y, out)

    return matrix_product


def _large(provider: blas.Provider, x: Array, y: Array, out: Array | None) -> Array:
    if x.ndim < 2 or y.ndim < 2 or x.dtype != y.dtype or x.shape[-1] != y.shape[-2]:
        return np.matmul(x, y, out)  # matrix by vector is memory bound; NumPy raises errors
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*batch, x.shape[-2], y.shape[-1])
    result = out if out is not None and _takes(out, shape, x, y) else np.empty(shape, x.dtype)
    if not batch:
        _matrix(provider, x, y, result)
    elif y.ndim == 2:
        # One product of a tall matrix, not one for each entry.
        _matrix(provider, x.reshape(-1, x.shape[-1]), y, result.reshape(-1, y.shape[-1]))
    elif result.size:
        _batch(provider, x, y, result)
    if provider.name != "numpy":
        _let_numpy_complain(x, y, result)
    if out is None or result is out:
        return result
    out[...] = result
    return out


def _takes(out: Array, shape: tuple[int, ...], x: Array, y: Array) -> bool:
    return (
        out.shape == shape
        and out.dtype == x.dtype
        and out.flags.c_contiguous
        and not (np.may_share_memory(out, x) or np.may_share_memory(out, y))
    )


def _let_numpy_complain(x: Array, y: Array, result: Array) -> None:
    """Warn or raise as `np.errstate` says: a BLAS that we call ourselves reports no errors.

    The inner product of the result with itself is the cheapest pass that infinities and NaN
    survive: 1 % of 128x512x512.  It overflows early, which only costs a second product.
    """
    flat = result.reshape(-1)
    with np.errstate(all="ignore"):
        norm = np.vdot(flat, flat)
    if not np.isfinite(norm):
        np.matmul(x, y)


def _matrix(provider: blas.Provider, x: Array, y: Array, out: Array) -> None:
    multiply = provider.multiply
    x, y = _readable(x), _readable(y)
    (m, k), n = x.shape, y.shape[1]
    if 2.0 * m * k * n < blas.LEAST_FLOPS:
        multiply = np.matmul
    tiles = cuts(m, k, n)
    if len(tiles) == 1:
        multiply(x, y, out)
        return

    def columns(part: int) -> None:
        tile = tiles[part]
        multiply(x, y[:, tile], out[:, tile])

    def rows(part: int) -> None:
        tile = tiles[part]
        multiply(x[tile], y, out[tile])

    compute_parts(columns if n >= m else rows, len(tiles))


@lru_cache(maxsize=1024)
def cuts(m: int, k: int, n: int) -> tuple[slice, ...]:
    """Return the tiles of a product of (m, k) and (k, n), along the longer side of its result.

    Their number is a power of 2, as that of workers often is.

    Examples
    --------
    >>> cuts(128, 512, 512)
    (slice(0, 256, None), slice(256, 512, None))
    """
    side, flops = max(m, n), 2.0 * m * k * n
    count = 1
    if flops >= CUT_FLOPS:
        while 2 * count * _TILE_FLOPS <= flops and 2 * count * _NARROWEST <= side:
            count *= 2
    return evenly(side, count)


def tile_count(node: Node, symbols: Mapping[str, int]) -> int:
    """Return the number of tiles of a step, 1 if it is no product or its sizes are unknown."""
    if node.op.ufunc != "matmul":
        return 1
    x, y = (bind_shape(part.dims, symbols, 0) for part in node.inputs)
    if len(x) < 2 or len(y) != 2:
        return 1
    return len(cuts(prod(x[:-1]), x[-1], y[-1]))


def _batch(provider: blas.Provider, x: Array, y: Array, out: Array) -> None:
    """Multiply batches: large entries one by one, small ones in groups by `np.matmul`."""
    batch, (m, n), k = out.shape[:-2], out.shape[-2:], x.shape[-1]
    x = np.broadcast_to(x, (*batch, m, k))
    y = np.broadcast_to(y, (*batch, k, n))
    if 2.0 * m * k * n >= _least(provider):
        for entry in np.ndindex(batch):
            _matrix(provider, x[entry], y[entry], out[entry])
        return
    axis = max(range(len(batch)), key=batch.__getitem__)
    count = min(batch[axis], int(2.0 * out.size * k // _TILE_FLOPS), 16)
    groups = evenly(batch[axis], max(1, count))

    def group(part: int) -> None:
        chosen = (*[slice(None)] * axis, groups[part])
        np.matmul(x[chosen], y[chosen], out[chosen])

    compute_parts(group, len(groups))


def _readable(matrix: Array) -> Array:
    """Return the matrix, copied unless it has unit stride along rows or columns, as BLAS needs."""
    down, across = matrix.strides
    rows, columns = matrix.shape
    item = matrix.itemsize
    by_rows = across == item and down >= columns * item and not down % item
    by_columns = down == item and across >= rows * item and not across % item
    return matrix if by_rows or by_columns else np.ascontiguousarray(matrix)
