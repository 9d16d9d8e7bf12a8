"""`CallerLoop`: the event loop, or the blocked thread, in which requests wait for their answers."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from math import inf
from queue import SimpleQueue
from typing import Any, TypeAlias

from actorgraph.machines.event_loops import WakeUp, in_trio, loop_notifier

Call: TypeAlias = Callable[[], object]


@dataclass(eq=False, slots=True)
class CallerLoop:
    """The loop of a caller; made by `CallerLoops`, or by `of_thread`."""

    in_place_us: float  # shorter runs are computed in the loop's own thread
    call: Callable[[Call], object]  # from any thread; False if the loop has ended
    call_soon: Callable[[Call], object]
    call_later: Callable[[float, Call], object]  # after so many seconds
    waiter: Callable[[], Awaitable[Any]]  # returns a future or event for a request to await
    wake: Callable[[Any], object]  # completes a waiter
    is_event_loop: bool = True  # ops that wait can run here
    dispatch_pending: bool = False  # a dispatch was requested and has not begun
    timer_at: float = inf  # when the next timer fires, by `monotonic`

    @property
    def host(self) -> Callable[[Call], object] | None:
        """`call`, where ops that wait can run here."""
        return self.call if self.is_event_loop else None

    @classmethod
    def of_thread(cls, in_place_us: float, calls: SimpleQueue[Call]) -> CallerLoop:
        """Return the loop of a blocked thread, which makes the calls that it takes from a queue."""

        def call(function: Call) -> bool:
            calls.put(function)
            return True

        return cls(in_place_us, call, call, _ignored, _ignored, _ignored, is_event_loop=False)


class CallerLoops:
    """The event loops from which a model is called."""

    def __init__(self, in_place_us: float) -> None:
        self._in_place_us = in_place_us
        self._known: dict[Any, CallerLoop] = {}

    def current(self) -> CallerLoop:
        """Return the caller loop of the running event loop."""
        trio = in_trio()
        running: Any
        if trio:
            running = sys.modules["trio"].lowlevel.current_trio_token()
        else:
            import asyncio

            running = asyncio.get_running_loop()
        loop = self._known.get(running)
        if loop is None:
            # A new loop is the occasion to forget those that have ended.
            known = {key: old for key, old in self._known.items() if old.call(_ignored)}
            loop = (_of_trio if trio else _of_asyncio)(running, self._in_place_us)
            self._known = {**known, running: loop}
        return loop


def _of_asyncio(running: Any, in_place_us: float) -> CallerLoop:
    context = Context()  # one client's `np.errstate` is not another's

    def wake(future: Any) -> None:
        if not future.done():  # cancelled
            future.set_result(None)

    call_soon = partial(running.call_soon, context=context)
    call_later = partial(running.call_later, context=context)
    waiter = running.create_future
    return CallerLoop(in_place_us, loop_notifier(), call_soon, call_later, waiter, wake)


def _of_trio(token: Any, in_place_us: float) -> CallerLoop:
    trio: Any = sys.modules["trio"]

    async def after(seconds: float, function: Call) -> None:
        await trio.sleep(seconds)
        function()

    def call_later(seconds: float, function: Call) -> None:
        trio.lowlevel.spawn_system_task(after, seconds, function, context=Context())

    call_soon = token.run_sync_soon
    return CallerLoop(in_place_us, loop_notifier(), call_soon, call_later, WakeUp, WakeUp.end)


def _ignored(*_: Any) -> Any:
    return None
