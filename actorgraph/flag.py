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

    Machine code watches it until Python's lock is free, too (`devices.lock_word`).  Where there is
    none the loop of `np.logical_or.reduce` does, which ends at the first true element.

    Examples
    --------
    >>> flag = Flag()
    >>> flag.watch()  # for 0.1 ms
    False
    >>> flag.set()
    >>> flag.watch()
    True
    """

    __slots__ = ("_address", "_byte", "_repeated")

    def __init__(self) -> None:
        self._byte = bytearray(1)
        seen = np.frombuffer(self._byte, bool)
        self._address, self._repeated = seen.ctypes.data, np.broadcast_to(seen, _LOOKS)

    def set(self) -> None:
        """Let who watches return."""
        self._byte[0] = 1

    def clear(self) -> None:
        """Have the next look wait for another `set`."""
        self._byte[0] = 0

    def watch(self) -> bool:
        """Return True as soon as the flag is set, False if it is not for a while."""
        from actorgraph.devices.native import RUNTIME

        watch = RUNTIME.watch
        return bool(np.logical_or.reduce(self._repeated) if watch is None else watch(self._address))
