"""The joint graph of one mode: a private copy of the forward nodes, and their derivatives.

`join` is called once for each mode of a machine.  Invariant: every node that differentiation adds
is owned by the forward node whose rule built it, and fragments of different owners share no node
but constants.  So a cut of the forward nodes into regions cuts the whole graph: a region owns the
fragments of its nodes, and only values that cross owners travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from typing import Literal

from actorgraph.autodiff.forward import push_forward
from actorgraph.autodiff.reverse import pull_back
from actorgraph.graph import Graph, Node, topological_order
from actorgraph.legality import check_nodes
from actorgraph.node import Variable
from actorgraph.op import CONSTANT, RUN_NUMBER
from actorgraph.rewrite import Pass
from actorgraph.rewrite._graph import RewrittenCopies


@dataclass(frozen=True, slots=True)
class Mode:
    """What a run computes besides values: cotangents or tangents, seeded at `nodes`.

    The run brings the values of `whole`, and no derivative flows through them.  Without `fetch`
    results stay on their devices; with ``"values"`` derivatives do.
    """

    kind: Literal["forward", "backward", "tangents"] = "forward"
    nodes: tuple[Node, ...] = ()
    whole: tuple[Node, ...] = ()
    fetch: bool | Literal["values"] = True
    key: tuple[str, tuple[int, ...], tuple[int, ...]] = field(init=False)
    """Hashable identity; nodes themselves compare by building nodes."""

    def __post_init__(self) -> None:
        kind = self.kind if self.fetch is True else f"{self.kind}, fetch={self.fetch}"
        object.__setattr__(self, "key", (kind, _ids(self.nodes), _ids(self.whole)))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A node of the joint graph whose value every run brings.

    `kind` says what it is: a ``"feed"``, a ``"variable"`` (parameter or buffer), the
    ``"run_number"``, or the ``"seed"``, ``"tangent"`` or value for the ``"whole"`` batch of
    `source`, a node of the user's graph.
    """

    node: Node
    kind: Literal["feed", "variable", "run_number", "seed", "tangent", "whole"]
    source: Node


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint graph, and where in it a run finds its results.

    - `order`: all computed nodes, without leaves, in build order, except that a sum of cotangents
      comes as soon as its terms are computed
    - `values`, `derivatives`: user's node to the joint node of its value, and of its derivative
    - `forward_ids`: joint nodes with a smaller id are the copied forward nodes
    - `backward`: whether nodes added by differentiation run in the backward direction
    - `sources`: id of a forward node to the user's node that it stands for
    - `owners`: what a cut divides into regions: the forward nodes as they were differentiated, and
      the leaves that own sums of cotangents
    """

    mode: Mode
    order: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    values: dict[Node, Node]
    derivatives: dict[Node, Node]
    forward_ids: int
    backward: bool
    sources: dict[int, Node]
    owners: tuple[Node, ...]

    def is_backward(self, node: Node) -> bool:
        """Return whether the node runs in the backward direction."""
        return self.backward and node.id >= self.forward_ids

    @property
    def forward(self) -> list[Node]:
        """The computed forward nodes."""
        return [node for node in self.order if node.owner is None and not self.is_backward(node)]

    def check(self) -> None:
        """Raise `GraphError` if the joint graph is not legal, which passes must not break."""
        check_nodes(self.order, [leaf.node for leaf in self.leaves])

    def source(self, node: Node) -> Node:
        """Return the user's node that a joint node stands for or belongs to."""
        return self.sources[owner_of(node).id]


def join(
    outputs: Sequence[Node], wrt: Sequence[Node], mode: Mode, passes: Sequence[Pass] = ()
) -> Joint:
    """Copy what `outputs` and `wrt` depend on, rewrite it, and differentiate it as `mode` says.

    `outputs` include values assigned to buffers.  Each of `outputs`, `wrt` and the mode's nodes has
    a copy of its own, and no pass looks through a wrt or a node of the mode.
    """
    wanted = [*outputs, *wrt, *mode.nodes]
    graph = Graph(wanted[0].graph.name)
    copies: dict[Node, Node] = {}
    order = topological_order(wanted)
    rewritten = RewrittenCopies(graph, order, passes, outputs, (*wrt, *mode.nodes))
    brought: dict[Node, Node] = {}
    whole = set(mode.whole)
    for node in order:
        if node in whole:
            copy = brought[node] = graph.adopt(node, (), leaf=True)
        else:
            copy = graph.adopt(node, tuple([copies[part] for part in node.inputs]))
        copies[node] = rewritten.settle(node, copy) if passes else copy
    forward = tuple(copies.values())
    if passes or whole:  # which may leave copies that nothing needs
        forward = topological_order([copies[node] for node in wanted])
    forward_ids = len(graph.nodes)
    derived, seeds = _differentiate(graph, forward, copies, wrt, mode)
    values = {node: copies[node] for node in (*outputs, *wrt)}
    if mode.kind == "tangents":
        derivatives = {node: derived[copy] for node, copy in values.items() if copy in derived}
    else:
        derivatives = {node: derived[copies[node]] for node in wrt if copies[node] in derived}
    results = [*values.values(), *derivatives.values()]
    uses = uses_of(graph.nodes, [node.id for node in results])
    sources = rewritten.sources if passes else {copy.id: node for node, copy in copies.items()}
    leaves = [
        Leaf(copy, _kind(node), node)
        for node, copy in copies.items()
        if node.is_leaf and node.op is not CONSTANT and uses[copy.id]
    ]
    leaves += [Leaf(copy, "whole", node) for node, copy in brought.items() if uses[copy.id]]
    needed = compress(graph.nodes, uses)
    computed = tuple([node for node in needed if node.inputs or not node.is_leaf])
    owners = {owner.id: owner for owner in map(owner_of, computed)}
    derivative_kind: Literal["seed", "tangent"] = "seed" if mode.kind == "backward" else "tangent"
    leaves += [Leaf(seed, derivative_kind, node) for node, seed in seeds if uses[seed.id]]
    return Joint(
        mode=mode,
        order=_with_sums_early(computed, uses),
        leaves=tuple(leaves),
        values=values,
        derivatives=derivatives,
        forward_ids=forward_ids,
        backward=mode.kind == "backward",
        sources=sources,
        owners=tuple([owners[number] for number in sorted(owners)]),
    )


def _ids(nodes: Sequence[Node]) -> tuple[int, ...]:
    return tuple([node.id for node in nodes])


def _kind(node: Node) -> Literal["feed", "variable", "run_number"]:
    if isinstance(node, Variable):
        return "variable"
    return "run_number" if node.op is RUN_NUMBER else "feed"


def owner_of(node: Node) -> Node:
    """Return the forward node (or leaf) whose fragment a joint node belongs to."""
    return node if node.owner is None else node.owner


def uses_of(order: Sequence[Node], kept: Iterable[int]) -> list[int]:
    """Return by id how often each node is read by nodes that are needed, or kept.

    Those with the ids `kept`, which all are in order, are needed, and what these depend on.
    """
    uses = [0] * len(order[0].graph)
    for number in kept:
        uses[number] += 1
    for node in reversed(order):
        if uses[node.id]:
            for part in node.inputs:
                uses[part.id] += 1
    return uses


def _with_sums_early(order: tuple[Node, ...], uses: Sequence[int]) -> tuple[Node, ...]:
    """Move each addition of cotangents in which a term dies to right behind its last term.

    The reverse pass builds all additions of a sum after the last of its terms.  Of a weight that an
    LSTM uses in every step, all terms would live until then.
    """
    sums = [node for node in order if node.owner is not None and node.op.ufunc == "add"]
    if not sums:
        return order
    place_of = dict(zip(order, count()))
    for node in sums:
        x, y = node.inputs
        for part in (x, y):  # takes a third of the time of `any`
            if uses[part.id] == 1 and part.dims == node.dims and part in place_of:
                place_of[node] = max(place_of.get(x, -1), place_of.get(y, -1))
                break
    # Sorting is stable, so a moved addition comes right behind the term that has its place.
    return tuple(sorted(order, key=place_of.__getitem__))


def _differentiate(
    graph: Graph, forward: Sequence[Node], copies: dict[Node, Node], wrt: Sequence[Node], mode: Mode
) -> tuple[dict[Node, Node], list[tuple[Node, Node]]]:
    """Return the derivatives by joint node, and the user's seeded nodes with their seed leaves."""
    seeds = []
    for node in mode.nodes:
        seed = graph.adopt(copies[node], (), leaf=True, name=f"{mode.kind} seed of {node.name}")
        seeds.append((node, seed))
    by_copy = {copies[node]: seed for node, seed in seeds}
    if mode.kind == "backward":
        found = pull_back(graph, forward, by_copy, [copies[node] for node in wrt], owned=True)
        return {node: ct for node, ct in found.items() if ct is not None}, seeds
    if mode.kind == "tangents":
        return push_forward(graph, forward, by_copy, owned=True), seeds
    return {}, []
