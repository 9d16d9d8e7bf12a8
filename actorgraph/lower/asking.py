"""`Asking`: how machine code comes to stand for what Python does."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from actorgraph.ops.windows import MOVES

TRIES = 8
"""Calls one after another that it declines before it is asked no more."""

_CALLS = 8
"""Calls of a kernel before it is given machine code, which is there for all of them."""


class Asking:
    """Something that is not asked for, being written, there (`made`), or never.

    It is asked for after so many `calls` without it, or at the first one, which waits.  It is what
    `write` returns; None and an exception say that there is none.
    """

    __slots__ = ("_wait", "_write", "calls", "made", "tries")

    def __init__(self, write: Callable[[], Any], calls: int, wait: bool) -> None:
        self._write, self._wait, self.tries = write, wait, TRIES
        self.made: Any = None
        self.calls = 0 if wait else calls  # -1 afterwards

    def count(self) -> None:
        """Count a call without it, and ask for it if it is time."""
        self.calls -= 1
        if self.calls < 0:
            _when_there(self._set, self._wait)

    def decline(self) -> None:
        """Note that it has done nothing."""
        self.tries -= 1
        if not self.tries:
            self.made = None

    def _set(self) -> None:
        with suppress(Exception):  # Python goes on
            self.made = self._write()


def moving(kernel: Callable[..., Any], wait: bool) -> Callable[..., Any]:
    """Return a kernel whose windows machine code moves when it is there, with the same bits."""
    asking = Asking(_moves, _CALLS, wait)

    def moved(*arrays: Any, **out: Any) -> Any:
        if asking.calls >= 0:
            asking.count()
        token = MOVES.set(asking.made)
        try:
            return kernel(*arrays, **out)
        finally:
            MOVES.reset(token)

    return moved


@cache
def _moves() -> Any:
    from actorgraph.devices.windowing import Moves
    from actorgraph.lower.rates import path

    return Moves(os.path.dirname(path()))


def _when_there(write: Callable[[], None], wait: bool) -> None:
    """Have rows written when there is machine code, in the background if nobody is to `wait`."""
    from actorgraph.devices import native  # with the first thing that may be walked
    from actorgraph.devices.background import BACKGROUND
    from actorgraph.lower.rates import path

    native.RUNTIME.request(os.path.dirname(path()))

    def written() -> None:
        if native.RUNTIME.walk is not None:
            write()

    if wait:
        native.RUNTIME.done.wait()
        written()
    else:
        BACKGROUND.submit(written)
