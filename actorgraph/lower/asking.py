"""`Asking`: when machine code takes over from a Python form, and when it is given up.

Tables, loops and convolutions use it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from actorgraph.devices.background import BACKGROUND
from actorgraph.lower.collector import paused
from actorgraph.ops.windows import MOVES

TRIES = 8
"""Consecutive calls that machine code declines before it is given up."""

_CALLS = 8
"""Calls of a kernel of windows before its machine code, which all kernels share, is requested."""


class Asking:
    """Machine code that is requested after some calls and written in the background.

    - `write`: returns its function, None if there is none; if it raises, there is none either
    - `calls`: calls of the Python form before it is requested, -1 afterwards; with `wait` the first
      call requests it and waits
    - `made`: the function, once it is written and until it is given up
    - `fault`: what writing it raised; empty if it raised nothing
    - `tries`: calls left that it may decline in a row; the caller resets it after a success
    """

    __slots__ = ("_wait", "_write", "calls", "fault", "made", "tries")

    def __init__(self, write: Callable[[], Any], calls: int, wait: bool) -> None:
        self._write, self._wait, self.tries = write, wait, TRIES
        self.made: Any = None
        self.fault = ""
        self.calls = 0 if wait else calls

    def count(self) -> None:
        """Count a call of the Python form, and request the machine code if it is time."""
        self.calls -= 1
        if self.calls < 0:
            _once_compiled(self._set, self._wait)

    def decline(self) -> None:
        """Note that the machine code has declined a call."""
        self.tries -= 1
        if not self.tries:
            self.made = None

    def _set(self) -> None:
        try:
            with paused():  # a full collection would hold the GIL for tens of ms
                self.made = self._write()
        except Exception as error:  # noqa: BLE001 - the Python form stays
            self.fault = given_up(error)


def given_up(error: Exception) -> str:
    """Note that writing machine code raised, which is a fault of ours; return what it raised."""
    _tell(error)
    return f"writing it raised {type(error).__name__}: {error}"


def _tell(error: Exception) -> None:
    global _has_told
    if not _has_told:
        _has_told = True
        BACKGROUND.warn(
            "machine code of some steps could not be written, and Python computes them; what else "
            "cannot be is not logged, see explain()", error,
        )  # fmt: skip


_has_told = False


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

    return Moves()


def _once_compiled(write: Callable[[], None], wait: bool) -> None:
    """Call `write` once the interpreter of tables is compiled: now with `wait`, else later."""
    from actorgraph.devices import native  # late: only once something may be walked

    native.RUNTIME.request()

    def written() -> None:
        if native.RUNTIME.walk is not None:
            write()

    if wait:
        native.RUNTIME.done.wait()
        written()
    else:
        BACKGROUND.submit(written)
