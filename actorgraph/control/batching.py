"""Batching (`vmap`): the nodes of a graph built again for many rows at once, by a rule for each op.

A value either has rows, along its first axis, or is the same for all rows.  A rule is called if an
operand has rows, and returns a node with rows.  Ops without a rule in the table are derived from
their type: ``[*s, m, n] -> [*s, n]`` says that leading axes are free; an attribute ``axis`` is
incremented.  Ops of the user, and a few more (`in_turn`), are computed row by row in a loop.
`batching_rules` and `batching_loops` fill the table; transforms call `batched`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, final

from actorgraph.control.functions import map  # noqa: A004
from actorgraph.graph import Graph, Node
from actorgraph.op import CONSTANT, REGISTRY, Attrs, Op
from actorgraph.ops._records import fields_read, item
from actorgraph.ops.broadcasting import broadcast_to, expand_dims
from actorgraph.ops.creation import arange
from actorgraph.types import UNKNOWN, Dim, Record, RowVar

Value: TypeAlias = "tuple[Node, bool] | Fields"
"""The batched form of a node: a node, and whether it has rows."""
Fields: TypeAlias = "dict[int, tuple[Node, bool]]"
"""The batched form of a record: its fields that are read."""
Rule: TypeAlias = "Callable[[AllRows, Node, list[Node], list[bool]], Value | Node]"
"""``rule(rows, node, operands, has_rows)``; a plain node as the result has rows."""

_R = TypeVar("_R", bound="Rule")


class RowsDiffer(Exception):
    """Rows have different sizes and cannot be one array: the function is computed row by row."""


@final
class AllRows:
    """The rows that a graph is built for; `size` is their number."""

    def __init__(self, graph: Graph, size: int | Dim) -> None:
        self.graph, self.size = graph, size

    def numbers(self) -> Node:
        """Return the number of each row."""
        return arange(self.graph, self.known_size())

    def known_size(self) -> int | Dim:
        """Return the number of rows, or raise `RowsDiffer` if it is unknown."""
        if self.size is UNKNOWN:
            raise RowsDiffer
        return self.size

    def spread(self, node: Node, has_rows: bool = False) -> Node:
        """Return a node with rows, broadcast if it has none."""
        if has_rows:
            return node
        if UNKNOWN in node.dims:
            raise RowsDiffer
        return broadcast_to(node, (self.known_size(), *node.dims))

    def all_spread(self, args: Sequence[Node], flags: Sequence[bool]) -> list[Node]:
        """Return the operands, all with rows."""
        return [self.spread(arg, flag) for arg, flag in zip(args, flags, strict=True)]

    def widened(self, pairs: Iterable[tuple[Node, bool]], wide: Iterable[bool]) -> list[Node]:
        """Return nodes, broadcast to rows where `wide` says so."""
        both = zip(pairs, wide, strict=True)
        return [self.spread(*pair) if rows else pair[0] for pair, rows in both]

    def apply(self, op: Op, args: Iterable[Node], attrs: Attrs) -> Node:
        """Build a node."""
        return self.graph.apply(op, tuple(args), attrs)


_RULES: dict[Op, Rule] = {}


def rule(*names: str, op: Op | None = None) -> Callable[[_R], _R]:
    """Make a function the rule of registered ops by name, or of an op; a decorator."""

    def add(function: _R) -> _R:
        ops = [REGISTRY[name] for name in names] if op is None else [op]
        _RULES.update(dict.fromkeys(ops, function))
        return function

    return add


def rule_of(op: Op, arity: int, attrs: Attrs) -> Rule:
    """Return the rule of an op."""
    if op in _RULES:
        return _RULES[op]
    if op.checked:
        return in_turn  # its axes are only known within a row
    if "axis" in attrs or "axes" in attrs:
        return along_axis
    return leading if _is_leading(op, arity, attrs) else in_turn


def _is_leading(op: Op, arity: int, attrs: Attrs) -> bool:
    """Return whether the op's type says that leading axes of all operands are free."""
    signature = op.signature(arity, attrs)
    rows = [term.row for term in signature.args]  # type: ignore[union-attr]
    result = signature.result.row  # type: ignore[union-attr]
    free = {var for row in rows for var in row.prefix}
    if not rows or not all(row.prefix for row in rows):
        return False
    return set(result.prefix) == free or (
        result.prefix == (RowVar("out"),) and all(row.dims for row in rows)
    )


def batched(
    rows: AllRows, nodes: Iterable[Node], values: Mapping[Node, Value]
) -> dict[Node, Value]:
    """Build nodes for all rows; return the batched form of each, those of `values` included."""
    forms: dict[Node, Value] = dict(values)
    for node in nodes:
        if node in forms:
            continue
        if node.op is CONSTANT:
            forms[node] = rows.graph.constant(node.attrs["value"]), False
            continue
        with rows.graph.on_line(node.line):
            forms[node] = _built(rows, node, [forms[part] for part in node.inputs])
    return forms


def _built(rows: AllRows, node: Node, given: Sequence[Value]) -> Value:
    if len(given) == 1 and isinstance(given[0], dict):
        return given[0][node.attrs["field"]]
    pairs: Any = given
    args, flags = [arg for arg, _ in pairs], [flag for _, flag in pairs]
    if not any(flags):
        made = rows.apply(node.op, args, node.attrs)
        if isinstance(node.type, Record):
            return {field: (item(made, field), False) for field in fields_read(node)}
        return made, False
    result = rule_of(node.op, len(args), node.attrs)(rows, node, args, flags)
    return (result, True) if isinstance(result, Node) else result


# -- rules that serve most ops --------------------------------------------------------------------


@rule(
    "arange", "bincount", "embedding_adjoint", "hook_gradient", "index_put_reduce", "linspace",
    "mask_positions", "random_binomial", "random_categorical", "random_normal",
    "random_truncated_normal", "random_uniform", "searchsorted", "unique",
)  # fmt: skip
def in_turn(rows: AllRows, node: Node, args: list[Node], flags: list[bool]) -> Value:
    """Compute rows in a loop: random draws, hooks and the user's ops are defined for one row."""
    fields = sorted(fields_read(node)) if isinstance(node.type, Record) else []
    types = [node.type.fields[i] for i in fields] if isinstance(node.type, Record) else [node.type]
    if any(UNKNOWN in type_.shape for type_ in types):
        raise RowsDiffer

    def of_row(row: dict[int, Node]) -> Any:
        operands = [row.get(place, arg) for place, arg in enumerate(args)]
        result = rows.apply(node.op, operands, node.attrs)
        return [item(result, field) for field in fields] if fields else result

    stacked = map(of_row, {place: arg for place, arg in enumerate(args) if flags[place]})
    if fields:
        return {field: (one, True) for field, one in zip(fields, stacked, strict=True)}
    return stacked, True


def leading(rows: AllRows, node: Node, args: list[Node], flags: list[bool]) -> Value:
    """Apply an op with free leading axes to all rows; ranks of broadcast axes are made equal."""
    terms: Any = node.op.signature(len(args), node.attrs).args
    names = [term.row.prefix for term in terms]
    free = [
        arg.ndim - flag - len(term.row.dims)
        for arg, flag, term in zip(args, flags, terms, strict=True)
    ]
    most, operands = max(free), []
    for arg, flag, name, rank in zip(args, flags, names, free, strict=True):
        if not flag and names.count(name) > 1:
            arg, flag = rows.spread(arg), True
        missing = most - rank if flag and names.count(name) == 1 else 0
        operands.append(expand_dims(arg, tuple(range(1, 1 + missing))) if missing else arg)
    return rows.apply(node.op, operands, node.attrs), True


def along_axis(rows: AllRows, node: Node, args: list[Node], flags: list[bool]) -> Value:
    """Apply an op to all rows, with its axes incremented."""
    attrs = dict(node.attrs)
    for name in ("axis", "axes"):
        if name in attrs:
            attrs[name] = shifted(attrs[name])
    return rows.apply(node.op, rows.all_spread(args, flags), attrs), True


def shifted(axes: Any) -> Any:
    """Return an axis, or axes, of one row as axes of all rows."""
    return axes + 1 if isinstance(axes, int) else tuple([axis + 1 for axis in axes])
