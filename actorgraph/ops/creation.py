"""Arrays out of numbers: zeros, ones, full, arange, linspace, eye, meshgrid and the ``*_like``.

A node needs a graph, so these take one first: a `Graph`, or any node of it.  With known sizes the
result is a constant of the graph; dims that are symbols are bound by each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Graph, Node, build
from actorgraph.op import Op
from actorgraph.ops._rules import add_all, as_of, declare, on, raises, returns
from actorgraph.ops.broadcasting import add, broadcast_like, broadcast_to, expand_dims, sum
from actorgraph.ops.elementwise import astype
from actorgraph.ops.shaping import swapaxes
from actorgraph.types import UNKNOWN, Dim, Shape, dim_max, dtype_of, shape_from, symbol

__all__ = [
    "arange", "eye", "full", "full_like", "linspace", "logspace", "meshgrid", "ones", "ones_like",
    "zeros", "zeros_like",
]  # fmt: skip


@raises(types="It is neither a graph nor a node.")
def graph_of(graph: Any) -> Graph:
    """Return a graph, or that of a node."""
    found = graph.graph if isinstance(graph, Node) else graph
    if isinstance(found, Graph):
        return found
    raise GraphTypeError(f"takes a graph, or a node of it, as its first argument, got {graph!r}")


@raises("The dtype cannot hold the value.", "The value does not broadcast, or a dim is None.")
def full(graph: Any, shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """Return an array of one value, as ``numpy.full``.

    Parameters
    ----------
    shape : tuple of int, str or Dim
    fill_value : scalar, array or node
        Broadcasts to the shape; a node gets the gradient.
    dtype : dtype, optional
        Default: that of the value, where a Python float is float32.
    """
    home = graph_of(graph)
    dims = shape_from(shape)
    if UNKNOWN in dims:
        raise ShapeError(f"every dim has to be an int or a symbol, got {shape!r}")
    if isinstance(fill_value, Node):
        value = home.lift(fill_value)
        return broadcast_to(value if dtype is None else astype(value, dtype), dims)
    kind = _default_dtype(fill_value) if dtype is None else dtype
    return broadcast_to(home.constant(np.asarray(fill_value), kind), dims)


def _default_dtype(value: Any) -> Any:
    """Return what a Python scalar becomes; arrays and NumPy scalars keep their dtype."""
    if isinstance(value, (bool, np.ndarray, np.generic)):
        return None
    return {int: "int64", float: "float32", complex: "complex64"}.get(type(value))


@as_of(full)
def zeros(graph: Any, shape: Any, dtype: Any = "float32") -> Node:
    """Return zeros of a shape whose dims may be symbols, as `full` does.

    Parameters
    ----------
    dtype : dtype
    """
    return full(graph, shape, 0, dtype)


@as_of(zeros)
def ones(graph: Any, shape: Any, dtype: Any = "float32") -> Node:
    """Return ones of a shape whose dims may be symbols, as `full` does."""
    return full(graph, shape, 1, dtype)


@as_of(full)
def full_like(x: Node, fill_value: Any, dtype: Any = None) -> Node:
    """`full` in the shape of `x`, also where only a run knows it.

    Parameters
    ----------
    x : node
        It gets no gradient.
    dtype : dtype, optional
        Default: that of `x`.

    Raises
    ------
    GraphTypeError
        The value cannot have the dtype.
    """
    target = x.dtype if dtype is None else dtype_of(dtype)
    if isinstance(fill_value, Node):
        value = astype(x.graph.lift(fill_value), target)
    else:
        value = x.graph.constant(np.asarray(fill_value), target)
    return broadcast_like(value, x)


def zeros_like(x: Node, dtype: Any = None) -> Node:
    """Return zeros in the shape of `x`, of its dtype unless one is given."""
    return full_like(x, 0, dtype)


def ones_like(x: Node, dtype: Any = None) -> Node:
    """Return ones in the shape of `x`, of its dtype unless one is given."""
    return full_like(x, 1, dtype)


def _counted(xp: Any, offset: Any, first: int, size: int, step: int) -> Any:
    numbers = xp.arange(first, first + size * step, step, dtype=offset.dtype)
    numbers += offset
    return numbers


_ARANGE: Op = declare(
    "arange", "r[] -> r[*out]", _counted, shape=lambda checks, offset, first, size, step: (size,),
    vjp=(lambda ct, y, offset, **attrs: sum(ct),),
    jvp=lambda tans, y, offset, **attrs: broadcast_like(tans[0], y),
    samples=(
        on((), first=0, size=4, step=2), on((), first=3, size=3, step=-1),
        on((), first=0, size=0, step=1),
    ),
)  # fmt: skip


@returns("Node: one dim; a constant where the numbers are known")
@raises(types="The step is 0, or an argument is neither a number nor a dim.")
def arange(graph: Any, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Node:
    """Return evenly spaced numbers in ``[start, stop)``, as ``numpy.arange``.

    Parameters
    ----------
    start, stop : number, str or Dim
        A single one is `stop`.  Dims and symbols such as ``"batch"`` are bound by each run; then
        all are integers.
    step : number
        Not 0.
    dtype : dtype, optional
        Default: int64, or float32 where a number is a float.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.arange(ag.Graph(), "n").shape
    (n,)
    """
    home = graph_of(graph)
    if stop is None:
        start, stop = 0, start
    first, last = (symbol(end) if isinstance(end, str) else end for end in (start, stop))
    ends: tuple[Any, ...] = (first, last, step)
    for end in ends:
        if not isinstance(end, (Dim, int, float, np.integer, np.floating)) or end is UNKNOWN:
            raise GraphTypeError(f"{end!r} is neither a number nor a dim that runs bind")
    symbolic = any(isinstance(end, Dim) for end in ends)
    exact = all(isinstance(end, (Dim, int, np.integer)) for end in ends)
    if isinstance(step, Dim) or step == 0 or (symbolic and not exact):
        raise GraphTypeError(
            f"the step is a number other than 0, and an int next to dims, got {ends}"
        )
    kind = dtype_of(dtype if dtype is not None else "int64" if exact else "float32")
    if not symbolic:
        return home.constant(np.arange(*ends, dtype=kind))
    step = int(step)
    size = dim_max((last - first + step - (1 if step > 0 else -1)) // step, 0)
    return build(_ARANGE, home.constant(0, kind), first=first, size=size, step=step)


def _weights(y: Node, first: int, **attrs: Any) -> Node:
    """Return the weight of `start` (first = 1) or `stop` (first = 0) in each entry."""
    ends = (y.graph.constant(np.array(end, y.dtype)) for end in (first, 1 - first))
    return build(_LINSPACE, *ends, **attrs)


def _linspace_jvp(tans: tuple[Node | None, ...], y: Node, *ends: Node, **attrs: Any) -> Node | None:
    moved = [(i, tan) for i, tan in enumerate(tans) if tan is not None]
    return add_all([tan * _weights(y, 1 - i, **attrs) for i, tan in moved])


_LINSPACE: Op = declare(
    "linspace", "x[] -> x[] -> x[*out]",
    lambda xp, start, stop, **attrs: xp.linspace(start, stop, dtype=start.dtype, **attrs),
    shape=lambda checks, start, stop, num, endpoint: (num,),
    vjp=lambda argnum, ct, y, start, stop, **attrs: sum(ct * _weights(y, 1 - argnum, **attrs)),
    jvp=_linspace_jvp,
    samples=(
        on((), (), num=5, endpoint=True), on((), (), num=4, endpoint=False),
        on((), (), num=1, endpoint=True), on((), (), num=0, endpoint=True),
    ),
)  # fmt: skip


@raises(types="The ends are no floats of one dtype.", shapes="`num` is negative or None.")
def linspace(
    graph: Any, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None
) -> Node:
    """Return `num` evenly spaced numbers from `start` to `stop`, as ``numpy.linspace``.

    ``y[i] = start + i * (stop - start) / (num - 1)``, or over ``num`` without the endpoint.

    Parameters
    ----------
    start, stop : number or 0-d node
        Nodes get gradients.
    num : int, str or Dim
        How many.
    endpoint : bool
        Whether `stop` is the last one.
    dtype : dtype, optional
        Float or complex; default: that of a node among the ends, else float32.
    """
    home = graph_of(graph)
    (size,) = shape_from((num,))
    if size is UNKNOWN:
        raise ShapeError("num has to be an int, a symbol or a dim, got None")
    nodes = [end for end in (start, stop) if isinstance(end, Node)]
    kind = dtype_of(dtype if dtype is not None else nodes[0].dtype if nodes else "float32")
    ends = [
        astype(home.lift(end), kind) if isinstance(end, Node) else home.constant(end, kind)
        for end in (start, stop)
    ]
    return build(_LINSPACE, *ends, num=size, endpoint=bool(endpoint))


@as_of(linspace)
def logspace(
    graph: Any, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: float = 10.0,
    dtype: Any = None,
) -> Node:  # fmt: skip
    """Return ``base`` to the powers of `linspace`, as ``numpy.logspace``."""
    return float(base) ** linspace(graph, start, stop, num, endpoint, dtype)


@returns("Node: a constant where the sizes are known")
@raises(shapes="A size is negative or None.")
def eye(graph: Any, n: Any, m: Any = None, k: int = 0, dtype: Any = "float32") -> Node:
    """Return a matrix with ones on a diagonal, as ``numpy.eye``.

    Parameters
    ----------
    n, m : int, str or Dim
        Rows and columns; as many columns as rows by default.
    k : int
        The diagonal: above the main one where positive.
    dtype : dtype
    """
    home = graph_of(graph)
    rows, columns = shape_from((n, n if m is None else m))
    if UNKNOWN in (rows, columns):
        raise ShapeError("sizes have to be ints, symbols or dims, got None")
    kind = dtype_of(dtype)
    if isinstance(rows, int) and isinstance(columns, int):
        return home.constant(np.eye(rows, columns, k, kind))
    return astype(expand_dims(arange(home, rows), 1) + k == arange(home, columns), kind)


@returns("list of Node\n    One for each argument, all of the shape of the grid; views.")
@raises("There is no argument, or no such indexing.", "An argument has more than one dim.")
def meshgrid(*xs: Node, indexing: str = "xy") -> list[Node]:
    """Return coordinate arrays of a grid, as ``numpy.meshgrid``.

    Parameters
    ----------
    *xs : node
        At most one dim each; at least one.
    indexing : {"xy", "ij"}
        Whether the first two axes are swapped, as plots have them.
    """
    if not xs or indexing not in ("xy", "ij"):
        raise GraphTypeError(
            f"takes at least one node and indexing 'xy' or 'ij', got {len(xs)} nodes and "
            f"{indexing!r}"
        )
    for x in xs:
        if x.ndim > 1:
            raise ShapeError(f"arguments have one dim at most, got {x!r}")
    flat = [x if x.ndim else expand_dims(x, 0) for x in xs]
    others = [tuple(i for i in range(len(xs)) if i != axis) for axis in range(len(xs))]
    spread = [expand_dims(x, rest) for x, rest in zip(flat, others, strict=True)]
    grids = _to_one_shape(spread, tuple(x.dims[0] for x in flat))
    if indexing == "xy" and len(xs) > 1:
        return [swapaxes(grid, 0, 1) for grid in grids]
    return grids


def _to_one_shape(nodes: Sequence[Node], dims: Shape) -> list[Node]:
    if UNKNOWN not in dims:
        return [broadcast_to(node, dims) for node in nodes]
    grid = reduce(add, [zeros_like(node, "int8") for node in nodes])
    return [broadcast_like(node, grid) for node in nodes]
