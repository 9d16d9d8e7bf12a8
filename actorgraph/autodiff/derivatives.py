"""Derivatives of nodes with respect to nodes, in trees: the building blocks of `transforms`.

Every function adds nodes to the graph of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from actorgraph.autodiff.forward import tangents
from actorgraph.autodiff.reverse import gradients
from actorgraph.autodiff.tracing import is_traced
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from actorgraph.graph import Graph, Node, is_weak
from actorgraph.operands import as_array
from actorgraph.ops.broadcasting import broadcast_like
from actorgraph.ops.elementwise import astype
from actorgraph.ops.reshaping import reshape
from actorgraph.ops.shaping import stack
from actorgraph.types import shapes_differ


def float_nodes(tree: Any, what: str) -> tuple[list[Node], Structure]:
    """Return the leaves of a tree of differentiable nodes and its structure; raise for others."""
    leaves, structure = flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Node):
            raise GraphTypeError(
                f"{what} is the {type(leaf).__name__} {leaf!r}, which has no gradient; pass a "
                "float or a float array, or choose other arguments"
            )
        if leaf.dtype.kind not in "fcV":
            raise GraphTypeError(
                f"{what} is {leaf.type} and has no gradient; pass a float array, or choose other "
                "arguments"
            )
    return leaves, structure


def output_nodes(graph: Graph, tree: Any, what: str) -> tuple[list[Node], Structure]:
    """Return the results of a function as float nodes (numbers and arrays become constants)."""
    leaves, structure = flatten(tree)
    lifted = [
        graph.constant(as_array(leaf, "an argument")) if is_traced(leaf) or is_weak(leaf) else leaf
        for leaf in leaves
    ]
    for leaf in lifted:
        if not isinstance(leaf, Node):
            raise GraphTypeError(
                f"{what} returned the {type(leaf).__name__} {leaf!r}, which has no derivative; "
                "return float arrays, or (result, anything else) and pass has_aux=True"
            )
        graph.lift(leaf)
        if leaf.dtype.kind not in "fcV":
            raise GraphTypeError(
                f"{what} returned {leaf.type}, which has no derivative; convert it with "
                ".astype('float64')"
            )
    return lifted, structure


def seed_node(seed: Any, output: Node, what: str, kind: str = "seed derivative") -> Node:
    """Return a seed (or tangent) as a node of the type of `output`.

    Python scalars fit every shape; another shape, and a complex seed of a real output, raise.
    """
    graph = output.graph
    value = seed if isinstance(seed, Node) else graph.constant(as_array(seed, "an argument"))
    if value.dtype.kind == "c" and output.dtype.kind != "c":
        raise GraphTypeError(f"the {kind} is {value.dtype}, but {what} is {output.type}")
    value = astype(graph.lift(value), output.dtype)
    if is_weak(seed):
        return broadcast_like(value, output)
    if shapes_differ(value.dims, output.dims):
        raise ShapeError(
            f"shape mismatch between {what} ({output.type}) and its {kind} ({value.type}); pass a "
            f"{kind} of shape {output.shape}"
        )
    return value


def ones_seed(output: Node) -> Node:
    """Return ones of the type of `output`."""
    return broadcast_like(output.graph.constant(np.ones((), output.dtype)), output)


def direction_nodes(
    tree: Any, structure: Structure, nodes: Sequence[Any], what: str
) -> dict[Node, Node]:
    """Return node to tangent, for tangents in the structure of the primals.

    `FeedError` is raised if structures differ, or if a leaf that is no float has a tangent other
    than 0.
    """
    leaves, given = flatten(tree)
    if given != structure:
        raise FeedError(
            f"the tangents of {what} are {given}, but the primals are {structure}; give one for "
            "each array, 0.0 where nothing moves"
        )
    directions: dict[Node, Node] = {}
    for leaf, node in zip(leaves, nodes, strict=True):
        if isinstance(node, Node) and node.dtype.kind in "fcV":
            directions[node] = seed_node(leaf, node, f"an argument of {what}", "tangent")
        elif not is_weak(leaf) or leaf != 0:
            raise FeedError(
                f"the primal {node!r} of {what} is no float and cannot move; its tangent is 0"
            )
    return directions


def gradient_tree(outputs: list[Node], wrt: Any, seeds: list[Node]) -> Any:
    """Return the gradients in the structure of `wrt`, which `float_nodes` has checked."""
    nodes, structure = flatten(wrt)
    return unflatten(structure, gradients(outputs, nodes, seeds))


def push_tree(outputs: list[Node], structure: Structure, directions: dict[Node, Node]) -> Any:
    """Return the tangents of `outputs` in their structure."""
    return unflatten(structure, tangents(outputs, directions) if outputs else [])


def product_tree(output: Node, wrt: Any, vectors: Any, what: str) -> Any:
    """Return the product of the Hessian with `vectors`, in the structure of the checked `wrt`."""
    nodes, structure = flatten(wrt)
    directions = direction_nodes(vectors, structure, nodes, what)
    first = gradients([output], nodes, [ones_seed(output)])
    return push_tree(first, structure, directions)


def refuse_complex(outputs: Sequence[Any], wrt: Sequence[Any]) -> None:
    """Raise `GraphTypeError` for complex arrays, for which Jacobians have several conventions."""
    for value in chain(outputs, wrt):
        if value.dtype.kind == "c":
            raise GraphTypeError(
                "a Jacobian of complex arrays would need twice the dims; use ag.jvp or ag.vjp, or "
                "split real and imaginary parts"
            )


def jacobian_tree(outputs: list[Node], structure: Structure, wrt: Any, what: str) -> Any:
    """Return for each output, in the structure of outputs, its Jacobian by each wrt.

    It uses forward or reverse mode, whichever takes fewer passes, forward mode if they tie.
    `float_nodes` has checked `wrt`.
    """
    nodes, inner = flatten(wrt)
    refuse_complex(outputs, nodes)
    columns, rows = _size_of(nodes), _size_of(outputs)
    if columns is None and rows is None:
        raise ShapeError(f"{what}: a Jacobian needs dims that are ints on one side at least")
    if rows is None or (columns is not None and columns <= rows):
        blocks = _by_columns(outputs, nodes)
    else:
        blocks = _by_rows(outputs, nodes)
    return unflatten(structure, [unflatten(inner, row) for row in blocks])


def _size_of(nodes: Sequence[Node]) -> int | None:
    dims = [node.dims for node in nodes]
    if not all(isinstance(dim, int) for dim in chain(*dims)):
        return None
    return sum(prod(_ints(node)) for node in nodes)


def _ints(node: Node) -> tuple[int, ...]:
    return tuple([dim for dim in node.dims if isinstance(dim, int)])


def _basis(node: Node) -> list[Node]:
    """Return constants that are 1 at one element each."""
    shape = _ints(node)
    units = np.eye(prod(shape), dtype=node.dtype).reshape(prod(shape), *shape)
    return [node.graph.constant(unit) for unit in units]


def _by_rows(outputs: Sequence[Node], wrt: Sequence[Node]) -> list[list[Node]]:
    blocks = []
    for output in outputs:
        rows = [gradients([output], list(wrt), [seed]) for seed in _basis(output)]
        blocks.append([_joined([row[i] for row in rows], output, x, 0) for i, x in enumerate(wrt)])
    return blocks


def _by_columns(outputs: Sequence[Node], wrt: Sequence[Node]) -> list[list[Node]]:
    columns = [[tangents(list(outputs), {x: unit}) for unit in _basis(x)] for x in wrt]
    return [
        [_joined([column[j] for column in columns[i]], output, x, -1) for i, x in enumerate(wrt)]
        for j, output in enumerate(outputs)
    ]


def _joined(parts: list[Node], output: Node, x: Node, axis: int) -> Node:
    shape = (*output.dims, *x.dims)
    if not parts:  # the looped side is empty, so the block is
        return output.graph.constant(np.zeros([*_ints(output), *_ints(x)], output.dtype))
    return astype(reshape(stack(parts, axis=axis), shape), output.dtype)
