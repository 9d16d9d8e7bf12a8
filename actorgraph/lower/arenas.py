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
from actorgraph.lower.rings import Ring

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
    """Where the steps of one task write, for one binding.

    Parameters
    ----------
    arenas : Arenas
    buffers : Buffers
        Of the steps whose results stay inside of the turn.
    steps : sequence of Node
    symbols : mapping
    rings : dict of int to Ring or None
        Of the steps whose results leave it, by id; None for small ones, which are made afresh.
    """

    def __init__(
        self,
        arenas: Arenas,
        buffers: Buffers,
        steps: Sequence[Node],
        symbols: Mapping[str, int],
        rings: Mapping[int, Ring | None],
    ) -> None:
        self._arenas = arenas
        self._buffers, self._steps, self._symbols = buffers, steps, symbols
        written = [step.id for step in steps if step.id in buffers.slot_of or step.id in rings]
        self._kept = [place for place, number in enumerate(written) if number not in rings]
        self._rings = [
            (place, ring)
            for place, number in enumerate(written)
            if (ring := rings.get(number)) is not None
        ]
        self._count = len(written)
        self._laid: dict[_Arena, tuple[Memory, list[Any]]] = {}
        arenas.bytes = max(arenas.bytes, buffers.total_bytes)

    def lease(self) -> list[Any]:
        """Return an array (or None) for each step that writes and, last, the arena or None.

        The arena is to be given back at the end of the turn.
        """
        if self._kept:
            arena = self._arenas.take()
            laid = self._laid.get(arena)
            if laid is None or laid[0] is not arena.memory:
                laid = self._lay(arena)
            if not self._rings:
                return laid[1]
            found = laid[1].copy()
        else:
            found = [None] * (self._count + 1)
        for place, ring in self._rings:
            found[place] = ring.take()
        return found

    def _lay(self, arena: _Arena) -> tuple[Memory, list[Any]]:
        arrays = self._buffers.arrays(self._steps, self._symbols, arena.memory)
        found: list[Any] = [None] * (self._count + 1)
        for place, array in zip(self._kept, arrays, strict=True):
            found[place] = array
        found[-1] = arena
        laid = self._laid[arena] = arena.memory, found
        return laid
