"""Rows of loops that may change last bits: elementwise steps of one shape in one, and products.

Machines have them by ``jit``.  A *group* is steps of one shape that one row computes, as far as the
order allows.  A product that a carry adds up is added where the carry lies.  Where machine code
does not fit a group, its steps have the rows that they have without.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from math import gcd, prod
from typing import Any

from actorgraph.devices import native, vectors
from actorgraph.devices.loops import Routine
from actorgraph.devices.vectors import Pointer
from actorgraph.graph import Node
from actorgraph.lower.rates import path
from actorgraph.lower.spots import Unfit, broadcast, coalesced
from actorgraph.lower.table_rows import Written, is_view
from actorgraph.op import CONSTANT, FRESH_OUT, REGISTRY, Op
from actorgraph.types import Checks, bind_shape

_LEAST_ELEMENTS, _LEAST_LANES = 32, 4
_MOST_BYTES = 1 << 20
"""Of the second operand of a product: NumPy's are faster for larger ones."""

_TO_COME = Routine(1, 0)
"""Stands where an address comes when all texts are machine code."""

_GROUP = Op("table_group", "a[*s]", lambda xp: None, memory=FRESH_OUT)
_SIGMOID, _ADD, _TRANSPOSE = REGISTRY["sigmoid"], REGISTRY["add"], REGISTRY["transpose"]


@cache
def quick_arrays(wait: bool) -> vectors.QuickArrays:
    """Return the array module of products that may change last bits."""
    return vectors.QuickArrays(os.path.dirname(path()), wait)


def node_like(node: Node, number: int, op: Op, inputs: tuple[Node, ...]) -> Node:
    """Return a node of the same type, with a number and an op of its own."""
    attrs = node.attrs if op is node.op else {}
    return Node(
        node.graph, number, op, inputs, attrs, node.type, Checks(), node.line, node.owner, node.name
    )  # fmt: skip


# -- which steps ----------------------------------------------------------------------------------


def quickened(one: Any, fixed: int, symbols: Mapping[str, int]) -> Any:
    """Return an iteration whose steps are grouped.

    Parameters
    ----------
    one : _Iteration
    fixed : int
        How many of what it is given are the same in all iterations; what is added comes next.
    symbols : mapping
    """
    numbers = count(1 + max([node.id for node in (*one.steps, *one.given)]))
    quick: dict[int, Any] = {}
    steps = _sums(one, quick, symbols)
    first = {node.id: place for place, node in enumerate(one.given[:fixed])}
    packed: list[tuple[int, Node]] = []
    for place, step in enumerate(steps):
        if _multiplies(step, symbols):
            x, y = step.inputs
            if y.op is _TRANSPOSE and y.inputs[0].id in first and y.ndim == 2:
                of = y.inputs[0]
                y = node_like(y, next(numbers), of.op, ())
                packed.append((first[of.id], y))
                steps[place] = step = node_like(step, step.id, step.op, (x, y))
            quick.setdefault(step.id, _Product(step, x, y))
    grouped = _Grouping(steps, one, symbols, numbers, quick).found
    given = [*one.given[:fixed], *[node for _, node in packed], *one.given[fixed:]]
    return replace(
        one, steps=grouped, given=given, quick=quick, packed=[place for place, _ in packed]
    )


def _multiplies(step: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether a step is a product that we multiply ourselves."""
    if step.op.ufunc != "matmul" or step.dtype.char not in "fd":
        return False
    shapes = [bind_shape(one.dims, symbols, 0) for one in step.inputs]
    if [len(shape) for shape in shapes] != [2, 2]:
        return False
    size = prod(shapes[1]) * step.dtype.itemsize
    return 0 < size <= _MOST_BYTES and not gcd(shapes[1][1], _LEAST_LANES) % _LEAST_LANES


def _sums(one: Any, quick: dict[int, Any], symbols: Mapping[str, int]) -> list[Node]:
    """Return the steps, of which products are one with the sum that is copied over a carry."""
    uses = Counter([part.id for step in one.steps for part in step.inputs])
    uses.update([node.id for node in one.results])
    made = {step.id: step for step in one.steps}
    gone: set[int] = set()
    for number, carry in one.over.items():
        total = made[number].inputs[0]
        if total.op is not _ADD or {uses[total.id], uses[carry.id]} != {1}:
            continue
        terms = [part for part in total.inputs if part is not carry]
        if len(terms) == 1 and uses[terms[0].id] == 1 and _multiplies(terms[0], symbols):
            x, y = terms[0].inputs
            if terms[0].dims == carry.dims and not is_view(y):
                last = made[number]
                made[number] = node_like(last, number, terms[0].op, (x, y))
                quick[number] = _Product(made[number], x, y, adds=True)
                gone |= {total.id, terms[0].id}
    return [step for number, step in made.items() if number not in gone]


@dataclass(frozen=True)
class _Product:
    """A product of matrices, or its sum with what lies at its result."""

    step: Node
    x: Node
    y: Node
    adds: bool = False

    def text(self, rows: Any, name: str) -> str:
        """Return a function for it."""
        x, y, z = [rows.place(one) for one in (self.x, self.y, self.step)]
        size = x.itemsize
        if {len(one.shape) for one in (x, y, z)} != {2} or (y.strides[1], z.strides[1]) != (
            size, size
        ):  # fmt: skip
            raise Unfit
        pointers = [Pointer(one.base, one.offset, *one.strides) for one in (x, y, z)]
        sizes = (*x.shape, y.shape[1])
        return vectors.product_text(name, self.step.dtype.char, sizes, pointers, self.adds)


def _rule(step: Node) -> str | None:
    """Return how the elements of a step are computed, None where groups do not."""
    op = step.op
    if step.dtype.char not in "fd" or op.checked or step.attrs:
        return None
    text = "divide(1, add(1, exp(negative(x))))" if op is _SIGMOID else None
    if op.loop is not None and op.loop.kind == "value":
        text = op.loop.text
    elif op.ufunc == "positive":
        text = "x"
    same = all(part.dtype.char == step.dtype.char for part in step.inputs)
    return text if text is not None and same and vectors.can_write(text, step.dtype.char) else None


class _Grouping:
    """Puts steps in an order in which those of a group stand together, with one that ends it."""

    def __init__(
        self,
        steps: Sequence[Node],
        one: Any,
        symbols: Mapping[str, int],
        numbers: Iterator[int],
        quick: dict[int, Any],
    ) -> None:
        self._over, self._symbols, self._numbers, self._quick = one.over, symbols, numbers, quick
        self._made = {step.id for step in steps}
        self._of = {step.id: self._kind(step) for step in steps}
        self._shown: dict[int, int] = {}  # what views show, by their ids
        for step in steps:
            if is_view(step):
                of = step.inputs[0].id
                self._shown[step.id] = self._shown.get(of, of)
        self._readers: dict[int, list[Node]] = {}
        for step in steps:
            for part in step.inputs:
                self._readers.setdefault(self._shown.get(part.id, part.id), []).append(step)
        stored = {node.id for node in one.results} | set(one.over)
        self._uses = Counter([part.id for step in steps for part in step.inputs])
        self._stored = stored | ({one.asking.id} if one.asking is not None else set())
        self._waiting = list(steps)
        self._done: set[int] = set()
        self.found: list[Node] = []
        while self._waiting:
            before = len(self._waiting)
            self._take([step for step in self._waiting if self._of[step.id] is None])
            self._take_group()
            if len(self._waiting) == before:
                raise Unfit  # carries that wait for one another

    def _kind(self, step: Node) -> Any:
        """Return what steps of a group have in common, None where it is in none."""
        if step.id in self._quick or _rule(step) is None:
            return None
        shape = bind_shape(step.dims, self._symbols, 0)
        return (shape, step.dtype.char) if prod(shape) >= _LEAST_ELEMENTS else None

    def _is_ready(self, step: Node, group: Collection[int] = ()) -> bool:
        """Return whether what a step needs is made, or is in its group as it is."""
        known = self._done.union(group)
        if any(part.id in self._made and part.id not in known for part in step.inputs):
            return False
        carry = self._over.get(step.id)
        return carry is None or all(
            reader is step
            or reader.id in self._done
            or (reader.id in group and not any(part.id in self._shown for part in reader.inputs))
            for reader in self._readers.get(carry.id, ())
        )

    def _take(self, steps: Sequence[Node]) -> None:
        for step in steps:
            if self._is_ready(step):
                self.found.append(step)
                self._done.add(step.id)
        self._waiting = [step for step in self._waiting if step.id not in self._done]

    def _take_group(self) -> None:
        ready = [one for one in self._waiting if self._of[one.id] and self._is_ready(one)]
        # What nobody waits for may join a later group.
        first = next((one for one in ready if self._uses[one.id]), ready[0] if ready else None)
        if first is None:
            return
        group: dict[int, Node] = {}
        for step in self._waiting:
            if self._of[step.id] == self._of[first.id] and self._is_ready(step, group):
                group[step.id] = step
        self._waiting = [step for step in self._waiting if step.id not in group]
        self._done |= group.keys()
        inside = Counter([part.id for step in group.values() for part in step.inputs])
        outputs = [
            step for step in group.values()
            if step.id in self._stored or self._uses[step.id] > inside[step.id]
        ]  # fmt: skip
        read = {part.id: part for step in group.values() for part in step.inputs}
        outside = [part for part in read.values() if part.id not in group]
        end = node_like(first, next(self._numbers), _GROUP, (*outside, *outputs))
        self._quick.update(dict.fromkeys(group, None))
        self._quick[end.id] = _RowGroup([*group.values()], outside, outputs)
        self.found += [*group.values(), end]


# -- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RowGroup:
    """Steps of one shape, what they read and what others need of them."""

    steps: Sequence[Node]
    read: Sequence[Node]
    outputs: Sequence[Node]

    def text(self, rows: Any, name: str) -> str:
        """Return a function for it."""
        numbers = {
            f"v{node.id}": node.attrs["value"].item()
            for node in self.read
            if node.op is CONSTANT and node.attrs["value"].size == 1
        }
        read = [node for node in self.read if f"v{node.id}" not in numbers]
        places = [rows.place(node) for node in (*read, *self.outputs)]
        shape, size = rows._shape(self.steps[0]), places[-1].itemsize
        dims = coalesced(shape, [broadcast(place, shape) for place in places])
        if not 1 <= len(dims) <= 2:
            raise Unfit
        (outer, down), (inner, along) = [(1, [0] * len(places)), *dims][-2:]
        if any(step not in (0, size) for step in along) or 0 in along[len(read) :]:
            raise Unfit
        given = [
            Pointer(place.base, place.offset, *steps)
            for place, *steps in zip(places, down, along, strict=True)
        ]
        return vectors.elements_text(
            name, self.steps[0].dtype.char, (outer, inner),
            numbers | {f"v{n.id}": at for n, at in zip(read, given, strict=False)},
            [
                (f"v{n.id}", _rule(n) or "", {k: f"v{p.id}" for k, p in zip("xyz", n.inputs)})
                for n in self.steps
            ],
            {f"v{n.id}": at for n, at in zip(self.outputs, given[len(read) :], strict=True)},
        )  # fmt: skip


class QuickRows(Written):
    """Rows of which some call machine code of their own, which they keep."""

    def __init__(self, one: Any, symbols: Mapping[str, int]) -> None:
        self._quick: dict[int, Any] = dict(one.quick)
        self._texts: list[tuple[int, str]] = []
        super().__init__(one, symbols)
        if self._texts:
            text = vectors.module_text([text for _, text in self._texts])
            self._engine = native.engine(text, os.path.dirname(path()))
            for place, (row, _) in enumerate(self._texts):
                self.rows[row][0] = self._engine.get_function_address(f"f{place}")

    def in_another_row(self, step: Node) -> bool:
        """Write the row of a group or product, or none; return whether that was all."""
        if step.id not in self._quick:
            return False
        how = self._quick.pop(step.id)
        if how is None:
            return True  # computed with its group
        try:
            text = how.text(self, f"f{len(self._texts)}")
        except Unfit:
            if step.op is not _GROUP:
                return False
            for one in how.steps:
                self._step(one)
            return True
        self._texts.append((len(self.rows), text))
        self._add(_TO_COME, (1, 1), (), (), [], 0)
        return True
