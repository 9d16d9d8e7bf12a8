"""`Background`: what a process compiles beside its runs, in a thread of its own.

One daemon thread does what was asked for, in order; it ends when nothing is left to do, and none
starts before something is.  A fork waits for the work in progress, because locks of LLVM would stay
locked in the child; so does the end of the process, because LLVM must not be torn down under it.
"""

from __future__ import annotations

import atexit
import logging  # noqa: F401 - what is compiled may log: its own hooks of forks have to come first
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import final

_EXIT_S = 10.0
"""Seconds that the end of the process waits for the work in progress."""


@final
class Background:
    """Work in order, each piece a function that raises nothing."""

    def __init__(self) -> None:
        self._pending: deque[Callable[[], None]] = deque()
        # `atexit` refers to it, so machine code is not freed while modules go.
        self._kept: list[object] = []
        self._lock = threading.Lock()
        self._working = threading.RLock()  # held while something is done: a fork waits for it
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None], keep: object = None) -> None:
        """Have something done, and `keep` referred to until the process ends; does not block."""
        if keep is not None:
            self._kept.append(keep)
        self._pending.append(work)
        self.resume()

    def resume(self) -> None:
        """Have a thread do what is pending, of which a child of a fork may have none."""
        with self._lock:
            if self._pending and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="actorgraph compiler", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._thread = None
                    return
            with self._working:
                # Taken under the lock that a fork waits for: no child loses one half done.
                try:
                    work = self._pending.popleft()
                except IndexError:
                    continue
                work()
                del work

    def before_fork(self) -> None:
        """Wait for the work in progress."""
        self._working.acquire()
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()
        self._working.release()

    def after_fork_in_child(self) -> None:
        """Forget the thread, which is not here; the next request starts another."""
        self._thread = None
        self.after_fork_in_parent()

    def stop(self) -> None:
        """Give up what is pending and wait for what is in progress; the process ends."""
        self._pending.clear()
        if self._working.acquire(timeout=_EXIT_S):
            self._working.release()


BACKGROUND = Background()
"""That of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=BACKGROUND.before_fork,
        after_in_parent=BACKGROUND.after_fork_in_parent,
        after_in_child=BACKGROUND.after_fork_in_child,
    )
atexit.register(BACKGROUND.stop)
