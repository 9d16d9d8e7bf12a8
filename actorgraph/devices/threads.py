"""`start`: starting a thread where Ctrl-C may interrupt it."""

from __future__ import annotations

import threading


def start(thread: threading.Thread) -> None:
    """Start a thread; if Ctrl-C interrupts that, raise `KeyboardInterrupt`.

    `Thread.start` waits for the thread under a lock, and raises `RuntimeError` if Ctrl-C has kept
    it from taking that lock again.  Then the thread may never be alive.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
