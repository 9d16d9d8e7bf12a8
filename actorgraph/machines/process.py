"""What a process has once: its number, and the locks under which its machines start.

Only a fork changes them, so they are looked up once: asking the system costs 0.17 us.
"""

from __future__ import annotations

import os
import threading
from typing import final

_FORK_S = 10.0
"""Seconds that a fork waits for a lock at most, whatever locks its holder waits for."""


@final
class _Process:
    """The process that runs this code, after a fork the new one.

    A fork waits for what machines of other threads are beginning.  Else the child would find plans
    half made, modules half imported and a BLAS half loaded, and no thread of it would finish them.

    Two threads may ask for a first run, and begin with one: machines start and stop under
    `starting`, plans are cut and lowered under `making`.
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
        """Note which process this is; no thread of it holds a lock."""
        self.id = os.getpid()
        self.starting, self.making = threading.RLock(), threading.RLock()


THIS = _Process()
"""This process."""
