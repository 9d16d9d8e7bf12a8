"""Sum and broadcast, and what every rule needs of them to undo broadcasting.

All other ops build on them: only `unbroadcast` and `broadcast_like` know how a cotangent or a
tangent gets the shape of its value.  Where dims are known only at run time (None), the ``*_like``
ops read them from an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import KEPT, KEPT_OUT, MEAN, VIEW, Along, Attrs, LoopRule, Op
from actorgraph.ops._arrays import accumulator, are_columns, column_sums
from actorgraph.ops._rules import WRONG_AXIS, declare, on, raises, returns
from actorgraph.types import UNKNOWN, Checks, Shape, shape_from

__all__ = ["broadcast_like", "broadcast_to", "conj", "expand_dims", "squeeze", "sum"]


_P = ParamSpec("_P")
_R = TypeVar("_R")


@raises(shapes="An axis is out of range, given twice, or no int.")
def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return axes as a sorted tuple of non-negative ints; None means all of them.

    A scalar may be reduced along axis 0 or -1, which changes nothing, as in NumPy and PyTorch.
    """
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)  # a shortcut: the code below takes five times as long
    several = isinstance(axis, Iterable) and not isinstance(axis, str)
    given = tuple(axis) if several else (axis,)
    if not ndim and len(given) < 2 and all(map(_is_of_scalar, given)):
        return ()
    axes = []
    for one in given:
        if not isinstance(one, (int, np.integer)) or not -ndim <= one < ndim:
            wanted = f"an int in [-{ndim}, {ndim})" if ndim else "there: a scalar has no axes"
            raise ShapeError(f"axis {one!r} is not {wanted}")
        axes.append(int(one) % ndim)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axis {axis!r} names a dim twice")
    return tuple(sorted(axes))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (Node, np.ndarray)) and not value.ndim


def _is_of_scalar(axis: Any) -> bool:
    return isinstance(axis, (int, np.integer)) and axis in (0, -1)


def along_axis(like: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a function along an axis take axis 0 or -1 of a scalar, as in PyTorch.

    Scalars gain an axis before the call.  Results lose it again if the argument named `like`, whose
    rank they have, is a scalar.  For any other axis the function raises.
    """

    def add(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def along(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if args and not _is_scalar(args[0]):
                return function(*args, **kwargs)
            bound = signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            axes = [value for name, value in given.items() if name.startswith("axis")]
            scalars = [name for name, value in given.items() if _is_scalar(value)]
            if next(iter(given)) not in scalars or not all(map(_is_of_scalar, axes)):
                return function(*args, **kwargs)
            given |= {name: given[name][None] for name in scalars}
            result: Any = function(*bound.args, **bound.kwargs)
            if like not in scalars:
                return result  # type: ignore[no-any-return]
            if isinstance(result, tuple):
                return tuple(map(_without_axis, result))  # type: ignore[return-value]
            return _without_axis(result)  # type: ignore[return-value]

        return along

    return add


def _without_axis(node: Node) -> Node:
    return squeeze(node, 0) if node.ndim else node


def _add_jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node) -> Node | None:
    given = [tan for tan in tans if tan is not None]
    return broadcast_like(given[0] if len(given) == 1 else build(_ADD, *given), y)


_ADD: Op = declare(
    "add", "n[*s] -> n[*t] -> n[*s|t]", lambda xp, x, y: xp.add(x, y),
    vjp=(lambda ct, _, x, y: unbroadcast(ct, x), lambda ct, _, x, y: unbroadcast(ct, y)),
    jvp=_add_jvp, ufunc="add", memory=KEPT,
    samples=(
        on((3, 4), (3, 4)), on((3, 4), (4,)), on((2, 1), (1, 3)), on((), (3,)), on((0, 2), (2,)),
    ),
    loop=LoopRule("value", "add(x, y)"), linear=(0, 1), jointly=(),
)  # fmt: skip


@raises(both="The operands do not fit the type.")
def add(x: Any, y: Any) -> Node:
    """Add elementwise, as ``x + y``.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """
    return build(_ADD, x, y)


_CONJ: Op = declare(
    "conj", "n[*s] -> n[*s]", lambda xp, x: xp.conjugate(x), vjp=(lambda ct, y, x: conj(ct),),
    jvp=lambda tans, y, x: conj(tans[0]), ufunc="conjugate", memory=KEPT,
    samples=(on((3, 4)),),
)  # fmt: skip


def conj(x: Node) -> Node:
    """Complex conjugate, elementwise; the node itself where it is real."""
    return build(_CONJ, x) if x.dtype.kind == "c" else x


def _expand_shape(checks: Checks, x: Shape, *, axis: tuple[int, ...]) -> Shape:
    dims = iter(x)
    return tuple(1 if i in axis else next(dims) for i in range(len(x) + len(axis)))


@lru_cache(256)
def _new_axes(axis: tuple[int, ...], ndim: int) -> tuple[slice | None, ...]:
    return tuple([None if i in axis else slice(None) for i in range(ndim + len(axis))])


def expanded(xp: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """Return a view of an array with dims of size 1 inserted: the forward of `expand_dims`."""
    return x[_new_axes(axis, x.ndim)]  # a tenth of the cost of np.expand_dims


_EXPAND: Op = declare(
    "expand_dims", "a[*s] -> a[*out]", expanded, shape=_expand_shape,
    vjp=(lambda ct, y, x, axis: build(_SQUEEZE, ct, axis=axis),), linear=(0,),
    samples=(on((3, 4), axis=(0, 2)), on((), axis=(0,))), memory=VIEW,
    loop=LoopRule("view"),
)  # fmt: skip


@raises(shapes=WRONG_AXIS)
def expand_dims(x: Node, axis: int | tuple[int, ...]) -> Node:
    """Insert dims of size 1 at the positions `axis` of the result.

    Type ``a[*s] -> a[*out]``; a view.

    Parameters
    ----------
    axis : int or tuple of int
    """
    count = len(tuple(axis)) if isinstance(axis, Iterable) else 1
    axes = axes_of(axis, x.ndim + count)
    return build(_EXPAND, x, axis=axes) if axes else x


def _squeeze_shape(checks: Checks, x: Shape, *, axis: tuple[int, ...]) -> Shape:
    for one in axis:
        if x[one] != 1 and x[one] is not UNKNOWN:
            raise ShapeError(f"dim {x[one]} at axis {one} is not 1 and cannot be squeezed")
    return tuple(dim for i, dim in enumerate(x) if i not in axis)


_SQUEEZE: Op = declare(
    "squeeze", "a[*s] -> a[*out]", lambda xp, x, axis: x.squeeze(axis), shape=_squeeze_shape,
    vjp=(lambda ct, y, x, axis: build(_EXPAND, ct, axis=axis),), linear=(0,),
    samples=(on((1, 3, 1), axis=(0, 2)),), memory=VIEW, loop=LoopRule("view"),
)  # fmt: skip


@raises(shapes="A dim to be removed is not 1, or an axis is out of range or given twice.")
def squeeze(x: Node, axis: int | tuple[int, ...] | None = None) -> Node:
    """Remove dims of size 1.

    Type ``a[*s] -> a[*out]``; a view.

    Parameters
    ----------
    axis : int or tuple of int, optional
        Default: all dims that are literally 1; a symbol stays, whatever a run binds it to.
    """
    if axis is None:
        axis = tuple(i for i, dim in enumerate(x.dims) if dim == 1)
    axes = axes_of(axis, x.ndim)
    return build(_SQUEEZE, x, axis=axes) if axes else x


def _broadcast_shape(checks: Checks, x: Shape, *, shape: Shape) -> Shape:
    result = checks.broadcast(x, shape)
    if len(result) != len(shape) or any(
        want == 1 and got != 1 for want, got in zip(shape, result, strict=True)
    ):
        raise ShapeError(f"cannot broadcast {x} to {shape}")
    return shape


def _broadcast_forward(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(x, np.generic):
        x = np.asarray(x)
    if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype.char not in "?fdil":
        return xp.broadcast_to(x, shape)
    strides = _broadcast_strides(x.shape, shape, x.itemsize)
    if strides is None:
        return np.broadcast_to(x, shape)
    view = np.ndarray(shape, x.dtype, x, 0, strides)
    view.flags.writeable = False
    return view


# np.broadcast_to finds the strides by an iterator, which takes three times as long as the rest.
@lru_cache(256)
def _broadcast_strides(
    old: tuple[int, ...], new: tuple[int, ...], step: int
) -> tuple[int, ...] | None:
    """Return the strides of a broadcast contiguous array, None where NumPy has to decide."""
    lead = len(new) - len(old)
    if lead < 0 or 0 in new or any(a not in (1, b) for a, b in zip(old, new[lead:], strict=True)):
        return None
    steps = []
    for size in reversed(old):
        steps.append(0 if size == 1 else step)
        step *= size
    return (*[0] * lead, *reversed(steps))


_BROADCAST: Op = declare(
    "broadcast_to", "a[*s] -> a[*out]", _broadcast_forward, shape=_broadcast_shape,
    vjp=(lambda ct, y, x, shape: unbroadcast(ct, x),), linear=(0,),
    samples=(on((4,), shape=(3, 4)), on((3, 1), shape=(2, 3, 4)), on((), shape=(2,))), memory=VIEW,
    loop=LoopRule("view"),
)  # fmt: skip

_BROADCAST_LIKE: Op = declare(
    "broadcast_like", "a[*s] -> a1[*t] -> a[*t]",
    lambda xp, x, like: _broadcast_forward(xp, x, xp.shape(like)),
    vjp=(lambda ct, y, x, like: unbroadcast(ct, x), None), linear=(0,),
    samples=(on((4,), (3, 4)),), memory=VIEW, loop=LoopRule("view"), shape_only=(1,),
)  # fmt: skip


@returns("Node: the node itself where it has that shape")
@raises(shapes="`x` does not broadcast to `shape`.")
def broadcast_to(x: Node, shape: Any) -> Node:
    """Broadcast `x` to `shape` by NumPy's rules.

    Type ``a[*s] -> a[*out]``; a view.

    Parameters
    ----------
    shape : tuple of int, str or Dim
        Dims may be symbols of the graph.
    """
    dims = shape_from(shape)
    return x if dims == x.dims and UNKNOWN not in dims else build(_BROADCAST, x, shape=dims)


def broadcast_like(x: Node, like: Node) -> Node:
    """Broadcast `x` to the shape of `like`, as ``torch.Tensor.expand_as``.

    The node itself where it has that shape, which may be known only in a run.
    """
    if any(dim is UNKNOWN for dim in (*x.dims, *like.dims)):
        return build(_BROADCAST_LIKE, x, like)
    return broadcast_to(x, like.dims)


def zeros_like(node: Node) -> Node:
    """Return zeros of the node's shape and dtype."""
    return broadcast_like(node.graph.constant(np.zeros((), node.dtype)), node)


def reduced_shape(
    checks: Checks, x: Shape, *, axis: tuple[int, ...], keepdims: bool, **_: Any
) -> Shape:
    """Shape rule of a reduction."""
    if keepdims:
        return tuple(1 if i in axis else dim for i, dim in enumerate(x))
    return tuple(dim for i, dim in enumerate(x) if i not in axis)


def _sum_forward(xp: Any, x: Any, out: Any = None, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    # Integers keep their dtype, where NumPy would widen them.
    if x.dtype.itemsize == 2:
        total = xp.add.reduce(x, axis=axis, dtype=accumulator(x.dtype), keepdims=keepdims)
        return total.astype(x.dtype, copy=False)
    if xp is np and are_columns(x.ndim, x.dtype, axis, keepdims):
        return column_sums(x, out)
    return xp.add.reduce(x, axis=axis, dtype=x.dtype, keepdims=keepdims, out=out)


def _quick_sum(node: Node, xp: Any, attrs: Attrs) -> Any:
    columns = xp is np and are_columns(node.inputs[0].ndim, node.dtype, **attrs)
    return column_sums if columns else None  # what the forward would call


def spread(node: Node, x: Node, axis: tuple[int, ...], keepdims: bool) -> Node:
    """Broadcast a node in the shape of a reduction of `x` back to the shape of `x`."""
    kept = node if keepdims or not node.ndim else expand_dims(node, axis)
    return broadcast_like(kept, x)


REDUCTION_SAMPLES = (
    on((3, 4), axis=(0, 1), keepdims=False), on((3, 4), axis=(1,), keepdims=True),
    on((2, 3, 4), axis=(0, 2), keepdims=False), on((), axis=(), keepdims=False),
)  # fmt: skip
"""Where the law tests try reductions."""

_SUM: Op = declare(
    "sum", "n[*s] -> n[*out]", _sum_forward, shape=reduced_shape, memory=KEPT_OUT,
    along=Along((MEAN,), "s", (False, True)),
    vjp=(lambda ct, y, x, axis, keepdims: spread(ct, x, axis, keepdims),),
    linear=(0,), samples=(*REDUCTION_SAMPLES, on((0, 2), axis=(0,), keepdims=False)),
    total="sum", quick=_quick_sum,
)  # fmt: skip


@raises(shapes=WRONG_AXIS)
def sum(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Sum over `axis`; the dtype is kept, also of integers.

    Type ``n[*s] -> n[*out]``.  The sum of no elements is 0.  Floats of two bytes (float16,
    bfloat16) are summed in float32 and rounded once.
    """
    return build(_SUM, x, axis=axes_of(axis, x.ndim), keepdims=bool(keepdims))


_SUM_LIKE: Op = declare(
    "sum_like", "n[*s] -> a1[*t] -> n[*t]", lambda xp, ct, like: _sum_to(xp, ct, xp.shape(like)),
    vjp=(lambda ct, y, x, like: broadcast_like(ct, x), None), linear=(0,),
    samples=(on((3, 4), (4,)), on((3, 4), (3, 1))),
    doc="Sum to the shape of an array that broadcasts to the argument.",
)  # fmt: skip


def _sum_to(xp: Any, ct: Any, shape: tuple[int, ...]) -> Any:
    lead = ct.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        lead + i for i, dim in enumerate(shape) if dim == 1 and ct.shape[lead + i] != 1
    )
    return _sum_forward(xp, ct, axis=axes, keepdims=True).reshape(shape) if axes else ct


def unbroadcast(ct: Node, x: Node) -> Node:
    """Sum `ct`, which has the shape that `x` was broadcast to, back to the shape of `x`."""
    if any([dim is UNKNOWN for dim in (*ct.dims, *x.dims)]):  # noqa: C419 - a generator is slower
        return build(_SUM_LIKE, ct, x)
    if ct.dims == x.dims:
        return ct
    lead = ct.ndim - x.ndim
    stretched = [lead + i for i, d in enumerate(x.dims) if d == 1 and ct.dims[lead + i] != 1]
    axes = (*range(lead), *stretched)
    if not axes:
        return ct
    summed = build(_SUM, ct, axis=axes, keepdims=bool(stretched))
    return squeeze(summed, tuple(range(lead))) if stretched else summed
