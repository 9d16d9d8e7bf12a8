"""`vmap`: a function of single examples, made one of batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from actorgraph.autodiff.trees import flatten, map_leaves, unflatten
from actorgraph.control.functions import graph_of, lifted_leaves, map  # noqa: A004
from actorgraph.errors import GraphTypeError, ShapeError, shown
from actorgraph.graph import Node
from actorgraph.ops.rearranging import moveaxis

__all__ = ["vmap"]

_Axes = int | None | tuple[int | None, ...] | list[int | None]


def vmap(fun: Callable[..., Any], in_axes: _Axes = 0, out_axes: int = 0) -> Callable[..., Any]:
    """Return a function that applies `fun` to each row of its arguments and stacks the results.

    Rows are computed one after another, as by `map`, so each has the bits that it has alone.
    Random ops draw anew for each row.  Gradients go through, also those that `fun` takes itself:
    of an example each.

    Parameters
    ----------
    fun : callable
        Function of trees of nodes.
    in_axes : int, None, or a tuple of these
        The axis of rows of each argument, of all leaves of it; None for one that all rows share.
    out_axes : int
        The axis of rows in results.

    Returns
    -------
    callable

    Raises
    ------
    GraphTypeError, ShapeError
        When called: nothing has rows, an axis is not there, or numbers of rows differ.

    Examples
    --------
    >>> from actorgraph.autodiff import gradients
    >>> from actorgraph.graph import Graph
    >>> g = Graph()
    >>> w, xs = g.input("w", (3,), "float64"), g.input("xs", ("batch", 3), "float64")
    >>> slope = lambda w, x: gradients((w * x).sum() ** 2.0, [w])[0]
    >>> vmap(slope, in_axes=(None, 0))(w, xs).shape
    (batch, 3)
    """
    if not callable(fun):
        raise GraphTypeError(f"vmap takes a function of nodes, got {shown(fun)}")

    @wraps(fun)
    def batched(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise GraphTypeError(f"in_axes has {len(axes)} entries for {len(args)} arguments")
        flat, structure = flatten(args)
        graph = graph_of("vmap", flat, fun)
        leaves = lifted_leaves(graph, flat, "an argument of vmap")
        axis_of = [axis for arg, axis in zip(args, axes, strict=True) for _ in flatten(arg)[0]]
        rows = {
            place: _moved(leaf, axis)
            for place, (leaf, axis) in enumerate(zip(leaves, axis_of, strict=True))
            if axis is not None
        }
        if not rows:
            raise GraphTypeError("vmap needs an argument that has rows; in_axes says None for all")

        def of_row(row: dict[int, Node]) -> Any:
            given = [row.get(place, leaf) for place, leaf in enumerate(leaves)]
            return fun(*unflatten(structure, given))

        made = map(of_row, rows)
        return map_leaves(partial(moveaxis, source=0, destination=out_axes), made)

    return batched


def _moved(leaf: Node, axis: Any) -> Node:
    if not isinstance(axis, int) or not -leaf.ndim <= axis < leaf.ndim:
        raise ShapeError(f"vmap: {leaf!r} has no axis {axis!r}; in_axes says where rows are")
    return moveaxis(leaf, axis, 0) if axis % leaf.ndim else leaf
