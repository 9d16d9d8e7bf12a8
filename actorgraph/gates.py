"""`Gate`: limits how many calls, of an op or of a machine, run at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class Gate:
    """Admits up to `limit` callers at once; the most urgent of the others is next.

    Threads block on `occupied`; calls use `enter`, with a callback for their admission.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reset()

    def reset(self) -> None:
        """Forget all callers, for after a fork they do not exist."""
        limit = self.limit
        self.occupied: Any = threading.Lock() if limit == 1 else threading.Semaphore(limit)
        self._lock = threading.Lock()
        self._free = self.limit
        self._queue: list[tuple[int, int, Callable[[], bool]]] = []
        self._arrivals = count()

    def enter(self, go_on: Callable[[], bool], priority: int = 0) -> None:
        """Call `go_on` when there is room; it returns whether it takes the room."""
        with self._lock:
            if not self._free:
                heappush(self._queue, (priority, next(self._arrivals), go_on))
                return
            self._free -= 1
        if not go_on():
            self.leave()

    def leave(self) -> None:
        """Give the room to the next caller."""
        while True:
            with self._lock:
                if not self._queue:
                    self._free += 1
                    return
                go_on = heappop(self._queue)[2]
            if go_on():
                return
