"""`Flag`: a byte that a thread watches without Python's lock until another thread sets it.

A thread that sleeps comes back some 50 us after it was called, and whoever calls it pays for the
system call.  One that watches is back within a microsecond, and takes nothing but its core.
"""

from __future__ import annotations

import numpy as np

_LOOKS = 300_000
"""Looks at the byte of one `watch`: some 0.1 ms."""


class Flag:
    """A byte, and a view that repeats it.

    The loop of `np.logical_or.reduce` ends at the first true element, and holds no lock.

    Examples
    --------
    >>> flag = Flag()
    >>> flag.watch()  # for 0.1 ms
    False
    >>> flag.set()
    >>> flag.watch()
    True
    """

    __slots__ = ("_byte", "_repeated")

    def __init__(self) -> None:
        self._byte = bytearray(1)
        self._repeated = np.broadcast_to(np.frombuffer(self._byte, bool), _LOOKS)

    def set(self) -> None:
        """Let who watches return."""
        self._byte[0] = 1

    def clear(self) -> None:
        """Have the next look wait for another `set`."""
        self._byte[0] = 0

    def watch(self) -> bool:
        """Return True as soon as the flag is set, False if it is not for a while."""
        return bool(np.logical_or.reduce(self._repeated))
