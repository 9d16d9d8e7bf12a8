"""NumPy functions that `ag.ops` lacks, as functions of nodes with NumPy's signatures.

Each is built of ops, mostly by calling NumPy functions on nodes.  Parameters of NumPy that are not
listed are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node
from actorgraph.operands import as_node, is_weak
from actorgraph.ops import (
    creation,
    linalg,
    matrices,
    matrix_norms,
    rearranging,
    shaping,
    spectral,
    statistics,
)
from actorgraph.ops._arrays import highest
from actorgraph.ops.arithmetic import is_complex
from actorgraph.ops.broadcasting import broadcast_like, expand_dims
from actorgraph.ops.matrices import hermitian as hermitian_part
from actorgraph.types import size_of

_FULL = slice(None)


def node_of(*values: Any) -> Node:
    """Return the first of the values that is a node."""
    found = next((value for value in values if isinstance(value, Node)), None)
    if found is None:
        raise GraphTypeError("at least one argument has to be a node")
    return found


def nodes_of(values: Sequence[Any], rank: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the values as nodes of one graph, of at least a rank."""
    home = node_of(*values)
    nodes = [as_node(value, home) for value in values]
    return nodes if rank is None else list(map(rank, nodes))


def hstack(tup: Sequence[Any]) -> Node:
    """Join along the second axis, or the first of one-dimensional arrays."""
    parts = nodes_of(tup, atleast_1d)
    return shaping.concatenate(parts, 0 if parts[0].ndim == 1 else 1)


def column_stack(tup: Sequence[Any]) -> Node:
    """Join columns; one-dimensional arrays are columns."""
    parts = nodes_of(tup, atleast_1d)
    return shaping.concatenate([expand_dims(p, 1) if p.ndim == 1 else p for p in parts], 1)


def _at_least(rank: int, shapes: Sequence[Any]) -> Callable[..., Any]:
    """Return ``atleast_nd``; `shapes` are the axes to insert by the rank of the argument."""

    def atleast(*arys: Any) -> Any:
        nodes = nodes_of(arys)
        found = [x if x.ndim >= rank else expand_dims(x, shapes[x.ndim]) for x in nodes]
        return found[0] if len(found) == 1 else tuple(found)

    atleast.__name__ = f"atleast_{rank}d"
    return atleast


atleast_1d = _at_least(1, [0])
atleast_2d = _at_least(2, [(0, 1), 0])
atleast_3d = _at_least(3, [(0, 1, 2), (0, 2), 2])


def split(ary: Node, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """Cut into equal parts, or at the given indices."""
    if isinstance(indices_or_sections, (int, np.integer)):
        return shaping.split(ary, int(indices_or_sections), axis)
    return _cut(ary, list(indices_or_sections), axis)


def array_split(ary: Node, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """Cut into parts that differ by one entry at most, or at the given indices."""
    if not isinstance(indices_or_sections, (int, np.integer)):
        return _cut(ary, list(indices_or_sections), axis)
    dim, parts = ary.dims[axis], int(indices_or_sections)
    if not isinstance(dim, int):
        raise ShapeError(f"array_split: dim {dim} is known only in a run; use ag.ops.split")
    sizes = [dim // parts + (part < dim % parts) for part in range(parts)]
    return _cut(ary, np.cumsum(sizes)[:-1].tolist(), axis)


def _cut(ary: Node, indices: list[Any], axis: int) -> list[Node]:
    place = shaping.one_axis(axis, ary.ndim)
    ends = zip([None, *indices], [*indices, None], strict=True)
    return [ary[(*[_FULL] * place, slice(start, stop))] for start, stop in ends]


def rot90(m: Node, k: int = 1, axes: Sequence[int] = (0, 1)) -> Node:
    """Turn by quarters in the plane of two axes."""
    first, second = (shaping.one_axis(axis, m.ndim) for axis in axes)
    if first == second:
        raise ShapeError(f"rot90: the axes {tuple(axes)} are one axis")
    quarters = k % 4
    if quarters == 2:
        return rearranging.flip(m, (first, second))
    if quarters == 1:
        return shaping.swapaxes(rearranging.flip(m, second), first, second)
    return rearranging.flip(shaping.swapaxes(m, first, second), second) if quarters else m


def rollaxis(a: Node, axis: int, start: int = 0) -> Node:
    """Move an axis before the place `start`."""
    place = shaping.one_axis(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return rearranging.moveaxis(a, place, start - (place < start))


def diff(a: Node, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Node:
    """Differences of neighbours, `n` times, with values before and behind them."""
    place = shaping.one_axis(axis, a.ndim)
    if not n:
        return a
    lead = (_FULL,) * place
    ends = [None if end is None else as_node(end, a) for end in (prepend, append)]
    row = a[(*lead, slice(0, 1))]
    before, behind = (
        [] if end is None else [end if end.ndim else broadcast_like(end, row)] for end in ends
    )
    a = shaping.concatenate([*before, a, *behind], place) if before or behind else a
    for _ in range(n):
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(None, -1))]
    return a


def gradient(f: Node, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes of the parabola through three neighbours, at the ends through two or three.

    Spacings are a number, a number for each axis, or the coordinates along each.
    """
    if edge_order not in (1, 2):
        raise GraphTypeError(f"np.gradient: edge_order is 1 or 2, got {edge_order!r}")
    axes = tuple(range(f.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    steps = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes):
        raise GraphTypeError(
            f"np.gradient takes one spacing, or one for each of {len(axes)} axes, got {len(steps)}"
        )
    found = [_slope(f, step, axis_, edge_order) for step, axis_ in zip(steps, axes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(f: Node, step: Any, axis: int, edge_order: int) -> Node:
    place = shaping.one_axis(axis, f.ndim)
    dim = f.dims[place]
    if isinstance(dim, int) and dim <= edge_order:
        raise ShapeError(f"np.gradient needs {edge_order + 1} entries along axis {axis} of {f!r}")
    if not is_weak(step):
        step = as_node(step, f)
        if step.ndim > 1:
            raise ShapeError(f"np.gradient: a spacing has one dim at most, got {step!r}")
        if step.ndim:
            step = expand_dims(diff(step), tuple(range(1, f.ndim - place)))
    slopes = diff(f, 1, place) / step

    def part(start: int | None, stop: int | None) -> tuple[Node, Any]:
        """Return slopes between neighbours and how far those are apart."""
        apart = step[start:stop] if isinstance(step, Node) and step.ndim else step
        return slopes[(*(_FULL,) * place, slice(start, stop))], apart

    (before, wide), (after, far) = part(None, -1), part(1, None)
    middle = (before * far + after * wide) / (wide + far)
    (first, wide), (last, far) = part(0, 1), part(-1, None)
    if edge_order == 2:
        (second, more), (third, less) = part(1, 2), part(-2, -1)
        first = first + (first - second) * (wide / (wide + more))
        last = last + (last - third) * (far / (far + less))
    return shaping.concatenate([first, middle, last], place)


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Node:
    """Cross products of vectors of 3 along an axis of each."""
    left, right = nodes_of((a, b))
    if axis is not None:
        axisa = axisb = axisc = axis
    left, right = (rearranging.moveaxis(*one, -1) for one in ((left, axisa), (right, axisb)))
    return rearranging.moveaxis(linalg.cross(left, right), -1, axisc)


def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last axes."""
    left, right = nodes_of((a, b))
    return np.tensordot(left, right, axes=(-1, -1)) if left.ndim and right.ndim else left * right


def nan_to_num(
    x: Node, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Numbers in place of NaN and infinities, which get no gradient."""
    if is_complex(x):
        parts: list[Any] = [np.real(x), np.imag(x)]
        whole, imaginary = (nan_to_num(part, copy, nan, posinf, neginf) for part in parts)
        return whole.astype(x.dtype) + 1j * imaginary.astype(x.dtype)
    if x.dtype.kind in "biu":
        return x
    high = highest(x.dtype) if posinf is None else posinf
    low = -highest(x.dtype) if neginf is None else neginf
    finite: Any = np.where(np.isnan(x), nan, x)
    return np.where(x == np.inf, high, np.where(x == -np.inf, low, finite))


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The first choice whose condition holds."""
    if len(condlist) != len(choicelist):
        raise ShapeError(
            f"np.select on nodes takes as many conditions as choices, got {len(condlist)} and "
            f"{len(choicelist)}"
        )
    # np.where also takes arrays: the default may meet a choice that is an array.
    chosen = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        chosen = np.where(condition, choice, chosen)
    return chosen


def _partitioned(order: Callable[..., Any]) -> Callable[..., Any]:
    """Return a partition: the sorted entries are one, so `order` sorts them."""

    def partitioned(a: Node, kth: Any, axis: int | None = -1) -> Any:
        size = size_of(a.dims if axis is None else (a.dims[shaping.one_axis(axis, a.ndim)],))
        for place in np.ravel(kth):
            if isinstance(size, int) and not -size <= place < size:
                raise ShapeError(f"np.partition on nodes: kth={place} is outside of {size} entries")
        return order(a, axis=axis)

    return partitioned


def norm(x: Node, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Node:
    """Norm of vectors along an axis, or of matrices in two axes."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if ord is None:
        return statistics.norm(x, 2, axes, keepdims)
    if len(axes) == 2:
        return matrix_norms.matrix_norm(x, ord, axes, keepdims)
    return statistics.norm(x, ord, axes, keepdims)


def svd(
    a: Node, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Singular values and vectors; with whole bases by default, unlike `ag.ops.svd`."""
    a = hermitian_part(a) if hermitian else a
    return spectral.svd(a, full_matrices) if compute_uv else spectral.svdvals(a)


NUMPY_ONLY: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        array_split, atleast_1d, atleast_2d, atleast_3d, column_stack, cross, diff, gradient,
        hstack, inner, nan_to_num, rollaxis, rot90, select, split,
    )
} | {
    "partition": _partitioned(np.sort), "argpartition": _partitioned(np.argsort),
    "append": lambda arr, values, axis=None: shaping.concatenate([arr, values], axis),
    "vstack": lambda tup: shaping.concatenate(nodes_of(tup, atleast_2d), 0),
    "dstack": lambda tup: shaping.concatenate(nodes_of(tup, atleast_3d), 2),
    "hsplit": lambda ary, indices_or_sections: (
        split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)
    ),
    "vsplit": lambda ary, indices_or_sections: split(ary, indices_or_sections, 0),
    "dsplit": lambda ary, indices_or_sections: split(ary, indices_or_sections, 2),
    "unstack": lambda x, *, axis=0: tuple(shaping.unstack(x, axis)),
    "fliplr": lambda m: rearranging.flip(m, 1),
    "flipud": lambda m: rearranging.flip(m, 0),
    "matrix_transpose": shaping.swap_last,
    "linalg.matrix_transpose": shaping.swap_last,
    "ptp": lambda a, axis=None, out=None, keepdims=False: (
        np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)
    ),
    "copy": lambda a: a,
    "linspace": lambda start, stop, num=50, endpoint=True, *, dtype=None: (
        creation.linspace(node_of(start, stop), start, stop, num, endpoint, dtype)
    ),
    "meshgrid": lambda *xi, indexing="xy": (
        tuple(creation.meshgrid(*nodes_of(xi), indexing=indexing))
    ),
    "linalg.diagonal": lambda x, /, *, offset=0: matrices.diagonal(x, offset, -2, -1),
    "linalg.trace": lambda x, /, *, offset=0: matrices.trace(x, offset, -2, -1),
    "linalg.norm": norm,
    "linalg.svd": svd,
}  # fmt: skip
"""By NumPy's name without ``numpy.``."""
