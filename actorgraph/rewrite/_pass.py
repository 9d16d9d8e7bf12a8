"""`Pass`, the record of one rewriting, and `Rewriter`, which applies passes to nodes.

A rule looks at one node whose inputs are rewritten already, and returns a replacement of the same
type in the same graph.  Invariants: no node is ever changed, so its other consumers keep it; the
work is linear in the number of nodes; nothing recurses; rules that undo each other raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from actorgraph.errors import GraphError
from actorgraph.graph import Graph, Node
from actorgraph.keywords import answering
from actorgraph.op import CONSTANT, REGISTRY, VIEW, LoopRule, Op, Sample
from actorgraph.ops._rules import declare
from actorgraph.types import shapes_differ

Rule: TypeAlias = Callable[[Node], Node | None]
"""A function that returns the replacement of a node, or None."""

_MOST_STEPS = 1000
"""Most replacements of one node before the rules count as non-terminating."""


@answering
@dataclass(frozen=True, slots=True, repr=False)
class Pass:
    """One rewriting of a graph.

    Parameters
    ----------
    name : str
        The name by which it is chosen.
    doc : str
        What it rewrites into what, on one line.
    rule : callable or None
        ``rule(node) -> node or None``: the replacement of a node whose inputs are rewritten
        already.  It is built in the node's graph, has its dtype and dims, may be an older node, and
        does not use the node itself.  Its new parts are rewritten too.
    roots : tuple of Op
        The ops to whose nodes the rule is applied; empty means all.
    changes_bits : bool
        Whether any bit of a value or a gradient may change.
    late : bool
        Whether it is for machines only, which apply it after differentiation (see `rewrite.exact`).
        Without a rule the machine implements it otherwise.

    Examples
    --------
    >>> from actorgraph import ops
    >>> from actorgraph.op import REGISTRY
    >>> import actorgraph as ag
    >>> def rule(node):
    ...     x, y = node.inputs
    ...     return ops.square(x) if x is y else None
    >>> ag.rewrite.Pass("square", "x * x becomes square(x)", rule, (REGISTRY["multiply"],))
    <pass square: x * x becomes square(x)>
    """

    name: str
    doc: str
    rule: Rule | None
    roots: tuple[Op, ...] = ()
    changes_bits: bool = True
    late: bool = False

    def __repr__(self) -> str:
        return f"<pass {self.name}: {self.doc}>"


_BROADCAST = REGISTRY["broadcast_to"]


def number_of(node: Node) -> Any:
    """Return the number that all elements of a constant node are, or None."""
    while node.op is _BROADCAST:
        node = node.inputs[0]
    if node.op is not CONSTANT or node.attrs["value"].size != 1:
        return None
    return node.attrs["value"].reshape(())[()]


# The number keeps the hidden copies of different nodes apart.
_AS_IT_IS: Op = declare(
    "as_it_is", "a[*s] -> a[*s]", lambda xp, x, number: x, vjp=(lambda ct, y, x, number: ct,),
    jvp=lambda tans, y, x, number: tans[0],
    samples=(Sample(((3, 4),), {"number": 0}), Sample(((),), {"number": 1})), memory=VIEW,
    loop=LoopRule("value", "x"), doc="The value, through which no rewriting sees.",
)  # fmt: skip


@final
class Rewriter:
    """Applies passes to nodes of one graph, and caches their replacements.

    The first pass whose rule returns a node wins; late passes are left to machines.
    """

    def __init__(self, graph: Graph, passes: Sequence[Pass]) -> None:
        self._graph = graph
        passes = [one for one in passes if not one.late]
        self._everywhere = [one for one in passes if not one.roots]
        self._rules: dict[Op, list[Pass]] = {}
        for one in passes:
            for root in one.roots:
                self._rules.setdefault(root, [])
        for op, rules in self._rules.items():
            rules += [one for one in passes if not one.roots or op in one.roots]
        self._settled: dict[Node, Node] = {}
        self._becomes: dict[Node, Node] = {}

    def settle(self, node: Node) -> Node:
        """Return the replacement of `node` to which no rule applies any more.

        `GraphError` is raised if rules do not terminate, or one has changed a type.
        """
        settled, becomes = self._settled, self._becomes
        stack, steps = [node], 0
        while stack:
            top = stack[-1]
            if top in settled:
                stack.pop()
                continue
            new = becomes.get(top)
            if new is not None:
                if new not in settled or steps > _MOST_STEPS:
                    raise GraphError(
                        f"the passes never end at {node!r}: {top!r} becomes {new!r} and so on; "
                        "leave out the one that undoes another, or uses the node itself"
                    )
                settled[top] = settled[new]
                continue
            waiting = [part for part in top.inputs if part not in settled]
            if waiting:
                stack += reversed(waiting)
                continue
            new = self._next(top)
            if new is None:
                settled[top] = top
                continue
            steps += 1
            becomes[top] = new
            stack.append(new if steps <= _MOST_STEPS else top)
        return settled[node]

    def opaque(self, node: Node, number: int) -> Node:
        """Return a copy of `node`, one for each number, through which no rule looks."""
        with self._graph.building(node.line):
            made = self._graph.apply(_AS_IT_IS, (node,), {"number": number})
        self._settled[made] = made
        return made

    def _next(self, node: Node) -> Node | None:
        """Return the replacement of a node with settled inputs after one step, None if none."""
        inputs = tuple([self._settled[part] for part in node.inputs])
        if any([new is not old for new, old in zip(inputs, node.inputs, strict=True)]):  # noqa: C419
            with self._graph.building(node.line):
                return self._graph.apply(node.op, inputs, node.attrs)
        rules = self._rules.get(node.op, self._everywhere)
        if not rules or node.is_leaf:
            return None
        with self._graph.building(node.line):
            for one in rules:
                new = None if one.rule is None else one.rule(node)
                if new is not None and new is not node:
                    return _checked(new, node, one)
        return None


def _checked(new: Any, node: Node, one: Pass) -> Node:
    if not isinstance(new, Node) or new.graph is not node.graph:
        raise GraphError(
            f"{one!r} put {new!r} in the place of {node!r}; a rule returns a node of the same "
            "graph, or None"
        )
    if new.dtype != node.dtype or new.ndim != node.ndim or shapes_differ(new.dims, node.dims):
        raise GraphError(
            f"{one!r} put {new!r} in the place of {node!r}; a replacement has the same type"
        )
    return new
