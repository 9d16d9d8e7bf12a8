"""`placed`: where values that travel between the tasks of a run lie, in memory of that run.

Free lists cannot share memory between values of different shapes: together they hold more than is
ever alive.  Here a value lies where another one lay, in the array of a result that is written
later, or over the operand that it replaces.  Places are planned for the order in which one worker
takes tasks; in another order a value may find its place taken, see `memory.travelling`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from actorgraph.graph import Node
from actorgraph.lower.program import FEWEST_ROWS
from actorgraph.lower.regions import TaskSpec
from actorgraph.memory.buffers import LENT_BYTES, borrowers, is_view, size_in_bytes, usage, writable
from actorgraph.memory.packing import Loan, Place, Span, idle, overwritten, pack
from actorgraph.memory.travelling import Places


def placed(
    tasks: Sequence[TaskSpec], leaving: Sequence[Collection[int]], over: Collection[int],
    ordered: Collection[int], symbols: Mapping[str, int],
) -> Places | None:  # fmt: skip
    """Return the places of values that are `leaving` connected tasks; None if there are none.

    The steps `over` overwrite their first operand.  Small values have no place; nor have those that
    may reach a user, or that a user's op may keep, as these would keep all of the memory.
    """
    large = {
        step.id
        for spec, out in zip(tasks, leaving, strict=True)
        for step in (spec.steps if out else ())
        if step.id in out and size_in_bytes(step, symbols) >= LENT_BYTES
    }
    if not large:
        return None
    steps: list[Node] = []
    turn_of: list[range] = []  # by step: the positions of the steps of its turn
    for index in turns_of(tasks):
        turn = range(len(steps), len(steps) + len(tasks[index].steps))
        steps += tasks[index].steps
        turn_of += [turn] * len(turn)
    lives = usage(steps, [node for spec in tasks for node, _ in spec.results], symbols)
    last = lives.last
    for step in reversed(steps):
        if step.id in over:
            part = step.inputs[0].id
            last[part] = max(last[part], last[step.id])
    escaping = [step for step in steps if last[step.id] == len(steps)]
    owned, inside = {step.id for step in escaping}, writable(steps, escaping, ordered)
    alone = _read_by_one(tasks)
    spans: list[Span] = []
    loans: dict[int, Loan] = {}
    span_of: dict[int, int] = {}
    span_of_alone: dict[int, int] = {}
    overwrites: dict[int, int] = {}
    for position, (step, turn) in enumerate(zip(steps, turn_of, strict=True)):
        number, size = step.id, lives.bytes[step.id]
        if number not in large or (number not in owned and number not in inside):
            continue
        if number in owned:
            loans[number] = Loan(size, turn.start)
            continue
        # A table must leave its operands, as Python may have to compute its steps again.
        known = span_of_alone if len(turn) < FEWEST_ROWS else {}
        over_part = overwritten(step, position, lives, known)
        if over_part is None:
            span_of[number] = len(spans)
            spans.append(Span(size, turn.start, 0))
        else:
            overwrites[number], span_of[number] = over_part, span_of[over_part]
        spans[span_of[number]].end = turn_of[last[number]].stop - 1
        if number in alone:
            span_of_alone[number] = span_of[number]
    if not spans:
        return None
    total, found = pack(spans, [*loans.values()])
    values = {number: (lives.bytes[number], found[span]) for number, span in span_of.items()}
    borrowing: dict[range, list[int]] = {}
    for place in borrowers(steps, symbols):
        borrowing.setdefault(turn_of[place], []).append(steps[place].id)
    lent: dict[int, tuple[int, int]] = {}
    gaps = idle(total, spans, found, borrowing)
    for numbers, (begin, end) in zip(borrowing.values(), gaps, strict=True):
        if end - begin >= LENT_BYTES:
            values[~numbers[0]] = end - begin, Place(-1, begin)
            lent |= dict.fromkeys(numbers, (~numbers[0], end - begin))
    return Places(total, values, [*loans], overwrites, lent)


def _read_by_one(tasks: Sequence[TaskSpec]) -> set[int]:
    """Return the ids of values that one task reads, and not through views."""
    reader: dict[int, int] = {}
    for spec in tasks:
        for step in spec.steps:
            own = -1 if is_view(step) else spec.index
            for part in step.inputs:
                reader[part.id] = own if reader.get(part.id, own) == own else -1
    return {number for number, one in reader.items() if one >= 0}


def turns_of(tasks: Sequence[TaskSpec]) -> list[int]:
    """Return the order in which one worker takes tasks: always the one that got ready last."""
    targets = [[one for _, one in (*spec.bundles, *spec.sends)] for spec in tasks]
    left = [0] * len(tasks)
    for one in chain.from_iterable(targets):
        left[one] += 1
    ready = [index for index, count in enumerate(left) if not count]
    turns = []
    while ready:
        turns.append(index := ready.pop())
        for one in targets[index]:
            left[one] -= 1
            if not left[one]:
                ready.append(one)
    return turns
