"""Sharing: steps of a task with a common prefix compute that prefix once.

An op may declare that it is a composition of a first op and a rest (`op.Factoring`): cross entropy
and its gradient both begin with the logarithm of a softmax.  Where a task has several such steps
with equal operands, the first op becomes a step of its own before them, and each becomes its rest.
No bit changes, since an op computes what its two parts do.

Like merging (`simplify.combined`), it runs on the steps of each task after the cut.
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
    """Return the steps of a task, in order, with common prefixes as steps of their own.

    These have negative ids; their user's nodes are added to ``joint.sources``.
    """
    groups: dict[object, list[Node]] = {}
    for step in steps:
        split = step.op.split
        if split is not None and not is_half(step.dtype):
            operands = tuple([step.inputs[place].id for place in split.shared])
            key = split.first, attrs_key(split.attrs), operands
            if not split.follows or key in groups:
                groups.setdefault(key, []).append(step)
    prefix_of: dict[int, Node] = {}
    for members in groups.values():
        if len(members) > 1:
            prefix_of |= dict.fromkeys([step.id for step in members], _prefix(members[0], joint))
    if not prefix_of:
        return list(steps)
    result: list[Node] = []
    for step in steps:
        prefix = prefix_of.get(step.id)
        if prefix is None:
            result.append(step)
            continue
        if prefix.id == ~step.id:
            result.append(prefix)
        split = step.op.split
        assert split is not None
        place = split.shared[0]
        inputs = (*step.inputs, prefix)
        if not split.beside:
            inputs = (*step.inputs[:place], prefix, *step.inputs[place + 1 :])
        result.append(restated(step, split.rest, inputs, step.attrs))
    return result


def _prefix(step: Node, joint: Joint) -> Node:
    """Return the step for the prefix of a step, which later ones share."""
    split = step.op.split
    assert split is not None
    operand = step.inputs[split.shared[0]]
    number = ~step.id
    joint.sources[number] = joint.source(step)
    return Node(
        step.graph, number, split.first, (operand,), split.attrs, operand.type, Checks(),
        step.line, None, f"{split.first.name} of {joint.source(step).name}",
    )  # fmt: skip
