"""Conversion of operands to nodes, and the errors of an application, which name its operands.

Operands are nodes, arrays and weak scalars, which take the dtype of the operand that they meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar

import numpy as np

from actorgraph.errors import FeedError, GraphError, GraphTypeError
from actorgraph.node import Node
from actorgraph.op import CONSTANT, REGISTRY, Attrs, Op, attrs_key
from actorgraph.options import is_masked
from actorgraph.types import Dim, DType, Var, dtype_of

if TYPE_CHECKING:
    from actorgraph.graph import Graph

_P = ParamSpec("_P")
_R = TypeVar("_R")

Convert: TypeAlias = Literal["safe", "same_kind"]
"""Conversions that a graph makes by itself, named as in NumPy."""

_WEAK_KINDS = "biufc"


def _rank(kind: str) -> int:
    """Return the rank of a dtype's kind; bfloat16, whose kind is V in NumPy, counts as a float."""
    return _WEAK_KINDS.index(kind.replace("V", "f"))


def is_weak(value: Any) -> bool:
    """Return whether `value` is a scalar that takes the dtype of the operand it meets."""
    return isinstance(value, (bool, int, float, complex, np.bool_, np.number))


def as_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Return `value` as an array of a supported dtype; errors name `what` it was for."""
    if isinstance(value, Node):
        raise GraphTypeError(f"{what} needs an array, got the node {value!r}")
    if is_masked(value):
        raise FeedError(f"{what} is a masked array, whose mask would be lost; use .filled(...)")
    array = np.asarray(value)
    dtype_of(array.dtype)
    return array


def converted(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a copy in the dtype; raise if values change other than by rounding floats."""
    fits = _rank(array.dtype.kind) <= _rank(dtype.kind)
    if fits or np.can_cast(array.dtype, dtype, "same_kind"):
        converted = array.astype(dtype)
        if dtype.kind in "fcV" or np.array_equal(converted, array):
            return converted
    raise GraphTypeError(
        f"constant: values of dtype {array.dtype} would change as {dtype}; convert them first"
    )


def weak_array(value: Any, partner: np.dtype[Any] | Node | None, op: Op) -> np.ndarray[Any, Any]:
    """Return a weak scalar as a 0-d array of its partner's dtype, or raise."""
    if partner is None:
        raise GraphTypeError(
            f"{op.name}: the scalar {value!r} meets no operand that gives it a dtype; "
            f"write graph.constant({value!r}, dtype=...)"
        )
    target = partner.dtype if isinstance(partner, Node) else partner
    # NumPy makes an object array of an int of more than 64 bits.
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
    """Return a weak scalar as a constant (see `weak_array`), or a symbolic dim as a node.

    Rules of differentiation use the same few scalars over and over, so the graph caches them.
    """
    if isinstance(value, Dim):
        target = "int64" if partner is None else weak_array(1, partner, op).dtype
        number: Node = counted(value, graph).astype(target)
        return number
    key = attrs_key(value), partner.dtype if isinstance(partner, Node) else partner
    node = graph.weak.get(key)
    if node is None:
        node = graph.weak[key] = graph.constant(weak_array(value, partner, op))
    return node


def partner_of(
    wanted: Any, scheme: Sequence[Any], nodes: Sequence[Node | None]
) -> np.dtype[Any] | Node | None:
    """Return what gives a weak scalar its dtype.

    It is the dtype in the scheme, or an operand with the same dtype variable, or None.
    """
    if isinstance(wanted, DType):
        return np.dtype(wanted.name)
    if isinstance(wanted, Var):
        for term, node in zip(scheme, nodes, strict=True):
            if node is not None and term.dtype.name == wanted.name:  # takes a fifth of `==`
                return node
    return None


def counted(dim: Dim, graph: Graph) -> Node:
    """Return the size that a run binds a symbolic dim to, as an int64 scalar node.

    Raises `GraphTypeError` if one of its symbols is no dim of an input.
    """
    inputs = [node for node in graph.inputs if not all(isinstance(dim, int) for dim in node.dims)]
    number: Any = None
    for symbols, factor in dim.terms:
        term: Any = graph.constant(np.int64(factor))
        for symbol in symbols:
            fed = next((node for node in inputs if symbol in node.dims), None)
            if fed is None:
                raise GraphTypeError(
                    f"no input has the dim {symbol}, so no run tells what {dim} is; "
                    "ag.ops.size_of(node, axis) counts the entries of a node"
                )
            size = graph.apply(REGISTRY["size_of"], (fed,), {"axis": fed.dims.index(symbol)})
            term = size if symbol is symbols[0] and factor == 1 else term * size
        number = term if number is None else number + term
    return number  # type: ignore[no-any-return]


def lifted(value: Any, graph: Graph, op: Op) -> Node:
    """Return an operand as a node of the graph, or raise an error that shows the operand."""
    try:
        return graph.lift(value)
    except GraphTypeError as error:
        if value is None:
            raise GraphTypeError(
                f"{op.name}: an operand is the NoneType None, expected a node, an array or a "
                "number; in a jvp the tangent of an argument that does not move is None: leave its "
                "term out"
            ) from None
        what = f"an operand is the {type(value).__name__} {repr(value)[:60]}"
        raise GraphTypeError(f"{op.name}: {what}: {error}") from None


def explained(error: GraphError, op: Op, inputs: tuple[Node, ...], attrs: Attrs) -> GraphError:
    """Return the error of an application, extended by its operands and by what to do."""
    mixed = _mixed(op.signature(len(inputs), attrs).args, inputs)
    if mixed is not None and isinstance(error, GraphTypeError):
        first, other = mixed
        low, high = sorted(mixed, key=_importance)
        what = "array" if low.op is CONSTANT else low.name
        return GraphTypeError(
            f"{op.name}: mixed dtypes: {first.name!r} is {first.type.dtype} but {other.name!r} is "
            f"{other.type.dtype}; convert one, as {what}.astype({high.dtype.name!r}), or let the "
            'graph do it: ag.Graph(convert="safe" or "same_kind")'
        )
    advice = ""
    about_dtypes = " is not " in str(error) or " cannot be unified" in str(error)
    if about_dtypes and isinstance(error, GraphTypeError):
        advice = "; convert with .astype(...) to a dtype that the op takes"
    return type(error)(f"{op.name}: {error}{advice}; got {', '.join(map(repr, inputs))}")


def _importance(node: Node) -> tuple[int, bool, int]:
    """Return a sort key for which of two nodes to convert: lower kind, array, fewer bytes."""
    return _rank(node.dtype.kind), node.op is not CONSTANT, node.dtype.itemsize


def _mixed(scheme: Sequence[Any], inputs: Sequence[Node]) -> tuple[Node, Node] | None:
    """Return two inputs of different dtypes that share a dtype variable in the scheme, or None."""
    first: dict[Any, Node] = {}
    for term, node in zip(scheme, inputs, strict=False):
        known = first.setdefault(getattr(term, "dtype", None), node)
        if isinstance(getattr(term, "dtype", None), Var) and known.type.dtype != node.type.dtype:
            return known, node
    return None


def promoted(
    op: Op, inputs: tuple[Node, ...], attrs: Attrs, convert: Convert | None
) -> tuple[Node, ...] | None:
    """Return the operands converted to their common dtype, or None if nothing changes.

    With ``"safe"`` NumPy's promotion decides; with ``"same_kind"`` only the operands of the highest
    kind (complex, float, int, bool) count.
    """
    if convert is None:
        return None
    together: dict[Any, list[int]] = {}
    for position, term in enumerate(op.signature(len(inputs), attrs).args):
        if isinstance(variable := getattr(term, "dtype", None), Var):
            together.setdefault(variable, []).append(position)
    found = list(inputs)
    for positions in together.values():
        dtypes = [inputs[position].dtype for position in positions]
        if convert == "same_kind":
            highest = max(_rank(dtype.kind) for dtype in dtypes)
            dtypes = [dtype for dtype in dtypes if _rank(dtype.kind) == highest]
        try:
            target = np.result_type(*dtypes)
        except TypeError:
            return None  # bfloat16 and a dtype with which NumPy has no common one
        for position in positions:
            found[position] = inputs[position].astype(target)
    same = all(one is other for one, other in zip(found, inputs, strict=True))
    return None if same else tuple(found)


def as_node(value: Any, like: Node) -> Node:
    """Return a value as a node of the graph of `like`; scalars and lists take its dtype."""
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
