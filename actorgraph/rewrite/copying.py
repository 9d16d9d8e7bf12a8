"""`RewrittenCopies`: rewriting while a machine copies the user's graph into its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from actorgraph.graph import Graph, Node
from actorgraph.rewrite._graph import starts_of_parts
from actorgraph.rewrite._pass import Pass, Rewriter


@final
class RewrittenCopies:
    """What stands for the user's nodes in a machine's graph.

    Parameters
    ----------
    graph : Graph
        The machine's.
    order : sequence of Node
        The user's nodes, inputs before consumers.
    outputs : iterable of Node
        Of which each gets a node of its own, since each result is an array of its own.
    kept : iterable of Node
        Nodes that no pass sees through: derivatives start or end there.

    Attributes
    ----------
    sources : dict
        Build number of every node so far to the user's node that it stands for or belongs to.
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
