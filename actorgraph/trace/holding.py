"""`memory`: which lines have made arrays that somebody still holds."""

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
"""Of a stack that are kept: between a user's line and an op lie some 15."""

_INNER = (
    "<actorgraph",
    *[
        os.path.join(os.path.dirname(os.path.realpath(path)), "")
        for path in (os.path.dirname(__file__), np.__file__)
    ],
)


@dataclass(frozen=True, slots=True)
class HoldingLine:
    """A line whose arrays are still held.

    Attributes
    ----------
    file : str
        The innermost of the stack outside of this package and NumPy; where there is none, as in a
        worker's thread, the innermost.
    bytes, arrays : int
        How much it has made that is still there.
    """

    file: str
    line: int
    bytes: int
    arrays: int

    @property
    def text(self) -> str:
        """What is written there."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: {self.text}"
        return f"{self.bytes:12,d} bytes in {self.arrays} arrays: {where}"


@final
@dataclass(slots=True)
class HeldArrays:
    """What `memory` has found, once its block has ended.

    Attributes
    ----------
    lines : list of HoldingLine
        Those that hold most first.
    peak_bytes : int
        The most that Python and NumPy had allocated at once in the block.
    """

    lines: list[HoldingLine] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def bytes(self) -> int:
        """How much all lines hold."""
        return sum(line.bytes for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines)) or "no arrays are held"


@contextmanager
def memory() -> Iterator[HeldArrays]:
    """Tell which lines of a ``with`` block have made arrays that are held when it ends.

    What is counted is the memory of arrays, as `tracemalloc` knows it: results that somebody keeps,
    feeds, and what machines keep for later runs.  What was there before is not.  Blocks nobody;
    allocations take some microseconds more meanwhile.

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
    found = HeldArrays()
    mine = not tracemalloc.is_tracing()
    if mine:
        tracemalloc.start(_FRAMES)
    try:
        tracemalloc.reset_peak()
        before = _by_line()
        yield found
        found.peak_bytes = tracemalloc.get_traced_memory()[1]
        gc.collect()
        after = _by_line()
        grown = [
            HoldingLine(*place, size - before[0][place], after[1][place] - before[1][place])
            for place, size in after[0].items()
            if size > before[0][place]
        ]
        found.lines = sorted(grown, key=attrgetter("bytes"), reverse=True)
    finally:
        if mine:
            tracemalloc.stop()


Place = tuple[str, int]


def _by_line() -> tuple[Counter[Place], Counter[Place]]:
    """Return bytes and number of the arrays that are there, by the line that has made them."""
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
