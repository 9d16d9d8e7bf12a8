"""Limiting BLAS to one thread while machines are open, as products change bits with the number.

NumPy's OpenBLAS accepts a number of threads from any thread until the main thread has set one; from
then on it silently ignores all others.  So both setting and restoring run in a separate thread.  If
the program has set a number in the main thread before, only the main thread can change it.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, final

from actorgraph.devices.threads import start


@final
class OneThread:
    """BLAS on one thread, from `hold` to `restore`, which undoes an interrupted `hold` too."""

    def __init__(self) -> None:
        self._limits: list[Any] = []

    def hold(self) -> None:
        """Limit the number of threads."""
        controller = _controller()

        def limit() -> None:
            self._limits.append(controller.limit(limits=1))

        _apart(limit)
        if _most(controller) > 1:
            if threading.current_thread() is threading.main_thread():
                limit()
            else:
                warnings.warn(
                    "BLAS cannot be held to one thread from here, because the main thread has set "
                    "its number before, so results may differ in the last bits from run to run; "
                    "run a machine once in the main thread, and leave it open",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def restore(self) -> None:
        """Restore the number of threads."""
        for limits in reversed(self._limits):
            _apart(limits.restore_original_limits)


_latest: tuple[int, Any] = (0, None)
"""The number of imported modules at the latest search for BLAS libraries, and their controller."""


def _controller() -> Any:
    """Return the controller of all loaded BLAS libraries.

    The search takes 0.5 ms, a third of the first run of a small graph, so it is repeated only after
    an import.
    """
    global _latest
    modules, controller = _latest
    if controller is None or modules != len(sys.modules):
        from threadpoolctl import ThreadpoolController  # late: it takes 1.5 ms

        controller = ThreadpoolController().select(user_api="blas")
        _latest = len(sys.modules), controller
    return controller


def _most(controller: Any) -> int:
    return max((library["num_threads"] for library in controller.info()), default=1)


def _apart(call: Callable[[], None]) -> None:
    """Call in a separate thread and wait: 60 us, once while machines are open.

    Where Ctrl-C interrupts this, the call has ended, or will not be made.
    """
    turn, calls = threading.Lock(), [call]

    def make() -> None:
        with turn:
            for one in calls:
                one()

    thread = threading.Thread(target=make, name="actorgraph-blas", daemon=True)
    try:
        start(thread)
        thread.join()
    except RuntimeError:  # the interpreter is shutting down
        call()
    finally:
        with turn:
            calls.clear()
