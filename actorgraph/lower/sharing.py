"""Sharing: steps of a task that begin alike compute their beginning once.

An op may say that it is another one and a rest (`op.Factoring`): cross entropy and its gradient are
the logarithm of a softmax each, and something cheap.  Where a task has both, with equal operands,
the beginning becomes a step of its own before the first of them, and each becomes its rest.  No bit
changes, for an op computes what its two parts do.

It comes when tasks have their steps, like the merging of equal ones, of which it is a kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from actorgraph.graph import Node
from actorgraph.lower.joint import Joint
from actorgraph.op import attrs_key
from actorgraph.ops._arrays import is_half
from actorgraph.rewrite.exact import restated
from actorgraph.types import Checks


def shared(steps: Sequence[Node], joint: Joint) -> list[Node]:
    """Return the steps of a task, in order, with common beginnings as steps of their own.

    These have negative numbers, and `joint` knows of which user's node they are.
    """
    groups: dict[object, list[Node]] = {}
    for step in steps:
        split = step.op.split
        if split is not None and not is_half(step.dtype):
            operands = tuple([step.inputs[place].id for place in split.shared])
            key = split.first, attrs_key(split.attrs), operands
            if not split.follows or key in groups:
                groups.setdefault(key, []).append(step)
    beginning_of: dict[int, Node] = {}
    for members in groups.values():
        if len(members) > 1:
            beginning_of |= dict.fromkeys(
                [step.id for step in members], _beginning(members[0], joint)
            )
    if not beginning_of:
        return list(steps)
    found: list[Node] = []
    for step in steps:
        beginning = beginning_of.get(step.id)
        if beginning is None:
            found.append(step)
            continue
        if beginning.id == ~step.id:
            found.append(beginning)
        split = step.op.split
        assert split is not None
        place = split.shared[0]
        inputs = (*step.inputs, beginning)
        if not split.beside:
            inputs = (*step.inputs[:place], beginning, *step.inputs[place + 1 :])
        found.append(restated(step, split.rest, inputs, step.attrs))
    return found


def _beginning(step: Node, joint: Joint) -> Node:
    """Return the beginning of a step, for this and later ones."""
    split = step.op.split
    assert split is not None
    operand = step.inputs[split.shared[0]]
    number = ~step.id
    joint.sources[number] = joint.source(step)
    return Node(
        step.graph, number, split.first, (operand,), split.attrs, operand.type, Checks(),
        step.line, None, f"{split.first.name} of {joint.source(step).name}",
    )  # fmt: skip
