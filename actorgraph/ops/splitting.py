"""Cut an axis: split into parts, unstack into entries.

Where `getitem` can say it, it does; `split_part` is for dims that only a run knows, and checks
there that the parts add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Memory, Op, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.indexing import getitem
from actorgraph.ops.shaping import one_axis
from actorgraph.types import UNKNOWN, Checks, Shape, shape_from

__all__ = ["split", "unstack"]

_FULL = slice(None)


def _bounds(dim: Any, part: int, parts: int, sizes: Any) -> tuple[Any, Any]:
    """Return where a part of a dim starts and how long it is."""
    if sizes is None:
        return dim // parts * part, dim // parts
    return sum(sizes[:part], 0), sizes[part]


def _part_shape(checks: Checks, x: Shape, *, part: int, parts: int, sizes: Any, axis: int) -> Shape:
    whole = x[axis] // parts * parts if sizes is None else sum(sizes)
    checks.equal(x[axis], whole, f"dim {x[axis]} and {parts} parts of it")
    return (*x[:axis], _bounds(x[axis], part, parts, sizes)[1], *x[axis + 1 :])


def _part_key(shape: Sequence[int], part: int, parts: int, sizes: Any, axis: int) -> Any:
    dim = shape[axis]
    if dim != (dim // parts * parts if sizes is None else sum(sizes)):
        raise ValueError(f"a dim of {dim} cannot be split into {sizes or f'{parts} equal parts'}")
    start, size = _bounds(dim, part, parts, sizes)
    return (*[_FULL] * axis, slice(start, start + size))


def _part_back(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
    out = xp.zeros(x.shape, ct.dtype)
    out[_part_key(x.shape, **attrs)] = ct
    return out


_PART: Op = declare(
    "split_part", "a[*s] -> a[*out]", lambda xp, x, **attrs: x[_part_key(x.shape, **attrs)],
    shape=_part_shape, vjp=(lambda ct, y, x, **attrs: build(_PART_ADJOINT, ct, x, **attrs),),
    linear=(0,), cost=lambda shapes, result, attrs: 1,
    samples=(
        Sample(((6, 2),), {"part": 1, "parts": 3, "sizes": None, "axis": 0}),
        Sample(((2, 6),), {"part": 1, "parts": 3, "sizes": (1, 3, 2), "axis": 1}),
    ),
    memory=Memory(is_view=True), doc="One of several parts of an axis; a view.",
)  # fmt: skip

_PART_ADJOINT: Op = declare(
    "split_part_adjoint", "a[*s] -> a1[*t] -> a[*t]", _part_back,
    vjp=(lambda ct, y, c, x, **attrs: build(_PART, ct, **attrs), None), linear=(0,),
    samples=(
        Sample(((2, 2), (6, 2)), {"part": 1, "parts": 3, "sizes": None, "axis": 0}),
        Sample(((2, 3), (2, 6)), {"part": 1, "parts": 3, "sizes": (1, 3, 2), "axis": 1}),
    ),
    doc="Zeros with an array in the place of one part of an axis.",
)  # fmt: skip


@raises(
    types="`parts` is neither an int nor a sequence of sizes.",
    shapes="The parts do not add up to the dim, or there is no such axis.",
)  # fmt: skip
@naming_itself
def split(x: Node, parts: Any, axis: int = 0) -> list[Node]:
    """Cut an axis into parts: equal ones by their number, others by their sizes.

    Parameters
    ----------
    x : node
        Any shape and dtype.
    parts : int, or sequence of int and dims
        An int is the number of equal parts, as in NumPy; a sequence holds the sizes, as in
        PyTorch (``numpy.split``, which takes indices there, means on nodes what it means on
        arrays).  The sizes add up to the dim, in the run where it is not known earlier.
    axis : int

    Returns
    -------
    list of Node
        Views.

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> [part.shape for part in split(Graph().input("x", ("batch", 6)), [1, 5], axis=1)]
    [(batch, 1), (batch, 5)]
    """
    place = one_axis(axis, x.ndim, "split")
    if isinstance(parts, (int, np.integer)) and not isinstance(parts, bool):
        count, sizes = int(parts), None
    elif isinstance(parts, Iterable) and not isinstance(parts, (str, Node)):
        sizes = shape_from(tuple(parts))
        count = len(sizes)
    else:
        raise GraphTypeError(f"split: parts is a number or a list of sizes, got {parts!r}")
    if count < 1 or (sizes and UNKNOWN in sizes):
        raise ShapeError(f"split: at least one part of a known size is needed, got {parts!r}")
    _check_sizes(x, x.dims[place], place, count, sizes)
    attrs = {"parts": count, "sizes": sizes, "axis": place}
    return [_part(x, part, attrs) for part in range(count)]


def _check_sizes(x: Node, dim: Any, axis: int, parts: int, sizes: Any) -> None:
    whole = None if sizes is None else sum(sizes, 0)
    if not isinstance(dim, int) or not isinstance(whole, (int, type(None))):
        return  # A run knows.
    if whole is None and dim % parts:
        small, rest = divmod(dim, parts)
        uneven = [small + 1] * rest + [small] * (parts - rest)
        advice = f"[{small + 1}, ...]" if parts > 8 else str(uneven)
        raise ShapeError(
            f"split: dim {dim} at axis {axis} of {x!r} cannot be split into {parts} equal parts; "
            f"give the sizes of the parts, as split(x, {advice}, axis={axis})"
        )
    if whole is not None and whole != dim:
        raise ShapeError(
            f"split: the sizes {list(sizes)} add up to {whole}, but dim at axis {axis} of {x!r} is "
            f"{dim}; give sizes that add up to it, or one number for equal parts"
        )


def _part(x: Node, part: int, attrs: dict[str, Any]) -> Node:
    """Return a part by the simplest op that gives it."""
    axis, dim = attrs["axis"], x.dims[attrs["axis"]]
    if isinstance(dim, int):
        whole = _part_shape(Checks(), x.dims, part=part, **attrs)
        if all(isinstance(size, int) for size in (*(attrs["sizes"] or ()), whole[axis])):
            return getitem(x, _part_key((*[0] * axis, dim), part, **attrs))
    return build(_PART, x, part=part, **attrs)


@raises(shapes="The dim is a symbol or unknown, or there is no such axis.")
def unstack(x: Node, axis: int = 0) -> list[Node]:
    """Return the entries along an axis, each without that axis, as the array API's ``unstack``.

    Parameters
    ----------
    x : node
        Any dtype.
    axis : int
        Its dim is a known int, since it decides how many nodes there are.

    Returns
    -------
    list of Node
        Views.
    """
    place = one_axis(axis, x.ndim, "unstack")
    dim = x.dims[place]
    if not isinstance(dim, int):
        raise ShapeError(
            f"unstack: dim {dim} of {x!r} is known only in a run; index the node, x[i], instead"
        )
    return [getitem(x, (*[_FULL] * place, number)) for number in range(dim)]
