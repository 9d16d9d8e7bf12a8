"""Checks that a graph is legal: typed, single assignment, inputs before consumers."""

from __future__ import annotations

from collections.abc import Iterable

from actorgraph.errors import GraphError, text_of
from actorgraph.node import Node
from actorgraph.op import CONSTANT, attrs_key, infer
from actorgraph.types import Tensor


def check_nodes(order: Iterable[Node], leaves: Iterable[Node] = ()) -> None:
    """Raise `GraphError` for the first node of an evaluation order that is not legal.

    It occurs twice, or before an input that is none of the `leaves`; or its type is not the one
    that its op infers from its inputs, or, for a constant, that of its array.
    """
    known = {node.id for node in leaves}
    for node in order:
        missing = [part for part in node.inputs if part.id not in known and part.op is not CONSTANT]
        if node.id in known:
            raise GraphError(f"{node!r} occurs in the order twice")
        if missing:
            raise GraphError(f"{node!r} comes before its input {missing[0]!r}")
        inferred = _type_of(node)
        if node.type != inferred:
            raise GraphError(
                f"{node!r} has the type {node.type}, its op {node.op.name!r} {inferred}"
            )
        known.add(node.id)


def _type_of(node: Node) -> Tensor:
    if node.op is CONSTANT:
        return Tensor.of(node.attrs["value"].dtype, node.attrs["value"].shape)
    if node.is_leaf:
        return node.type
    try:
        types = tuple([part.type for part in node.inputs])
        return infer(node.op, types, node.attrs, attrs_key(node.attrs))[0]
    except (TypeError, ValueError) as error:
        raise GraphError(f"{node!r} does not fit its inputs: {text_of(error)}") from error
