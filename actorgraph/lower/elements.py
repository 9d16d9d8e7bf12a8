"""Elementwise fusion on a GPU: a step and all steps that only it needs become one kernel.

`devices.kernels` writes the kernel from the rules that the ops declare for their elements
(`Op.loop`).  A fusion group takes the place of its last step, with that one's id, type, owner and
line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from actorgraph.devices.kernels import EXACT, FUNCTIONS, ElementKernel, can_fuse, lines_of
from actorgraph.graph import Node
from actorgraph.op import FRESH_OUT, Op
from actorgraph.rewrite.exact import restated
from actorgraph.types import UNKNOWN

_MOST = 64
"""Most steps of one kernel."""


def _computed(xp: Any, *arrays: Any, steps: ElementKernel) -> Any:
    return steps(xp, *arrays)


ELEMENTS = Op("elements", "a[*s]", _computed, memory=FRESH_OUT, doc="Elementwise steps.")
"""The op of fusion groups."""


def as_one(steps: Sequence[Node], kept: Collection[int], exact: bool) -> list[Node]:
    """Return the steps of a task with fusion groups in the place of their last steps.

    `kept` are the ids of values that other tasks need; `exact` says that no bit may change.
    """
    functions = EXACT if exact else frozenset(FUNCTIONS)
    uses = Counter([number for step in steps for number in {part.id for part in step.inputs}])
    fit = {step.id: step for step in steps if _fits(step, functions)}
    groups: dict[int, list[Node]] = {}
    group_of: dict[int, int] = {}
    for step in reversed(steps):
        if step.id in fit:
            root = group_of.setdefault(step.id, step.id)
            groups.setdefault(root, []).insert(0, step)
            for part in step.inputs:
                inner = fit.get(part.id)
                if (
                    inner is not None and uses[part.id] == 1 and part.id not in kept
                    and inner.dims == step.dims and inner.dtype == fit[root].dtype
                    and len(groups[root]) < _MOST
                ):  # fmt: skip
                    group_of[part.id] = root
    groups = {root: group for root, group in groups.items() if len(group) > 1}
    result = []
    for step in steps:
        if group_of.get(step.id) not in groups:
            result.append(step)
        elif step.id in groups:
            result.append(_fused(groups[step.id]))
    return result


def _fits(step: Node, functions: Collection[str]) -> bool:
    """Return whether a step computes each element from the same element of its operands."""
    rule = step.op.loop
    if (
        rule is None
        or rule.kind != "value"
        or step.op.checked
        or not can_fuse(rule.text, functions)
    ):
        return False
    kinds = [part.dtype.char == step.dtype.char or part.dtype.char == "?" for part in step.inputs]
    shapes = [part.dims == step.dims or {*part.dims} <= {1} for part in step.inputs]
    return (
        step.dtype.char in "fd" and UNKNOWN not in step.dims and all(kinds) and all(shapes)
        and any(part.dims == step.dims for part in step.inputs)
    )  # fmt: skip


def _fused(group: Sequence[Node]) -> Node:
    root, members = group[-1], {step.id for step in group}
    operands = {part.id: part for step in group for part in step.inputs if part.id not in members}
    names = {number: f"a{place}" for place, number in enumerate(operands)}
    names |= {step.id: f"s{step.id}" for step in group}
    rules = [
        (names[step.id], step.op.loop.text, [names[part.id] for part in step.inputs])
        for step in group
        if step.op.loop is not None
    ]
    operand_nodes = list(operands.values())
    kernel = ElementKernel(
        root.dtype.char,
        "".join([part.dtype.char for part in operand_nodes]),
        tuple([part.dims != root.dims for part in operand_nodes]),
        lines_of(rules),
    )
    return restated(root, ELEMENTS, tuple(operand_nodes), {"steps": kernel})
