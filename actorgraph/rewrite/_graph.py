"""The list of passes; rewriting of nodes within their graph, and of the copies of machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from actorgraph.errors import GraphError, near_names, shown
from actorgraph.graph import Graph, Node, as_nodes, topological_order
from actorgraph.options import several
from actorgraph.rewrite._pass import Pass, Rewriter
from actorgraph.rewrite.stabilise import STABLE


def passes() -> tuple[Pass, ...]:
    """Return all passes in the order in which they are tried; each prints what it does.

    The first ones may change bits and are for ``exact=False`` and `rewrite`; the others change no
    bit, and machines apply them by default.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.rewrite.passes()[0]
    <pass log1p: log(1 + a) becomes log1p(a)>
    >>> ag.rewrite.passes()[-1]
    <pass slices: a sum of adjoints of disjoint slices becomes one array, each written as x + 0>
    """
    from actorgraph.rewrite.exact import EXACT  # late: importing the package does not need it

    return (*STABLE, *EXACT)


def chosen(given: Iterable[Pass | str] | Pass | str | None) -> tuple[Pass, ...]:
    """Return passes given as records or by name; None means all.

    Raises
    ------
    GraphError
        If there is no pass of a name.

    Examples
    --------
    >>> import actorgraph as ag
    >>> names = [one.name for one in ag.rewrite.passes()]
    >>> [one.name for one in ag.rewrite.chosen(names[0])] == names[:1]
    True
    """
    every = passes()
    if given is None:
        return every
    known = {one.name: one for one in every}
    result = []
    for one in [given] if isinstance(given, (Pass, str)) else several("a list of passes", given):
        if not isinstance(one, Pass) and not (isinstance(one, str) and one in known):
            near = near_names(one, known)
            raise GraphError(f"no pass is named {shown(one)}; ag.rewrite.passes() lists them{near}")
        result.append(one if isinstance(one, Pass) else known[one])
    return tuple(result)


def rewrite(outputs: Any, passes: Iterable[Pass | str] | None = None, *, keep: Any = ()) -> Any:
    """Return the rewritten `outputs`, as nodes of the same graph.

    Existing nodes and their consumers stay as they are.  A new node has the user's line of the node
    that it replaces.  Differentiate the returned nodes: gradients built before belong to the
    formula as it was written.  If a run of an output assigns to a buffer, so does a run of the
    returned node.

    Parameters
    ----------
    outputs : node, or list, tuple or dict of nodes
    passes : iterable of Pass or str, optional
        Passes or their names; default all of `ag.rewrite.passes()`.  Late ones are skipped, as they
        are for machines.
    keep : node, or list or dict of nodes
        Nodes that no pass looks through, so that the result depends on them: those that you
        differentiate with respect to, other than leaves.

    Returns
    -------
    node, or list, tuple or dict of nodes
        As `outputs`; the node itself where no pass applies.

    Raises
    ------
    GraphError
        If there is no such pass, or passes undo each other.

    Examples
    --------
    >>> from actorgraph import ops
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", shape=("n",), dtype="float32")
    >>> ag.rewrite.rewrite(ops.log(1 + ops.exp(x))).op
    <op softplus>
    >>> ag.rewrite.rewrite(ops.log(2 + ops.exp(x))).op
    <op log>
    """
    targets = as_nodes(outputs)
    if not targets:
        return outputs
    graph = targets[0].graph
    rewriter = Rewriter(graph, chosen(passes))
    kept = set(map(graph.lift, as_nodes(keep)))

    def settled(made: Node, node: Node) -> Node:
        replacement = rewriter.settle(made)
        hidden = (node in kept or node in starts) and not node.is_leaf
        return rewriter.opaque(replacement, node.id) if hidden else replacement

    starts = starts_of_parts(topological_order(_with_assigned(graph, targets)))
    return restored(outputs, rebuilt(graph, targets, settled))


def starts_of_parts(order: Iterable[Node]) -> set[Node]:
    """Return the nodes where checkpointed parts begin: rules do not look beyond a part."""
    return {part for node in order if node.op.name == "checkpoint" for part in node.inputs[1:]}


def rebuilt(
    graph: Graph, targets: list[Node], settled: Callable[[Node, Node], Node]
) -> dict[Node, Node]:
    """Return the replacement of each node that `targets` depend on, and carry assignments over.

    ``settled(made, node)`` returns it; `made` is the node applied to the rebuilt inputs.
    """
    replacement: dict[Node, Node] = {}
    for node in topological_order(_with_assigned(graph, targets)):
        inputs = tuple([replacement[part] for part in node.inputs])
        made = node
        if any([new is not old for new, old in zip(inputs, node.inputs, strict=True)]):  # noqa: C419
            with graph.building(node.line):
                made = graph.apply(node.op, inputs, node.attrs)
        replacement[node] = settled(made, node)
    for buffer, value, on in list(graph.assignments):
        if on in replacement and replacement[on] is not on:
            graph.assign(buffer, replacement[value], replacement[on])
    return replacement


def _with_assigned(graph: Graph, targets: list[Node]) -> list[Node]:
    """Return the targets, and the values that their runs assign to buffers."""
    computed = set(topological_order(targets))
    return [*targets, *(value for _, value, on in graph.assignments if on in computed)]


def restored(outputs: Any, replacement: Mapping[Node, Node]) -> Any:
    """Return the replacements of `outputs` in the same container: node, list, tuple or dict."""
    if isinstance(outputs, Node):
        return replacement[outputs]
    if isinstance(outputs, Mapping):
        return {name: replacement[node] for name, node in outputs.items()}
    result = [replacement[node] for node in outputs]
    return tuple(result) if isinstance(outputs, tuple) else result


@final
class RewrittenCopies:
    """The rewritten copies of the user's nodes in a machine's graph.

    Each of `outputs` gets a separate node, since each result is an array of its own.  No pass looks
    through nodes that are `kept`, where derivatives start or end.  `sources` maps the id of every
    node of the machine's graph to the user's node that it stands for or belongs to.
    """

    def __init__(
        self, graph: Graph, order: Sequence[Node], passes: Sequence[Pass], outputs: Iterable[Node],
        kept: Iterable[Node],
    ) -> None:  # fmt: skip
        self.sources: dict[int, Node] = {}
        self._graph = graph
        self._rewriter = Rewriter(graph, passes)
        self._outputs = set(outputs)
        self._taken: set[Node] = set()
        self._hidden = {*kept, *starts_of_parts(order)} if passes else set()

    def settle(self, node: Node, copy: Node) -> Node:
        """Return the rewritten copy of the user's `node`, of which `copy` has just been made."""
        replacement = self._rewriter.settle(copy)
        output = node in self._outputs
        if not node.is_leaf:
            shared = output and (replacement.is_leaf or replacement in self._taken)
            if shared or node in self._hidden:
                replacement = self._rewriter.opaque(replacement, node.id)
        if output:
            self._taken.add(replacement)
        self.sources.update(dict.fromkeys(range(copy.id, len(self._graph)), node))
        return replacement
