"""Pad: a border around an array, constant or made of its own entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import KEPT, Op, Sample
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import sum, zeros_like  # noqa: A004 - NumPy's name
from actorgraph.ops.indexing import getitem
from actorgraph.types import Checks, Shape

__all__ = ["pad"]

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


# -- constant ---------------------------------------------------------------------------------


def _pad_forward(xp: Any, x: Any, value: Any, widths: Widths) -> Any:
    shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
    out = xp.empty(shape, x.dtype)
    out[...] = value
    out[_middle(widths)] = x
    return out


def _border_sum(ct: Node, y: Node, x: Node, value: Node, widths: Widths) -> Node:
    return sum(ct * build(_PAD, zeros_like(x), 1, widths=widths))


def _pad_jvp(tans: tuple[Node | None, ...], y: Node, x: Node, value: Node, widths: Widths) -> Node:
    tan = zeros_like(x) if tans[0] is None else tans[0]
    return build(_PAD, tan, 0 if tans[1] is None else tans[1], widths=widths)


_PAD: Op = declare(
    "pad", "a[*s] -> a[] -> a[*out]", _pad_forward, shape=_padded,
    vjp=(lambda ct, y, x, value, widths: getitem(ct, _middle(widths)), _border_sum), jvp=_pad_jvp,
    samples=(
        Sample(((3, 4), ()), {"widths": ((1, 2), (0, 3))}),
        Sample(((0, 2), ()), {"widths": ((1, 0), (0, 0))}), Sample(((), ()), {"widths": ()}),
    ),
    memory=KEPT, doc="An array with a constant border.",
)  # fmt: skip


# -- borders of the array's own entries -------------------------------------------------------


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
    linear=(0,), samples=tuple(Sample(((3, 4),), attrs) for attrs in _BORDER_SAMPLES),
    doc="An array with a border of its own entries.",
)  # fmt: skip

_PAD_OWN_ADJOINT: Op = declare(
    "pad_own_adjoint", "n[*s] -> a[*t] -> n[*t]", _fold,
    vjp=(lambda ct, y, c, x, **attrs: build(_PAD_OWN, ct, **attrs), None), linear=(0,),
    samples=(
        Sample(((6, 7), (3, 4)), _BORDER_SAMPLES[0]), Sample(((6, 7), (3, 4)), _BORDER_SAMPLES[1]),
    ),
    doc="The inside with each entry of the border added to the entry that it copies.",
)  # fmt: skip


@raises(
    types="The mode is not known, or a width is no int.",
    shapes="A width is negative, there are not as many pairs as axes, or an empty dim would have"
    " to be copied from.",
)  # fmt: skip
def pad(x: Node, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Node:
    """Put a border around an array, as ``numpy.pad``.

    Parameters
    ----------
    x : node
        Any shape and dtype.
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
            raise GraphTypeError(f"pad: mode {mode!r} is not one of constant, {', '.join(_OWN)}")
        if isinstance(constant_values, Node) or constant_values != 0:
            raise GraphTypeError(f"pad: constant_values has no meaning in mode {mode!r}")
        return build(_PAD_OWN, x, widths=widths, mode=mode) if _any(widths) else x
    return build(_PAD, x, constant_values, widths=widths) if _any(widths) else x


def _any(widths: Widths) -> bool:
    return any(map(any, widths))


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
