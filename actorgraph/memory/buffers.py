"""The plan of buffers: which steps of a program write into memory that it keeps between runs.

A step may, if its kernel takes ``out=``, its dims are known before it runs, its memory reaches
nothing that outlives the program (results, messages, residuals, user ops), and its result would be
C-contiguous anyway: operand layouts, and with them bits, are those of a program without buffers.
What of this does not depend on the sizes of a run is `writable`, told once for the program text;
`packing.assign` then lays steps into slots by liveness for the sizes of a run, in place where an
operand ends at the step.

A turn of a task leases the memory from its machine (`memory.arenas`); a run that brings leaves that
are not C-contiguous uses none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy as np

from actorgraph.graph import Node
from actorgraph.op import CONSTANT
from actorgraph.ops._arrays import is_half
from actorgraph.types import UNKNOWN, bind_shape

VIEWS = ("any", "ordered")
"""Layouts of ops that may return a view of an operand."""

_BULKY_BYTES = 16 * 1024
"""A part of a program, of up to 128 steps, keeps what it is given until it returns."""

Memory: TypeAlias = np.ndarray[Any, Any]
"""Bytes."""

fresh = np.empty
"""Makes arrays that machine code may write and that leave a step."""

ALIGNMENT = 64
"""Bytes: a cache line and the widest vector; aligned additions ran up to twice as fast."""


def regular(order: Sequence[Node]) -> set[int]:
    """Return the ids of the nodes whose strides are in C order in every run whose leaves' are.

    Of these a fresh one is C-contiguous, because NumPy takes over the order of operands: of those
    of the result's shape if one of them is contiguous, else of all.
    """
    computed = {node.id for node in order}
    ordered: set[int] = set()
    contiguous: set[int] = set()
    for node in order:
        memory = node.op.memory
        layout = memory.layout if memory.ordered is None else memory.layout_with(node.attrs)
        if layout == "any":
            continue
        parts = node.inputs if layout != "c" else ()
        if layout == "kept":
            shaped = tuple([part for part in parts if part.dims == node.dims])
            if [part for part in shaped if part.id in contiguous or part.id not in computed]:
                parts = shaped
        for part in parts:
            if not (part.id in ordered if part.id in computed else _arrives_regular(part)):
                break
        else:
            ordered.add(node.id)
            if layout not in VIEWS:
                contiguous.add(node.id)
    return ordered


def _arrives_regular(leaf: Node) -> bool:
    value = leaf.attrs["value"] if leaf.op is CONSTANT else None
    return value is None or bool(np.asarray(value).flags.c_contiguous)


def is_fresh(node: Node) -> bool:
    """Return whether the value is always an array of its own, as NumPy has it for no 0-d result."""
    return node.op.makes_own and bool(node.dims)


def is_view(step: Node) -> bool:
    """Return whether a step shows memory of its operand, or may."""
    return step.op.memory.layout_with(step.attrs) in VIEWS


def writable(
    steps: Sequence[Node], kept: Iterable[Node], regular_ids: Collection[int]
) -> frozenset[int]:
    """Return the ids of the steps that may write into a buffer.

    What is `kept` outlives the program's turn; `regular_ids` are what `regular` has found.
    """
    escaping = {node.id for node in kept}
    for step in reversed(steps):
        op = step.op
        # A user's op may keep its operands; what may be a view escapes with its operands.
        if op.checked or (op.memory.layout in VIEWS and step.id in escaping):
            escaping.update([part.id for part in step.inputs])
    return _taking([step for step in steps if step.id in regular_ids and step.id not in escaping])


def leaving(
    steps: Sequence[Node], planned: Collection[int], regular_ids: Collection[int]
) -> frozenset[int]:
    """Return the ids of the other steps that may write into an array that they are given."""
    return _taking([step for step in steps if step.id in regular_ids and step.id not in planned])


def _taking(steps: Iterable[Node]) -> frozenset[int]:
    """Return the ids of the steps that `takes_out` is true of; many are of one op and type."""
    known: dict[Any, bool] = {}
    found = []
    for step in steps:
        key = step.op, id(step.type), not step.attrs
        takes = known.get(key)
        if takes is None:
            takes = known[key] = takes_out(step)
        if takes:
            found.append(step.id)
    return frozenset(found)


def takes_out(step: Node) -> bool:
    """Return whether the kernel can write its result into an array of dims known before."""
    if step.op.memory.layout in VIEWS or not may_take_out(step):
        return False
    return not [dim for dim in step.dims if dim is UNKNOWN]


def may_take_out(step: Node) -> bool:
    """Return whether the kernel takes an array to write into, where the result is not a view."""
    op = step.op
    # Floats of two bytes are widened on their way.
    if not (op.memory.takes_out or (op.ufunc is not None and not step.attrs)):
        return False
    # The result of a ufunc on 0-d arrays is a scalar, and costs nothing to make.
    return bool(step.dims) and not is_half(step.dtype)


@dataclass(slots=True)
class Usage:
    """When values of a program die and how large they are, for the sizes of one run.

    `last` has by node id the last position at which its memory is needed, views included; values
    that outlive the program have the position after the last.  `bytes` has 0 for views and for dims
    that only the run knows.
    """

    last: dict[int, int]
    bytes: dict[int, int]


def usage(steps: Sequence[Node], kept: Collection[Node], symbols: Mapping[str, int]) -> Usage:
    """Return the life of every value that the steps compute."""
    last = {step.id: i for i, step in enumerate(steps)}
    for i, step in enumerate(steps):
        for part in step.inputs:
            if part.id in last:
                last[part.id] = i
    for node in kept:
        if node.id in last:
            last[node.id] = len(steps)
    sizes = {}
    of_type: dict[int, int] = {}  # most nodes share their types
    for step in reversed(steps):
        size = of_type.get(id(step.type))
        if size is None:
            size = of_type[id(step.type)] = size_in_bytes(step, symbols)
        sizes[step.id] = size
        if step.op.memory.layout in VIEWS:
            # It may be a view: its operands live as long as it does.
            for part in step.inputs:
                if part.id in last:
                    last[part.id] = max(last[part.id], last[step.id])
    return Usage(last, sizes)


def size_in_bytes(node: Node, symbols: Mapping[str, int]) -> int:
    """Return the bytes of the value, 0 for dims that only the run knows."""
    return prod(bind_shape(node.dims, symbols, 0)) * node.dtype.itemsize


def bulky(order: Sequence[Node], symbols: Mapping[str, int]) -> set[int]:
    """Return the ids of values so large that memory would show if one was forgotten late."""
    of_type: dict[int, bool] = {}
    for node in order:
        if id(node.type) not in of_type:
            size = prod(bind_shape(node.dims, symbols, _BULKY_BYTES)) * node.dtype.itemsize
            of_type[id(node.type)] = size >= _BULKY_BYTES
    if not any(of_type.values()):
        return set()
    return {node.id for node in order if of_type[id(node.type)]}


def peak_bytes(
    steps: Sequence[Node],
    kept: Collection[Node],
    symbols: Mapping[str, int],
    without: Collection[int] = (),
    early: Mapping[int, int] | None = None,
) -> int:
    """Return the most bytes that live at once if arrays die at their last use; views count none.

    Arrays appear at their step, those of `early` at the position that it gives.
    """
    lives = usage(steps, kept, symbols)
    change = [0] * (len(steps) + 2)
    for i, step in enumerate(steps):
        if step.id not in without and step.op.memory.layout not in VIEWS:
            size = lives.bytes[step.id]
            change[early.get(step.id, i) if early else i] += size
            change[lives.last[step.id] + 1] -= size
    return max(accumulate(change))


class Unallocated(Exception):
    """There is no memory for what nodes compute; the cause is chained.

    `node` is the one that needs most, `inputs` dtype and shape of its operands.
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

    - `place_of`: node id to the byte at which its array begins
    - `in_place`: ids of the steps that write over an operand
    - `inside_of`: node id to the later step inside of whose array it lies, if not in the memory
    """

    total_bytes: int
    place_of: dict[int, int]
    in_place: set[int]
    inside_of: dict[int, int]

    def arrays(
        self, steps: Sequence[Node], symbols: Mapping[str, int], memory: Memory | None = None
    ) -> list[Any]:
        """Return one array for each step in `memory`, or a fresh one, in the order of `steps`.

        Steps of one shape and dtype at one place share the array, so that a step in place is given
        its very operand.
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
            key = place, step.dims, step.dtype
            if key not in views:
                shape = bind_shape(step.dims, symbols, 0)
                end = place + prod(shape) * step.dtype.itemsize
                views[key] = memory[place:end].view(step.dtype).reshape(shape)
            found.append(views[key])
        return found


def aligned(size: int) -> Memory:
    """Return `size` bytes that begin at a cache line."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]
