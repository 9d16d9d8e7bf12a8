"""`Flag`: a byte on which a thread spins without the GIL until another thread sets it.

A sleeping thread comes back some 50 us after its wake-up, which costs the waker a system call.  A
spinning one is back within a microsecond, and costs only its core.
"""

from __future__ import annotations

import numpy as np

_LOOKS = 6_000_000
"""Reads of the byte in one `watch`, some 2 ms; afterwards the thread takes the GIL, for which it
may have to sleep."""


class Flag:
    """A byte at an `address`, which machine code may set, too, and a view that repeats it.

    The loop of `np.logical_or.reduce` ends at the first true element, and holds no lock.
    """

    __slots__ = ("_byte", "_repeated", "address")

    def __init__(self) -> None:
        self._byte = bytearray(1)
        byte = np.frombuffer(self._byte, bool)
        self._repeated = np.broadcast_to(byte, _LOOKS)
        self.address = byte.ctypes.data

    def set(self) -> None:
        """Let `watch` return."""
        self._byte[0] = 1

    def clear(self) -> None:
        """Let the next `watch` wait for another `set`."""
        self._byte[0] = 0

    def watch(self) -> bool:
        """Return True as soon as the flag is set, or False after some 2 ms."""
        return bool(np.logical_or.reduce(self._repeated))
