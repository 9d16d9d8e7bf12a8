"""Writing as pure functions: index_put, put, scatter, scatter_add, index_add.

Each returns a new array.  Where positions repeat, the ops that add give the sum, and those that
replace keep the last write in C order of the positions, where PyTorch's result is undefined.  The
gradient goes to the write that is kept; the other writes and replaced entries of `x` get 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build, is_weak
from actorgraph.op import FRESH, Attrs, Op, Sample
from actorgraph.operands import as_node
from actorgraph.ops._arrays import combine_at, is_traced, through_float32
from actorgraph.ops._rules import NO_FIT, NO_INDEX, as_of, declare, on, raises, returns
from actorgraph.ops.broadcasting import along_axis, broadcast_like, zeros_like
from actorgraph.ops.elementwise import where
from actorgraph.ops.gathering import check_along, positions_of
from actorgraph.ops.indexing import (
    ALONG,
    ARRAY,
    Index,
    add_at,
    filled,
    flat_places,
    getitem,
    index_scheme,
    indexed_shape,
    is_adjacent,
    read_index,
    take_index,
)
from actorgraph.ops.reshaping import ravel, reshape_like
from actorgraph.ops.shaping import one_axis, with_zeros
from actorgraph.types import Checks, Shape

__all__ = ["index_add", "index_put", "put", "scatter", "scatter_add"]

_FULL = slice(None)
_LAST_STAYS = (
    "Node of the type of `x`: without `accumulate` the last of repeated writes stays, and gets "
    "the gradient"
)


def writing_scheme(kind: str) -> Any:
    """Return the scheme of an op of an array, values and the operands of an index."""

    def scheme(arity: int, attrs: Attrs) -> str:
        return index_scheme(f"{kind}[*s] -> {kind}[*v]", arity, f"{kind}[*out]")

    return scheme


def written_shape(
    checks: Checks, x: Shape, values: Shape, *arrays: Shape, index: Index, **_: Any
) -> Shape:
    """Shape rule of writing values at an index."""
    wanted = indexed_shape(checks, x, *arrays, index=index)
    if len(values) != len(wanted):
        raise ShapeError(f"values of shape {values} do not fill the index, which takes {wanted}")
    for dim, want in zip(values, wanted, strict=True):
        checks.equal(dim, want, "dims of the values and of the index")
    return x


def _put_forward(xp: Any, x: Any, values: Any, *arrays: Any, index: Index) -> Any:
    out = xp.array(x, order="C")
    check_values(values, x.shape, arrays, index)
    if arrays and not is_traced(xp):
        # One dim of positions, so that the last write does not depend on the operands' layout.
        places = flat_places(xp, x.shape, arrays, index)
        combine_at(xp, None, out.reshape(-1), places.reshape(-1), values.reshape(-1))
    else:
        out[filled(xp, index, arrays)] = values
    return out


def check_values(values: Any, x: Shape, arrays: Sequence[Any], index: Index) -> None:
    """Raise `ValueError` where the values of a run do not fill the index."""
    shape = indexed_shape(Checks(), x, *(array.shape for array in arrays), index=index)
    if values.shape != shape:
        raise ValueError(f"values of shape {values.shape} for positions of shape {shape}")


def _put_vjp(
    argnum: int, ct: Node, y: Node, x: Node, values: Node, *arrays: Node, index: Index
) -> Any:
    if argnum == 0:
        return build(INDEX_PUT, ct, zeros_like(values), *arrays, index=index)
    share = take_index(ct, index, arrays) if argnum == 1 else None
    if share is None or not arrays:
        return share
    return where(build(_LAST_WRITES, x, *arrays, index=index), share, 0)


def _both_tangents(op: Any) -> Any:
    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, index: Index) -> Node | None:
        if tans[0] is tans[1] is None:
            return None
        return build(op(), *with_zeros(tans[:2], xs[:2]), *xs[2:], index=index)

    return jvp


def _last_forward(xp: Any, x: Any, *arrays: Any, index: Index) -> Any:
    places = flat_places(xp, x.shape, arrays, index)
    numbers = xp.arange(places.size)
    last = xp.empty(x.size, numbers.dtype)
    combine_at(xp, None, last, places.reshape(-1), numbers)
    return (last[places.reshape(-1)] == numbers).reshape(places.shape)


_LAST_WRITES: Op = declare(
    "last_writes", lambda arity, attrs: index_scheme("a[*s]", arity, "bool[*out]"), _last_forward,
    shape=indexed_shape,
    samples=(
        Sample(((3, 4), (5,)), {"index": (ARRAY,)}, ints={1: 3}),
        Sample(((3, 4), (2, 4)), {"index": (ALONG, 0)}, ints={1: 3}),
    ),
    memory=FRESH, doc="Whether no later position of an index is the same.",
)  # fmt: skip


def _writes_rows(step: Node) -> bool:
    """Return whether tables can write at the index of a step."""
    return len(step.inputs) == 2 or is_adjacent(step.attrs["index"])


WRITES = (
    on((3, 4), (4,), index=(1,)),
    on((3, 4), (3, 2), index=(_FULL, slice(None, None, -2))),
    Sample(((3, 4), (5, 4), (5,)), {"index": (ARRAY,)}, ints={2: 3}),
    Sample(((3, 4), (2, 5), (5,), (2, 1)), {"index": (ARRAY, ARRAY)}, ints={2: 3, 3: 4}),
    Sample(((3, 4), (2, 4), (2, 4)), {"index": (ALONG, 0)}, ints={2: 3}),
    Sample(((2, 3), (2, 5), (2, 5)), {"index": (ALONG, 1)}, ints={2: 3}),
    Sample(((3, 4), (0, 4), (0,)), {"index": (ARRAY,)}, ints={2: 3}),
)
"""Samples of ops that write."""

INDEX_PUT: Op = declare(
    "index_put", writing_scheme("a"), _put_forward, shape=written_shape, vjp=_put_vjp,
    jvp=_both_tangents(lambda: INDEX_PUT), samples=WRITES, memory=FRESH, traced=_writes_rows,
)  # fmt: skip
"""What replaces entries at an index."""


@through_float32
def _add_forward(xp: Any, x: Any, values: Any, *arrays: Any, index: Index) -> Any:
    out = xp.array(x, order="C")
    check_values(values, x.shape, arrays, index)
    if arrays:
        add_at(xp, out, values, arrays, index)
    else:
        out[index] += values
    return out


INDEX_ADD: Op = declare(
    "index_put_add", writing_scheme("n"), _add_forward, shape=written_shape,
    vjp=lambda argnum, ct, y, x, values, *arrays, index: (
        ct if argnum == 0 else take_index(ct, index, arrays) if argnum == 1 else None
    ),
    jvp=_both_tangents(lambda: INDEX_ADD), samples=WRITES, memory=FRESH, traced=_writes_rows,
    doc="An array with values added at an index; repeated positions add up.",
)  # fmt: skip
"""What adds at an index."""


@returns(_LAST_STAYS)
@raises(
    types="The dtypes differ, or `index` is none.",
    shapes="The values do not broadcast to the index, or the index does not fit `x`.",
)  # fmt: skip
def index_put(x: Node, index: Any, values: Any, accumulate: bool = False) -> Node:
    """Return `x` after ``x[index] = values``, or ``x[index] += values`` to accumulate.

    As ``torch.index_put``, and JAX's ``x.at[index].set`` and ``.add``.

    Parameters
    ----------
    index : as for `getitem`
        Boolean masks included.
    values : node, array or scalar
        Broadcasts to the shape of ``x[index]``.
    accumulate : bool
        Add instead of replace; then repeated positions add up.
    """
    flat, static, arrays = read_index(x, index)
    written = as_node(values, x)
    written = broadcast_like(written, take_index(flat, static, arrays))
    op = INDEX_ADD if accumulate else INDEX_PUT
    return reshape_like(build(op, flat, written, *arrays, index=static), x)


@returns(_LAST_STAYS)
@raises(NO_INDEX, "The values do not broadcast to the indices.")
def put(x: Node, indices: Any, values: Any, accumulate: bool = False) -> Node:
    """Return `x` with values at positions of the flattened array, as ``numpy.put`` on a copy.

    Parameters
    ----------
    indices : integer array or node
        Positions in the flattened `x`.
    values : node, array or scalar
        Broadcasts to the shape of the indices.
    accumulate : bool
        Add instead of replace, as in ``torch.Tensor.put_``.
    """
    node = positions_of(x, indices)
    return reshape_like(index_put(ravel(x), node, values, accumulate), x)


def along(x: Node, axis: int, index: Any, src: Any) -> tuple[Node, Sequence[Node], Index]:
    """Return the values, operands and attribute ``index`` of a write along an axis."""
    place = one_axis(axis, x.ndim)
    node = positions_of(x, index)
    check_along(x, node, place)
    values = as_node(src, x)
    if values.ndim == node.ndim and values.ndim:
        # PyTorch allows more values than positions, and leaves the others out.
        pairs = zip(values.dims, node.dims, strict=True)
        values = getitem(values, tuple(_FULL if n in (d, 1) else slice(d) for n, d in pairs))
    return broadcast_like(values, node), (node,), (ALONG, place)


@raises(NO_INDEX, NO_FIT)
@along_axis("x")
def scatter(x: Node, axis: int, index: Any, src: Any) -> Node:
    """Return `x` with `src` written along an axis, as ``torch.scatter``.

    For axis 1 of a matrix ``result[i, index[i, j]] = src[i, j]``.

    Parameters
    ----------
    index : integer array or node
        Of the rank of `x`, along the other axes at most as long as it.  Negative positions count
        from the end.
    src : node, array or scalar
        Broadcasts to the shape of the index; entries beyond it are left out.

    Returns
    -------
    Node
        Of the type of `x`.  Of several writes to one place the last in C order stays, and gets
        the gradient; PyTorch leaves this undefined.
    """
    values, arrays, static = along(x, axis, index, src)
    return build(INDEX_PUT, x, values, *arrays, index=static)


@returns("Node of the type of `x`")
@as_of(scatter)
@along_axis("x")
def scatter_add(x: Node, axis: int, index: Any, src: Any) -> Node:
    """Return `x` with `src` added along an axis, as ``torch.scatter_add``; see `scatter`.

    For axis 1 of a matrix ``result[i, index[i, j]] += src[i, j]``; repeated positions add up.

    Parameters
    ----------
    x : node
        Numbers.
    """
    values, arrays, static = along(x, axis, index, src)
    return build(INDEX_ADD, x, values, *arrays, index=static)


@returns("Node of the type of `x`")
@raises(NO_INDEX, "The index has not one dim, or the shapes do not fit.")
@along_axis("x")
def index_add(x: Node, axis: int, index: Any, source: Any, alpha: Any = 1) -> Node:
    """Return `x` with the slices of `source` added at positions of an axis, as ``torch.index_add``.

    For axis 0 ``result[index[i]] += alpha * source[i]``; repeated positions add up.

    Parameters
    ----------
    x : node
        Numbers.
    index : integer array or node of one dim
    source : node, array or scalar
        Broadcasts to the shape of `x` with ``len(index)`` along the axis.
    alpha : scalar or node
    """
    values, arrays, static = of_slices(x, axis, index, source)
    values = values if is_weak(alpha) and alpha == 1 else values * alpha
    return build(INDEX_ADD, x, values, *arrays, index=static)


def of_slices(x: Node, axis: int, index: Any, source: Any) -> tuple[Node, Sequence[Node], Index]:
    """Return the values, operands and attribute ``index`` of a write of slices of an axis."""
    place = one_axis(axis, x.ndim)
    node = positions_of(x, index)
    if node.ndim != 1:
        raise ShapeError(f"the index has one dim, got {node!r}")
    _, static, arrays = read_index(x, (*[_FULL] * place, node))
    return broadcast_like(as_node(source, x), take_index(x, static, arrays)), arrays, static
