"""Holding BLAS to one thread while machines are open: products change bits with their number.

NumPy's OpenBLAS obeys any thread until the main thread has set the number once; from then on it
obeys only that one, silently.  So both setting and restoring happen in a thread of their own.
Where the program itself has set it in the main thread before, only the main thread can.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, final


@final
class OneThread:
    """BLAS on one thread, from now until `restore`."""

    def __init__(self) -> None:
        controller = _controller()
        self._limits: list[Any] = []

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
        """Give BLAS the threads that it had."""
        for limits in reversed(self._limits):
            _apart(limits.restore_original_limits)


_found: tuple[int, Any] = (0, None)
"""How many modules there were when the libraries were looked for last, and what sets them."""


def _controller() -> Any:
    """Return what sets the threads of all BLAS libraries.

    They are looked for again where a module was imported since: it takes 0.5 ms, a third of the
    first run of a small graph.
    """
    global _found
    modules, controller = _found
    if controller is None or modules != len(sys.modules):
        from threadpoolctl import ThreadpoolController  # 1.5 ms that only a run pays

        controller = ThreadpoolController().select(user_api="blas")
        _found = len(sys.modules), controller
    return controller


def _most(controller: Any) -> int:
    return max((library["num_threads"] for library in controller.info()), default=1)


def _apart(call: Callable[[], None]) -> None:
    """Call in a thread of its own and wait: 60 us, once for each time that machines are open."""
    thread = threading.Thread(target=call, name="actorgraph-blas", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending, and starts no threads any more
        call()
    else:
        thread.join()
