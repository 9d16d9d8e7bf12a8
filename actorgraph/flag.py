"""`Flag`: a byte that a thread watches without Python's lock until another thread sets it.

A thread that sleeps comes back some 50 us after it was called, and whoever calls it pays for the
system call.  One that watches is back within a microsecond, and takes nothing but its core.
"""

from __future__ import annotations

import numpy as np

_LOOKS = 6_000_000
"""Looks at the byte of one `watch`: some 2 ms.  Who comes back wants Python's lock, and sleeps
where another thread has it at that moment."""


class Flag:
    """A byte at an `address`, where machine code sets it too, and a view that repeats it.

    The loop of `np.logical_or.reduce` ends at the first true element, and holds no lock.
    """

    __slots__ = ("_byte", "_repeated", "address")

    def __init__(self) -> None:
        self._byte = bytearray(1)
        byte = np.frombuffer(self._byte, bool)
        self._repeated = np.broadcast_to(byte, _LOOKS)
        self.address = byte.ctypes.data

    def set(self) -> None:
        """Let who watches return."""
        self._byte[0] = 1

    def clear(self) -> None:
        """Have the next look wait for another `set`."""
        self._byte[0] = 0

    def watch(self) -> bool:
        """Return True as soon as the flag is set, False if it is not for a while."""
        return bool(np.logical_or.reduce(self._repeated))
