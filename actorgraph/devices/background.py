"""`Background`: the thread in which a process compiles machine code beside its runs.

One daemon thread does submitted work in order; it starts with the first work and ends when none is
left.  A fork waits for the work in progress, because LLVM's locks would stay locked in the child;
so does the end of the process, because LLVM must not be torn down meanwhile.

Python hands over the GIL every 5 ms where several threads want it.  An event loop would wait so
long, or a multiple, again and again while the work lasts; so meanwhile it is handed over sooner.

Importing this registers what a fork calls.  `lower.asking` imports it with the first machine, so
that no run does, and nothing here imports `logging` before there is something to log.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from actorgraph.devices.threads import start

_EXIT_S = 10.0
"""Most seconds that the end of the process waits for the work in progress."""

_SWITCH_S = 0.0005
"""Python's interval of handing over the GIL during work."""


@final
class Background:
    """A queue of functions, which must not raise, and the thread that calls them in order.

    They do not log but `warn`: a fork waits for them with logging's locks held.
    """

    def __init__(self) -> None:
        self._pending: deque[Callable[[], None]] = deque()
        self._warnings: deque[tuple[str, BaseException]] = deque()
        # `atexit` refers to this object, so machine code is not freed while modules are.
        self._kept: list[object] = []
        self._lock = threading.Lock()
        self._working = threading.RLock()  # held during work: a fork waits for it
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None], keep: object = None) -> None:
        """Queue work, and keep a reference to `keep` until the process ends; does not block."""
        if keep is not None:
            self._kept.append(keep)
        self._pending.append(work)
        self.resume()

    def warn(self, text: str, error: BaseException) -> None:
        """Have an error logged when no work is in progress; does not block."""
        import logging  # noqa: F401 - 3 ms; here, as a fork waits for imports of work

        self._warnings.append((text, error))
        self.resume()

    def resume(self) -> None:
        """Start a thread for pending work; a child of a fork may have none."""
        with self._lock:
            if (self._pending or self._warnings) and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="actorgraph compiler", daemon=True
                )
                try:
                    start(self._thread)
                except BaseException:
                    self._thread = None  # it may or may not run: another may work beside it
                    raise

    def _work(self) -> None:
        while True:
            while self._warnings:
                import logging  # it is there

                text, error = self._warnings.popleft()
                logging.getLogger("actorgraph").warning(
                    "%s: %s: %s", text, type(error).__name__, error, exc_info=error
                )
            with self._lock:
                if not (self._pending or self._warnings):
                    self._thread = None
                    return
            with self._working:
                # Taken under the lock that a fork waits for, so that no child loses work.
                try:
                    work = self._pending.popleft()
                except IndexError:
                    continue
                with _yielding():
                    work()
                del work

    def before_fork(self) -> None:
        """Wait for the work in progress."""
        self._working.acquire()
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Continue working."""
        self._lock.release()
        self._working.release()

    def after_fork_in_child(self) -> None:
        """Forget the thread, which does not exist here; the next request starts another."""
        self._thread = None
        self.after_fork_in_parent()

    def stop(self) -> None:
        """Drop pending work and wait for the work in progress, at the end of the process."""
        self._pending.clear()
        if self._working.acquire(timeout=_EXIT_S):
            self._working.release()


@contextmanager
def _yielding() -> Iterator[None]:
    """Have all threads hand over the GIL often, unless they do already or the user changes that."""
    before = sys.getswitchinterval()
    if before <= _SWITCH_S:
        yield
        return
    sys.setswitchinterval(_SWITCH_S)
    ours = sys.getswitchinterval()  # in whole microseconds
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours:
            sys.setswitchinterval(before)


BACKGROUND = Background()
"""The background thread of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=BACKGROUND.before_fork,
        after_in_parent=BACKGROUND.after_fork_in_parent,
        after_in_child=BACKGROUND.after_fork_in_child,
    )
atexit.register(BACKGROUND.stop)
