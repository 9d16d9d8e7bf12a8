"""Groups of elementwise steps that a single row computes: their formulas and machine code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actorgraph.devices import vectors
from actorgraph.devices.vectors import Pointer
from actorgraph.graph import Node
from actorgraph.lower.spots import Unfit, broadcast, coalesced
from actorgraph.op import CONSTANT, REGISTRY

LEAST_LANES = 4
"""Least lanes of a vector in an exact group."""

_SIGMOID = REGISTRY["sigmoid"]


def rule_of(step: Node, exact: bool) -> str | None:
    """Return the formula of a step's elements, None if a group cannot compute it."""
    op = step.op
    if step.dtype.char not in "fd" or op.checked or step.attrs:
        return None
    text = None
    if op is _SIGMOID:
        text = "sigmoid(x)"
    elif op.loop is not None and op.loop.kind == "value":
        text = op.loop.text
    elif op.ufunc == "positive":
        text = "x"
    char = step.dtype.char
    same = text is not None and all(part.dtype.char == char for part in step.inputs)
    return text if same and vectors.can_write(text or "", char, exact=exact) else None


@dataclass(frozen=True)
class RowGroup:
    """A group: its steps, the values that it reads, and its values that other steps read."""

    steps: Sequence[Node]
    read: Sequence[Node]
    outputs: Sequence[Node]
    exact: bool

    def text(self, rows: Any, name: str) -> tuple[str, int, list[tuple[Pointer, int]]]:
        """Return the LLVM text of a function `name` that computes the group, and its row count.

        The third result has its pointers, each with the bytes that a row of its array spans.
        """
        numbers = {
            f"v{node.id}": node.attrs["value"].item()
            for node in self.read
            if node.op is CONSTANT and node.attrs["value"].size == 1
        }
        read = [node for node in self.read if f"v{node.id}" not in numbers]
        places = [rows.place(node) for node in (*read, *self.outputs)]
        shape, size = rows.shape(self.steps[0]), places[-1].itemsize
        dims = coalesced(shape, [broadcast(place, shape) for place in places])
        if not 1 <= len(dims) <= 2:
            raise Unfit
        (outer, down), (inner, along) = [(1, [0] * len(places)), *dims][-2:]
        if any(step not in (0, size) for step in along) or 0 in along[len(read) :]:
            raise Unfit
        char = self.steps[0].dtype.char
        lanes, few = vectors.lanes_of(char, inner), inner // rows.rooms
        if self.exact and lanes < LEAST_LANES:
            raise Unfit
        if outer == 1 and not inner % rows.rooms and vectors.lanes_of(char, few) == lanes:
            outer, inner, down = rows.rooms, few, [few * step for step in along]
        given = [
            Pointer(place.base, place.offset, *steps)
            for place, *steps in zip(places, down, along, strict=True)
        ]
        text = vectors.elements_text(
            name, char, (outer, inner),
            numbers | {f"v{n.id}": at for n, at in zip(read, given, strict=False)},
            [
                (f"v{n.id}", rule, {k: f"v{p.id}" for k, p in zip("xyz", n.inputs)})
                for n in self.steps
                if (rule := rule_of(n, self.exact)) is not None
            ],
            {f"v{n.id}": at for n, at in zip(self.outputs, given[len(read) :], strict=True)},
            self.exact,
        )  # fmt: skip
        return text, outer, [(one, (inner - 1) * one.inner + size) for one in given]
