"""`Flag`: a byte that a thread watches without Python's lock until another thread sets it.

A thread that sleeps comes back some 50 us after it was called, and whoever calls it pays for the
system call.  One that watches is back within a microsecond, and takes nothing but its core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

_LOOKS = 300_000
"""Looks at the byte of one `watch`: some 0.1 ms."""


class Flag:
    """A byte that is set and watched.

    Where there is machine code (`devices.lock_word`), that watches the byte, and then Python's lock
    until this is free.  Else the loop of `np.logical_or.reduce` does, of a view that repeats the
    byte: it ends at the first true element, and holds no lock.

    Attributes
    ----------
    machine_code : callable or None
        What watches a byte, given its address.

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
    machine_code: ClassVar[Callable[[int], int] | None] = None

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
        by_machine = Flag.machine_code
        if by_machine is None:
            return bool(np.logical_or.reduce(self._repeated))
        return bool(by_machine(self._address))
