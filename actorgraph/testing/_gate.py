"""An op that stands in the middle of a run for as long as a law wants."""

from __future__ import annotations

import threading
from typing import Any, final

from actorgraph.testing._laws import claim

_PATIENCE_S = 20.0


@final
class OpGate:
    """An op body that says when it is entered and waits until it is let on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.inside = self.most_inside = self.calls = 0

    def __call__(self, xp: Any, x: Any) -> Any:
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        self.entered.release()
        claim(self.leave.acquire(timeout=_PATIENCE_S), "nobody opened the gate")
        with self.lock:
            self.inside -= 1
        return x + 1

    def wait_entered(self) -> None:
        """Wait until one more call is inside."""
        claim(self.entered.acquire(timeout=_PATIENCE_S), "nobody came to the gate")

    def open(self, times: int = 1) -> None:
        """Let that many calls on."""
        self.leave.release(times)
