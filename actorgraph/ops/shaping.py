"""Ops that reorder and join arrays: transpose, concatenate, stack.

`reshape`, `expand_dims`, `squeeze` and `broadcast_to` stand in `broadcasting`, below every rule.
Dims may be symbols: joining ``batch`` and 3 rows gives ``batch + 3``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, KEPT_OUT, Attrs, Memory, Op, Sample, Together
from actorgraph.operands import as_node
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import along_axis, axes_of, zeros_like
from actorgraph.ops.casting import astype
from actorgraph.ops.indexing import getitem
from actorgraph.ops.reshaping import reshape
from actorgraph.types import UNKNOWN, Checks, Shape

__all__ = ["array", "concatenate", "stack", "swapaxes", "transpose"]


def one_axis(axis: Any, ndim: int, what: str) -> int:
    """Return `axis` as an int in ``[0, ndim)``, or raise `ShapeError`."""
    if isinstance(axis, Iterable):
        raise ShapeError(f"{what}: axis has to be one int, got {axis!r}")
    axes = axes_of((axis,), ndim, what)
    if not axes:
        raise ShapeError(f"{what}: axis {axis} is not there: a scalar has no axes")
    return axes[0]


# -- transpose --------------------------------------------------------------------------------


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def _transposed(checks: Checks, x: Shape, *, axes: tuple[int, ...]) -> Shape:
    return tuple(x[axis] for axis in axes)


def _quick_transpose(node: Node, xp: Any, attrs: Attrs) -> Any:
    axes = attrs["axes"]  # a fifth of the microsecond that the forward takes
    return attrgetter("T") if axes == tuple(range(len(axes)))[::-1] else None


_TRANSPOSE: Op = declare(
    "transpose",
    "a[*s] -> a[*out]",
    lambda xp, x, axes: x.transpose(axes),  # half the cost of np.transpose
    shape=_transposed,
    vjp=(lambda ct, y, x, axes: transpose(ct, _inverse(axes)),),
    linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(
        Sample(((3, 4),), {"axes": (1, 0)}),
        Sample(((2, 3, 4),), {"axes": (2, 0, 1)}),
        Sample(((0, 2),), {"axes": (1, 0)}),
    ),
    memory=Memory(is_view=True),
    quick=_quick_transpose,
    doc="The same elements with the axes in another order; a view.",
)


def transpose(x: Node, axes: Any = None) -> Node:
    """Reorder the axes, as ``numpy.transpose``.

    Parameters
    ----------
    x : node
        Any shape and dtype.
    axes : sequence of int, optional
        Which axis of `x` each axis of the result is; default: the axes in reverse.

    Returns
    -------
    Node
        A view; `x` itself where the order stays.

    Raises
    ------
    ShapeError
        `axes` is no permutation of the axes of `x`.
    """
    order = tuple(range(x.ndim))
    if axes is None:
        wanted = order[::-1]
    else:
        wanted = tuple(one_axis(axis, x.ndim, "transpose") for axis in axes)
        if tuple(sorted(wanted)) != order:
            raise ShapeError(f"transpose: {tuple(axes)} does not name each axis of {x!r} once")
    return x if wanted == order else build(_TRANSPOSE, x, axes=wanted)


@along_axis("x")
def swapaxes(x: Node, axis1: int, axis2: int) -> Node:
    """Exchange two axes; a view."""
    order = list(range(x.ndim))
    one, other = (one_axis(axis, x.ndim, "swapaxes") for axis in (axis1, axis2))
    order[one], order[other] = other, one
    return transpose(x, order)


def swap_last(x: Node) -> Node:
    """Exchange the last two axes: the transpose of each matrix of a batch."""
    return swapaxes(x, -1, -2)


# -- concatenate ------------------------------------------------------------------------------


def _join_scheme(arity: int, attrs: Attrs) -> str:
    return " -> ".join([f"a[*s{position}]" for position in range(arity)] + ["a[*out]"])


def _concatenated(checks: Checks, *shapes: Shape, axis: int) -> Shape:
    result = list(shapes[0])
    for shape in shapes[1:]:
        if len(shape) != len(result):
            raise ShapeError(f"ranks {len(result)} and {len(shape)} cannot be concatenated")
        for i, dim in enumerate(shape):
            if i == axis:
                result[i] = result[i] + dim
            else:
                result[i] = checks.equal(result[i], dim, f"dims at axis {i}")
    return tuple(result)


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


def _with_zeros(tans: Sequence[Node | None], xs: Sequence[Node]) -> list[Node]:
    pairs = zip(tans, xs, strict=True)
    return [zeros_like(x) if tan is None else tan for tan, x in pairs]


def _concatenate_jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, axis: int) -> Node:
    return build(_CONCATENATE, *_with_zeros(tans, xs), axis=axis)


_CONCATENATE: Op = declare(
    "concatenate", _join_scheme, lambda xp, *xs, axis, out=None: xp.concatenate(xs, axis, out),
    shape=_concatenated, vjp=Together(_concatenate_vjp), jvp=_concatenate_jvp,
    samples=(
        Sample(((2, 3), (4, 3)), {"axis": 0}), Sample(((2, 3), (2, 1), (2, 2)), {"axis": 1}),
        Sample(((3,),), {"axis": 0}), Sample(((0, 2), (1, 2)), {"axis": 0}),
    ),
    memory=KEPT_OUT, jointly=(), doc="Join arrays along an axis.",
)  # fmt: skip


# Where only the run knows where arguments start, one node tells it for all of them.

_STARTS: Op = declare(
    "concatenate_starts",
    lambda arity, attrs: " -> ".join([f"a{i}[*s{i}]" for i in range(arity)] + ["int64[*out]"]),
    lambda xp, *xs, axis: xp.asarray(
        list(accumulate([x.shape[axis] for x in xs[:-1]], initial=0)), xp.int64
    ),
    shape=lambda checks, *shapes, axis: (len(shapes),),
    cost=lambda shapes, result, attrs: len(shapes),
    samples=(
        Sample(((2, 3), (4, 3)), {"axis": 0}),
        Sample(((2, 3), (2, 1), (2, 2)), {"axis": 1}),
    ),
    doc="Where each argument of concatenate begins in its result.",
)


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


@raises(
    types="The dtypes differ, or there is nothing to join.",
    shapes="Ranks or dims do not fit, or there is no such axis.",
)  # fmt: skip
def concatenate(nodes: Iterable[Any], axis: int | None = 0) -> Node:
    """Join arrays along an axis, as ``numpy.concatenate``.

    Parameters
    ----------
    nodes : iterable of node or array
        At least one node; one dtype; the dims agree but for `axis`, where they add up.
    axis : int or None
        None joins the flattened arrays.
    """
    parts = _lifted(nodes, "concatenate")
    if axis is None:
        parts, axis = [reshape(part, (-1,)) for part in parts], 0
    return build(_CONCATENATE, *parts, axis=one_axis(axis, parts[0].ndim, "concatenate"))


def _lifted(nodes: Iterable[Any], what: str) -> list[Node]:
    """Return nodes and arrays as nodes of one graph."""
    given = [nodes] if isinstance(nodes, Node) else list(nodes)
    for one in given:
        if isinstance(one, Node):
            if given[0] is nodes:
                raise GraphTypeError(f"{what} takes a list of nodes, got the node {nodes!r}")
            return [one.graph.lift(part) for part in given]
    raise GraphTypeError(f"{what} needs at least one node, got {len(given)} without any")


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

    Examples
    --------
    >>> from actorgraph.graph import Graph
    >>> x = Graph().input("x", (2,))
    >>> array([[x[0], 1], [0, x[1]]]).shape
    (2, 2)
    """
    home = _first_node(values)
    if home is None:
        raise GraphTypeError(f"array: there is no node in {values!r}; use graph.constant")
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


# -- stack ------------------------------------------------------------------------------------


def _stack_shape(checks: Checks, *shapes: Shape, axis: int) -> Shape:
    result = list(shapes[0])
    for shape in shapes[1:]:
        if len(shape) != len(result):
            raise ShapeError(f"ranks {len(result)} and {len(shape)} cannot be stacked")
        for i, dim in enumerate(shape):
            result[i] = checks.equal(result[i], dim, f"dims at axis {i}")
    return (*result[:axis], len(shapes), *result[axis:])


def _stack_vjp(argnums: Sequence[int], ct: Node, y: Node, *xs: Node, axis: int) -> Iterator[Node]:
    before = [slice(None)] * axis
    return (getitem(ct, (*before, argnum)) for argnum in argnums)


def _stack_jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, axis: int) -> Node:
    return build(_STACK, *_with_zeros(tans, xs), axis=axis)


_STACK: Op = declare(
    "stack", _join_scheme, lambda xp, *xs, axis, out=None: xp.stack(xs, axis, out),
    shape=_stack_shape, vjp=Together(_stack_vjp), jvp=_stack_jvp,
    samples=(
        Sample(((2, 3), (2, 3)), {"axis": 0}), Sample(((2, 3), (2, 3), (2, 3)), {"axis": 2}),
        Sample(((), ()), {"axis": 0}),
    ),
    memory=KEPT_OUT, jointly=(), doc="Join arrays along a new axis.",
)  # fmt: skip


@raises(
    types="The dtypes differ, or there is nothing to join.",
    shapes="The shapes differ, or there is no such axis.",
)  # fmt: skip
def stack(nodes: Iterable[Any], axis: int = 0) -> Node:
    """Join arrays of one shape along a new axis, as ``numpy.stack``.

    Parameters
    ----------
    nodes : iterable of node or array
        At least one node; one dtype, one shape.
    axis : int
        Place of the new axis in the result.
    """
    parts = _lifted(nodes, "stack")
    return build(_STACK, *parts, axis=one_axis(axis, parts[0].ndim + 1, "stack"))
