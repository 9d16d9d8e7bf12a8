"""Indexing: getitem, take, one_hot, and the scatter that is the gradient of getitem.

An index expression is split in two.  What is known when the node is built (ints, slices, None)
is in the attribute ``index``; each integer array is an operand, with ``ARRAY`` in its place in
``index``.  Slices are canonical, so that ``x[0:5]`` and ``x[:5]`` are one node.  The index
``(ALONG, axis)`` with one operand is that of `gather`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import CONSTANT, FRESH, FRESH_OUT, KEPT, Attrs, Layout, Memory, Op, Sample
from actorgraph.ops._arrays import (
    accumulator,
    combine_at,
    in_range,
    is_traced,
    largest,
    on_host,
    raise_if,
)
from actorgraph.ops._rules import NO_INTS, declare, on, raises, returns
from actorgraph.ops.broadcasting import along_axis, axes_of
from actorgraph.ops.reshaping import reshape, without_masks
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, dtype_of, slice_size

__all__ = ["getitem", "one_hot", "take"]

ARRAY = "array"
"""Stands in the attribute ``index`` where an operand is the index."""

ALONG = "along"
"""Opens the attribute ``(ALONG, axis)``: the operand says for each place which entry to take."""

Index = tuple[Any, ...]
"""The attribute ``index`` as a tuple."""
_FULL = slice(None)


def index_scheme(first: str, arity: int, result: str) -> str:
    """Return the scheme of an op of arguments of the types `first` and of index arrays."""
    arrays = range(first.count("->") + 1, arity)
    return " -> ".join([first, *[f"i{place}[*i{place}]" for place in arrays], result])


def indexed_shape(checks: Checks, x: Shape, *arrays: Shape, index: Index) -> Shape:
    """Shape rule of indexing."""
    if index[:1] == (ALONG,):
        if len(arrays[0]) != len(x):
            raise ShapeError(f"an index of rank {len(arrays[0])} does not fit rank {len(x)}")
        return arrays[0]
    rank = sum(part is not None for part in index)
    if rank > len(x):
        raise ShapeError(f"{rank} indices are too many for rank {len(x)}")
    dims = iter(x)
    result: list[int | Dim] = []
    places = []  # Where the result stands at each index that NumPy counts as advanced.
    for position, part in enumerate(index):
        if part is None:
            result.append(1)
        elif isinstance(part, slice):
            result.append(slice_size(next(dims), part))
        else:
            _check_int(part, next(dims), position)
            places.append((position, len(result)))
    result.extend(dims)
    if arrays:
        # Index arrays side by side put their dims in their place, others in front.
        together = places[-1][0] - places[0][0] == len(places) - 1
        place = places[0][1] if together else 0
        result[place:place] = checks.broadcast(*arrays)
    return tuple(result)


def _check_int(part: Any, dim: int | Dim, position: int) -> None:
    if isinstance(part, int) and isinstance(dim, int) and not -dim <= part < dim:
        raise ShapeError(f"index {part} at position {position} is out of range for dim {dim}")


def filled(xp: Any, index: Index, arrays: Sequence[Any]) -> Index:
    """Return the index as arrays take it, with the operands in their places."""
    if index[:1] == (ALONG,):
        ndim = arrays[0].ndim
        return tuple(
            arrays[0] if i == index[1] else xp.arange(n).reshape(-1, *[1] * (ndim - i - 1))
            for i, n in enumerate(arrays[0].shape)
        )
    rest = iter(arrays)
    return tuple(next(rest) if isinstance(part, str) else part for part in index)


def check_index(xp: Any, shape: tuple[int, ...], arrays: Sequence[Any], index: Index) -> None:
    """Raise `IndexError` where index arrays are out of range on a device; NumPy checks itself."""
    if on_host(xp):
        return
    if index[:1] == (ALONG,):
        in_range(xp, arrays[0], shape[index[1]])
        return
    dims = zip(shape, [part for part in index if part is not None], strict=False)
    sizes = [dim for dim, part in dims if isinstance(part, str)]
    for array, size in zip(arrays, sizes, strict=True):
        in_range(xp, array, size)


def _getitem_forward(xp: Any, x: Any, *arrays: Any, index: Index) -> Any:
    if not arrays:
        return x[index]
    check_index(xp, x.shape, arrays, index)
    if is_adjacent(index) and len(arrays) == 1 and index[0] != ALONG:  # `take` is faster
        places = arrays[0].astype(xp.int64) if arrays[0].dtype.kind == "u" else arrays[0]
        return x.take(places, len(index) - 1)
    found = x[filled(xp, index, arrays)]
    return found.astype(x.dtype, order="C", copy=False) if is_adjacent(index) else found


def _getitem_vjp(argnum: int, ct: Node, y: Node, x: Node, *arrays: Node, index: Index) -> Any:
    if argnum > 0:
        return None
    if UNKNOWN in x.dims:
        return build(_GETITEM_ADJOINT_LIKE, ct, x, *arrays, index=index)
    return build(_GETITEM_ADJOINT, ct, *arrays, index=index, shape=x.dims)


def is_adjacent(index: Index) -> bool:
    """Return whether index arrays name adjacent axes, all others being whole: tables can do it."""
    if index[-1:] != (ARRAY,):
        return index[:1] == (ALONG,)
    return all(part == _FULL for part in index[: -index.count(ARRAY)])


def _layout(attrs: Attrs) -> Layout:
    """Return what an index guarantees: a copy, or a view with strides in the same order."""
    if is_adjacent(attrs["index"]):
        return "c"
    keeps_order = all(
        isinstance(part, int) or (isinstance(part, slice) and (part.step is None or part.step > 0))
        for part in attrs["index"]
    )
    return "ordered" if keeps_order else "any"


_SAMPLES = (
    on((3, 4), index=(1,)),
    on((3, 4), index=(_FULL, slice(None, None, -2))),
    on((3, 4), index=(None, slice(1, 3), None, -1)),
    on((0, 2), index=(slice(1, None),)),
    Sample(((3, 4), (5,)), {"index": (ARRAY,)}, ints={1: 3}),
    Sample(((3, 4), (2, 2)), {"index": (_FULL, ARRAY)}, ints={1: 4}),
    Sample(((3, 4), (5,), (2, 1)), {"index": (ARRAY, ARRAY)}, ints={1: 3, 2: 4}),
    Sample(((2, 3, 4), (5,), (5,)), {"index": (ARRAY, _FULL, ARRAY)}, ints={1: 2, 2: 4}),
    Sample(((2, 3, 4), (5,)), {"index": (_FULL, 1, ARRAY)}, ints={1: 4}),
    Sample(((2, 3, 4), (5,)), {"index": (1, slice(2), ARRAY)}, ints={1: 4}),
    Sample(((3, 4), ()), {"index": (ARRAY,)}, ints={1: 3}),
    Sample(((3, 4), (2, 4)), {"index": (ALONG, 0)}, ints={1: 3}),
    Sample(((2, 3, 4), (2, 2, 5)), {"index": (ALONG, 2)}, ints={1: 4}),
)

_GETITEM: Op = declare(
    "getitem", lambda arity, attrs: index_scheme("a[*s]", arity, "a[*out]"), _getitem_forward,
    shape=indexed_shape, vjp=_getitem_vjp, linear=(0,), samples=_SAMPLES,
    memory=Memory(with_attrs=_layout), traced=lambda step: is_adjacent(step.attrs["index"]),
)  # fmt: skip


def _adjoint_shape(checks: Checks, ct: Shape, *arrays: Shape, index: Index, shape: Shape) -> Shape:
    expected = indexed_shape(checks, shape, *arrays, index=index)
    if len(expected) != len(ct):
        raise ShapeError(f"rank {len(ct)} does not fit the index, which gives {len(expected)}")
    for dim, wanted in zip(ct, expected, strict=True):
        checks.equal(dim, wanted)
    return shape


def _adjoint_forward(
    xp: Any, ct: Any, *arrays: Any, index: Index, shape: tuple[int, ...], out: Any = None
) -> Any:
    dtype = accumulator(ct.dtype) if arrays else ct.dtype
    if out is None:
        out = xp.zeros(shape, dtype)
    else:
        out.fill(0)
    if not arrays:
        out[index] = ct
        return out
    add_at(xp, out, ct, arrays, index)
    return out.astype(ct.dtype, copy=False)


def add_at(xp: Any, out: Any, values: Any, arrays: Sequence[Any], index: Index) -> None:
    """Add values to `out`, which is C-contiguous, at an index with arrays; repeats add up."""
    if is_traced(xp):
        np.add.at(out, filled(xp, index, arrays), values)
    elif len(index) == 1 and out.ndim > 1 and out.size:
        # Rows: one flat scatter is five times faster than ufunc.at with rows.
        rows, width = out.shape[0], out.size // out.shape[0]
        first = arrays[0].reshape(-1).astype(xp.int64)
        if first.size:
            text = f"index {{}} or {{}} is out of bounds for dim {rows}"
            bad = (first.min() < -rows) | (first.max() >= rows)
            raise_if(xp, bad, IndexError, text, first)
        places = (first[:, None] * width + xp.arange(width)).reshape(-1)
        combine_at(xp, "add", out.reshape(-1), places, values.reshape(-1))
    elif on_host(xp):
        np.add.at(out, filled(xp, index, arrays), values)
    else:
        places = flat_places(xp, out.shape, arrays, index).reshape(-1)
        combine_at(xp, "add", out.reshape(-1), places, values.reshape(-1))


def flat_places(xp: Any, shape: tuple[int, ...], arrays: Sequence[Any], index: Index) -> Any:
    """Return the flat position of each write at an index with arrays, in C order of the writes."""
    everything = xp.arange(prod(shape)).reshape(shape)
    check_index(xp, shape, arrays, index)
    return everything[filled(xp, index, arrays)]


_GETITEM_ADJOINT: Op = declare(
    "getitem_adjoint", lambda arity, attrs: index_scheme("a[*s]", arity, "a[*out]"),
    _adjoint_forward, shape=_adjoint_shape,
    vjp=lambda argnum, ct, y, x, *arrays, index, shape: (
        None if argnum else build(_GETITEM, ct, *arrays, index=index)
    ),
    linear=(0,), samples=(
        on((4,), index=(1,), shape=(3, 4)),
        on((3, 2), index=(_FULL, slice(None, None, -2)), shape=(3, 4)),
        Sample(((5, 4), (5,)), {"index": (ARRAY,), "shape": (3, 4)}, ints={1: 3}),
        Sample(((5,), (5,)), {"index": (ARRAY,), "shape": (3,)}, ints={1: 3}),
        Sample(((3, 5), (5,)), {"index": (_FULL, ARRAY), "shape": (3, 4)}, ints={1: 4}),
        Sample(((0, 4), (0,)), {"index": (ARRAY,), "shape": (3, 4)}, ints={1: 3}),
        Sample(((2, 4), (2, 4)), {"index": (ALONG, 1), "shape": (3, 4)}, ints={1: 4}),
    ),
    memory=FRESH_OUT, traced=lambda step: (
        len(step.inputs) == 1 or (step.dtype.kind != "b" and is_adjacent(step.attrs["index"]))
    ),
    doc="Zeros of a shape with an array added at an index; repeated indices add up.",
)  # fmt: skip


_GETITEM_ADJOINT_LIKE: Op = declare(
    "getitem_adjoint_like",
    lambda arity, attrs: index_scheme("a[*s] -> a1[*t]", arity, "a[*t]"),
    lambda xp, ct, like, *arrays, index: (
        _adjoint_forward(xp, ct, *arrays, index=index, shape=like.shape)
    ),
    vjp=lambda argnum, ct, y, x, like, *arrays, index: (
        None if argnum else build(_GETITEM, ct, *arrays, index=index)
    ),
    linear=(0,), samples=(
        on((2,), (5,), index=(slice(None, 2),)),
        Sample(((5, 4), (3, 4), (5,)), {"index": (ARRAY,)}, ints={2: 3}),
    ),
    memory=FRESH, doc="As getitem_adjoint, with the shape of another array.",
)  # fmt: skip


@returns("Node: a view without index arrays, else fresh; gradients of repeated indices add up")
@raises(
    types="A single bool, a float, a node in a slice.",
    shapes="Too many indices, a mask of another shape, or an index that is known to be out of "
    "range; what only a run can know raises in the run.",
)  # fmt: skip
def getitem(x: Node, index: Any) -> Node:
    """Take a part of `x`, as ``x[index]`` and as NumPy does.

    Parameters
    ----------
    index : int, slice, None, Ellipsis, integer or boolean array or node, or a tuple of them
        Ints and slice bounds may be dims such as ``x.shape[0]``.  Several arrays broadcast
        against each other.  Negative indices count from the end.  A mask has the dims that it
        stands for and takes the entries where it holds, in C order; how many is a dim that only
        a run knows (None), unless mask and dims are known when the node is built.
    """
    x, static, arrays = read_index(x, index)
    return take_index(x, static, arrays) if static else x


def take_index(x: Node, index: Index, arrays: Sequence[Node]) -> Node:
    """Return the getitem of an index that `read_index` has read."""
    return build(_GETITEM, x, *arrays, index=index)


def read_index(x: Node, index: Any) -> tuple[Node, Index, list[Node]]:
    """Return `x` (with masked dims flattened), the attribute ``index`` and its operands."""
    x, given = without_masks(x, index if isinstance(index, tuple) else (index,))
    parts = _expanded(given, x)
    dims = iter(x.dims)
    static: list[Any] = []
    arrays: list[Node] = []
    for position, part in enumerate(parts):
        dim = None if part is None else next(dims)
        read = _read(part, dim, position, x)
        if isinstance(read, Node):
            arrays.append(read)
        static.append(ARRAY if isinstance(read, Node) else read)
    while static and isinstance(static[-1], slice) and static[-1] == _FULL:
        static.pop()
    return x, tuple(static), arrays


def _expanded(index: Index, x: Node) -> list[Any]:
    """Return the index with slices in place of the Ellipsis."""
    places = [i for i, part in enumerate(index) if part is Ellipsis]
    if len(places) > 1:
        raise ShapeError(f"getitem: an index may hold one Ellipsis, got {len(places)} for {x!r}")
    missing = x.ndim - sum(part is not None and part is not Ellipsis for part in index)
    if missing < 0:
        raise ShapeError(f"getitem: {x.ndim - missing} indices are too many for {x!r}")
    at = places[0] if places else len(index)
    return [*index[:at], *[_FULL] * missing, *index[at + 1 :]]


def _read(part: Any, dim: int | Dim | None, position: int, x: Node) -> Any:
    """Return None, an int, a canonical slice or the node of an index array."""
    if part is None:
        return None
    assert dim is not None
    where = f"getitem: index {position} of {x!r}"
    if isinstance(part, slice):
        return _read_slice(part, dim, where)
    if isinstance(part, (int, np.integer, Dim)) and not isinstance(part, bool):
        if isinstance(part, Dim):
            return _bound(part, where)
        _check_int(int(part), dim, position)
        return int(part) + dim if part < 0 and isinstance(dim, int) else int(part)
    return _read_array(part, dim, where, x)


def _read_array(part: Any, dim: int | Dim, where: str, x: Node) -> Node:
    if isinstance(part, (str, float, np.floating)):
        raise GraphTypeError(f"{where} is {part!r}; an index is an int, a slice, None or an array")
    if isinstance(part, list) and not len(part):
        part = np.zeros(0, np.int64)
    node = x.graph.lift(part)
    if node.dtype.kind not in "iu":
        raise GraphTypeError(f"{where} is {node.dtype}; index arrays have to be integers")
    if node.op is CONSTANT and isinstance(dim, int):
        values = node.attrs["value"]
        if values.size and not (-dim <= values.min() and values.max() < dim):
            raise ShapeError(
                f"{where} has values from {values.min()} to {values.max()}, out of range for "
                f"dim {dim}"
            )
    return node


def _read_slice(part: slice, dim: int | Dim, where: str) -> slice:
    start, stop, step = (_bound(one, where) for one in (part.start, part.stop, part.step))
    if isinstance(step, Dim) or step == 0:
        raise GraphTypeError(f"{where} has the step {step}; a step is an int other than 0")
    if step == 1:
        step = None
    if isinstance(dim, int) and not isinstance(start, Dim) and not isinstance(stop, Dim):
        low, high, by = slice(start, stop, step).indices(dim)
        if by > 0:
            return slice(low or None, None if high >= dim else high, step)
    return slice(None if start == 0 and (step is None or step > 0) else start, stop, step)


def _bound(value: Any, where: str) -> Any:
    if value is UNKNOWN:
        raise GraphTypeError(f"{where} holds a dim that only a run knows")
    if value is None or isinstance(value, Dim):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise GraphTypeError(
            f"{where} holds {value!r}; a slice holds ints, dims or None, not nodes or floats"
        ) from None


@raises(NO_INTS, "There is no such axis, or an index is known to be out of range.")
@along_axis("indices")
def take(x: Node, indices: Any, axis: int | None = None) -> Node:
    """Take entries along an axis, as ``numpy.take``.

    Parameters
    ----------
    indices : int, integer array or integer node
        Any shape, which replaces the axis.  Negative indices count from the end; one out of range
        raises, in the run where it is not known earlier.
    axis : int, optional
        Default: `x` is flattened first.
    """
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    place = axes_of((axis,), x.ndim)[0]
    return getitem(x, (*[_FULL] * place, indices))


def check_classes(xp: Any, classes: Any, depth: int) -> None:
    """Raise `IndexError` in a run where an integer array has values outside ``[0, depth)``."""
    # Cast to unsigned, a negative value is a large one, so one reduction finds both errors.
    if classes.size:
        bad = largest(xp, classes.astype(xp.uint64), None, False, 0) >= depth
        text = f"class indices from {{}} to {{}} are out of range for {depth} classes"
        raise_if(xp, bad, IndexError, text, classes)


def _one_hot_forward(xp: Any, indices: Any, depth: int, dtype: str) -> Any:
    check_classes(xp, indices, depth)
    places = indices.astype(xp.int64, copy=False)
    return (places[..., None] == xp.arange(depth)).astype(dtype)


_ONE_HOT = declare(
    "one_hot", lambda arity, attrs: f"i[*s] -> {attrs['dtype']}[*out]", _one_hot_forward,
    shape=lambda checks, x, depth, dtype: (*x, depth),
    samples=(
        Sample(((3,),), {"depth": 4, "dtype": "float64"}, ints={0: 4}),
        Sample(((2, 0),), {"depth": 3, "dtype": "float32"}, ints={0: 3}),
    ),
    memory=KEPT, traced=True,
)  # fmt: skip


@raises(NO_INTS, "`depth` is negative.")
def one_hot(indices: Node, depth: int | Dim, dtype: Any = "float32") -> Node:
    """Return rows of zeros with a one at each index.

    Parameters
    ----------
    indices : node
        Integers in ``[0, depth)``, any shape; others raise in the run.
    depth : int or dim
        Number of classes, the last dim of the result.
    dtype : dtype
        Of the result.
    """
    if isinstance(depth, (int, np.integer)) and depth < 0:
        raise ShapeError(f"depth {depth} is negative")
    size = depth if isinstance(depth, Dim) else operator.index(depth)
    return build(_ONE_HOT, indices, depth=size, dtype=dtype_of(dtype).name)
