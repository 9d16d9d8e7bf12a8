"""`Tiles`: parts of one step, which idle workers of the machine take beside the thread that has it.

What the parts are follows from the step alone, so who computes which changes no bit; a thread that
has nobody beside it computes them one after another.

Invariants:

- Each part is handed out once: a C iterator does it, without a lock, and no signal handler runs
  between the hand-out and the ``try`` that marks the part as ended.
- The owner returns when all parts have ended, so nobody writes into its result afterwards.
- The owner takes every part that nobody else has taken: it waits only for what runs already.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from actorgraph.warned import UnderWay, runs_steps

CUT_FLOPS = 2.0**26
"""Steps of at least as many flops are cut: some 0.6 ms, ten times what waking a worker costs."""

_GLANCE_S = 1.0
"""Seconds after which the owner looks by itself: Ctrl-C in a worker may cut its call short."""

here = threading.local()
"""``here.held`` is (scheduler, ...) in a thread that runs ops for a machine.

``here.lane`` is the lane of a device whose job a thread does.
"""


def workers_here() -> int:
    """Return how many threads may share the parts of a step."""
    held = getattr(here, "held", None)
    return 1 if held is None else int(held[0].slots)


class Tiles:
    """The parts of a step that are left, and those that have ended.

    ``compute(part)`` is called for each of ``range(count)``, from any thread, in any order.
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
        """The step is its owner's."""
        return UnderWay(thread=self._owner)

    @runs_steps("self")
    def help(self) -> bool:
        """Compute parts under the owner's `np.errstate`; return whether there were any left."""
        return self._context.copy().run(self._take_parts)

    def finish(self) -> None:
        """Compute what nobody else takes, wait for the rest, and raise what went wrong first."""
        self._take_parts()
        while len(self._ended) < self.count:
            self._over.wait(_GLANCE_S)
        if self._errors:
            errors, self._errors = self._errors, {}  # tracebacks hold frames that hold us
            raise errors[min(errors)]

    def _take_parts(self) -> bool:
        took = False
        for part in self._parts:
            try:
                took = True
                self._compute(part)
            except BaseException as error:
                self._errors[part] = error  # for the owner, in whose step it happened
                if not isinstance(error, Exception):
                    raise  # Ctrl-C is for this thread too
            finally:
                self._ended.add(part)
                if len(self._ended) == self.count:
                    self._over.set()
        return took


class TileQueue:
    """Steps that the idle workers of a machine may help with.

    `summon` has one more worker come to `help`, and returns False where all are at work.
    """

    __slots__ = ("_shared", "_summon")

    def __init__(self, summon: Callable[[], bool]) -> None:
        self._summon = summon
        self._shared: deque[Tiles] = deque()

    def share(self, tiles: Tiles) -> None:
        """Let idle workers take parts, beside the owner."""
        self._shared.append(tiles)
        for _ in range(tiles.count - 1):
            if not self._summon():
                return  # a worker that runs out of work looks here by itself

    def withdraw(self, tiles: Tiles) -> None:
        """Send nobody else: all parts are taken."""
        try:
            self._shared.remove(tiles)
        except ValueError:
            pass  # another has found it empty

    def help(self) -> bool:
        """Compute parts of what is shared; return whether there were any."""
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
    """Call ``compute(part)`` for each of ``range(count)``, with idle workers of the machine.

    Blocks until all parts have ended, and raises what the first of those that failed has raised.
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
    """Cut a range into slices whose lengths differ by one at most."""
    bounds = [size * i // count for i in range(count + 1)]
    return tuple(map(slice, bounds, bounds[1:]))
