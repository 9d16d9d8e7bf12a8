"""The plan of buffers: which steps of a program write into memory that it keeps between runs.

A step may, if its kernel takes ``out=``, its dims are known before it runs, its memory reaches
nothing that outlives the program (results, messages, residuals, user ops), and its result would be
C-contiguous anyway: operand layouts, and with them bits, are those of a program without buffers.
What of this does not depend on the sizes of a run is `writable`, told once for the program text;
`assign` then lays steps into slots by liveness for the sizes of a run, in place where an operand
ends at the step.

A turn of a task leases the memory from its machine (`lower.arenas`); a run that brings leaves that
are not C-contiguous uses none.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from actorgraph.graph import Node
from actorgraph.op import CONSTANT
from actorgraph.ops._scalars import is_half
from actorgraph.types import UNKNOWN, bind_shape

__all__ = [
    "Buffers",
    "Memory",
    "Usage",
    "aligned",
    "assign",
    "is_fresh",
    "leaving",
    "peak_bytes",
    "regular",
    "size_in_bytes",
    "usage",
    "writable",
]

_VIEWS = ("any", "ordered")
"""Layouts of ops that may return a view of an operand."""

Memory: TypeAlias = np.ndarray[Any, Any]
"""Bytes."""

_ALIGNMENT = 64
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
        layout = node.op.layout
        if layout == "any":
            if node.op.ordered is None or not node.op.ordered(node.attrs):
                continue
            layout = "ordered"
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
            if layout not in _VIEWS:
                contiguous.add(node.id)
    return ordered


def _arrives_regular(leaf: Node) -> bool:
    value = leaf.attrs["value"] if leaf.op is CONSTANT else None
    return value is None or bool(np.asarray(value).flags.c_contiguous)


def is_fresh(node: Node) -> bool:
    """Return whether the value is always an array of its own, as NumPy has it for no 0-d result."""
    return node.op.layout in ("kept", "c") and not node.op.checked and bool(node.dims)


def writable(
    steps: Sequence[Node], kept: Iterable[Node], regular_ids: Collection[int]
) -> frozenset[int]:
    """Return the ids of the steps that may write into a buffer.

    Parameters
    ----------
    steps : sequence of Node
        In the order of the program.
    kept : iterable of Node
        Values that outlive the program's turn.
    regular_ids : collection of int
        What `regular` has found.
    """
    escaping = {node.id for node in kept}
    for step in reversed(steps):
        # A user's op may keep its operands; what may be a view escapes with its operands.
        if step.op.checked or (step.op.layout in _VIEWS and step.id in escaping):
            escaping.update([part.id for part in step.inputs])
    return frozenset(
        step.id
        for step in steps
        if step.id in regular_ids and step.id not in escaping and _takes_out(step)
    )


def leaving(
    steps: Sequence[Node], planned: Collection[int], regular_ids: Collection[int]
) -> frozenset[int]:
    """Return the ids of the other steps that may write into an array that they are given."""
    return frozenset(
        step.id
        for step in steps
        if step.id in regular_ids and step.id not in planned and _takes_out(step)
    )


def _takes_out(step: Node) -> bool:
    op = step.op
    # Floats of two bytes are widened on their way.
    if not (op.takes_out or (op.ufunc is not None and not step.attrs)) or is_half(step.dtype):
        return False
    # The result of a ufunc on 0-d arrays is a scalar, and costs nothing to make.
    return bool(step.dims) and not [dim for dim in step.dims if dim is UNKNOWN]


@dataclass(slots=True)
class Usage:
    """When values of a program die and how large they are, for the sizes of one run.

    Attributes
    ----------
    last : dict
        Node id to the last position at which its memory is needed, views included; values that
        outlive the program have the position after the last.
    bytes : dict
        Node id to size, 0 for views and for dims that only the run knows.
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
        if step.op.layout in _VIEWS:
            # It may be a view: its operands live as long as it does.
            for part in step.inputs:
                if part.id in last:
                    last[part.id] = max(last[part.id], last[step.id])
    return Usage(last, sizes)


def size_in_bytes(node: Node, symbols: Mapping[str, int]) -> int:
    """Return the bytes of the value, 0 for dims that only the run knows."""
    return prod(bind_shape(node.dims, symbols, 0)) * node.dtype.itemsize


def peak_bytes(
    steps: Sequence[Node],
    kept: Collection[Node],
    symbols: Mapping[str, int],
    without: Collection[int] = (),
) -> int:
    """Return the most bytes that live at once if arrays die at their last use; views count none."""
    lives = usage(steps, kept, symbols)
    ending: list[int] = [0] * (len(steps) + 1)
    live = peak = 0
    for i, step in enumerate(steps):
        if step.id not in without and step.op.layout not in _VIEWS:
            size = lives.bytes[step.id]
            live += size
            ending[lives.last[step.id]] += size
            peak = max(peak, live)
        live -= ending[i]
    return peak


@dataclass(slots=True)
class Buffers:
    """Where in one memory each step of a program writes, for one binding.

    Attributes
    ----------
    total_bytes : int
        Size of the memory.
    place_of : dict
        Node id to the byte at which its array begins.
    in_place : set of int
        Ids of the steps that write over an operand.
    """

    total_bytes: int
    place_of: dict[int, int]
    in_place: set[int]

    def arrays(
        self, steps: Sequence[Node], symbols: Mapping[str, int], memory: Memory | None = None
    ) -> list[Any]:
        """Return one array for each planned step, in the order of `steps`, in `memory` or a fresh.

        Steps of one shape and dtype at one place share the array, so that a step in place is
        given its very operand.
        """
        memory = aligned(self.total_bytes) if memory is None else memory
        views: dict[Any, np.ndarray[Any, Any]] = {}
        found = []
        for step in steps:
            place = self.place_of.get(step.id)
            if place is None:
                continue
            key = place, step.dims, step.dtype
            if key not in views:
                shape = bind_shape(step.dims, symbols, 0)
                end = place + prod(shape) * step.dtype.itemsize
                views[key] = memory[place:end].view(step.dtype).reshape(shape)
            found.append(views[key])
        return found


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def aligned(size: int) -> Memory:
    """Return `size` bytes that begin at a cache line."""
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


def assign(
    steps: Sequence[Node],
    kept: Collection[Node],
    planned: Collection[int],
    symbols: Mapping[str, int],
) -> Buffers:
    """Lay the `planned` steps into one memory, each into the smallest gap that is free by then."""
    lives = usage(steps, kept, symbols)
    ending: list[list[int]] = [[] for _ in range(len(steps) + 1)]
    for step in steps:
        if step.id in planned:
            ending[lives.last[step.id]].append(step.id)
    buffers = Buffers(0, {}, set())
    place_of = buffers.place_of
    gaps = _Gaps()
    taken: set[int] = set()  # nodes whose memory a later step in place has taken over
    for i, step in enumerate(steps):
        if step.id in planned:
            over = _overwritten(step, i, lives, place_of)
            if over is None:
                place_of[step.id] = gaps.take(_padded(lives.bytes[step.id]))
            else:
                place_of[step.id] = place_of[over]
                taken.add(over)
                buffers.in_place.add(step.id)
        for number in ending[i]:
            if number not in taken:
                gaps.give(place_of[number], _padded(lives.bytes[number]))
    buffers.total_bytes = gaps.end
    return buffers


class _Gaps:
    """The free parts of a memory that grows at its end; they never touch.

    By size, then by where they begin; and their sizes by where they begin and by where they end.
    """

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []
        self.from_begin: dict[int, int] = {}
        self.to_end: dict[int, int] = {}
        self.end = 0

    def take(self, size: int) -> int:
        """Return where `size` bytes begin: in the smallest gap that fits, else at the end."""
        if not size:
            return 0
        index = bisect(self.free, (size, -1))
        if index < len(self.free):
            free, begin = self.free[index]
            self._remove(begin, free)
            if free > size:
                self._add(begin + size, free - size)
            return begin
        last = self.to_end.get(self.end, 0)
        begin = self.end - last
        if last:
            self._remove(begin, last)
        self.end = begin + size
        return begin

    def give(self, begin: int, size: int) -> None:
        """Take bytes back, joined with the gaps that they touch."""
        if not size:
            return
        after = self.from_begin.get(begin + size, 0)
        if after:
            self._remove(begin + size, after)
        before = self.to_end.get(begin, 0)
        if before:
            self._remove(begin - before, before)
        self._add(begin - before, before + size + after)

    def _add(self, begin: int, size: int) -> None:
        insort(self.free, (size, begin))
        self.from_begin[begin] = self.to_end[begin + size] = size

    def _remove(self, begin: int, size: int) -> None:
        del self.free[bisect(self.free, (size, begin)) - 1]
        del self.from_begin[begin], self.to_end[begin + size]


def _overwritten(
    step: Node, position: int, lives: Usage, place_of: Mapping[int, int]
) -> int | None:
    """Return the operand that a ufunc may write over: of its type, and needed by nobody after."""
    if step.op.ufunc is None or step.op.takes_out:
        return None
    for part in step.inputs:
        if (
            part.id in place_of
            and lives.last[part.id] == position
            and part.dims == step.dims
            and part.dtype == step.dtype
        ):
            return part.id
    return None
