"""What a run is asked to differentiate: reading `backward=` and `tangents=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from actorgraph.autodiff.reverse import check_differentiable
from actorgraph.errors import FeedError, ShapeError, near_names
from actorgraph.graph import Graph, Node
from actorgraph.lower.joint import Mode
from actorgraph.machines.feeds import by_node
from actorgraph.store import Held

_NUMBER = attrgetter("id")


def mode_of(
    graph: Graph, outputs: Mapping[str, Node], backward: Any, tangents: Any
) -> tuple[Mode, dict[Node, Any]]:
    """Return the mode of a run, and the seed or tangent of each node that it names, or raise."""
    if backward is not False and tangents is not None:
        raise FeedError(
            "backward and tangents in one run would be a second derivative; use ag.hvp, or "
            "differentiate symbolically with ag.gradients and run with tangents"
        )
    if tangents is not None:
        directions = _directions(graph, tangents)
        return Mode("tangents", tuple(sorted(directions, key=_NUMBER))), directions
    if backward is False:
        return Mode(), {}
    if backward is True:
        return _first(outputs)
    if not isinstance(backward, Mapping):
        raise FeedError(f"backward is True or a dict of output to seed, got {backward!r}")
    by_name = {node.name: node for node in outputs.values()}
    seeds: dict[Node, Any] = {}
    for key, value in backward.items():
        # An output may go by the name it has in the dict of outputs.
        node = outputs.get(key, key) if isinstance(key, str) else key
        seeds.update(by_node({node: value}, by_name, "seed"))
    if not seeds:
        raise FeedError("backward={} seeds nothing; name at least one output")
    check_differentiable(seeds, "seeded output")
    return Mode("backward", tuple(sorted(seeds, key=_NUMBER))), seeds


def trains(outputs: Mapping[str, Node], wrt: Sequence[Node]) -> bool:
    """Return whether ``backward=True`` suits a machine: there is a wrt, and a loss comes first."""
    first = next(iter(outputs.values()))
    return bool(wrt) and not first.ndim and first.dtype.kind in "fcV"


def _directions(graph: Graph, tangents: Any) -> dict[Node, Any]:
    if not isinstance(tangents, Mapping):
        raise FeedError(
            f"tangents are a dict of name or node to array, got {type(tangents).__name__}"
        )
    tangents = {
        graph.bound(key) if isinstance(key, Held) else key: value for key, value in tangents.items()
    }
    names = [key.name if isinstance(key, Node) else key for key in tangents]
    known: dict[str, Node] = {}
    for name in names:
        if isinstance(name, str):
            try:
                known[name] = graph.node(name)
            except KeyError:
                near = near_names(name, [node.name for node in graph.nodes])
                raise FeedError(f"unknown tangent {name!r}{near}") from None
    directions = by_node(tangents, known, "tangent")
    check_differentiable(directions, "tangent of")
    return directions


def _first(outputs: Mapping[str, Node]) -> tuple[Mode, dict[Node, Any]]:
    first = next(iter(outputs.values()))
    check_differentiable([first], "output")
    if first.ndim:
        raise ShapeError(
            f"backward=True differentiates the first output, which must be a scalar, but "
            f"it is {first!r}; seed it with backward={{{first.name!r}: array}} or make "
            "the first output a scalar such as its sum",
            reference="AG114",
        )
    return Mode("backward", (first,)), {first: 1}
