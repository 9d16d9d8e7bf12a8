"""Ops that reorder, join and cut arrays: transpose, concatenate, stack, split.

Dims may be symbols: joining ``batch`` and 3 rows gives ``batch + 3``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, KEPT_OUT, Attrs, Memory, Op, Sample, Together
from actorgraph.operands import as_node
from actorgraph.ops._rules import NO_PARTS, declare, on, raises, returns
from actorgraph.ops.broadcasting import along_axis, axes_of, zeros_like
from actorgraph.ops.elementwise import astype
from actorgraph.ops.indexing import getitem
from actorgraph.ops.reshaping import reshape
from actorgraph.types import UNKNOWN, Checks, Shape, shape_from

__all__ = ["array", "concatenate", "split", "stack", "swapaxes", "transpose", "unstack"]

_FULL = slice(None)


def one_axis(axis: Any, ndim: int) -> int:
    """Return `axis` as an int in ``[0, ndim)``, or raise `ShapeError`."""
    if type(axis) is int and -ndim <= axis < ndim:
        return axis % ndim  # a shortcut: the code below takes five times as long
    if isinstance(axis, Iterable):
        raise ShapeError(f"axis has to be one int, got {axis!r}")
    axes = axes_of((axis,), ndim)
    if not axes:
        raise ShapeError(f"axis {axis} is not there: a scalar has no axes")
    return axes[0]


def _pulled(ct: Node, y: Node, x: Node, axes: tuple[int, ...]) -> Node:
    """Return the cotangent of `x`; a matrix product is built transposed, in the layout of `x`."""
    if ct.owner is not None and ct.op.name == "matmul" and ct.inputs[0].ndim == x.ndim == 2:
        first, second = ct.inputs
        return build(ct.op, transpose(second), transpose(first))
    return transpose(ct, sorted(range(len(axes)), key=axes.__getitem__))


def _quick_transpose(node: Node, xp: Any, attrs: Attrs) -> Any:
    axes = attrs["axes"]  # `.T` takes a fifth of the forward's microsecond
    return attrgetter("T") if axes == tuple(range(len(axes)))[::-1] else None


_TRANSPOSE: Op = declare(
    "transpose", "a[*s] -> a[*out]",
    lambda xp, x, axes: x.transpose(axes),  # half the cost of np.transpose
    shape=lambda checks, x, *, axes: tuple(x[axis] for axis in axes),
    vjp=(_pulled,), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(on((3, 4), axes=(1, 0)), on((2, 3, 4), axes=(2, 0, 1)), on((0, 2), axes=(1, 0))),
    memory=Memory(is_view=True), quick=_quick_transpose,
)  # fmt: skip


@raises(shapes="`axes` is no permutation of the axes of `x`.")
@returns("Node: a view; `x` itself where the order stays")
def transpose(x: Node, axes: Any = None) -> Node:
    """Reorder the axes, as ``numpy.transpose``.

    Parameters
    ----------
    axes : sequence of int, optional
        Which axis of `x` each axis of the result is; default: the axes in reverse.
    """
    order = tuple(range(x.ndim))
    if axes is None:
        wanted = order[::-1]
    else:
        wanted = tuple(one_axis(axis, x.ndim) for axis in axes)
        if tuple(sorted(wanted)) != order:
            raise ShapeError(f"{tuple(axes)} does not name each axis of {x!r} once")
    return x if wanted == order else build(_TRANSPOSE, x, axes=wanted)


@along_axis("x")
def swapaxes(x: Node, axis1: int, axis2: int) -> Node:
    """Exchange two axes; a view."""
    order = list(range(x.ndim))
    one, other = (one_axis(axis, x.ndim) for axis in (axis1, axis2))
    order[one], order[other] = other, one
    return transpose(x, order)


def swap_last(x: Node) -> Node:
    """Exchange the last two axes: the transpose of each matrix of a batch."""
    last = x.ndim - 1
    if last < 1:
        return swapaxes(x, -1, -2)  # which says what is wrong
    return build(_TRANSPOSE, x, axes=(*range(last - 1), last, last - 1))


_TURNED_ROWS, _SET_BYTES = 64, 256
"""Rows transposed at a time if their starts share few sets of a cache, so that they stay in it."""


def _turned(xp: Any, x: Any) -> Any:
    """Return the transpose of each matrix, laid out in rows."""
    rows = _TURNED_ROWS
    if x.ndim != 2 or len(x) <= rows or x.shape[1] * x.itemsize % _SET_BYTES:
        return xp.ascontiguousarray(x.swapaxes(-1, -2))
    found = xp.empty(x.shape[::-1], x.dtype)
    for begin in range(0, len(x), rows):
        found[:, begin : begin + rows] = x[begin : begin + rows].T
    return found


_TURNED: Op = declare(
    "turned", "a[*s, m, n] -> a[*s, n, m]", _turned, linear=(0,), memory=FRESH,
    vjp=(lambda ct, y, x: swap_last(ct),),
    samples=(on((3, 4)), on((2, 3, 2)), on((0, 2)), on((70, 64))),
    doc="The transpose of each matrix, laid out in rows: a loop that multiplies by it gains.",
)  # fmt: skip


def turned(x: Node) -> Node:
    """Return the transpose of each matrix as an array of its own."""
    return build(_TURNED, x)


def _join_scheme(arity: int, attrs: Attrs) -> str:
    return " -> ".join([f"a[*s{position}]" for position in range(arity)] + ["a[*out]"])


def _joined(checks: Checks, shapes: Sequence[Shape], how: str, axis: int = -1) -> list[Any]:
    """Return the dims that the shapes share; those of an `axis` add up."""
    result: list[Any] = list(shapes[0])
    for shape in shapes[1:]:
        if len(shape) != len(result):
            raise ShapeError(f"ranks {len(result)} and {len(shape)} cannot be {how}")
        for i, dim in enumerate(shape):
            one = result[i]
            result[i] = one + dim if i == axis else checks.equal(one, dim, f"dims at axis {i}")
    return result


def _concatenate_vjp(
    argnums: Sequence[int], ct: Node, y: Node, *xs: Node, axis: int
) -> Iterator[Node]:
    ends: list[Any] = list(accumulate((x.dims[axis] for x in xs), initial=0))
    known = UNKNOWN not in ends
    starts = None if known else build(_STARTS, *xs, axis=axis)
    for argnum in argnums:
        start, stop = ends[argnum], ends[argnum + 1]
        if start is UNKNOWN or stop is UNKNOWN:
            yield build(_PART, ct, starts, xs[argnum], axis=axis, argnum=argnum)
        else:
            yield getitem(ct, (*[slice(None)] * axis, slice(start, stop)))


def with_zeros(tans: Sequence[Node | None], xs: Sequence[Node]) -> list[Node]:
    """Return the tangents, with zeros for those of operands that do not move."""
    pairs = zip(tans, xs, strict=True)
    return [zeros_like(x) if tan is None else tan for tan, x in pairs]


_CONCATENATE: Op = declare(
    "concatenate", _join_scheme, lambda xp, *xs, axis, out=None: xp.concatenate(xs, axis, out),
    shape=lambda checks, *shapes, axis: tuple(_joined(checks, shapes, "concatenated", axis)),
    vjp=Together(_concatenate_vjp),
    jvp=lambda tans, y, *xs, axis: build(_CONCATENATE, *with_zeros(tans, xs), axis=axis),
    samples=(
        on((2, 3), (4, 3), axis=0), on((2, 3), (2, 1), (2, 2), axis=1),
        on((3,), axis=0), on((0, 2), (1, 2), axis=0),
    ),
    memory=KEPT_OUT, jointly=(), traced=True,
)  # fmt: skip


# If only the run knows where arguments start, one node computes it for all of them.

_STARTS: Op = declare(
    "concatenate_starts",
    lambda arity, attrs: " -> ".join([f"a{i}[*s{i}]" for i in range(arity)] + ["int64[*out]"]),
    lambda xp, *xs, axis: xp.asarray(
        [*accumulate([x.shape[axis] for x in xs[:-1]], initial=0)], xp.int64
    ),
    shape=lambda checks, *shapes, axis: (len(shapes),),
    cost=lambda shapes, result, attrs: len(shapes),
    samples=(on((2, 3), (4, 3), axis=0), on((2, 3), (2, 1), (2, 2), axis=1)),
    doc="Where each argument of concatenate begins in its result.",
)  # fmt: skip


def _place(start: Any, part: Any, axis: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(int(start), int(start) + part.shape[axis]))


def _placed(xp: Any, part: Any, starts: Any, whole: Any, axis: int, argnum: int) -> Any:
    out = xp.zeros(whole.shape, part.dtype)
    out[_place(starts[argnum], part, axis)] = part
    return out


_PART: Op = declare(
    "concatenate_part", "a[*s] -> int64[k] -> a1[*t] -> a[*t]",
    lambda xp, x, starts, part, axis, argnum: x[_place(starts[argnum], part, axis)],
    vjp=(
        lambda ct, y, x, starts, part, **attrs: build(_PLACED, ct, starts, x, **attrs), None, None,
    ),
    linear=(0,), cost=lambda shapes, result, attrs: 1,
    samples=(
        Sample(((6, 3), (2,), (2, 3)), {"axis": 0, "argnum": 1}, ints={1: 5}),
        Sample(((2, 5), (2,), (2, 2)), {"axis": 1, "argnum": 0}, ints={1: 4}),
    ),
    memory=Memory(is_view=True),
    doc="The part of an array that one argument of concatenate would fill.",
)  # fmt: skip

_PLACED: Op = declare(
    "concatenate_part_adjoint", "a[*s] -> int64[k] -> a1[*t] -> a[*t]", _placed,
    vjp=(lambda ct, y, x, starts, whole, **attrs: build(_PART, ct, starts, x, **attrs), None, None),
    linear=(0,),
    samples=(
        Sample(((2, 3), (2,), (6, 3)), {"axis": 0, "argnum": 1}, ints={1: 5}),
        Sample(((2, 2), (2,), (2, 5)), {"axis": 1, "argnum": 0}, ints={1: 4}),
    ),
    memory=FRESH, doc="Zeros with an array in the place of one argument of concatenate.",
)  # fmt: skip


@raises(NO_PARTS, "Ranks or dims do not fit, or there is no such axis.")
def concatenate(nodes: Iterable[Any], axis: int | None = 0) -> Node:
    """Join arrays along an axis, as ``numpy.concatenate``.

    Parameters
    ----------
    nodes : iterable of node or array
        At least one node; one dtype; the dims agree but for `axis`, where they add up.
    axis : int or None
        None joins the flattened arrays.
    """
    parts = _lifted(nodes)
    if axis is None:
        parts, axis = [reshape(part, (-1,)) for part in parts], 0
    return build(_CONCATENATE, *parts, axis=one_axis(axis, parts[0].ndim))


def _lifted(nodes: Iterable[Any]) -> list[Node]:
    """Return nodes and arrays as nodes of one graph."""
    given = [nodes] if isinstance(nodes, Node) else list(nodes)
    for one in given:
        if isinstance(one, Node):
            if given[0] is nodes:
                raise GraphTypeError(f"takes a list of nodes, got the node {nodes!r}")
            return [one.graph.lift(part) for part in given]
    raise GraphTypeError(f"needs at least one node, got {len(given)} without any")


@raises(types="The dtypes differ, or there is no node.", shapes="The shapes of the parts differ.")
def array(values: Any, dtype: Any = None) -> Node:
    """Return the array of nested lists of nodes, arrays and numbers, as ``numpy.array``.

    Parameters
    ----------
    values : node or nested sequence
        At least one node; the parts of a list have one shape.  Numbers take the dtype of the first
        node.
    dtype : dtype, optional
        Default: that of the nodes.
    """
    home = _first_node(values)
    if home is None:
        raise GraphTypeError(f"there is no node in {values!r}; use graph.constant")
    found = _nested(values, home)
    return found if dtype is None else astype(found, dtype)


def _first_node(values: Any) -> Node | None:
    if isinstance(values, (list, tuple)):
        return next((node for node in map(_first_node, values) if node is not None), None)
    return values if isinstance(values, Node) else None


def _nested(values: Any, home: Node) -> Node:
    if not isinstance(values, (list, tuple)) or _first_node(values) is None:
        return as_node(values, home)
    return stack([_nested(part, home) for part in values])


def _stack_shape(checks: Checks, *shapes: Shape, axis: int) -> Shape:
    result = _joined(checks, shapes, "stacked")
    return (*result[:axis], len(shapes), *result[axis:])


_STACK: Op = declare(
    "stack", _join_scheme, lambda xp, *xs, axis, out=None: xp.stack(xs, axis, out),
    shape=_stack_shape,
    vjp=Together(lambda nums, ct, y, *xs, axis: (getitem(ct, (*[_FULL] * axis, n)) for n in nums)),
    jvp=lambda tans, y, *xs, axis: build(_STACK, *with_zeros(tans, xs), axis=axis),
    samples=(on((2, 3), (2, 3), axis=0), on((2, 3), (2, 3), (2, 3), axis=2), on((), (), axis=0)),
    memory=KEPT_OUT, jointly=(), traced=True,
)  # fmt: skip


@raises(NO_PARTS, "The shapes differ, or there is no such axis.")
def stack(nodes: Iterable[Any], axis: int = 0) -> Node:
    """Join arrays of one shape along a new axis, as ``numpy.stack``.

    Parameters
    ----------
    nodes : iterable of node or array
        At least one node; one dtype, one shape.
    axis : int
        Place of the new axis in the result.
    """
    parts = _lifted(nodes)
    return build(_STACK, *parts, axis=one_axis(axis, parts[0].ndim + 1))


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


_SPLIT_PART: Op = declare(
    "split_part", "a[*s] -> a[*out]", lambda xp, x, **attrs: x[_part_key(x.shape, **attrs)],
    shape=_part_shape, vjp=(lambda ct, y, x, **attrs: build(_PART_ADJOINT, ct, x, **attrs),),
    linear=(0,), cost=lambda shapes, result, attrs: 1,
    samples=(
        on((6, 2), part=1, parts=3, sizes=None, axis=0),
        on((2, 6), part=1, parts=3, sizes=(1, 3, 2), axis=1),
    ),
    memory=Memory(is_view=True), doc="One of several parts of an axis; a view.",
)  # fmt: skip

_PART_ADJOINT: Op = declare(
    "split_part_adjoint", "a[*s] -> a1[*t] -> a[*t]", _part_back,
    vjp=(lambda ct, y, c, x, **attrs: build(_SPLIT_PART, ct, **attrs), None), linear=(0,),
    samples=(
        on((2, 2), (6, 2), part=1, parts=3, sizes=None, axis=0),
        on((2, 3), (2, 6), part=1, parts=3, sizes=(1, 3, 2), axis=1),
    ),
    doc="Zeros with an array in the place of one part of an axis.",
)  # fmt: skip


@returns("list of Node\n    Views.")
@raises("`parts` are no int and no sizes.", "The parts do not fit, or there is no such axis.")
def split(x: Node, parts: Any, axis: int = 0) -> list[Node]:
    """Cut an axis into parts: equal ones by their number, others by their sizes.

    Parameters
    ----------
    parts : int, or sequence of int and dims
        An int is the number of equal parts, as in NumPy; a sequence holds the sizes, as in
        PyTorch; ``numpy.split`` on nodes takes indices, as on arrays.  The sizes add up to the
        dim, which the run checks if it is not known earlier.
    """
    place = one_axis(axis, x.ndim)
    if isinstance(parts, (int, np.integer)) and not isinstance(parts, bool):
        count, sizes = int(parts), None
    elif isinstance(parts, Iterable) and not isinstance(parts, (str, Node)):
        sizes = shape_from(tuple(parts))
        count = len(sizes)
    else:
        raise GraphTypeError(f"parts is a number or a list of sizes, got {parts!r}")
    if count < 1 or (sizes and UNKNOWN in sizes):
        raise ShapeError(f"at least one part of a known size is needed, got {parts!r}")
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
    return build(_SPLIT_PART, x, part=part, **attrs)


@returns("list of Node\n    Views.")
@raises(shapes="The dim is a symbol or unknown, or there is no such axis.")
def unstack(x: Node, axis: int = 0) -> list[Node]:
    """Return the entries along an axis, each without that axis, as the array API's ``unstack``.

    Parameters
    ----------
    axis : int
        Its dim is a known int, since it decides how many nodes there are.
    """
    place = one_axis(axis, x.ndim)
    dim = x.dims[place]
    if not isinstance(dim, int):
        raise ShapeError(
            f"dim {dim} of {x!r} is known only in a run; index the node, x[i], instead"
        )
    return [getitem(x, (*[_FULL] * place, number)) for number in range(dim)]
