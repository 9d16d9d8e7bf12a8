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

_LEAST, _MOST = 64, 128
"""Steps of a part: calling one costs about as much as one step."""

WALKED, WALKED_ALONE = 4, 64
"""So many times as long are parts that machine code walks, in tasks and of what one thread does.

Each value that passes between them costs 0.1 us, a row 0.02; but equal parts share their text."""

FEWEST = 2 * _MOST
"""Steps of a task that is worth parts."""


def cut_steps(
    steps: Sequence[Node],
    kept: Iterable[Node],
    within: Iterable[tuple[int, int, int]] | None = None,
) -> Iterator[tuple[int, int, list[Node], list[Node]]]:
    """Return where each part begins and ends, what it is given and what it returns.

    What is `kept` is needed after the last step.  Parts are made `within` stretches, given by
    begin, end and how many times the usual length they may have; default all of it.
    """
    last = {node.id: place for place, step in enumerate(steps) for node in step.inputs}
    kept_ids = {node.id for node in kept}
    for begin, stop, times in [(0, len(steps), 1)] if within is None else within:
        for end in _ends(steps, begin, stop, last, times):
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


def _ends(
    steps: Sequence[Node], begin: int, stop: int, last: dict[int, int], times: int
) -> Iterator[int]:
    """Return where parts end: where the fewest values are made before and needed soon after.

    What is needed far away says nothing about the place, and there is more of it at every place.
    """
    least, most = times * _LEAST, times * _MOST
    if stop - begin > most:
        change = [0] * (len(steps) + 1)
        for place in range(begin, stop):
            end = last.get(steps[place].id, place)
            if end - place <= most:
                change[place + 1] += 1
                change[end + 1] -= 1
        crossing = list(accumulate(change))
    while stop - begin > most:
        begin = min(range(begin + least, begin + most + 1), key=crossing.__getitem__)
        yield begin
    yield stop
