"""Which event loop or thread the calling code runs in, how to call functions on it, and to wait.

asyncio and trio are looked up among imported modules: if not imported, no such loop runs.  What a
run does here it does once or more per run, so anyio, which asks each time, is not asked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from types import coroutine
from typing import Any, final

from actorgraph.errors import GraphError


def _nothing() -> None:
    return None


def in_main_thread() -> bool:
    """Return whether this is the thread that Ctrl-C interrupts."""
    return threading.get_ident() == threading.main_thread().ident


def loop_notifier(*, at_once: bool = False) -> Callable[[Callable[[], object]], object]:
    """Return a function that runs a callable on the current event loop, from any thread.

    `at_once` calls it directly if the calling thread runs that loop, since waking the loop costs as
    much as a small run.  The function returns False if the loop was closed, where nobody waits.
    """
    schedule: Callable[..., object]
    here: Callable[[], object] = _nothing
    own: object = _nothing
    if in_trio():
        schedule = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon
    else:
        import asyncio

        own = asyncio.get_running_loop()
        schedule = own.call_soon_threadsafe
        here = asyncio._get_running_loop if at_once else here

    def notify(function: Callable[[], object]) -> bool:
        if here() is own:
            function()
            return True
        try:
            schedule(function)
        except RuntimeError:  # closed; trio.RunFinishedError is one too
            return False
        return True

    return notify


@final
class WakeUp:
    """What one task waits for, once: it awaits this, and any thread ends the wait by a call."""

    __slots__ = ("_event", "_notify")

    def __init__(self) -> None:
        self._notify = loop_notifier(at_once=True)
        self._event: Any
        if in_trio():
            self._event = sys.modules["trio"].Event()
        else:
            import asyncio

            self._event = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, Any, object]:
        event = self._event
        found: Generator[Any, Any, object]
        found = (event.wait() if hasattr(event, "wait") else event).__await__()
        return found

    def __call__(self) -> None:
        """End the wait."""
        self._notify(self.end)

    def end(self) -> None:
        """End the wait, called in its loop."""
        event = self._event
        if hasattr(event, "wait"):
            event.set()
        elif not event.done():  # else the task was cancelled, or is awake
            event.set_result(None)


@coroutine
def _yielded() -> Generator[None, None, None]:
    yield


async def checkpoint() -> None:
    """Let other tasks run, and be cancelled here."""
    if in_trio():
        await sys.modules["trio"].lowlevel.checkpoint()
    else:
        await _yielded()  # as `asyncio.sleep(0)` does


# A module that another thread is importing may be incomplete; then nobody runs in its loop.


def in_trio() -> bool:
    """Return whether the calling code runs in trio."""
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    in_trio_run = getattr(lowlevel, "in_trio_run", None)
    return in_trio_run is not None and bool(in_trio_run())


def in_event_loop() -> bool:
    """Return whether the calling code runs in an event loop."""
    # Unlike get_running_loop, this does not raise (1 us) if there is no loop.
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running_loop is not None and running_loop() is not None:
        return True
    return "trio" in sys.modules and in_trio()


def refuse_in_loop(what: str, instead: str) -> None:
    """Raise if blocking would stop an event loop; a Jupyter kernel's waits in any case."""
    if in_event_loop():
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        shell = get_ipython() if get_ipython is not None else None
        if getattr(shell, "kernel", None) is None:
            raise GraphError(
                f"{what} would block the running event loop; write `{instead}`", reference="AG113"
            )
