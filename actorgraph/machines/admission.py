"""`Admission`: which run is next, and whether there is room for it: in number, and in bytes.

The most urgent of the queued runs is next, among equals the oldest.  No other run is admitted
before it, so none starves.  With `max_bytes` a run is admitted only if all runs in flight could
reach their worst moments at the same time.  Then no run in flight ever waits for memory, so all
finish.  This is the banker's algorithm with whole claims; checking before every turn would admit
more runs, but cost time in each turn.

The same holds for each device by itself.  `claim` computes what a run needs.

Sources: E. W. Dijkstra, The mathematics behind the banker's algorithm (EWD 623), 1977.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from actorgraph.machines.claim import HOST, Limits, over_limit
from actorgraph.machines.run import Run
from actorgraph.memory.arenas import Arenas


class Admission:
    """The runs of a machine that are queued and in flight; they change under the core's lock."""

    def __init__(self, max_in_flight: int, max_bytes: Limits, workers: int) -> None:
        self.max_in_flight = max_in_flight
        self.max_bytes = max_bytes
        self.workers = workers
        self.queued: list[tuple[int, int, Run]] = []
        self.in_flight: dict[int, Run] = {}
        # One entry per direct run under way; these count in `max_in_flight`, not in `max_bytes`.
        self.direct: deque[Run] = deque()
        # The run in flight that assigns parameters; the next such run waits for it.
        self.stepping: Run | None = None

    @property
    def runs(self) -> list[Run]:
        """Runs in flight, then those that are queued."""
        return [*self.in_flight.values(), *self.waiting]

    @property
    def under_way(self) -> int:
        """How many runs have not ended."""
        return len(self.in_flight) + len(self.queued) + len(self.direct)

    def is_alone(self) -> bool:
        """Return whether at most one run is in flight, and none is queued."""
        return len(self.in_flight) < 2 and not self.queued

    @property
    def waiting(self) -> list[Run]:
        """Runs that are queued."""
        return [run for _, _, run in self.queued]

    def enter(self, run: Run) -> bool:
        """Admit a direct run; return False if it would have to wait.

        At its end the caller pops an entry of `direct`.
        """
        if self.queued or len(self.in_flight) + len(self.direct) >= self.max_in_flight:
            return False
        self.direct.append(run)
        return True

    def add(self, run: Run) -> None:
        """Queue a run."""
        in_order = run.plan.compiled.updates_parameters
        priority = 0 if in_order else run.priority
        heapq.heappush(self.queued, (priority, run.number, run))

    def remove(self, run: Run) -> bool:
        """Remove a run from the queue; return whether it was there."""
        entries = [entry for entry in self.queued if entry[2] is run]
        if entries:
            self.queued.remove(entries[0])
            heapq.heapify(self.queued)
        return bool(entries)

    def admitted(self, arenas: Arenas) -> Iterator[Run]:
        """Move runs from the queue into flight while there is room, and yield them.

        If nothing is in flight, there is room: runs that need too many bytes were refused, and the
        arenas of earlier runs are dropped.
        """
        while self.queued:
            run = self.queued[0][2]
            if len(self.in_flight) + len(self.direct) >= self.max_in_flight:
                return
            if self.max_bytes is not None and over_limit(self.claimed(arenas, run), self.max_bytes):
                if self.in_flight:
                    return
                arenas.clear()
            if run.plan.compiled.updates_parameters:
                if self.stepping is not None:
                    return
                self.stepping = run
            heapq.heappop(self.queued)
            self.in_flight[run.number] = run
            yield run

    def claimed(self, arenas: Arenas, *more: Run) -> dict[str, int]:
        """Return the most bytes, by device, that the runs in flight and `more` can hold."""
        runs = (*self.in_flight.values(), *more)
        claims = [run.claim for run in runs if run.claim is not None]
        turns = min(self.workers, sum([claim.tasks for claim in claims]))
        turn = max([claim.turn for claim in claims], default=0)
        arena = max([arenas.bytes, *(claim.arena for claim in claims)])
        kept = sum([claim.kept for claim in claims])
        total = {HOST: kept + turns * turn + max(turns, arenas.count) * arena}
        for claim in claims:
            for device, size in claim.on.items():
                total[device] = total.get(device, 0) + size
        return total
