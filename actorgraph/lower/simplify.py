"""Simplifying a joint graph without changing a bit: rewriting rules, CSE, dead code.

It runs after differentiation, so it simplifies derivatives too.  Invariants:

- *owners*: a rewritten node keeps its id and its owner, and regions are cut from the graph as it
  was differentiated (`Joint.owners`).  A node depends on nothing that it did not depend on before,
  perhaps through others; so tasks form no new cycle.
- *results*: the node of a run's result is never replaced by another node, so each result stays an
  array of its own.
- *checks*: a node that makes a run check dims stays.
- *inputs*: merging makes anew only nodes that read a merged one, and views of these.  So a step may
  have an input that was made anew, as it was before: readers find it by its id, or look through
  views alone.

Merging equal nodes of two owners could make two tasks wait for each other.  So `simplified` merges
only a backward node with an equal forward node, which never waits for it; `combined` merges within
each task, once the cut is known.

Each function is one pass in build order, linear in the number of nodes.  Inputs are settled before
their consumers, so one pass reaches the fixed point.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

from actorgraph.graph import Node
from actorgraph.lower.folding import folded
from actorgraph.lower.joint import Joint, uses_of
from actorgraph.lower.regions import TaskSpec
from actorgraph.lower.slices import with_slices_written_once
from actorgraph.memory.buffers import is_view
from actorgraph.op import CONSTANT, Op, attrs_key
from actorgraph.rewrite import Pass
from actorgraph.rewrite._pass import Rule
from actorgraph.rewrite.exact import is_pure, with_inputs

_MOST_STEPS = 16
"""Most replacements of one node."""

_SMALL = 16
"""Most elements of a constant that is compared with others by its bits."""


def _kept_ids(joint: Joint) -> set[int]:
    """Return the ids of the nodes that must stay: results, and nodes with checks."""
    kept = {node.id for node in (*joint.values.values(), *joint.derivatives.values())}
    kept.update([node.id for node in joint.order if node.checks])
    return kept


def simplified(joint: Joint, passes: Sequence[Pass]) -> Joint:
    """Return the joint graph after the late passes; itself if there are none.

    Unneeded leaves stay too: which feeds a run needs does not depend on passes.
    """
    late = [one for one in passes if one.late]
    if not late:
        return joint
    kept = _kept_ids(joint)
    replacement: dict[int, Node] = {}
    rules = _Rules(late)
    merge = joint.backward and any(one.name == "merge" for one in late)
    forward, first_backward = _Equals() if merge else None, joint.forward_ids
    order: list[Node] = []
    for node in joint.order:
        new = rules.settle(with_inputs(node, replacement), node.id in kept)
        if forward is not None and new.id == node.id:
            is_backward = node.id >= first_backward
            equal = forward.find(new, 0, add=not is_backward)
            if equal is not None and is_backward and node.id not in kept:
                new = equal
        if new.id == node.id and (new.inputs or not new.is_leaf):
            order.append(new)
        if new is not node:
            replacement[node.id] = new
    if not replacement:
        return joint
    uses = uses_of(order, kept)
    return replace(
        joint,
        order=tuple([node for node in order if uses[node.id]]),
        values={node: replacement.get(new.id, new) for node, new in joint.values.items()},
        derivatives={node: replacement.get(new.id, new) for node, new in joint.derivatives.items()},
    )


def combined(tasks: list[TaskSpec], joint: Joint, passes: Sequence[Pass]) -> list[TaskSpec]:
    """Merge equal steps within each task of a fresh cut; return the tasks."""
    parts = _combined([spec.steps for spec in tasks], joint, passes)
    for spec, steps in zip(tasks, parts, strict=True):
        spec.steps = list(steps)
    return tasks


def combined_steps(joint: Joint, passes: Sequence[Pass]) -> Sequence[Node]:
    """Return the whole joint graph as the merged steps of one task."""
    return _combined([joint.order], joint, passes)[0]


def _combined(
    parts: Sequence[Sequence[Node]], joint: Joint, passes: Sequence[Pass]
) -> Sequence[Sequence[Node]]:
    """Return the steps of each task after the passes that work task by task."""
    names, kept = {one.name for one in passes}, _kept_ids(joint)
    if "merge" in names:
        parts = _merged_within(joint.order, parts, kept)
    if "slices" in names:
        parts = with_slices_written_once(parts, kept)
    return parts


def _merged_within(
    order: Sequence[Node], parts: Sequence[Sequence[Node]], kept: Collection[int]
) -> list[list[Node]]:
    """Return the steps of each task with equal ones merged; `kept` stay, as in `_kept_ids`."""
    part_of = {node.id: index for index, steps in enumerate(parts) for node in steps}
    equals = _Equals()
    replacement: dict[int, Node] = {}
    merged: list[list[Node]] = [[] for _ in parts]
    for node in order:
        new = with_inputs(node, replacement) if replacement else node
        index = part_of[node.id]
        equal = equals.find(new, index)
        if equal is not None and node.id not in kept:
            replacement[node.id] = equal
            continue
        if new is not node and is_view(new):
            replacement[node.id] = new
        merged[index].append(new)
    return merged


class _Equals:
    """Finds equal nodes: one op with equal attributes on the same inputs."""

    def __init__(self) -> None:
        self._seen: dict[Op, dict[Hashable, Node]] = {}
        # Attributes, which many nodes share, with their keys, by id.
        self._keys: dict[int, tuple[Any, Hashable]] = {}
        self._first: dict[Hashable, int] = {}  # of equal constants
        self._numbers: dict[int, int] = {}

    def find(self, node: Node, part: int, add: bool = True) -> Node | None:
        """Return the first equal node of the same part, None for the first one itself."""
        seen = self._seen.get(node.op)
        if seen is None:
            if not add or not is_pure(node.op):
                return None
            seen = self._seen[node.op] = {}
        key: Hashable
        if len(node.inputs) == 2:  # mostly; a comprehension takes twice as long
            x, y = node.inputs
            number = self._number(x) if x.op is CONSTANT else x.id
            key = part, number, self._number(y) if y.op is CONSTANT else y.id
        else:
            numbers = [self._number(one) if one.op is CONSTANT else one.id for one in node.inputs]
            key = part, *numbers
        attrs = node.attrs
        if attrs:
            known = self._keys.get(id(attrs))
            if known is None:
                known = self._keys[id(attrs)] = attrs, attrs_key(attrs)
            key = known[1], key
        first = seen.setdefault(key, node) if add else seen.get(key)
        return None if first is node else first

    def _number(self, constant: Node) -> int:
        """Return the id of the first constant that is equal, if they are small."""
        number = constant.id
        found = self._numbers.get(number)
        if found is None:
            found = number
            if constant.attrs["value"].size <= _SMALL:
                found = self._first.setdefault(attrs_key(constant.attrs), number)
            self._numbers[number] = found
        return found


class _Rules:
    """The rules of passes, by the op that they apply to."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        fold = any(one.name == "fold" for one in passes)
        self._everywhere: list[Rule] = [folded] if fold else []
        self._by_op: dict[Op, list[Rule]] = {}
        for one in passes:
            if one.rule is not None:
                for op in one.roots:
                    self._by_op.setdefault(op, []).append(one.rule)
        for rules in self._by_op.values():
            rules += self._everywhere

    def settle(self, node: Node, kept: bool) -> Node:
        """Return the node's replacement: itself restated, or an older node unless it is kept."""
        for _ in range(_MOST_STEPS):
            for rule in self._by_op.get(node.op, self._everywhere):
                new = rule(node)
                if new is None or (kept and (new.id != node.id or new.is_leaf)):
                    continue
                if new.id != node.id or new.is_leaf:
                    return new
                node = new
                break
            else:
                return node
        return node
