"""`THIS`: the id of this process, and the locks under which its machines start.

Only a fork changes the id; it is stored, for asking the system costs 0.17 us.
"""

from __future__ import annotations

import os
import threading
from typing import final

_FORK_S = 10.0
"""Longest time that a fork waits for a lock, whose holder may wait for other locks."""


@final
class _Process:
    """The process that runs this code, after a fork the new one.

    Machines start and stop under `starting`, plans are cut and lowered under `making`, so that two
    threads may ask for a first run at once.

    A fork waits for both locks.  Else the child could inherit plans half made, modules half
    imported and a BLAS half loaded, which no thread of it would finish.
    """

    def __init__(self) -> None:
        self._held: list[threading.RLock] = []
        self._look()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._hold, after_in_parent=self._release, after_in_child=self._look
            )

    def _hold(self) -> None:
        self._held = [
            lock for lock in (self.starting, self.making) if lock.acquire(timeout=_FORK_S)
        ]

    def _release(self) -> None:
        for lock in self._held:
            lock.release()

    def _look(self) -> None:
        """Set the id, and make new locks, which nobody holds."""
        self.id = os.getpid()
        self.starting, self.making = threading.RLock(), threading.RLock()


THIS = _Process()
"""This process."""
