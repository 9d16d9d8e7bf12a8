"""The check that the tasks of a cut form no cycle; it runs once they are connected."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from actorgraph.errors import DeadlockError
from actorgraph.lower.regions import TaskSpec


def check_order(specs: Sequence[TaskSpec]) -> None:
    """Raise `DeadlockError`, which names a cycle, if connected tasks form one; takes linear time.

    If every task is free to fire and every capacity is at least 1, no other check is needed: any
    other cycle of the network goes through the free slots of an edge, and so holds a token.
    """
    before = {
        spec.index: [one.producer for one in spec.ports if one.producer is not None]
        for spec in specs
    }
    if all(max(producers, default=-1) < task for task, producers in before.items()):
        return  # as in most cuts, each task comes after those that it waits for
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle = [specs[task].name for task in reversed(error.args[1])]
        waits = " waits for ".join(map(repr, cycle))
        raise DeadlockError(f"tasks wait for each other: {waits}") from None
