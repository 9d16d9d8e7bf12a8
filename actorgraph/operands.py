"""What may be an operand: arrays, and weak scalars, which take the dtype that they meet.

And the errors of an application, which name its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError
from actorgraph.node import Node
from actorgraph.op import Attrs, Op, attrs_key
from actorgraph.types import DType, Var, dtype_of

if TYPE_CHECKING:
    from actorgraph.graph import Graph

__all__ = [
    "as_array",
    "as_node",
    "converted",
    "explained",
    "foreign",
    "is_weak",
    "lifted",
    "naming_itself",
    "partner_of",
    "weak_array",
    "weak_constant",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_WEAK_KINDS = "biufc"


def _rank(kind: str) -> int:
    """Return the place of a dtype's kind; bfloat16, which NumPy files under V, is a float."""
    return _WEAK_KINDS.index(kind.replace("V", "f"))


def is_weak(value: Any) -> bool:
    """Return whether `value` is a scalar that takes the dtype of the operand it meets."""
    return isinstance(value, (bool, int, float, complex, np.bool_, np.number))


def as_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Return `value` as an array that a graph may hold, or raise saying `what` it was for."""
    if isinstance(value, Node):
        raise GraphTypeError(f"{what} needs an array, got the node {value!r}")
    if isinstance(value, np.ma.MaskedArray):
        raise FeedError(f"{what} is a masked array, whose mask would be lost; use .filled(...)")
    array = np.asarray(value)
    dtype_of(array.dtype)
    return array


def converted(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a copy in the dtype; floats may be rounded, nothing else may change."""
    fits = _rank(array.dtype.kind) <= _rank(dtype.kind)
    if fits or np.can_cast(array.dtype, dtype, "same_kind"):
        converted = array.astype(dtype)
        if dtype.kind in "fcV" or np.array_equal(converted, array):
            return converted
    raise GraphTypeError(
        f"constant: values of dtype {array.dtype} would change as {dtype}; convert them first"
    )


def weak_array(value: Any, partner: np.dtype[Any] | Node | None, op: Op) -> np.ndarray[Any, Any]:
    """Return a weak scalar as a 0-d array of the dtype that its partner gives it.

    Raises
    ------
    GraphTypeError
        It has no partner, or the partner's dtype cannot hold it.
    """
    if partner is None:
        raise GraphTypeError(
            f"{op.name}: the scalar {value!r} meets no operand that gives it a dtype; "
            f"write graph.constant({value!r}, dtype=...)"
        )
    target = partner.dtype if isinstance(partner, Node) else partner
    # An int of more than 64 bits is an object to NumPy.
    kind = np.asarray(value).dtype.kind.replace("u", "i").replace("O", "i")
    fits = _rank(kind) <= _rank(target.kind)
    try:
        if not fits:
            raise OverflowError
        return np.array(value.item() if isinstance(value, np.generic) else value, target)
    except OverflowError:
        met = f"the operand {partner!r}" if isinstance(partner, Node) else "the argument"
        raise GraphTypeError(
            f"{op.name}: {met} is {target} and cannot hold the scalar {value!r}; "
            f"convert it with .astype(...)"
        ) from None


def weak_constant(value: Any, partner: np.dtype[Any] | Node | None, graph: Graph, op: Op) -> Node:
    """Return a weak scalar as the constant that `weak_array` makes of it.

    Rules of differentiation ask for the same few over and over: the graph remembers them.
    """
    key = attrs_key(value), partner.dtype if isinstance(partner, Node) else partner
    node = graph.weak.get(key)
    if node is None:
        node = graph.weak[key] = graph.constant(weak_array(value, partner, op))
    return node


def partner_of(
    wanted: Any, scheme: Sequence[Any], nodes: Sequence[Node | None]
) -> np.dtype[Any] | Node | None:
    """Return what gives a weak scalar its dtype: an operand of the same variable, or the scheme."""
    if isinstance(wanted, DType):
        return np.dtype(wanted.name)
    for term, node in zip(scheme, nodes, strict=True):
        if node is not None and isinstance(wanted, Var) and term.dtype == wanted:
            return node
    return None


def lifted(value: Any, graph: Graph, op: Op) -> Node:
    """Return an operand as a node of the graph, or raise with what it is."""
    try:
        return graph.lift(value)
    except GraphTypeError as error:
        what = f"an operand is the {type(value).__name__} {repr(value)[:60]}"
        raise GraphTypeError(f"{op.name}: {what}: {error}") from None


def explained(error: GraphError, op: Op, inputs: tuple[Node, ...], attrs: Attrs) -> GraphError:
    """Return the error of an application with the operands and what to do."""
    mixed = _mixed(op.signature(len(inputs), attrs).args, inputs)
    if mixed is not None and isinstance(error, GraphTypeError):
        first, other = mixed
        return GraphTypeError(
            f"{op.name}: mixed dtypes: {first.name!r} is {first.type.dtype} but {other.name!r} is "
            f"{other.type.dtype}; convert one, as {other.name}.astype({str(first.type.dtype)!r})"
        )
    advice = ""
    about_dtypes = " is not " in str(error) or " cannot be unified" in str(error)
    if about_dtypes and isinstance(error, GraphTypeError):
        advice = "; convert with .astype(...) to a dtype that the op takes"
    return type(error)(f"{op.name}: {error}{advice}; got {', '.join(map(repr, inputs))}")


def _mixed(scheme: Sequence[Any], inputs: Sequence[Node]) -> tuple[Node, Node] | None:
    """Return two inputs of different dtypes where the scheme has one variable for both."""
    first: dict[Any, Node] = {}
    for term, node in zip(scheme, inputs, strict=False):
        known = first.setdefault(getattr(term, "dtype", None), node)
        if isinstance(getattr(term, "dtype", None), Var) and known.type.dtype != node.type.dtype:
            return known, node
    return None


def as_node(value: Any, like: Node) -> Node:
    """Return a value as a node of the graph of `like`; scalars and lists of them take its dtype."""
    if isinstance(value, (Node, np.ndarray)):
        return like.graph.lift(value)
    return like.graph.constant(np.asarray(value), like.dtype)


def foreign(node: Node, graph: Graph) -> GraphError:
    """Return the error for a node of another graph."""
    other = f"to graph {node.graph.name!r}, not to {graph.name!r}"
    if node.graph.name == graph.name:
        other = f"to another graph that is also named {graph.name!r} (built a second time?)"
    return GraphError(
        f"{node!r} belongs {other}; build both in one graph, or feed the value of one to an input "
        "of the other"
    )


def naming_itself(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function built of ops whose errors begin with its own name, which the user wrote."""

    @wraps(function)
    def named(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except (GraphTypeError, ShapeError) as error:
            name = function.__name__
            if str(error).startswith((f"{name}:", f"{name} ")):
                raise
            raise type(error)(f"{name}: {error}") from None

    return named
