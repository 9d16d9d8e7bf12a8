"""Rewriting of nodes within their graph, and of copies for machines; and which passes there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from actorgraph.errors import GraphError, near_names, shown
from actorgraph.graph import Graph, Node, as_nodes, topological_order
from actorgraph.options import several
from actorgraph.rewrite._pass import Pass, Rewriter
from actorgraph.rewrite.stabilise import STABLE


def passes() -> tuple[Pass, ...]:
    """Return all passes, in the order in which they are tried; each prints as what it does.

    First those that change bits, for ``exact=False`` and `rewrite`, then those that change none,
    which machines apply by default.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.rewrite.passes()[0]
    <pass log1p: log(1 + a) becomes log1p(a)>
    >>> ag.rewrite.passes()[-1]
    <pass slices: a sum of adjoints of disjoint slices becomes one array, each written as x + 0>
    """
    from actorgraph.rewrite.exact import EXACT  # a machine needs it, an import does not

    return (*STABLE, *EXACT)


def chosen(given: Iterable[Pass | str] | Pass | str | None) -> tuple[Pass, ...]:
    """Return passes given as records or by name; None means all.

    Raises
    ------
    GraphError
        There is no pass of a name.

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
    found = []
    for one in [given] if isinstance(given, (Pass, str)) else several("a list of passes", given):
        if not isinstance(one, Pass) and not (isinstance(one, str) and one in known):
            near = near_names(one, known)
            raise GraphError(f"no pass is named {shown(one)}; ag.rewrite.passes() lists them{near}")
        found.append(one if isinstance(one, Pass) else known[one])
    return tuple(found)


def rewrite(outputs: Any, passes: Iterable[Pass | str] | None = None, *, keep: Any = ()) -> Any:
    """Return nodes that stand for `outputs` after rewriting, in the same graph.

    Nodes that exist stay as they are, names included, and whoever uses them keeps them.  New nodes
    bear the user's line of the node that they stand for.  Differentiate what comes back: gradients
    built before were built from the formula as it was written.  Where a run of an output assigns
    to a buffer, so does a run of what comes back.

    Parameters
    ----------
    outputs : node, or list, tuple or dict of nodes
    passes : iterable of Pass or str, optional
        Passes or their names; default all of `ag.rewrite.passes()`.  Late ones are passed over:
        they are for machines.
    keep : node, or list or dict of nodes
        Nodes that no pass sees through, so that what comes back depends on them: what you
        differentiate with respect to, other than leaves.

    Returns
    -------
    node, or list, tuple or dict of nodes
        As `outputs`; the node itself where nothing applies.

    Raises
    ------
    GraphError
        There is no such pass, or passes undo each other.

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
        found = rewriter.settle(made)
        hidden = (node in kept or node in starts) and not node.is_leaf
        return rewriter.opaque(found, node.id) if hidden else found

    starts = starts_of_parts(topological_order(_with_assigned(graph, targets)))
    return restored(outputs, rebuilt(graph, targets, settled))


def starts_of_parts(order: Iterable[Node]) -> set[Node]:
    """Return the nodes where checkpointed parts begin: rules do not see out of a part."""
    return {part for node in order if node.op.name == "checkpoint" for part in node.inputs[1:]}


def rebuilt(
    graph: Graph, targets: list[Node], settled: Callable[[Node, Node], Node]
) -> dict[Node, Node]:
    """Return what stands for each node that `targets` depend on, and carry assignments over.

    ``settled(made, node)`` gives it, from `made`: the node on the rebuilt inputs.
    """
    stands: dict[Node, Node] = {}
    for node in topological_order(_with_assigned(graph, targets)):
        inputs = tuple([stands[part] for part in node.inputs])
        made = node
        if any([new is not old for new, old in zip(inputs, node.inputs, strict=True)]):  # noqa: C419
            with graph.building(node.line):
                made = graph.apply(node.op, inputs, node.attrs)
        stands[node] = settled(made, node)
    for buffer, value, on in list(graph.assignments):
        if on in stands and stands[on] is not on:
            graph.assign(buffer, stands[value], stands[on])
    return stands


def _with_assigned(graph: Graph, targets: list[Node]) -> list[Node]:
    """Return the targets and what their runs assign to buffers."""
    computed = set(topological_order(targets))
    return [*targets, *(value for _, value, on in graph.assignments if on in computed)]


def restored(outputs: Any, stands: Mapping[Node, Node]) -> Any:
    """Return what stands for `outputs` in their form: a node, a list, a tuple or a dict."""
    if isinstance(outputs, Node):
        return stands[outputs]
    if isinstance(outputs, Mapping):
        return {name: stands[node] for name, node in outputs.items()}
    found = [stands[node] for node in outputs]
    return tuple(found) if isinstance(outputs, tuple) else found


@final
class RewrittenCopies:
    """What stands for the user's nodes in a machine's graph.

    Each of `outputs` gets a node of its own, since each result is an array of its own; no pass sees
    through nodes that are `kept`: derivatives start or end there.  `sources` leads from the build
    number of every node so far to the user's node that it stands for or belongs to.
    """

    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        passes: Sequence[Pass],
        outputs: Iterable[Node],
        kept: Iterable[Node],
    ) -> None:
        self.sources: dict[int, Node] = {}
        self._graph = graph
        self._rewriter = Rewriter(graph, passes)
        self._outputs = set(outputs)
        self._taken: set[Node] = set()
        self._hidden = {*kept, *starts_of_parts(order)} if passes else set()

    def settle(self, node: Node, copy: Node) -> Node:
        """Return what stands for the user's `node`, of which `copy` has just been made."""
        found = self._rewriter.settle(copy)
        output = node in self._outputs
        if not node.is_leaf:
            shared = output and (found.is_leaf or found in self._taken)
            if shared or node in self._hidden:
                found = self._rewriter.opaque(found, node.id)
        if output:
            self._taken.add(found)
        self.sources.update(dict.fromkeys(range(copy.id, len(self._graph)), node))
        return found
