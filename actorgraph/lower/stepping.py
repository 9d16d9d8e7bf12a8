"""Stepping: an interpreter for parts that have not been called often enough to be compiled.

Writing and compiling the text of a step takes some 11 us, and saves 0.14 us a call.  Repetitive
graphs have few texts; irregular ones have as many as parts, and compiling took half of their first
run.  So a part is interpreted until the parts of its key have been called often.

`step_through` computes the same as the text: the same kernels on the same operands in the same
order, into the same arrays, and it drops values after their last use.  Its frame tells which step
is in progress.  It supports plain calls of kernels only: no ops of users, none that waits, none
whose kernel depends on the sizes of a run.  `call_through` does this for a part that consists of
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, count, pairwise
from operator import itemgetter
from types import FrameType
from typing import Any, final

from actorgraph.errors import counted
from actorgraph.lower import keys
from actorgraph.lower.keys import CallKey, DirectKey, StepKey
from actorgraph.lower.text import Code, direct_code, last_uses

_FEWEST, _SPREAD = 32, 64
"""Calls of the parts of a key before their text is compiled, and the range of further calls over
which keys are spread: many are called equally often, and no single run should compile them all."""

_FEWEST_OF_PARTS = 256
"""The same for a part that consists of parts: its rows are mostly there by then, so that its text
is never called."""

_FILENAME = "<actorgraph program, stepped through>"

_PLAIN = keys.INTO | keys.BY_NAME

_numbers = count()

Row = tuple[int, Callable[[Sequence[Any]], Sequence[Any]], int | None, Sequence[int]]
"""Number of the kernel, getter of its operands, place of ``out=`` or None, values that end."""

Call = tuple[Callable[[Sequence[Any]], Sequence[Any]], slice | None, tuple[int, ...]]
"""Getter of a part's operands, its slice of the arrays to write into or None, values that end."""


@lru_cache(maxsize=1024)
def stepping_code(key: DirectKey) -> SteppingCode | None:
    """Return the code that steps through the parts of a key, None if a step is not a plain call."""
    kind = StepKey if key.sizes is None else CallKey
    for step in key.steps:  # `type` and the position of `how` take a third of the time
        if type(step) is not kind or (kind is StepKey and step[2] & ~_PLAIN):
            return None
    return SteppingCode(key)


@final
class SteppingCode:
    """Like `Code`, for parts that are stepped through in their first calls."""

    def __init__(self, key: DirectKey) -> None:
        self.key, self._of_parts = key, key.sizes is not None
        self.calls = (_FEWEST_OF_PARTS if self._of_parts else _FEWEST) + next(_numbers) % _SPREAD
        # Its frame tells which step, or call of a part, is in progress.
        self._stepping: Any = call_through if self._of_parts else step_through
        self.compiled: Code | None = None

    @cached_property
    def written(self) -> Code:
        """The compiled text, made when it is first asked for."""
        return direct_code(self.key)

    @property
    def story(self) -> str:
        """For how long its steps are still interpreted; empty once its text is used."""
        if self.compiled is not None or self._of_parts:
            return ""
        left = counted(self.calls, "more call")
        return f"interpreted step by step; compiled after {left} of such parts"

    @property
    def text(self) -> str:
        """The source."""
        return self.written.text

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows of all steps; the number of a value is its place in the list of values.

        Behind the values the list has the arrays to write into, then the constants in reverse,
        whose numbers are negative.
        """
        key, into, by_name = self.key, keys.INTO, keys.BY_NAME
        array = key.leaves + len(key.steps)
        found: list[Row] = []
        last: dict[int, list[int]] = {}  # for each value those that end with its last use
        steps: Any = key.steps
        for place, (kernel, operands, how) in enumerate(steps, key.leaves):  # a hot loop
            gone: list[int] = []
            last[place] = gone
            for one in operands:
                last[one] = gone
            named = None
            if how & into:
                if how & by_name:
                    named = array
                else:
                    operands = (*operands, array)
                array += 1
            chosen = itemgetter(*operands) if len(operands) > 1 else _getter(operands)
            found.append((kernel, chosen, named, gone))
        kept = set(key.results)
        for one, gone in last.items():
            if one >= key.leaves and one not in kept:
                gone.append(one)
        return found

    @cached_property
    def _calls(self) -> Sequence[Call]:
        """The calls of all parts; the results of each follow those of the one before."""
        key = self.key
        calls = [step for step in key.steps if isinstance(step, CallKey)]
        stops = [*accumulate([step.results for step in calls], initial=key.leaves)]
        uses = [
            [*range(*own), *step.operands] for own, step in zip(pairwise(stops), calls, strict=True)
        ]
        ends = [*accumulate(key.sizes or (), initial=0)]
        written = iter([slice(*one) for one in pairwise(ends)])
        found: list[Call] = []
        for step, ended in zip(calls, last_uses(uses, key.results), strict=True):
            gone = tuple([one for one in ended if one >= key.leaves])
            found.append((_getter(step.operands), next(written) if step.writes else None, gone))
        return found

    def make(self, *given: Any) -> Callable[..., list[Any]]:
        """Return ``part(run, out, *values)``, given the kernels and the constants, or the parts."""
        results, first = self.key.results, self.key.leaves
        calls = self._calls if self._of_parts else None
        rows = self.rows if calls is None else ()
        kernels = dict(zip(dict.fromkeys([row[0] for row in rows]), given, strict=False))
        constants, empty = given[len(kernels) :][::-1], [None] * len(rows)
        text: Callable[..., list[Any]] | None = None

        def part(run: Any, out: Any, *values: Any) -> list[Any]:
            nonlocal text
            if text is not None:
                return text(run, out, *values)
            if self.calls > 0:
                self.calls -= 1
                if calls is None:
                    places = [*values, *empty, *(out or ()), *constants]
                    step_through(rows, kernels, first, places)
                else:
                    places = [*values]
                    call_through(calls, given, (run, out, first), places)
                return [places[number] for number in results]
            if self.compiled is None:
                self.compiled = self.written
            text = self.compiled.make(*given)
            return text(run, out, *values)

        return part

    def place(self, frame: FrameType, line: int) -> int | None:
        """Return the position of the step that a frame calls, None for a frame of other code."""
        if frame.f_code is not self._stepping.__code__:
            return None if self.compiled is None else self.compiled.place(frame, line)
        names = frame.f_locals
        place: int | None = names.get("place")
        if isinstance(names, dict):
            names.clear()  # before Python 3.13 the frame keeps this copy, and with it arrays
        return None if place is None else place - self.key.leaves

    def expression(self, number: int, frame: FrameType) -> str:
        """Return the expression for the value of a number in a frame."""
        if frame.f_code is self._stepping.__code__:
            return f"places[{number}]"
        return self.written.expressions[number]


def _getter(operands: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that picks the operands from the list of values."""
    if len(operands) > 1:
        return itemgetter(*operands)
    return itemgetter(slice(operands[0], operands[0] + 1 or None)) if operands else _nothing


def _nothing(places: Sequence[Any]) -> Sequence[Any]:
    return ()


def step_through(rows: Sequence[Row], kernels: Any, first: int, places: list[Any]) -> None:
    """Compute the values of steps; their places begin at `first`."""
    for place, (kernel, chosen, named, gone) in enumerate(rows, first):
        if named is None:
            places[place] = kernels[kernel](*chosen(places))
        else:
            places[place] = kernels[kernel](*chosen(places), out=places[named])
        for number in gone:
            places[number] = None


def call_through(calls: Sequence[Call], parts: Any, how: Any, places: list[Any]) -> None:
    """Add the results of parts to the values `places`; `how` are run, arrays, number of leaves."""
    run, out, first = how
    for place, (chosen, own, gone) in enumerate(calls, first):
        arrays = None if own is None else out[own]
        places += parts[place - first](run, arrays, *chosen(places))
        for number in gone:
            places[number] = None


# Tracebacks, warnings and traces recognise programs by the name of their file.
for _function in (step_through, call_through):
    _function.__code__ = _function.__code__.replace(co_filename=_FILENAME)
