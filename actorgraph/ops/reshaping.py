"""The same elements in another shape: reshape, ravel, flatten, and dims merged or split in two.

Sizes may be known only to the run.  Boolean masks in an index are here, too: a mask over some dims
becomes an array of positions in these dims, flattened.  So masks can do what integer indices can:
gradients add into zeros, second order, any place in the index.  The number of positions is known
only in a run, unless the mask is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import CONSTANT, Memory, Op, Sample
from actorgraph.ops._rules import declare, on, raises, returns
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, shape_from, size_of

__all__ = ["flatten", "ravel", "reshape"]


def _reshaped(checks: Checks, x: Shape, *, shape: Shape) -> Shape:
    if -1 not in shape:
        if not any(dim is UNKNOWN for dim in (*x, *shape)):
            checks.equal(size_of(x), size_of(shape), f"sizes of {x} and {shape}")
        return shape
    known = size_of(tuple(dim for dim in shape if dim != -1))
    missing = size_of(x) // known if known != 0 else 0
    if UNKNOWN not in (missing, known) and missing * known - size_of(x) != 0:
        checks.equal(missing * known, size_of(x), f"sizes of {x} and {shape}")
    return tuple(missing if dim == -1 else dim for dim in shape)


def _reshape_forward(xp: Any, x: Any, shape: Any, out: Any = None) -> Any:
    if out is None:
        return xp.reshape(x, shape)
    xp.copyto(out.reshape(x.shape), x)
    return out


_RESHAPE: Op = declare(
    "reshape", "a[*s] -> a[*out]", _reshape_forward, shape=_reshaped,
    vjp=(lambda ct, y, x, shape: reshape_like(ct, x),), linear=(0,),
    samples=(on((3, 4), shape=(2, 6)), on((3, 4), shape=(-1, 2)), on((), shape=(1, 1))),
    memory=Memory("ordered", takes_out=True),
)  # fmt: skip

_RESHAPE_LIKE: Op = declare(
    "reshape_like", "a[*s] -> a1[*t] -> a[*t]", lambda xp, x, like: xp.reshape(x, xp.shape(like)),
    vjp=(lambda ct, y, x, like: reshape_like(ct, x), None), linear=(0,),
    samples=(on((3, 4), (6, 2)),), memory=Memory("ordered"),
    doc="The same elements in the shape of another array.",
)  # fmt: skip


@returns("Node: the node itself where it has that shape")
@raises(shapes="The sizes can be shown to differ, or -1 stands twice or beside a 0.")
def reshape(x: Node, *shape: Any) -> Node:
    """Give the elements another shape, as ``reshape(x, 3, 4)`` or ``reshape(x, (3, 4))``.

    Type ``a[*s] -> a[*out]``; a view where NumPy gives one.

    Parameters
    ----------
    *shape : int, str or Dim, or one tuple of them
        One dim may be -1, dims may be symbols of the graph.
    """
    given = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, str, Dim)) else shape
    given = tuple(given)
    if len([dim for dim in given if isinstance(dim, int) and dim == -1]) > 1:
        raise ShapeError(f"only one dim of {given} may be -1")
    dims = tuple(-1 if isinstance(d, int) and d == -1 else shape_from((d,))[0] for d in given)
    dims = _resolved(dims, x.dims)
    return x if dims == x.dims and UNKNOWN not in dims else build(_RESHAPE, x, shape=dims)


def _resolved(dims: Shape, shape: Shape) -> Shape:
    """Return `dims` with the size that -1 stands for if it is known before a run.

    For an empty array NumPy could not find it in the run.
    """
    known = size_of(tuple(dim for dim in dims if dim != -1))
    if -1 not in dims or known is UNKNOWN:
        return dims
    if known == 0:
        raise ShapeError(f"reshape: -1 in {dims} could be any size beside a 0; write its size")
    missing = size_of(shape) // known
    if not isinstance(missing, int) or missing * known - size_of(shape) != 0:
        return dims  # the run finds it, or the shape rule what does not fit
    return tuple(missing if dim == -1 else dim for dim in dims)


def reshape_like(x: Node, like: Node) -> Node:
    """Reshape `x` to the shape of `like`, with as little left to the run as possible."""
    dims, is_open = like.dims, UNKNOWN in like.dims
    if x.dims == dims and not is_open:
        return x
    if len([dim for dim in dims if isinstance(dim, Dim)]) == 1 and 0 not in dims:
        # One -1 does what binding the symbol would do, without a plan per shape.
        return build(_RESHAPE, x, shape=tuple(-1 if isinstance(d, Dim) else d for d in dims))
    return build(_RESHAPE_LIKE, x, like) if is_open else build(_RESHAPE, x, shape=dims)


@returns("Node: ``reshape(x, -1)``: a view where NumPy gives one")
def ravel(x: Node) -> Node:
    """Return all elements in one dim, in C order, as ``numpy.ravel``.

    Parameters
    ----------
    x : node
        Any shape and dtype; a scalar gives one element.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.ravel(ag.Graph().input("x", ("n", 3))).shape
    (3*n,)
    """
    return reshape(x, (-1,))


def _flattened(dims: Any, start: int, stop: int) -> Any:
    return (*dims[:start], size_of(dims[start:stop]), *dims[stop:])


_FLATTEN: Op = declare(
    "flatten", "a[*s] -> a[*out]",
    lambda xp, x, start, stop: xp.reshape(x, _flattened(x.shape, start, stop)),
    shape=lambda checks, x, *, start, stop: _flattened(x, start, stop),
    vjp=(lambda ct, y, x, start, stop: reshape_like(ct, x),), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(on((2, 3, 4), start=1, stop=3), on((0, 3, 4), start=0, stop=2)),
    memory=Memory("ordered"),
)  # fmt: skip


@returns("Node: a view where NumPy gives one; the node itself for a single axis")
@raises(shapes="An axis is out of range, or `start_axis` stands behind `end_axis`.")
def flatten(x: Node, start_axis: int = 0, end_axis: int = -1) -> Node:
    """Merge the dims from `start_axis` to `end_axis`, both included, as ``torch.flatten``.

    Parameters
    ----------
    x : node
        Any shape and dtype; a scalar gives one element.
    start_axis, end_axis : int
        Negative ones count from the end.
    """
    if not x.ndim:
        return reshape(x, (1,))
    start, end = (_axis(axis, x.ndim) for axis in (start_axis, end_axis))
    if start > end:
        raise ShapeError(f"start_axis {start_axis} stands behind end_axis {end_axis}")
    if start == end:
        return x
    if UNKNOWN in x.dims:
        return build(_FLATTEN, x, start=start, stop=end + 1)
    return reshape(x, _flattened(x.dims, start, end + 1))


def _axis(axis: Any, ndim: int) -> int:
    if not isinstance(axis, (int, np.integer)) or not -ndim <= axis < ndim:
        raise ShapeError(f"flatten: axis {axis!r} is not an int in [-{ndim}, {ndim})")
    return int(axis) % ndim


def _positions_shape(checks: Checks, mask: Shape, x: Shape, *, axis: int) -> Shape:
    for dim, masked in zip(x[axis:], mask, strict=False):
        checks.equal(dim, masked, f"dims {x[axis : axis + len(mask)]} and mask {mask}")
    return (UNKNOWN,)


def _positions(xp: Any, mask: Any, x: Any, axis: int) -> Any:
    masked = x.shape[axis : axis + mask.ndim]
    if mask.shape != masked:
        raise IndexError(f"a mask of shape {mask.shape} does not fit the dims {masked}")
    return xp.flatnonzero(mask)


_MASK_POSITIONS: Op = declare(
    "mask_positions", "bool[*m] -> a[*s] -> int64[*out]", _positions, shape=_positions_shape,
    samples=(
        Sample(((3,), (3, 4)), {"axis": 0}, bools=(0,)),
        Sample(((3, 4), (2, 3, 4)), {"axis": 1}, bools=(0,)),
        Sample(((0,), (0,)), {"axis": 0}, bools=(0,)),
    ),
    doc="Positions in the flattened dims from an axis on where a mask holds.",
)  # fmt: skip


def _is_mask(part: Any) -> bool:
    if isinstance(part, (Node, np.ndarray, np.generic)):
        return bool(part.dtype.kind == "b")
    if isinstance(part, list):
        nodes = any(isinstance(one, Node) for one in part)
        return not nodes and np.asarray(part).dtype.kind == "b"
    return isinstance(part, bool)


def without_masks(x: Node, index: tuple[Any, ...]) -> tuple[Node, tuple[Any, ...]]:
    """Return `x` with masked dims flattened, and the index with positions in place of masks."""
    if not any(_is_mask(part) for part in index):
        return x, index
    lift = x.graph.lift
    parts = [
        lift(part if isinstance(part, Node) else np.asarray(part)) if _is_mask(part) else part
        for part in index
    ]
    missing = x.ndim - sum(map(_dims_of, parts))
    if missing < 0:
        raise ShapeError(f"getitem: an index of {x.ndim - missing} dims is too long for {x!r}")
    axis = 0
    read: list[Any] = []
    for position, part in enumerate(parts):
        masked = isinstance(part, Node) and part.dtype.kind == "b"
        read.append(_read_mask(part, x, axis, position) if masked else part)
        if masked:
            x = flatten(x, axis, axis + part.ndim - 1)
        axis += missing if part is Ellipsis else part is not None
    return x, tuple(read)


def _dims_of(part: Any) -> int:
    """Return how many dims a part of an index takes, without those of an Ellipsis."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, Node) and part.dtype.kind == "b" else 1


def _read_mask(mask: Node, x: Node, axis: int, position: int) -> Node:
    if not mask.ndim:
        raise GraphTypeError(
            f"getitem: index {position} of {x!r} is a single bool, a mask of no dims; "
            "use where(condition, x, 0)"
        )
    dims = x.dims[axis : axis + mask.ndim]
    if mask.op is CONSTANT and all(isinstance(dim, int) for dim in dims):
        if dims != mask.dims:
            raise ShapeError(
                f"getitem: index {position} of {x!r} is a mask of shape {mask.shape}, which does "
                f"not fit the dims {dims}"
            )
        return x.graph.constant(np.flatnonzero(mask.attrs["value"]))
    return positions_where(mask, x, axis)


def positions_where(mask: Node, x: Node, axis: int = 0) -> Node:
    """Return the positions in the flattened dims of `x` from an axis on where a mask holds."""
    return build(_MASK_POSITIONS, mask, x, axis=axis)


def _merged(dims: Any, groups: tuple[int, ...]) -> tuple[Any, ...]:
    sizes, start = [], 0
    for count in groups:
        sizes.append(size_of(tuple(dims[start : start + count])))
        start += count
    return tuple(sizes)


_MERGE: Op = declare(
    "merge_dims", "a[*s] -> a[*out]", lambda xp, x, groups: xp.reshape(x, _merged(x.shape, groups)),
    shape=lambda checks, x, *, groups: _merged(x, groups),
    vjp=(lambda ct, y, x, groups: reshape_like(ct, x),), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(on((2, 3, 4), groups=(1, 2)), on((2, 0), groups=(2, 0))),
    doc="Merge groups of adjacent dims into one dim each.",
)  # fmt: skip


def merge_dims(x: Node, groups: tuple[int, ...]) -> Node:
    """Merge adjacent dims: ``groups`` says how many of them make each dim of the result."""
    return x if all(count == 1 for count in groups) else build(_MERGE, x, groups=groups)


def _grouped(dims: Any, axis: int, parts: int, size: int) -> Any:
    count = dims[axis] // max(parts, size)
    halves = (count, size) if parts < 0 else (parts, count)
    return (*dims[:axis], *halves, *dims[axis + 1 :])


def _split_shape(checks: Checks, x: Shape, *, axis: int, parts: int, size: int) -> Shape:
    known = max(parts, size)
    if x[axis] is not UNKNOWN:
        checks.equal(x[axis] // known * known, x[axis], f"dim {x[axis]} as a multiple of {known}")
    grouped: Shape = _grouped(x, axis, parts, size)
    return grouped


def _split_forward(xp: Any, x: Any, axis: int, parts: int, size: int) -> Any:
    if x.shape[axis] % max(parts, size):
        raise ShapeError(f"dim {x.shape[axis]} is no multiple of {max(parts, size)}")
    return x.reshape(_grouped(x.shape, axis, parts, size))


_SPLIT: Op = declare(
    "group_dim", "a[*s] -> a[*out]", _split_forward, shape=_split_shape,
    vjp=(lambda ct, y, x, axis, parts, size: reshape_like(ct, x),), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(on((2, 6, 3), axis=1, parts=2, size=-1), on((6, 0), axis=1, parts=-1, size=2)),
    memory=Memory(is_view=True),
    doc="One dim as two: parts and what each holds, one of both given and the other -1.",
)  # fmt: skip


def group_dim(x: Node, axis: int, parts: int = -1, size: int = -1) -> Node:
    """Return `x` with the dim at `axis` as two, so many parts or parts of a size, 1 at least."""
    return build(_SPLIT, x, axis=axis, parts=parts, size=size)


def ungroup_dims(x: Node, axis: int) -> Node:
    """Return `x` with the dims at `axis` and behind it as one."""
    ones = [1] * x.ndim
    return merge_dims(x, (*ones[:axis], 2, *ones[axis + 2 :]))
