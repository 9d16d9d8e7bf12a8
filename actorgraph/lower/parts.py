"""Parts: the steps of a long task in stretches that are functions of their own.

A graph repeats itself: branches, layers, steps in time.  Cut where the fewest values pass from one
part to the next, parts begin at the same place of what repeats, so they have one key and share
their code: of 36,000 steps of a wide graph some 2,000 are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from actorgraph.graph import Node
from actorgraph.op import CONSTANT

__all__ = ["FEWEST", "cut_steps"]

_LEAST, _MOST = 64, 128
"""Steps of a part: calling one costs about as much as one step."""

FEWEST = 2 * _MOST
"""Steps of a task that is worth parts."""


def cut_steps(
    steps: Sequence[Node], kept: Iterable[Node], within: Iterable[tuple[int, int]] | None = None
) -> Iterator[tuple[int, int, list[Node], list[Node]]]:
    """Return where each part begins and ends, what it is given and what it returns.

    Parameters
    ----------
    steps : sequence of Node
    kept : iterable of Node
        What is needed after the last step.
    within : iterable of (int, int), optional
        Where stretches begin and end, in order, of which parts are made; default all of it.
    """
    last = {node.id: place for place, step in enumerate(steps) for node in step.inputs}
    kept_ids = {node.id for node in kept}
    for begin, stop in [(0, len(steps))] if within is None else within:
        for end in _ends(steps, begin, stop, last):
            own: set[int] = set()
            given: dict[int, Node] = {}
            for step in steps[begin:end]:
                for node in step.inputs:
                    if node.id not in own and node.op is not CONSTANT:
                        given[node.id] = node
                own.add(step.id)
            returned = [
                step
                for step in steps[begin:end]
                if last.get(step.id, 0) >= end or step.id in kept_ids
            ]
            yield begin, end, list(given.values()), returned
            begin = end


def _ends(steps: Sequence[Node], begin: int, stop: int, last: dict[int, int]) -> Iterator[int]:
    """Return where parts end: where the fewest values are made before and needed soon after.

    What is needed far away says nothing about the place, and there is more of it at every place.
    """
    if stop - begin > _MOST:
        change = [0] * (len(steps) + 1)
        for place in range(begin, stop):
            end = last.get(steps[place].id, place)
            if end - place <= _MOST:
                change[place + 1] += 1
                change[end + 1] -= 1
        crossing = list(accumulate(change))
    while stop - begin > _MOST:
        begin = min(range(begin + _LEAST, begin + _MOST + 1), key=crossing.__getitem__)
        yield begin
    yield stop
