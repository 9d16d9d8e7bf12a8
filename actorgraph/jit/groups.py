"""Fusion groups: which steps of a task become one compiled step (see `jit.lowering`).

First each step forms a candidate with all steps that only it needs, as far as `loops` knows their
ops.  Then neighbouring candidates of one shape are joined if they share operands or one reads the
other; a group may have several results.

Invariant: a group takes the place of its last step, so it is never moved past a step that reads its
values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from actorgraph.devices.vectors import functions_of
from actorgraph.graph import Node
from actorgraph.jit.loops import DTYPES, Level, is_sum, is_view, is_written, rows_of
from actorgraph.op import LoopRule
from actorgraph.types import UNKNOWN, Shape, bind_shape

FEWEST = 256
"""Least elements of a group: a call costs less than two ufuncs, but its gain must pay for a
compilation of a quarter of a second."""

_MOST_STEPS = 64
_MOST_ARRAYS, _MOST_WRITTEN = 16, 4
"""Most arrays of a loop, and most that it writes: with more, LLVM does not check all for aliasing
and does not vectorise (5 written arrays ran 20 times slower)."""

_FURTHEST = 50
"""Most steps between two candidates that are joined."""

_INTEGERS = frozenset({"int32", "int64"})


@dataclass(frozen=True, slots=True)
class Group:
    """A fusion group: its steps in order, the levels of all values, its inputs and outputs."""

    steps: tuple[Node, ...]
    levels: Mapping[int, Level]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


def groups(
    steps: Sequence[Node], kept: Collection[int], uses: Mapping[int, Sequence[Node]],
    symbols: Mapping[str, int], apart: Callable[[Node, Mapping[str, int]], bool],
) -> list[Group]:  # fmt: skip
    """Return the fusion groups of the steps of one task, which are in order.

    - `kept`: ids of results of the run
    - `uses`: by id of a value, its consumers in all tasks
    - `symbols`: the binding that decides which groups are large enough
    - `apart`: ``apart(step, symbols)`` says that other machine code is faster for a step
    """
    steps_apart = {step.id for step in steps if apart(step, symbols)}
    finder = _Finder(steps, kept, uses, symbols, steps_apart)
    finder.grow()
    finder.join()
    return [group for group in map(finder.group, finder.ends.values()) if group is not None]


class _Finder:
    """Finds the groups of a task; `ends` has the steps of each candidate by its last position."""

    def __init__(
        self, steps: Sequence[Node], kept: Collection[int], uses: Mapping[int, Sequence[Node]],
        symbols: Mapping[str, int], apart: Collection[int],
    ) -> None:  # fmt: skip
        self.steps, self.kept, self.uses, self.symbols = steps, kept, uses, symbols
        self._apart = apart
        self.at = {step.id: position for position, step in enumerate(steps)}
        self.ends: dict[int, list[Node]] = {}
        self.taken: set[int] = set()

    # -- a step and what only it needs ----------------------------------------------------------

    def grow(self) -> None:
        """Find the candidates with one result: each supported step with all that only it needs."""
        for position in range(len(self.steps) - 1, -1, -1):
            root = self.steps[position]
            if root.id in self.taken or is_view(root.op) or not self._is_known(root):
                continue
            members, barred = self._members(root, ()), set[int]()
            while len(members) > 1:
                levels = _levels(members, _space(root), {root.id})
                if not isinstance(levels, int):
                    break
                if levels == root.id:
                    members = [root]
                    break
                barred.add(levels)
                members = self._members(root, barred)
            # A candidate that is no group is dissolved: its steps stay in place.
            if len(members) > 1 and self.group(members) is None:
                members = [root]
            self.ends[position] = members
            self.taken.update([step.id for step in members])

    def _members(self, root: Node, barred: Collection[int]) -> list[Node]:
        """Return, in order, `root` and the supported steps that only it needs, latest first."""
        members = {root.id}
        waiting = [-self.at[part.id] for part in root.inputs if part.id in self.at]
        heapq.heapify(waiting)
        while waiting and len(members) < _MOST_STEPS:
            step = self.steps[-heapq.heappop(waiting)]
            if step.id in members or step.id in barred or step.id in self.taken:
                continue
            if not self._is_known(step) or self._is_needed(step, members):
                continue
            members.add(step.id)
            for part in step.inputs:
                if part.id in self.at:
                    heapq.heappush(waiting, -self.at[part.id])
        return [self.steps[position] for position in sorted(self.at[n] for n in members)]

    def _is_known(self, step: Node) -> bool:
        return step.id not in self._apart and _is_known(step)

    def _is_needed(self, step: Node, members: Collection[int]) -> bool:
        """Return whether anything but the members needs the step."""
        return step.id in self.kept or any(
            user.id not in members for user in self.uses.get(step.id, ())
        )

    # -- neighbours -----------------------------------------------------------------------------

    def join(self) -> None:
        """Join each candidate with later ones that share operands with it or read its values."""
        for first in sorted(self.ends):
            position, furthest = first, first + _FURTHEST
            while position < min(furthest, len(self.steps) - 1) and first in self.ends:
                position += 1
                step = self.steps[position]
                other = self.ends.get(position)
                if other is None and step.id in self.taken:
                    continue  # it moves to the place of its candidate's last step
                candidate = self.ends[first]
                candidate_ids = {one.id for one in candidate}
                inputs = {part.id for one in other or [step] for part in one.inputs}
                joined = self._joined(candidate, other, candidate_ids, inputs) if other else None
                if joined is not None:
                    del self.ends[first]
                    first, self.ends[position] = position, joined
                    furthest = position + _FURTHEST
                elif candidate_ids & inputs:
                    break  # the candidate cannot move past a reader of its values

    def _joined(
        self, one: list[Node], other: list[Node], own: set[int], inputs: set[int]
    ) -> list[Node] | None:
        """Return the steps of both in order, None if they should not be joined."""
        follows = bool(inputs & own)
        read = {part.id for step in one for part in step.inputs if part.dims}
        if len(one) + len(other) > _MOST_STEPS or not (follows or inputs & read):
            return None
        if not follows and self._space(one) != self._space(other):
            return None
        steps = [self.steps[place] for place in sorted(self.at[s.id] for s in (*one, *other))]
        return steps if self.group(steps) is not None else None

    # -- what becomes of a candidate ------------------------------------------------------------

    def group(self, steps: Sequence[Node]) -> Group | None:
        """Return the group of these steps, None if they cannot be one or it would not pay off."""
        space = self._space(steps)
        if self._size(space) < FEWEST or sum(map(_calls, steps)) < 2:
            return None
        members = {step.id for step in steps}
        outputs = [step for step in steps if self._is_needed(step, members)]
        levels = _levels(steps, space, {step.id for step in outputs})
        if isinstance(levels, int) or not outputs:
            return None
        inputs = {part.id: part for one in steps for part in one.inputs if part.id not in members}
        return Group(tuple(steps), levels, tuple(inputs.values()), tuple(outputs))

    def _space(self, steps: Sequence[Node]) -> Shape:
        """Return the largest iteration space of the steps."""
        widest, size = _space(steps[0]), -1
        for step in steps:
            space = _space(step)
            if space != widest or size < 0:
                elements = self._size(space)
                if elements > size:
                    widest, size = space, elements
        return widest

    def _size(self, shape: Shape) -> int:
        return prod(bind_shape(shape, self.symbols, 0))  # unbound dims count as 0


def _calls(step: Node) -> int:
    """Return the number of NumPy calls that a step is: 0, 1, or 2 for several."""
    rule = step.op.loop
    if rule is None or rule.kind == "row":
        return 1 + (rule is not None)
    return 0 if rule.kind == "view" else max(1, min(2, len(functions_of(rule.text))))


def _is_known(node: Node) -> bool:
    rule = rows_of(node.op)
    floats = node.inputs[: rule.of + 1] if rule is not None and rule.classes else node.inputs
    # A type has the name; NumPy puts that of a dtype together anew.
    dtypes = {node.type.dtype.name, *(part.type.dtype.name for part in floats)}
    return (
        is_written(node)
        and not node.op.checked
        and dtypes <= DTYPES - _INTEGERS
        and all(part.type.dtype.name in _INTEGERS for part in node.inputs[len(floats) :])
        and not (is_sum(node.op) and node.dtype.kind != "f")
        and all(dim is not UNKNOWN for part in (node, *node.inputs) for dim in part.dims)
    )


def _space(step: Node) -> Shape:
    """Return the iteration space of a step."""
    rule = rows_of(step.op)
    if is_sum(step.op):
        return step.inputs[0].dims
    return step.dims if rule is None else step.inputs[rule.of].dims


# -- where values stand ---------------------------------------------------------------------------


def is_read(step: Node, place: int) -> bool:
    """Return whether a step reads the numbers of an operand, and not only its shape."""
    return not (place and is_view(step.op))


def _levels(
    steps: Sequence[Node], shape: Shape, outputs: Collection[int]
) -> dict[int, Level] | int:
    """Return the level of each value of a group, or the id of a step that does not fit."""
    levels: dict[int, Level] = {}
    members = {step.id for step in steps}
    arrays, full = set(), False
    for step in steps:
        flat = _flat_places(step)
        for place, part in enumerate(step.inputs):
            if part.id in members:
                continue
            level = _level_of_input(part, shape, place in flat)
            if is_read(step, place):
                if level is None or levels.get(part.id, level) != level:
                    return step.id
                arrays.update([part.id] if level != "whole" else [])
                full |= level == "element"
            levels[part.id] = level or "whole"
    for step in steps:
        level = _level(step, shape, levels, step.id in outputs)
        if level is None:
            return step.id
        levels[step.id] = level
    written = sum(levels[number] in ("element", "foot") for number in outputs)
    fits = full and written <= _MOST_WRITTEN and len(arrays) + written <= _MOST_ARRAYS
    return levels if fits else steps[0].id


def _flat_places(step: Node) -> tuple[int, ...]:
    """Return the operands with one entry for each row, whose shape lacks the last axis."""
    rule = rows_of(step.op)
    if rule is None or not rule.classes:
        return ()
    before = range(rule.of) if step.attrs["reduction"] == "none" else ()
    return (*before, rule.of + 1)


def _level_of_input(node: Node, shape: Shape, flat: bool) -> Level | None:
    dims = node.dims
    if flat:
        return "row" if dims == shape[:-1] and len(shape) > 1 else None
    if dims == shape:
        return "element"
    if all(dim == 1 for dim in dims):
        return "whole"
    if len(dims) <= len(shape) and dims[-1] == shape[-1] and all(dim == 1 for dim in dims[:-1]):
        return "column"
    return "row" if dims == (*shape[:-1], 1) else None


def _level(step: Node, shape: Shape, levels: Mapping[int, Level], is_output: bool) -> Level | None:
    """Return the level of a step's value, None if loops cannot compute it."""
    first, rule = step.inputs[0], rows_of(step.op)
    if rule is not None:
        return _level_of_rows(step, rule, shape, levels)
    if is_sum(step.op):
        axis, all_axes = step.attrs["axis"], tuple(range(len(shape)))
        if not axis or first.dims != shape or levels[first.id] != "element":
            return None
        return {all_axes[:-1]: "foot", all_axes: "late", all_axes[-1:]: "row"}.get(axis)
    parts = [first] if is_view(step.op) else list(step.inputs)
    operand_levels = {levels[part.id] for part in parts}
    if operand_levels & {"late", "foot"}:
        return (
            "late"
            if operand_levels <= {"late", "whole"} and all(d == 1 for d in step.dims)
            else None
        )
    flat_dims, kept_dims = shape[:-1], (*shape[:-1], 1)
    rows = {part.dims for part in parts if levels[part.id] == "row"}
    if step.dims == shape:
        if not rows <= {kept_dims}:
            return None  # it would be broadcast along another axis
        if is_output or operand_levels & {"element", "column"}:
            return "element"
        return "row" if "row" in operand_levels else "whole"
    if operand_levels == {"whole"}:
        return "whole" if all(dim == 1 for dim in step.dims) else None
    if operand_levels - {"whole", "row"} or step.dims not in (flat_dims, kept_dims):
        return None
    if is_view(step.op):
        return "row" if rows <= {flat_dims, kept_dims} else None
    return "row" if rows == {step.dims} else None


def _level_of_rows(
    step: Node, rule: LoopRule, shape: Shape, levels: Mapping[int, Level]
) -> Level | None:
    x = step.inputs[rule.of]
    if x.dims != shape or levels[x.id] != "element":
        return None
    if not rule.classes:
        return "element" if step.attrs["axis"] == len(shape) - 1 else None
    each = step.attrs["reduction"] == "none"
    if rule.picks:
        return "row" if each else "late"
    return "element" if levels[step.inputs[0].id] == ("row" if each else "whole") else None
