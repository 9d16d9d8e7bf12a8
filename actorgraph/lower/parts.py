"""Parts: the steps of a long task, cut into functions of their own.

Graphs repeat themselves: branches, layers, steps in time.  If parts end where the fewest values
cross, they begin at the same place of each repetition, so they have equal keys and share their
code: of 36,000 steps of a wide graph some 2,000 are compiled.  `lower.program` and `lower.cuts` use
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from actorgraph.graph import Node
from actorgraph.op import CONSTANT

_LEAST, _MOST = 64, 128
"""Least and most steps of a part; calling one costs about as much as one step."""

_TOGETHER = 64
"""Parts that a table walks as one: a value that crosses parts costs 0.1 us, a row 0.02.  Until
there are rows they are called one by one, and share their text."""

FEWEST = 2 * _MOST
"""Least steps of a task that is cut into parts."""


class Part(NamedTuple):
    """A range of steps, with its operands and results.

    If a table may compute it (`is_walked`), it may consist of `parts` itself.
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
    within: Iterable[tuple[int, int, bool]],
) -> Iterator[Part]:
    """Return the parts of steps, in order.

    `kept` nodes are needed after the last step.  Parts lie `within` ranges, given by begin, end and
    whether a table may compute them.
    """
    last = last_needs(steps)
    needed = last | dict.fromkeys([node.id for node in kept], len(steps))
    for begin, stop, is_walked in within:
        parts = []
        for end in ends(steps, begin, stop, last):
            computed: set[int] = set()
            operands: dict[int, Node] = {}
            for step in steps[begin:end]:
                for node in step.inputs:
                    if node.id not in computed and node.op is not CONSTANT:
                        operands[node.id] = node
                computed.add(step.id)
            returned = [step for step in steps[begin:end] if needed.get(step.id, 0) >= end]
            parts.append(Part(begin, end, list(operands.values()), returned))
            begin = end
        if is_walked:
            for place in range(0, len(parts), _TOGETHER):
                yield _joined(parts[place : place + _TOGETHER], needed)
        else:
            yield from parts


def _joined(parts: Sequence[Part], needed: Mapping[int, int]) -> Part:
    if len(parts) == 1:
        return parts[0]._replace(is_walked=True)
    end = parts[-1].end
    made = {node.id for part in parts for node in part.returned}
    given = {node.id: node for part in parts for node in part.given if node.id not in made}
    returned = [node for part in parts for node in part.returned if needed[node.id] >= end]
    in_order = [given[number] for number in sorted(given)]
    return Part(parts[0].begin, end, in_order, returned, True, parts)


def ends(
    steps: Sequence[Node], begin: int, stop: int, last: Mapping[int, int],
    size: tuple[int, int] = (_LEAST, _MOST),
) -> Iterator[int]:  # fmt: skip
    """Return the ends of parts, chosen where the fewest values cross that are needed soon.

    `last` has by id the last position that needs a value; `size` is the least and most steps of a
    part, of which the last one may have fewer.  Values needed far away are not counted: they cross
    many positions and distinguish none.
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
    """Return by id the last position that needs each value."""
    return {node.id: place for place, step in enumerate(steps) for node in step.inputs}
