"""`Deadlines`: the thread that ends runs whose deadline has passed."""

from __future__ import annotations

import heapq
import threading
from time import monotonic
from typing import TYPE_CHECKING
from weakref import ref

from actorgraph.devices.threads import start

if TYPE_CHECKING:
    from actorgraph.runs import AbstractRun


class Deadlines:
    """One thread that ends runs whose deadline has passed; the first deadline starts it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Weak, so that ended runs and their results are not kept alive.
        self._heap: list[tuple[float, int, ref[AbstractRun]]] = []
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._number = self._live = 0

    def add(self, run: AbstractRun, timeout_s: float) -> float:
        """Call ``run.expire()`` after `timeout_s` seconds unless the run has ended.

        Returns the deadline, by `monotonic`; a run may end after it and before that call.
        """
        until = monotonic() + timeout_s
        if timeout_s > threading.TIMEOUT_MAX:
            return until  # centuries
        with self._changed:
            if len(self._heap) > 2 * self._live + 64:
                # Most runs end long before their deadlines: drop these.
                self._heap = [entry for entry in self._heap if not _has_ended(entry[2])]
                heapq.heapify(self._heap)
                self._live = len(self._heap)
            self._number += 1
            heapq.heappush(self._heap, (until, self._number, ref(run)))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._watch, name="actorgraph-deadlines", daemon=True
                )
                start(self._thread)
            self._changed.notify()
        return until

    def stop(self, join: bool) -> None:
        """End the thread; `join` waits for its end."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        thread = self._thread
        here = thread is threading.current_thread()
        if join and thread is not None and thread.is_alive() and not here:
            thread.join()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while self._heap and _has_ended(self._heap[0][2]):
                    heapq.heappop(self._heap)
                if self._stopped:
                    return
                left = self._heap[0][0] - monotonic() if self._heap else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                run = heapq.heappop(self._heap)[2]()
            if run is not None:
                run.expire()
            del run


def _has_ended(run: ref[AbstractRun]) -> bool:
    alive = run()
    return alive is None or alive.done
