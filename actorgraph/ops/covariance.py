"""Weighted averages and what varies together: average, cov, corrcoef."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.operands import as_node, naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops.arithmetic import sqrt
from actorgraph.ops.broadcasting import axes_of, broadcast_like, conj, expand_dims, squeeze
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.casting import astype
from actorgraph.ops.complex import is_complex, real
from actorgraph.ops.gathering import size_of
from actorgraph.ops.linalg import matmul
from actorgraph.ops.matrices import diagonal
from actorgraph.ops.reductions import mean
from actorgraph.ops.selection import clip, where
from actorgraph.ops.shaping import concatenate, transpose

__all__ = ["average", "corrcoef", "cov"]


@raises(types="`x` is an int.", shapes="The weights fit neither `x` nor the axes.")
@naming_itself
def average(
    x: Node, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Average over `axis` by weights: ``sum(x * weights) / sum(weights)``, as ``numpy.average``.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    weights : node or array, optional
        Of the shape of `x`, or of its dims along the axes in their order; default equal.
    returned : bool
        Return the sum of the weights too.
    keepdims : bool
        Keep the axes as dims of size 1.

    Returns
    -------
    Node, or pair of Node
        Where the weights sum to 0 the division says what NumPy's does.
    """
    axes = axes_of(axis, x.ndim, "average")
    if weights is None:
        found = mean(x, axis, keepdims)
        total = astype(size_of(x), x.dtype) / astype(size_of(found), x.dtype)
        return (found, broadcast_like(total, found)) if returned else found
    share = as_node(weights, x)
    if share.dims != x.dims:
        if axis is None or share.ndim != len(axes):
            raise ShapeError(f"weights of shape {share.shape} fit neither {x!r} nor axis {axis}")
        named = [int(one) % x.ndim for one in np.atleast_1d(axis)]
        share = transpose(share, sorted(range(len(named)), key=named.__getitem__))
        share = expand_dims(share, tuple(i for i in range(x.ndim) if i not in axes))
    total = sum_of(broadcast_like(share, x), axis, keepdims)
    found = sum_of(x * share, axis, keepdims) / total
    return (found, total) if returned else found


@raises(types="`x` is an int.", shapes="More than two dims, or weights that do not fit.")
@naming_itself
def cov(
    x: Node, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, *,
    fweights: Any = None, aweights: Any = None,
) -> Node:  # fmt: skip
    """Covariances of variables, as ``numpy.cov``.

    Parameters
    ----------
    x : node
        One or two dims; each row is a variable, each column an observation.
    y : node or array, optional
        More variables.
    rowvar : bool
        False where each column is a variable.
    bias : bool
        Divide by the number of observations instead of one less.
    ddof : int, optional
        What is subtracted from the number of observations in place of 1 or 0.
    fweights, aweights : node or array of one dim, optional
        How often each observation stands there, and how much it weighs.

    Returns
    -------
    Node
        A matrix, or a scalar for one variable.  NaN where the divisor is not positive.
    """
    rows = _variables(x, rowvar)
    if y is not None:
        rows = concatenate([rows, _variables(as_node(y, x), rowvar)], 0)
    ddof = int(not bias) if ddof is None else ddof
    given = [_weights(x, one) for one in (fweights, aweights) if one is not None]
    if given:
        weights = given[0] if len(given) == 1 else given[0] * given[1]
        total = sum_of(weights)
        off = rows - expand_dims(sum_of(rows * weights, 1) / total, 1)
        scaled = off * weights
        lost = sum_of(weights * given[-1]) / total if aweights is not None else 1
        count = total - lost * ddof
    else:
        off = scaled = rows - mean(rows, 1, keepdims=True)
        count = astype(size_of(rows, 1), x.dtype) - ddof
    divisor = real(count)
    # A complex number that is divided by NaN warns; its product with NaN does not.
    rate = astype(1 / where(divisor > 0, divisor, nan), x.dtype)
    found = matmul(off, conj(transpose(scaled))) * rate
    return squeeze(found) if found.dims == (1, 1) else found


def _variables(x: Node, rowvar: bool) -> Node:
    if x.ndim > 2:
        raise ShapeError(f"variables have at most two dims, got {x!r}")
    if x.ndim < 2:
        return expand_dims(x, tuple(range(2 - x.ndim)))
    return x if rowvar else transpose(x)


def _weights(x: Node, given: Any) -> Node:
    found = x.graph.lift(given if isinstance(given, Node) else np.asarray(given))
    if found.ndim != 1:
        raise ShapeError(f"weights of observations have one dim, got {found!r}")
    return astype(found, x.dtype)


@naming_itself
def corrcoef(x: Node, y: Any = None, rowvar: bool = True) -> Node:
    """Correlation coefficients of variables, as ``numpy.corrcoef``; parameters as of `cov`."""
    found = cov(x, y, rowvar)
    if not found.ndim:
        return found / found
    spread = astype(sqrt(real(diagonal(found))), found.dtype)
    scaled = found / expand_dims(spread, 1) / spread
    return scaled if is_complex(scaled) else clip(scaled, -1, 1)
