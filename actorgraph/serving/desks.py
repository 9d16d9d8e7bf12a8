"""`Desk`: where the requests of a model wait, which is an event loop or a thread."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from math import inf
from queue import SimpleQueue
from typing import Any, TypeAlias

from actorgraph.machines.event_loops import in_trio

Call: TypeAlias = Callable[[], object]


@dataclass(eq=False, slots=True)
class Desk:
    """Where requests wait; made by `Desks`, or by `of_thread`.

    Attributes
    ----------
    in_place_us : float
        Runs that take less are computed here.
    schedule, soon : callable
        Call a function here, in its turn; the second only from here.
    later : callable
        Calls a function here after so many seconds; only from here.
    bell : callable
        Returns what a request waits for here.
    ring : callable
        Ends the waiting for a bell; only from here.
    loops : bool
        Whether this is a loop, on which ops can wait.
    asked : bool
        Whether a look at the queue was asked for here, and has not begun.
    alarm : float
        When somebody here looks at the time, by `monotonic`.
    """

    in_place_us: float
    schedule: Callable[[Call], object]
    soon: Callable[[Call], object]
    later: Callable[[float, Call], object]
    bell: Callable[[], Awaitable[Any]]
    ring: Callable[[Any], object]
    loops: bool = True
    asked: bool = False
    alarm: float = inf

    @property
    def host(self) -> Callable[[Call], bool] | None:
        """`call` where this is a loop, on which ops can wait."""
        return self.call if self.loops else None

    def call(self, function: Call) -> bool:
        """Call a function here, from any thread; False where nobody is here any more."""
        try:
            self.schedule(function)
        except RuntimeError:  # the loop was closed; trio.RunFinishedError is one too
            return False
        return True

    @classmethod
    def of_thread(cls, in_place_us: float, calls: SimpleQueue[Call]) -> Desk:
        """Return the desk of a thread that makes the calls of a queue."""
        put = calls.put
        return cls(in_place_us, put, put, _ignored, _ignored, _ignored, loops=False)


class Desks:
    """The desks of a model, one for each event loop.

    Parameters
    ----------
    in_place_us : float
        Runs that take less are computed in the loop's thread.
    """

    def __init__(self, in_place_us: float) -> None:
        self._in_place_us = in_place_us
        self._known: dict[Any, Desk] = {}

    def here(self) -> Desk:
        """Return the desk of the running loop."""
        trio = in_trio()
        loop: Any
        if trio:
            loop = sys.modules["trio"].lowlevel.current_trio_token()
        else:
            import asyncio

            loop = asyncio.get_running_loop()
        desk = self._known.get(loop)
        if desk is None:
            # Loops that have ended are forgotten where another one comes.
            known = {loop: one for loop, one in self._known.items() if one.call(_ignored)}
            desk = (_of_trio if trio else _of_asyncio)(loop, self._in_place_us)
            self._known = {**known, loop: desk}
        return desk


def _of_asyncio(loop: Any, in_place_us: float) -> Desk:
    context = Context()  # one client's `np.errstate` is not another's

    def soon(function: Call) -> None:
        loop.call_soon(function, context=context)

    def later(seconds: float, function: Call) -> None:
        loop.call_later(seconds, function, context=context)

    def ring(future: Any) -> None:
        if not future.done():  # cancelled
            future.set_result(None)

    schedule = loop.call_soon_threadsafe
    return Desk(in_place_us, schedule, soon, later, loop.create_future, ring)


def _of_trio(token: Any, in_place_us: float) -> Desk:
    trio: Any = sys.modules["trio"]

    class Bell:
        def __init__(self) -> None:
            self.event = trio.Event()

        def __await__(self) -> Any:
            return self.event.wait().__await__()

    async def after(seconds: float, function: Call) -> None:
        await trio.sleep(seconds)
        function()

    def later(seconds: float, function: Call) -> None:
        trio.lowlevel.spawn_system_task(after, seconds, function, context=Context())

    def ring(bell: Bell) -> None:
        bell.event.set()

    schedule = token.run_sync_soon
    return Desk(in_place_us, schedule, schedule, later, Bell, ring)


def _ignored(*what: Any) -> Any:
    return None
