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
    last = [spec.steps[-1].id if spec.steps else -1 for spec in specs]
    for place in (range(len(specs)), last):  # in most cuts, one of these shows an order
        if all([place[one] < place[task] for task, ones in before.items() for one in ones]):  # noqa: C419
            return
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle = [specs[task].name for task in reversed(error.args[1])]
        waits = " waits for ".join(map(repr, cycle))
        raise DeadlockError(f"tasks wait for each other: {waits}") from None
