"""Ops that move, repeat and add borders: permute, moveaxis, flip, roll, repeat, tile, pad.

Some are built of `transpose` and `getitem`.  The others are linear ops with an adjoint each, which
reads sizes that only a run knows from an operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, KEPT, Op
from actorgraph.ops._arrays import accumulator, combine_at, through_float32
from actorgraph.ops._rules import WRONG_AXIS, declare, on, raises, returns
from actorgraph.ops.broadcasting import axes_of, zeros_like
from actorgraph.ops.broadcasting import sum as sum_over
from actorgraph.ops.indexing import getitem
from actorgraph.ops.reshaping import ravel, reshape_like
from actorgraph.ops.shaping import one_axis, transpose, with_zeros
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, shape_from

__all__ = ["flip", "moveaxis", "pad", "permute", "repeat", "roll", "tile"]

_FULL = slice(None)


@returns("Node: a view, as by `transpose`")
@raises(shapes="`axes` is no permutation of the axes of `x`.")
def permute(x: Node, *axes: Any) -> Node:
    """Reorder the axes, as ``permute(x, 2, 0, 1)`` or ``permute(x, (2, 0, 1))``.

    Parameters
    ----------
    *axes : int, or one sequence of int
        Which axis of `x` each axis of the result is.
    """
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], Iterable) else axes
    return transpose(x, tuple(given))


@returns("Node: a view")
@raises(shapes="An axis is out of range or given twice, or the numbers of axes differ.")
def moveaxis(x: Node, source: Any, destination: Any) -> Node:
    """Move axes to other places, as ``numpy.moveaxis``; the others keep their order.

    Parameters
    ----------
    source, destination : int, or sequence of int
        Equally many.
    """
    places = []
    for axes in (source, destination):
        given = tuple(axes) if isinstance(axes, Iterable) else (axes,)
        axes_of(given, x.ndim)  # which raises for duplicates
        places.append([one_axis(axis, x.ndim) for axis in given])
    if len(places[0]) != len(places[1]):
        raise ShapeError(f"{source!r} and {destination!r} name different numbers of axes")
    order = [axis for axis in range(x.ndim) if axis not in places[0]]
    for to, axis in sorted(zip(places[1], places[0], strict=True)):
        order.insert(to, axis)
    return transpose(x, order)


@returns("Node: a view")
@raises(shapes=WRONG_AXIS)
def flip(x: Node, axis: Any = None) -> Node:
    """Reverse the order along axes, as ``numpy.flip``."""
    axes = axes_of(axis, x.ndim)
    return getitem(x, tuple(slice(None, None, -1) if i in axes else _FULL for i in range(x.ndim)))


def _roll_forward(xp: Any, x: Any, shift: Sequence[int], axis: Sequence[int]) -> Any:
    for by, place in zip(shift, axis, strict=True):
        out, lead, by = xp.empty(x.shape, x.dtype), (_FULL,) * place, by % max(x.shape[place], 1)
        cut = x.shape[place] - by
        out[(*lead, slice(by, None))] = x[(*lead, slice(cut))]
        out[(*lead, slice(by))] = x[(*lead, slice(cut, None))]
        x = out
    return x


_ROLL: Op = declare(
    "roll", "a[*s] -> a[*s]", _roll_forward, linear=(0,), memory=FRESH, traced=True,
    vjp=(
        lambda ct, y, x, shift, axis: build(_ROLL, ct, shift=tuple(-by for by in shift), axis=axis),
    ),
    samples=(
        on((3, 4), shift=(1,), axis=(1,)), on((3, 4), shift=(-2, 7), axis=(0, 1)),
        on((0, 2), shift=(3,), axis=(0,)),
    ),
)  # fmt: skip


@raises("A shift is no int.", "Axes are out of range, repeated, or not as many as shifts.")
def roll(x: Node, shift: Any, axis: Any = None) -> Node:
    """Shift along axes, with what leaves at one end entering at the other, as ``numpy.roll``.

    Parameters
    ----------
    shift : int, or sequence of int
        One for all axes, or one for each.
    axis : int, sequence of int, or None
        None shifts the flattened array.
    """
    if axis is None:
        return reshape_like(roll(ravel(x), shift, 0), x)
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    shifts = tuple(shift) if isinstance(shift, Iterable) else (shift,) * len(given)
    for by in shifts:
        if not isinstance(by, (int, np.integer)):
            raise GraphTypeError(f"a shift is an int, got {by!r}")
    axes_of(given, x.ndim)
    if len(shifts) != len(given):
        raise ShapeError(f"{len(shifts)} shifts for {len(given)} axes")
    places = tuple(one_axis(one, x.ndim) for one in given)
    return build(_ROLL, x, shift=tuple(map(int, shifts)), axis=places) if given else x


def _repeated(checks: Checks, x: Shape, *, repeats: Any, axis: int) -> Shape:
    if isinstance(repeats, tuple):
        checks.equal(x[axis], len(repeats), "the dim and the number of repeats")
        size: int | Dim = sum(repeats)
    else:
        size = x[axis] * repeats
    return (*x[:axis], size, *x[axis + 1 :])


def _repeat_forward(xp: Any, x: Any, repeats: Any, axis: int) -> Any:
    if isinstance(repeats, tuple) and len(repeats) != x.shape[axis]:
        raise ValueError(f"{len(repeats)} repeats for a dim of {x.shape[axis]}")
    return xp.repeat(x, repeats, axis)


_FEW = 16
"""Up to so many copies are added one by one: 50 times faster than reducing a short last axis."""


def _sum_copies(xp: Any, x: Any, axis: int) -> Any:
    if not 0 < x.shape[axis] <= _FEW:
        return xp.add.reduce(x, axis=axis, dtype=accumulator(x.dtype)).astype(x.dtype, copy=False)
    lead = (_FULL,) * axis
    total = x[(*lead, 0)].astype(accumulator(x.dtype))
    for copy in range(1, x.shape[axis]):
        total += x[(*lead, copy)]
    return total.astype(x.dtype, copy=False)


@through_float32
def _repeat_back(xp: Any, ct: Any, x: Any, repeats: Any, axis: int) -> Any:
    shape = x.shape
    if isinstance(repeats, int):
        apart = ct.reshape((*shape[: axis + 1], repeats, *shape[axis + 1 :]))
        return _sum_copies(xp, apart, axis + 1)
    out = xp.zeros(shape, ct.dtype)
    places = xp.repeat(xp.arange(out.size).reshape(shape), repeats, axis)
    combine_at(xp, "add", out.reshape(-1), places.reshape(-1), ct.reshape(-1))
    return out


_REPEAT_SAMPLES = (
    (((3, 4),), {"repeats": 2, "axis": 1}), (((3, 4),), {"repeats": (2, 0, 3), "axis": 0}),
    (((2, 3),), {"repeats": 0, "axis": 0}), (((0, 2),), {"repeats": 3, "axis": 0}),
)  # fmt: skip

_REPEAT: Op = declare(
    "repeat", "a[*s] -> a[*out]", _repeat_forward, shape=_repeated,
    vjp=(lambda ct, y, x, **attrs: build(_REPEAT_ADJOINT, ct, x, **attrs),), linear=(0,),
    samples=tuple(on(*shapes, **attrs) for shapes, attrs in _REPEAT_SAMPLES), memory=FRESH,
)  # fmt: skip

_REPEAT_ADJOINT: Op = declare(
    "repeat_adjoint", "n[*s] -> a[*t] -> n[*t]", _repeat_back,
    vjp=(lambda ct, y, c, x, **attrs: build(_REPEAT, ct, **attrs), None), linear=(0,),
    samples=(on((3, 8), (3, 4), repeats=2, axis=1), on((5, 4), (3, 4), repeats=(2, 0, 3), axis=0)),
    doc="Sums over the copies that repeat makes.",
)  # fmt: skip


@raises("`repeats` are no ints >= 0.", "There is no such axis, or `repeats` has another length.")
def repeat(x: Node, repeats: Any, axis: int | None = None) -> Node:
    """Repeat each entry along an axis, as ``numpy.repeat``; the gradient sums over the copies.

    Parameters
    ----------
    repeats : int, dim, or sequence of int
        How often: one number, or one for each entry along the axis.
    axis : int, optional
        Default: `x` is flattened first.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.repeat(ag.Graph().input("x", ("n", 3)), 2, axis=0).shape
    (2*n, 3)
    """
    if axis is None:
        x, axis = ravel(x), 0
    place = one_axis(axis, x.ndim)
    if isinstance(repeats, (list, tuple, np.ndarray)) and np.ndim(repeats):
        times: Any = tuple(_count(one) for one in repeats)
        times = times[0] if len(times) == 1 else times  # one number means all entries
    else:
        times = repeats if isinstance(repeats, Dim) else _count(repeats)
    return build(_REPEAT, x, repeats=times, axis=place)


def _count(value: Any) -> int:
    array = np.asarray(value) if not isinstance(value, Node) else None
    if array is None or array.ndim or array.dtype.kind not in "iu" or array < 0:
        raise GraphTypeError(f"a number of copies is a non-negative int, got {value!r}")
    return int(array)


def _aligned(shape: Sequence[Any], reps: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return (repetitions, size) for each dim of the result."""
    pairs = list(zip_longest(reversed(reps), reversed(shape), fillvalue=1))
    return pairs[::-1]


def _tile_back(xp: Any, ct: Any, x: Any, reps: tuple[int, ...]) -> Any:
    pairs = _aligned(x.shape, reps)
    apart = ct.reshape([size for pair in pairs for size in pair])
    axes = tuple(range(0, 2 * len(pairs), 2))
    total = xp.add.reduce(apart, axis=axes, dtype=accumulator(ct.dtype))
    return total.astype(ct.dtype, copy=False).reshape(x.shape)


_TILE: Op = declare(
    "tile", "a[*s] -> a[*out]", lambda xp, x, reps: xp.tile(x, reps),
    shape=lambda checks, x, *, reps: tuple(size * times for times, size in _aligned(x, reps)),
    vjp=(lambda ct, y, x, reps: build(_TILE_ADJOINT, ct, x, reps=reps),), linear=(0,),
    samples=(
        on((3, 4), reps=(2,)), on((2, 3), reps=(2, 1, 3)),
        on((), reps=(2,)), on((2, 3), reps=(0, 1)),
    ),
)  # fmt: skip

_TILE_ADJOINT: Op = declare(
    "tile_adjoint", "n[*s] -> a[*t] -> n[*t]", _tile_back,
    vjp=(lambda ct, y, c, x, reps: build(_TILE, ct, reps=reps), None), linear=(0,),
    samples=(on((3, 8), (3, 4), reps=(2,)), on((2, 2, 9), (2, 3), reps=(2, 1, 3))),
    doc="Sums over the copies that tile makes.",
)  # fmt: skip


@raises(shapes="A number of copies is negative or no int.")
def tile(x: Node, reps: Any) -> Node:
    """Put copies of the whole array side by side, as ``numpy.tile``.

    Parameters
    ----------
    reps : int or dim, or sequence of them
        Copies along each axis; the shorter of `reps` and the shape is preceded by ones.
    """
    given = tuple(reps) if isinstance(reps, Iterable) and not isinstance(reps, str) else (reps,)
    times = shape_from(given)
    if UNKNOWN in times:
        raise ShapeError(f"a number of copies is an int or a dim, got {reps!r}")
    return build(_TILE, x, reps=times)


Widths = tuple[tuple[int, int], ...]

_OWN = ("edge", "reflect", "symmetric", "wrap")


def _padded(
    checks: Checks, x: Shape, value: Shape = (), *, widths: Widths, mode: str = ""
) -> Shape:
    for dim, width in zip(x, widths, strict=True):
        if mode and dim == 0 and any(width):
            raise ShapeError(f"an empty dim has no entries to pad with in mode {mode!r}")
    return tuple(
        dim if not before + after else dim + (before + after)
        for dim, (before, after) in zip(x, widths, strict=True)
    )


def _middle(widths: Widths) -> tuple[slice, ...]:
    return tuple(slice(before or None, -after or None) for before, after in widths)


def _pad_forward(xp: Any, x: Any, value: Any, widths: Widths) -> Any:
    shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
    out = xp.empty(shape, x.dtype)
    out[...] = value
    out[_middle(widths)] = x
    return out


_PAD: Op = declare(
    "pad", "a[*s] -> a[] -> a[*out]", _pad_forward, shape=_padded,
    vjp=(
        lambda ct, y, x, value, widths: getitem(ct, _middle(widths)),
        lambda ct, y, x, value, widths: sum_over(ct * build(_PAD, zeros_like(x), 1, widths=widths)),
    ),
    jvp=lambda tans, y, *xs, widths: build(_PAD, *with_zeros(tans, xs), widths=widths),
    samples=(
        on((3, 4), (), widths=((1, 2), (0, 3))),
        on((0, 2), (), widths=((1, 0), (0, 0))), on((), (), widths=()),
    ),
    memory=KEPT, traced=True,
)  # fmt: skip


def _fold(xp: Any, ct: Any, x: Any, widths: Widths, mode: str) -> Any:
    """Add each entry of the border to the entry that it is a copy of."""
    for axis, (before, after) in enumerate(widths):
        if before + after:
            size = x.shape[axis]
            source = np.pad(np.arange(size), (before, after), mode)  # type: ignore[call-overload]
            lead = (slice(None),) * axis
            inside = ct[(*lead, slice(before, before + size))].copy()
            for place in (*range(before), *range(before + size, before + size + after)):
                inside[(*lead, int(source[place]))] += ct[(*lead, place)]
            ct = inside
    return ct


_BORDER_SAMPLES = (
    {"widths": ((1, 2), (0, 3)), "mode": "edge"}, {"widths": ((2, 1), (3, 0)), "mode": "reflect"},
    {"widths": ((7, 0), (0, 9)), "mode": "reflect"},
    {"widths": ((2, 1), (3, 0)), "mode": "symmetric"}, {"widths": ((0, 5), (3, 1)), "mode": "wrap"},
)  # fmt: skip

_PAD_OWN: Op = declare(
    "pad_own", "a[*s] -> a[*out]", lambda xp, x, widths, mode: xp.pad(x, widths, mode),
    shape=_padded, vjp=(lambda ct, y, x, **attrs: build(_PAD_OWN_ADJOINT, ct, x, **attrs),),
    linear=(0,), samples=tuple(on((3, 4), **attrs) for attrs in _BORDER_SAMPLES),
    doc="An array with a border of its own entries.",
)  # fmt: skip

_PAD_OWN_ADJOINT: Op = declare(
    "pad_own_adjoint", "n[*s] -> a[*t] -> n[*t]", _fold,
    vjp=(lambda ct, y, c, x, **attrs: build(_PAD_OWN, ct, **attrs), None), linear=(0,),
    samples=(on((6, 7), (3, 4), **_BORDER_SAMPLES[0]), on((6, 7), (3, 4), **_BORDER_SAMPLES[1])),
    doc="The inside with each entry of the border added to the entry that it copies.",
)  # fmt: skip


@raises(
    types="The mode is not known, or a width is no int.",
    shapes="A width is negative, there are not as many pairs as axes, or a dim to copy is empty.",
)  # fmt: skip
def pad(x: Node, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Node:
    """Put a border around an array, as ``numpy.pad``.

    Parameters
    ----------
    pad_width : int, pair, or sequence of pairs
        Entries before and after each axis: one int for all, one pair for all, or a pair for each.
    mode : {"constant", "edge", "reflect", "symmetric", "wrap"}
        Where the border's values come from.  A border wider than the array goes on as NumPy's.
    constant_values : scalar or node
        For mode "constant"; a 0-d node of the same dtype gets the gradient of the border.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.pad(ag.Graph().input("x", ("n", 3)), ((1, 1), (0, 2))).shape
    (n + 2, 5)
    """
    widths = _read_widths(pad_width, x)
    if mode != "constant":
        if mode not in _OWN:
            raise GraphTypeError(f"mode {mode!r} is not one of constant, {', '.join(_OWN)}")
        if isinstance(constant_values, Node) or constant_values != 0:
            raise GraphTypeError(f"constant_values has no meaning in mode {mode!r}")
    if not any(map(any, widths)):
        return x
    if mode != "constant":
        return build(_PAD_OWN, x, widths=widths, mode=mode)
    return build(_PAD, x, constant_values, widths=widths)


def _read_widths(given: Any, x: Node) -> Widths:
    array = np.asarray(given) if not isinstance(given, Node) else np.zeros((), object)
    if array.size and array.dtype.kind not in "iu":
        raise GraphTypeError(f"pad: widths are ints, got {given!r}")
    try:
        pairs: Sequence[Any] = np.broadcast_to(array, (x.ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"pad: widths {given!r} are no int, no pair, and no pair for each axis of {x!r}"
        ) from None
    if any(width < 0 for pair in pairs for width in pair):
        raise ShapeError(f"pad: widths {given!r} are negative; to cut entries off use x[1:-1]")
    return tuple((before, after) for before, after in pairs)
