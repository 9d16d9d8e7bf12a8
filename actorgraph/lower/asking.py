"""`Asking`: when machine code takes over from a Python form, and when it is given up.

Tables, loops and convolutions use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from actorgraph.ops.windows import MOVES

TRIES = 8
"""Consecutive calls that machine code declines before it is given up."""

_HOOKS = 50
"""Most calls left when hooks for a fork are registered: well before there is work that a fork must
wait for, and after half of all calls, not in first runs, as that imports `logging`."""

_CALLS = 8
"""Calls of a kernel of windows before its machine code, which all kernels share, is requested."""


class Asking:
    """Machine code that is requested after some calls and written in the background.

    - `write`: returns its function; None or an exception means that there is none
    - `calls`: calls of the Python form before it is requested, -1 afterwards; with `wait` the first
      call requests it and waits
    - `made`: the function, once it is written and until it is given up
    - `tries`: calls left that it may decline in a row; the caller resets it after a success
    """

    __slots__ = ("_hooks", "_wait", "_write", "calls", "made", "tries")

    def __init__(self, write: Callable[[], Any], calls: int, wait: bool) -> None:
        self._write, self._wait, self.tries = write, wait, TRIES
        self.made: Any = None
        self.calls = 0 if wait else calls
        self._hooks = min(_HOOKS, self.calls // 2)
        if not self.calls:
            _register_hooks()

    def count(self) -> None:
        """Count a call of the Python form, and request the machine code if it is time."""
        self.calls -= 1
        if self.calls < 0:
            _once_compiled(self._set, self._wait)
        elif self.calls == self._hooks:
            _register_hooks()

    def decline(self) -> None:
        """Note that the machine code has declined a call."""
        self.tries -= 1
        if not self.tries:
            self.made = None

    def _set(self) -> None:
        with suppress(Exception):  # the Python form stays
            self.made = self._write()


def moving(kernel: Callable[..., Any], wait: bool) -> Callable[..., Any]:
    """Return a kernel whose windows are copied by machine code once it is there; same bits."""
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


def _register_hooks() -> None:
    from actorgraph.devices import background  # noqa: F401 - which registers them


def _once_compiled(write: Callable[[], None], wait: bool) -> None:
    """Call `write` once the interpreter of tables is compiled: now with `wait`, else later."""
    from actorgraph.devices import native  # late: only once something may be walked
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
