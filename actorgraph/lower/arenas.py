"""Memory that turns of tasks write into: as many arenas as turns that run at once.

One memory a task would grow with the number of tasks and be cold in the cache; an arena is taken at
the beginning of a turn, is as large as the largest task needs, and serves whoever comes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, final

from actorgraph.graph import Node
from actorgraph.lower.buffers import Buffers, Memory, aligned

__all__ = ["Arenas", "Layout"]


class _Arena:
    """Bytes that one turn at a time owns."""

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory: Memory = aligned(0)


@final
class Arenas:
    """The arenas of a machine.

    Attributes
    ----------
    idle : deque
        Arenas that no turn owns; taking and giving back are atomic.
    bytes : int
        What the largest layout needs.
    """

    def __init__(self) -> None:
        self.idle: deque[_Arena] = deque()
        self.bytes = 0

    def take(self) -> _Arena:
        """Return an arena of at least `bytes`."""
        try:
            arena = self.idle.pop()
        except IndexError:
            arena = _Arena()
        if arena.memory.nbytes < self.bytes:
            arena.memory = aligned(self.bytes)
        return arena


@final
class Layout:
    """Where in an arena the steps of one task write, for one binding.

    Parameters
    ----------
    arenas : Arenas
    buffers : Buffers
    steps : sequence of Node
    symbols : mapping
    """

    def __init__(
        self,
        arenas: Arenas,
        buffers: Buffers,
        steps: Sequence[Node],
        symbols: Mapping[str, int],
    ) -> None:
        self._arenas = arenas
        self._buffers, self._steps, self._symbols = buffers, steps, symbols
        self._laid: dict[_Arena, tuple[Memory, list[Any]]] = {}
        arenas.bytes = max(arenas.bytes, buffers.total_bytes)

    def lease(self) -> list[Any]:
        """Return an array for each planned step and, last, the arena, to be given back."""
        arena = self._arenas.take()
        laid = self._laid.get(arena)
        if laid is None or laid[0] is not arena.memory:
            arrays = self._buffers.arrays(self._steps, self._symbols, arena.memory)
            laid = self._laid[arena] = arena.memory, [*arrays, arena]
        return laid[1]
