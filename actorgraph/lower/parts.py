"""Parts: the steps of a long task in stretches that are functions of their own.

A graph repeats itself: branches, layers, steps in time.  Cut where the fewest values pass from one
part to the next, parts begin at the same place of what repeats, so they have one key and share
their code: of 36,000 steps of a wide graph some 2,000 are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from actorgraph.graph import Node
from actorgraph.op import CONSTANT

_LEAST, _MOST = 64, 128
"""Steps of a part: calling one costs about as much as one step."""

_TOGETHER = 64
"""So many parts are one that machine code walks: each value that passes between two costs 0.1 us,
a row 0.02.  Until there are rows they are called one by one, and share their text."""

FEWEST = 2 * _MOST
"""Steps of a task that is worth parts."""


class Part(NamedTuple):
    """Where a part begins and ends, what it is given and what it returns.

    Where a table may stand for it, it may be in `parts` itself.
    """

    begin: int
    end: int
    given: Sequence[Node]
    returned: Sequence[Node]
    is_walked: bool = False
    parts: Sequence[Part] = ()


def cut_steps(
    steps: Sequence[Node],
    kept: Iterable[Node],
    within: Iterable[tuple[int, int, bool]] | None = None,
) -> Iterator[Part]:
    """Return the parts of steps, in order.

    What is `kept` is needed after the last step.  Parts are made `within` stretches, given by
    begin, end and whether tables may stand for them; default all of it.
    """
    last = last_needs(steps)
    needed = last | dict.fromkeys([node.id for node in kept], len(steps))
    for begin, stop, is_walked in [(0, len(steps), False)] if within is None else within:
        found = []
        for end in ends(steps, begin, stop, last):
            own: set[int] = set()
            given: dict[int, Node] = {}
            for step in steps[begin:end]:
                for node in step.inputs:
                    if node.id not in own and node.op is not CONSTANT:
                        given[node.id] = node
                own.add(step.id)
            returned = [step for step in steps[begin:end] if needed.get(step.id, 0) >= end]
            found.append(Part(begin, end, list(given.values()), returned))
            begin = end
        if is_walked:
            for place in range(0, len(found), _TOGETHER):
                yield _joined(found[place : place + _TOGETHER], needed)
        else:
            yield from found


def _joined(parts: Sequence[Part], needed: Mapping[int, int]) -> Part:
    """Return a part of parts that follow one another."""
    if len(parts) == 1:
        return parts[0]._replace(is_walked=True)
    end = parts[-1].end
    made = {node.id for part in parts for node in part.returned}
    given = {node.id: node for part in parts for node in part.given if node.id not in made}
    returned = [node for part in parts for node in part.returned if needed[node.id] >= end]
    return Part(parts[0].begin, end, list(given.values()), returned, True, parts)


def ends(
    steps: Sequence[Node],
    begin: int,
    stop: int,
    last: Mapping[int, int],
    size: tuple[int, int] = (_LEAST, _MOST),
) -> Iterator[int]:
    """Return where parts end: where the fewest values are made before and needed soon after.

    `last` has by id where a value is needed last; the last part may be shorter than any `size`.
    What is needed far away says nothing about the place, and there is more of it at every place.
    """
    least, most = size
    if stop - begin > most:
        change = [0] * (len(steps) + 1)
        for place in range(begin, stop):
            end = last.get(steps[place].id, place)
            if end - place <= _MOST:
                change[place + 1] += 1
                change[end + 1] -= 1
        crossing = list(accumulate(change))
    while stop - begin > most:
        begin = min(range(begin + most, begin + least - 1, -1), key=crossing.__getitem__)
        yield begin
    yield stop


def last_needs(steps: Sequence[Node]) -> dict[int, int]:
    """Return by id where each value is needed last."""
    return {node.id: place for place, step in enumerate(steps) for node in step.inputs}
