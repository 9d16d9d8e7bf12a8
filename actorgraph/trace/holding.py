"""`memory`: which lines have allocated arrays that are still referenced."""

from __future__ import annotations

import gc
import linecache
import os
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import final

import numpy as np
from numpy.lib import tracemalloc_domain

_FRAMES = 32
"""Frames that are kept of a stack; between a user's line and an op are some 15."""

_INNER = (
    "<actorgraph",
    *[
        os.path.join(os.path.dirname(os.path.realpath(path)), "")
        for path in (os.path.dirname(__file__), np.__file__)
    ],
)


@dataclass(frozen=True, slots=True)
class HoldingLine:
    """A line whose arrays are still referenced.

    Attributes
    ----------
    file : str
        File of the innermost frame outside of this package and NumPy; if there is none, as in a
        worker's thread, of the innermost frame.
    bytes, arrays : int
        Size and number of its arrays that still exist.
    """

    file: str
    line: int
    bytes: int
    arrays: int

    @property
    def text(self) -> str:
        """The source text of the line."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: {self.text}"
        return f"{self.bytes:12,d} bytes in {self.arrays} arrays: {where}"


@final
@dataclass(slots=True)
class HeldArrays:
    """The result of `memory`, filled when its block ends.

    Attributes
    ----------
    lines : list of HoldingLine
        The lines with the most bytes first.
    peak_bytes : int
        The most that Python and NumPy had allocated at once in the block.
    """

    lines: list[HoldingLine] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of all lines."""
        return sum(line.bytes for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines)) or "no arrays are held"


@contextmanager
def memory() -> Iterator[HeldArrays]:
    """Find the lines in a ``with`` block that allocated arrays which exist when it ends.

    The memory of arrays is counted by `tracemalloc`: results that are still referenced, feeds, and
    memory that machines keep for later runs; not arrays from before the block.  Nothing blocks, but
    allocations take some microseconds longer.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> kept = []
    >>> with ag.trace.memory() as held:
    ...     gone = np.zeros(10_000).sum()
    ...     kept.append(np.zeros(1000))
    >>> [(line.bytes, line.arrays) for line in held.lines]
    [(8000, 1)]
    """
    result = HeldArrays()
    mine = not tracemalloc.is_tracing()
    if mine:
        tracemalloc.start(_FRAMES)
    try:
        tracemalloc.reset_peak()
        before = _by_line()
        yield result
        result.peak_bytes = tracemalloc.get_traced_memory()[1]
        gc.collect()
        after = _by_line()
        grown = [
            HoldingLine(*place, size - before[0][place], after[1][place] - before[1][place])
            for place, size in after[0].items()
            if size > before[0][place]
        ]
        result.lines = sorted(grown, key=attrgetter("bytes"), reverse=True)
    finally:
        if mine:
            tracemalloc.stop()


Place = tuple[str, int]


def _by_line() -> tuple[Counter[Place], Counter[Place]]:
    """Return the bytes and the number of existing arrays, by the line that allocated them."""
    sizes: Counter[Place] = Counter()
    counts: Counter[Place] = Counter()
    for trace in tracemalloc.take_snapshot().traces:
        if trace.domain == tracemalloc_domain:
            frames = [*trace.traceback][::-1]  # innermost first
            outer = [one for one in frames if not one.filename.startswith(_INNER)]
            frame = (outer or frames)[0]
            sizes[frame.filename, frame.lineno] += trace.size
            counts[frame.filename, frame.lineno] += 1
    return sizes, counts
