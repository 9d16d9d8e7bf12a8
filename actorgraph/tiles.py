"""`Tiles`: parts of one step, which the thread that runs it (the owner) shares with idle workers.

The parts follow from the step alone, so it changes no bit which thread computes which.

Invariants:

- Each part is handed out once, by a C iterator without a lock.  No signal handler runs between the
  hand-out and the ``try`` that marks the part as ended.
- The owner returns when all parts have ended, so nobody writes into its result afterwards.
- The owner computes every part that no other thread takes: it waits only for parts that are
  running.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from actorgraph.warned import UnderWay, runs_steps

CUT_FLOPS = 2.0**26
"""Steps of at least as many flops, some 0.6 ms, are cut: ten times the cost of waking a worker."""

_GLANCE_S = 1.0
"""Longest time that the owner waits at once: Ctrl-C in a worker may prevent its wake-up."""

here = threading.local()
"""``here.held`` is (scheduler, ...) in a thread that runs ops for a machine.

``here.lane`` is the device's lane whose job the thread does.
"""


def workers_here() -> int:
    """Return how many threads may share the parts of a step of this thread."""
    held = getattr(here, "held", None)
    return 1 if held is None else int(held[0].slots)


class Tiles:
    """The parts of a step: ``compute(part)`` is called for each of ``range(count)``.

    Calls come from any thread, in any order.
    """

    __slots__ = ("_compute", "_context", "_ended", "_errors", "_over", "_owner", "_parts", "count")

    def __init__(self, compute: Callable[[int], object], count: int) -> None:
        self.count = count
        self._compute = compute
        self._parts = iter(range(count))
        self._ended: set[int] = set()
        self._errors: dict[int, BaseException] = {}
        self._over = threading.Event()
        self._context = copy_context()
        self._owner = threading.get_ident()

    @property
    def under_way(self) -> UnderWay:
        """The step that the owner runs."""
        return UnderWay(thread=self._owner)

    @runs_steps("self")
    def help(self) -> bool:
        """Compute parts under the owner's `np.errstate`; return whether any were left."""
        return self._context.copy().run(self._take_parts)

    def finish(self) -> None:
        """Compute the parts that nobody takes, wait for the others, and raise the first error."""
        self._take_parts()
        while len(self._ended) < self.count:
            self._over.wait(_GLANCE_S)
        if self._errors:
            errors, self._errors = self._errors, {}  # tracebacks refer to frames that refer to us
            raise errors[min(errors)]

    def _take_parts(self) -> bool:
        took = False
        for part in self._parts:
            try:
                took = True
                self._compute(part)
            except BaseException as error:
                self._errors[part] = error  # raised by the owner
                if not isinstance(error, Exception):
                    raise  # Ctrl-C is for this thread, too
            finally:
                self._ended.add(part)
                if len(self._ended) == self.count:
                    self._over.set()
        return took


class TileQueue:
    """Steps that the idle workers of a machine may help with.

    `summon` wakes one more worker, which calls `help`; it returns False if none is idle.
    """

    __slots__ = ("_shared", "_summon")

    def __init__(self, summon: Callable[[], bool]) -> None:
        self._summon = summon
        self._shared: deque[Tiles] = deque()

    def share(self, tiles: Tiles) -> None:
        """Let idle workers take parts."""
        self._shared.append(tiles)
        for _ in range(tiles.count - 1):
            if not self._summon():
                return  # a worker that runs out of tasks calls `help`, too

    def withdraw(self, tiles: Tiles) -> None:
        """Remove a step of which all parts are taken."""
        try:
            self._shared.remove(tiles)
        except ValueError:
            pass  # another thread has removed it

    def help(self) -> bool:
        """Compute parts of shared steps; return whether there were any."""
        helped = False
        while self._shared:
            try:
                tiles = self._shared[0]
            except IndexError:  # withdrawn in between
                break
            helped |= tiles.help()
            self.withdraw(tiles)
        return helped


def compute_parts(compute: Callable[[int], object], count: int) -> None:
    """Call ``compute(part)`` for each of ``range(count)``, helped by idle workers of the machine.

    Blocks until all parts have ended, and raises the error of the first part that failed.
    """
    held = getattr(here, "held", None)
    if held is None:
        for part in range(count):
            compute(part)
        return
    tile_queue: TileQueue = held[0].tile_queue
    tiles = Tiles(compute, count)
    tile_queue.share(tiles)
    try:
        tiles.finish()
    finally:
        tile_queue.withdraw(tiles)


def evenly(size: int, count: int) -> tuple[slice, ...]:
    """Cut a range into slices whose lengths differ by at most one."""
    bounds = [size * i // count for i in range(count + 1)]
    return tuple(map(slice, bounds, bounds[1:]))
