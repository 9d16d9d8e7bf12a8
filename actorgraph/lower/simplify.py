"""Simplifying a joint graph without changing a bit: rewriting rules, CSE, dead code.

It runs after differentiation, so it simplifies derivatives too.  Invariants:

- *owners*: a rewritten node keeps its id and its owner, and regions are cut from the graph as it
  was differentiated (`Joint.owners`).  A node depends on nothing that it did not depend on before,
  perhaps through others; so tasks form no new cycle.
- *results*: the node of a run's result is never replaced by another node, so each result stays an
  array of its own.
- *checks*: a node that makes a run check dims stays.

Merging equal nodes of two owners could make two tasks wait for each other.  So `simplified` merges
only a backward node with an equal forward node, which never waits for it; `combined` merges within
each task, once the cut is known.

Each function is one pass in build order, linear in the number of nodes.  Inputs are settled before
their consumers, so one pass reaches the fixed point.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actorgraph.graph import Node
from actorgraph.lower.folding import folded
from actorgraph.lower.joint import Joint
from actorgraph.lower.regions import TaskSpec
from actorgraph.lower.slices import with_slices_written_once
from actorgraph.op import CONSTANT, Op, attrs_key
from actorgraph.rewrite import Pass
from actorgraph.rewrite._pass import Rule
from actorgraph.rewrite.exact import is_pure, restated

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
    forward = _Equals(joint.order) if merge else None
    order: list[Node] = []
    for node in joint.order:
        new = rules.settle(_with_inputs(node, replacement), node.id in kept)
        if forward is not None and new.id == node.id:
            equal = forward.find(new, 0, add=not joint.is_backward(new))
            if equal is not None and joint.is_backward(new) and node.id not in kept:
                new = equal
        if new.id == node.id and not new.is_leaf:
            order.append(new)
        if new is not node:
            replacement[node.id] = new
    return replace(
        joint,
        order=_needed(order, kept),
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
    equals = _Equals(order)
    replacement: dict[int, Node] = {}
    merged: list[list[Node]] = [[] for _ in parts]
    for node in order:
        new = _with_inputs(node, replacement)
        index = part_of[node.id]
        equal = equals.find(new, index)
        if equal is not None and node.id not in kept:
            replacement[node.id] = equal
            continue
        if new is not node:
            replacement[node.id] = new
        merged[index].append(new)
    return merged


def _with_inputs(node: Node, replacement: Mapping[int, Node]) -> Node:
    for part in node.inputs if replacement else ():
        if part.id in replacement:
            inputs = tuple([replacement.get(part.id, part) for part in node.inputs])
            return restated(node, node.op, inputs, node.attrs)
    return node


class _Equals:
    """Finds equal nodes: one op with equal attributes on the same inputs."""

    def __init__(self, order: Sequence[Node]) -> None:
        self._seen: dict[Op, dict[Hashable, Node]] = {}
        # Attributes, which many nodes share, with their keys, by id.
        self._keys: dict[int, tuple[Any, Hashable]] = {}
        self._same = _equal_constants(order)

    def find(self, node: Node, part: int, add: bool = True) -> Node | None:
        """Return the first equal node of the same part, None for the first one itself."""
        seen = self._seen.get(node.op)
        if seen is None:
            if not add or not is_pure(node.op):
                return None
            seen = self._seen[node.op] = {}
        inputs, same, attrs = node.inputs, self._same, node.attrs
        key: Hashable
        if same:
            key = (part, *[same.get(one.id, one.id) for one in inputs])
        elif len(inputs) == 2:  # mostly, and a hot loop
            key = part, inputs[0].id, inputs[1].id
        else:
            key = (part, *[one.id for one in inputs])
        if attrs:
            known = self._keys.get(id(attrs))
            if known is None:
                known = self._keys[id(attrs)] = attrs, attrs_key(attrs)
            key = known[1], key
        first = seen.setdefault(key, node) if add else seen.get(key)
        return None if first is node else first


def _equal_constants(order: Sequence[Node]) -> dict[int, int]:
    """Map small constants to equal earlier ones, which differentiation builds for each owner."""
    first: dict[Hashable, int] = {}
    same: dict[int, int] = {}
    constants = {part.id: part for node in order for part in node.inputs if part.op is CONSTANT}
    for number, node in constants.items():
        if node.attrs["value"].size <= _SMALL:
            earlier = first.setdefault(attrs_key(node.attrs), number)
            if earlier != number:
                same[number] = earlier
    return same


def _needed(order: Sequence[Node], kept: Collection[int]) -> tuple[Node, ...]:
    """Return the nodes that results and checks depend on."""
    needed = set(kept)
    for node in reversed(order):
        if node.id in needed:
            for part in node.inputs:  # takes half the time of `update`
                needed.add(part.id)
    return tuple([node for node in order if node.id in needed])


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
