"""`vmap`: turns a function of single examples into one of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from actorgraph.autodiff.trees import flatten, map_leaves, unflatten
from actorgraph.control import batching_loops, batching_rules  # noqa: F401 - rules of ops
from actorgraph.control.batching import AllRows, RowsDiffer, Value, batched
from actorgraph.control.bodies import lifted, traced
from actorgraph.control.functions import graph_if_any, map  # noqa: A004
from actorgraph.errors import GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph, Node
from actorgraph.keywords import answering
from actorgraph.lower.inner import between
from actorgraph.ops.rearranging import moveaxis
from actorgraph.transforms.staging import Staged, graph_of, named
from actorgraph.types import UNKNOWN, Dim, Tensor

_Axes = int | None | tuple[int | None, ...] | list[int | None]


@answering
def vmap(fun: Callable[..., Any], in_axes: _Axes = 0, out_axes: int = 0) -> Callable[..., Any]:
    """Return a function that applies `fun` to each row of its arguments and stacks the results.

    `fun` is traced once, and each op in it becomes one for all rows: a product of vectors becomes
    one of matrices.  Ops without such a form (random draws, hooks, user ops, branches and loops
    that rows take differently) are computed row by row, and so is the whole function if rows have
    results of different sizes.  Values are those of single calls up to rounding; `map` has their
    bits.  Random ops draw anew for each row.  The result is differentiable, and `fun` may itself
    take gradients, which are then per example.

    Parameters
    ----------
    fun : callable
        Function of trees of nodes.  The returned function takes nodes and returns nodes; called
        with arrays only, if `fun` closes over no node, it returns arrays, as gradient functions do.
    in_axes : int, None, or a tuple of these
        The axis of rows in all leaves of each argument; None for one that all rows share.
    out_axes : int
        The axis of rows in results.

    Returns
    -------
    callable

    Raises
    ------
    GraphTypeError, ShapeError
        When called: no argument has rows, an axis does not exist, or numbers of rows differ.  A
        call with arrays blocks, so it raises inside a running event loop.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> per_example = ag.vmap(ag.grad(lambda w, x: (w * x).sum() ** 2.0), in_axes=(None, 0))
    >>> per_example(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[2., 0.],
           [6., 6.]])
    >>> g = ag.Graph()
    >>> w, xs = g.input("w", (3,), "float64"), g.input("xs", ("batch", 3), "float64")
    >>> per_example(w, xs).shape
    (batch, 3)
    """
    if not callable(fun):
        raise GraphTypeError(f"vmap takes a function of nodes, got {shown(fun)}")

    def builder(*args: Any) -> Any:
        return _of_rows(fun, graph_of(args), args, in_axes, out_axes)

    staged = Staged(builder, fun)

    def of_rows(*args: Any) -> Any:
        graph = graph_if_any(flatten(args)[0], fun)
        return staged(*args) if graph is None else _of_rows(fun, graph, args, in_axes, out_axes)

    vectorised: Callable[..., Any] = named(of_rows, "vmap", fun)
    return vectorised


def _of_rows(
    fun: Callable[..., Any], graph: Graph, args: tuple[Any, ...], in_axes: _Axes, out_axes: int
) -> Any:
    axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
    if len(axes) != len(args):
        raise GraphTypeError(f"in_axes has {len(axes)} entries for {len(args)} arguments")
    flat, structure = flatten(args)
    leaves = lifted(graph, flat, "an argument of vmap is", "give")
    axis_of = [axis for arg, axis in zip(args, axes, strict=True) for _ in flatten(arg)[0]]
    rows = {
        place: _moved(leaf, axis)
        for place, (leaf, axis) in enumerate(zip(leaves, axis_of, strict=True))
        if axis is not None
    }
    if not rows:
        raise GraphTypeError("vmap needs an argument that has rows, but in_axes is None for all")
    size = _size_of([x.dims[0] for x in rows.values()])

    def of_row(row: Sequence[Node] | dict[int, Node]) -> Any:
        given = [row[place] if place in rows else leaf for place, leaf in enumerate(leaves)]
        return fun(*unflatten(structure, given))

    try:
        stacked = _together(of_row, graph, size, rows)
    except RowsDiffer:
        stacked = map(of_row, rows)
    return map_leaves(partial(moveaxis, source=0, destination=out_axes), stacked)


def _moved(leaf: Node, axis: Any) -> Node:
    if not isinstance(axis, int) or not -leaf.ndim <= axis < leaf.ndim:
        raise ShapeError(f"vmap: {leaf!r} has no axis {axis!r}; in_axes has the axes of rows")
    return moveaxis(leaf, axis, 0) if axis % leaf.ndim else leaf


def _size_of(dims: Sequence[int | Dim]) -> int | Dim:
    """Return the number of rows, or raise if the numbers are known to differ."""
    known = {dim for dim in dims if dim is not UNKNOWN}
    sizes = {dim for dim in known if isinstance(dim, int)}
    if len(sizes) > 1 or (sizes == {1} and len(known) > 1):
        raise ShapeError(f"the arguments of vmap have different lengths: {list(dims)}")
    return next(iter(sizes or known), UNKNOWN)


def _together(
    of_row: Callable[..., Any], graph: Graph, size: int | Dim, rows: dict[int, Node]
) -> Any:
    """Trace a function of one row, and build its graph for all rows at once."""
    types = [(f"row_{i}", Tensor.of(x.dtype, x.dims[1:])) for i, x in rows.items()]

    def called(function: Callable[..., Any], _: Any, given: Sequence[Node]) -> Any:
        return function(dict(zip(rows, given, strict=True)))

    body, given, results, structure = traced(of_row, graph, "the function of vmap", types, called)
    whole = AllRows(graph, size)
    values: dict[Node, Value] = {
        leaf: (x, True) for leaf, x in zip(given, rows.values(), strict=True)
    }
    values |= {leaf: (outer, False) for outer, leaf in body.captures.items()}
    assert body.index is not None
    nodes = between([*given, *body.captures.values()], results)
    if any(node is body.index for node in nodes):
        values[body.index] = whole.numbers(), True
    values = batched(whole, nodes, values)
    found: list[Any] = [values[result] for result in results]
    return unflatten(structure, [whole.spread(*one) for one in found])
