"""What a machine shows of its inside: program text and where time went."""

from __future__ import annotations

from collections.abc import Iterable

from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan

__all__ = ["busiest", "source"]


def source(plans: Iterable[Plan], networks: Iterable[Network]) -> str:
    """Return the generated programs with node names as comments."""
    parts = []
    for plan in plans:
        if plan.direct is not None:
            parts += [f"# mode: {plan.mode.kind}", plan.direct.annotated("in the calling thread")]
    for network in networks:
        parts.append(f"# mode: {network.plan.mode.kind}")
        for task in network.tasks:
            if task.program is not None:
                parts.append(task.program.annotated(task.spec.name))
    return "\n\n".join(parts)


def busiest(networks: Iterable[Network], count: int) -> list[tuple[str, str, float, int]]:
    """Return (node name, op name, seconds, firings), the longest first."""
    found: dict[int, tuple[str, str, float, int]] = {}
    for network in networks:
        for actor in network.actors:
            node = network.plan.joint.source(actor.region.nodes[0])
            _, _, seconds, turns = found.get(node.id, ("", "", 0.0, 0))
            seconds += sum(task.seconds for task in actor.tasks)
            turns += sum(task.turns for task in actor.tasks)
            found[node.id] = node.name, node.op.name, seconds, turns
    return sorted(found.values(), key=_seconds, reverse=True)[:count]


def _seconds(entry: tuple[str, str, float, int]) -> float:
    return entry[2]
