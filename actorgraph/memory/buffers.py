"""Buffers: which steps of a program write into memory that is kept between runs.

A step does if

- its kernel takes ``out=`` and its dims are known before it runs;
- its memory reaches nothing that outlives the turn (results, messages, residuals, user ops);
- its result would be C-contiguous anyway.  So operand layouts, and hence bits, are those of a
  program without buffers.

`writable` decides this once for a program text, for all bindings.  `packing.assign` then plans the
places for one binding by liveness, in place where an operand dies at the step.  A turn leases the
memory (`memory.arenas`); a run whose leaves are not all C-contiguous uses none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy as np

from actorgraph.graph import Node
from actorgraph.op import CONSTANT
from actorgraph.ops._arrays import is_half
from actorgraph.store import CACHE_LINE
from actorgraph.types import UNKNOWN, bind_shape

VIEWS = ("any", "ordered")
"""Layouts of ops that may return a view of an operand."""

_BULKY_BYTES = 16 * 1024
"""Least size of bulky values: a part, of up to 128 steps, keeps its operands until it returns."""

LENT_BYTES = 64 * 1024
"""Least size of spans in loans: the view of a part costs 0.3 us in every turn, and small values
suffer from a loan's lack of alignment."""

Memory: TypeAlias = np.ndarray[Any, Any]
"""An array of bytes."""

fresh = np.empty
"""Allocates arrays that leave a step and that machine code may write."""


def regular(order: Sequence[Node]) -> set[int]:
    """Return the ids of the nodes whose strides are in C order if those of all leaves are.

    The array of such a node, if it is not a view, is C-contiguous: NumPy adopts the order of the
    operands with the result's shape if one of these is contiguous, else that of all operands.
    """
    computed = {node.id for node in order}
    ordered: set[int] = set()
    contiguous: set[int] = set()
    for node in order:
        memory = node.op.memory
        layout = memory.layout if memory.with_attrs is None else memory.layout_with(node.attrs)
        if layout == "any":
            continue
        is_kept, dims = layout == "kept", node.dims
        every = shaped = True  # whether these operands are ordered
        decides = False  # whether one of the result's shape is contiguous
        for part in node.inputs if layout != "c" else ():  # a hot loop
            number = part.id
            is_ordered = number in ordered if number in computed else _arrives_regular(part)
            every = every and is_ordered
            if is_kept and part.dims == dims:
                shaped = shaped and is_ordered
                decides = decides or number in contiguous or number not in computed
        if shaped if decides else every:
            ordered.add(node.id)
            if layout not in VIEWS:
                contiguous.add(node.id)
    return ordered


def _arrives_regular(leaf: Node) -> bool:
    value = leaf.attrs["value"] if leaf.op is CONSTANT else None
    return value is None or bool(np.asarray(value).flags.c_contiguous)


def is_fresh(node: Node) -> bool:
    """Return whether the value is always a new array, which NumPy never makes of 0-d results."""
    return node.op.makes_own and bool(node.dims)


def is_view(step: Node) -> bool:
    """Return whether a step's result is, or may be, a view of its operand."""
    return step.op.memory.layout_with(step.attrs) in VIEWS


def writable(
    steps: Sequence[Node], kept: Iterable[Node], regular_ids: Collection[int]
) -> frozenset[int]:
    """Return the ids of the steps that may write into a buffer.

    `kept` nodes outlive the turn; `regular_ids` is the result of `regular`.
    """
    return writing(steps, regular_ids) - escaping(steps, kept)


def escaping(steps: Sequence[Node], kept: Iterable[Node]) -> set[int]:
    """Return the ids of values whose memory may outlive the turn, as that of `kept` nodes does."""
    found = {node.id for node in kept}
    for step in reversed(steps):
        op = step.op
        # A user's op may keep its operands; the operands of an escaping view escape with it.
        if op.checked or (op.memory.layout in VIEWS and step.id in found):
            found.update([part.id for part in step.inputs])
    return found


def writing(steps: Iterable[Node], regular_ids: Collection[int]) -> frozenset[int]:
    """Return the ids of the steps that may write into an array that is given."""
    known: dict[Any, bool] = {}
    numbers = []
    for step in steps:
        if step.id not in regular_ids:
            continue
        key = step.op, id(step.type), not step.attrs
        takes = known.get(key)
        if takes is None:
            takes = known[key] = takes_out(step)
        if takes:
            numbers.append(step.id)
    return frozenset(numbers)


def takes_out(step: Node) -> bool:
    """Return whether the kernel takes ``out=`` and the result's dims are known before a run."""
    if step.op.memory.layout in VIEWS or not may_take_out(step):
        return False
    return not [dim for dim in step.dims if dim is UNKNOWN]


def may_take_out(step: Node) -> bool:
    """Return whether the kernel takes ``out=``, if its result is not a view."""
    op = step.op
    # Two-byte floats are widened on the way.
    if not (op.memory.takes_out or (op.ufunc is not None and not step.attrs)):
        return False
    # The result of a ufunc on 0-d arrays is a scalar, and costs nothing to make.
    return bool(step.dims) and not is_half(step.dtype)


@dataclass(slots=True)
class Usage:
    """When values of a program die, and their sizes, for one binding.

    `last` has by node id the last position at which the value's memory is needed, through views
    too; for values that outlive the turn it is the position after the last.  `bytes` is 0 for
    unknown dims.
    """

    last: dict[int, int]
    bytes: dict[int, int]


def usage(steps: Sequence[Node], kept: Collection[Node], symbols: Mapping[str, int]) -> Usage:
    """Return the lifetime and size of every value that the steps compute."""
    last: dict[int, int] = {}
    for i, step in enumerate(steps):
        for part in step.inputs:
            if part.id in last:
                last[part.id] = i
        last[step.id] = i
    for node in kept:
        if node.id in last:
            last[node.id] = len(steps)
    sizes = {}
    of_type: dict[int, int] = {}  # many nodes share a type
    for step in reversed(steps):
        size = of_type.get(id(step.type))
        if size is None:
            size = of_type[id(step.type)] = size_in_bytes(step, symbols)
        sizes[step.id] = size
        if step.op.memory.layout in VIEWS:
            # A view keeps the memory of its operands alive.
            for part in step.inputs:
                if part.id in last:
                    last[part.id] = max(last[part.id], last[step.id])
    return Usage(last, sizes)


def size_in_bytes(node: Node, symbols: Mapping[str, int]) -> int:
    """Return the bytes of a value, 0 if some dims are unknown."""
    return prod(bind_shape(node.dims, symbols, 0)) * node.dtype.itemsize


def bulky(order: Sequence[Node], symbols: Mapping[str, int]) -> set[int]:
    """Return the ids of values so large that dropping them late would show in peak memory."""
    of_type: dict[int, bool] = {}
    for node in order:
        if id(node.type) not in of_type:
            size = prod(bind_shape(node.dims, symbols, _BULKY_BYTES)) * node.dtype.itemsize
            of_type[id(node.type)] = size >= _BULKY_BYTES
    if not any(of_type.values()):
        return set()
    return {node.id for node in order if of_type[id(node.type)]}


def peak_bytes(
    steps: Sequence[Node], kept: Collection[Node], symbols: Mapping[str, int],
    without: Collection[int] = (), early: Mapping[int, int] | None = None,
) -> int:  # fmt: skip
    """Return the most live bytes if arrays die at their last use; views count nothing.

    Arrays appear at their step, those in `early` at the position that it gives.
    """
    lives = usage(steps, kept, symbols)
    change = [0] * (len(steps) + 2)
    for i, step in enumerate(steps):
        if step.id not in without and step.op.memory.layout not in VIEWS:
            size = lives.bytes[step.id]
            change[early.get(step.id, i) if early else i] += size
            change[lives.last[step.id] + 1] -= size
    return max(accumulate(change))


def may_borrow(step: Node) -> bool:
    """Return whether a step may be one of the `borrowers` for some sizes."""
    return step.op.memory.scratch and any(
        not all(type(dim) is int for dim in one.dims) or size_in_bytes(one, {}) >= LENT_BYTES
        for one in (step, *step.inputs)
    )


def borrowers(steps: Sequence[Node], symbols: Mapping[str, int]) -> list[int]:
    """Return the positions of the steps that take scratch memory and are large."""
    return [
        place for place, step in enumerate(steps)
        if step.op.memory.scratch
        and max([size_in_bytes(one, symbols) for one in (step, *step.inputs)]) >= LENT_BYTES
    ]  # fmt: skip


class Unallocated(Exception):
    """There is no memory for the results of nodes; the cause is chained.

    `node` is the largest of them; `inputs` has dtype and shape of each of its operands.
    """

    def __init__(self, nodes: Iterable[Node], symbols: Mapping[str, int]) -> None:
        super().__init__()
        self.node = max(nodes, key=partial(size_in_bytes, symbols=symbols))
        self.inputs = tuple(
            f"{part.dtype}{list(bind_shape(part.dims, symbols, None))}" for part in self.node.inputs
        )


@dataclass(slots=True)
class Buffers:
    """Where in one memory each step of a program writes, for one binding.

    - `place_of`: node id to the byte offset of its array
    - `in_place`: ids of the steps that overwrite an operand
    - `inside_of`: node id to the id of the later step in whose array it lies, if in a loan
    - `idle`: begin and end of bytes that are lent to a step as scratch, by its id
    """

    total_bytes: int
    place_of: dict[int, int]
    in_place: set[int]
    inside_of: dict[int, int]
    idle: dict[int, tuple[int, int]] = field(default_factory=dict)

    def arrays(
        self, steps: Sequence[Node], symbols: Mapping[str, int], memory: Memory | None = None
    ) -> list[Any]:
        """Return the arrays of the planned steps, in order, in `memory` or in fresh memory.

        Steps of one shape and dtype at one place share an array object, so that a step in place has
        its very operand as output.  With memory to borrow a step has a pair, see `scratch`.
        """
        if not self.place_of:
            return []
        if memory is None:
            try:
                memory = aligned(self.total_bytes)
            except Exception as error:
                laid = [step for step in steps if step.id in self.place_of]
                raise Unallocated(laid, symbols) from error
        views: dict[Any, np.ndarray[Any, Any]] = {}
        found = []
        for step in steps:
            place = self.place_of.get(step.id)
            if place is None or step.id in self.inside_of:
                continue
            key = place, id(step.type)
            view = views.get(key)
            if view is None:
                shape = bind_shape(step.dims, symbols, 0)
                end = place + prod(shape) * step.dtype.itemsize
                view = views[key] = memory[place:end].view(step.dtype).reshape(shape)
            found.append(self.lending(step.id, view, memory) if self.idle else view)
        return found

    def lending(self, number: int, array: Any, memory: Memory) -> Any:
        """Return the array of a step, with the bytes that are lent to it if there are any."""
        idle = self.idle.get(number)
        return array if idle is None else (array, memory[slice(*idle)])


def aligned(size: int) -> Memory:
    """Return `size` uninitialised bytes that begin at a cache line."""
    raw = np.empty(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size]
