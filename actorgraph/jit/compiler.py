"""Compiling loops with Numba, in the background, with a cache on disk.

One daemon thread a process imports Numba (seconds) and compiles what was asked for, in order; it
ends when there is nothing more to do, and none starts before something is.  Whoever waits for
nothing goes on with ordinary kernels and looks at `CompiledLoop.function`, which is set at once.

Numba's own cache keeps machine code beside the text that it belongs to, by the version of Numba,
the CPU and the types; a file of it that cannot be read costs a compilation, no more.
"""

from __future__ import annotations

import atexit
import logging  # before the hooks of forks are registered: it has some, and Numba imports it
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, final

__all__ = ["COMPILER", "CompiledLoop", "Compiler", "is_installed"]

_EXIT_S = 10.0
"""Seconds that the end of the process waits for the compilation in progress: LLVM must not be torn
down under it."""


def is_installed() -> bool:
    """Return whether Numba is there, without importing it."""
    return find_spec("numba") is not None


@final
class CompiledLoop:
    """What has become of a text.

    Attributes
    ----------
    function : callable or None
        None until it is compiled, and for ever where that fails.
    error : BaseException or None
        Why it failed.
    """

    __slots__ = ("directory", "done", "error", "function", "parameters", "text")

    def __init__(self, text: str, parameters: Any, directory: str) -> None:
        self.text, self.parameters, self.directory = text, parameters, directory
        self.function: Callable[..., None] | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()


@final
class Compiler:
    """The texts of a process.

    Parameters
    ----------
    compile_text : callable, optional
        Makes a function of a `CompiledLoop`; by default with Numba.
    """

    def __init__(
        self, compile_text: Callable[[CompiledLoop], Callable[..., None]] | None = None
    ) -> None:
        self._compile = _compile if compile_text is None else compile_text
        self._known: dict[Hashable, CompiledLoop] = {}
        self._pending: deque[CompiledLoop] = deque()
        self._lock = threading.Lock()
        self._working = threading.RLock()  # held while compiling: a fork waits for it
        self._thread: threading.Thread | None = None
        self._warned = False

    def request(self, text: str, parameters: tuple[Any, ...], directory: str) -> CompiledLoop:
        """Return what becomes of the text, which is compiled once; does not block."""
        with self._lock:
            key = text, parameters
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = CompiledLoop(text, parameters, directory)
                self._pending.append(found)
            if self._pending and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="actorgraph compiler", daemon=True
                )
                self._thread.start()
        return found

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._thread = None
                    return
            with self._working:
                # Taken under the lock that a fork waits for: no child loses one half done.
                try:
                    found = self._pending.popleft()
                except IndexError:
                    continue
                try:
                    found.function = self._compile(found)
                except BaseException as error:  # noqa: BLE001 - ordinary kernels go on
                    found.error = error
                    self._warn(error)
                found.done.set()

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            logging.getLogger("actorgraph").warning(
                "a fused step could not be compiled and runs its ordinary kernels; others of this "
                "process that fail say nothing: %s: %s", type(error).__name__, error,
            )  # fmt: skip

    def before_fork(self) -> None:
        """Wait for the compilation in progress: Numba's locks would stay locked in the child."""
        self._working.acquire()
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()
        self._working.release()

    def after_fork_in_child(self) -> None:
        """Forget the thread, which is not here; the next request starts another."""
        self._thread = None
        self.after_fork_in_parent()

    def stop(self) -> None:
        """Give up what is pending and wait for what is in progress; the process ends."""
        self._pending.clear()
        if self._working.acquire(timeout=_EXIT_S):
            self._working.release()


def _compile(one: CompiledLoop) -> Callable[..., None]:
    import numba

    place = os.path.join(
        one.directory,
        f"jit-numba-{numba.__version__}",
        f"{sha256(one.text.encode()).hexdigest()}.py",
    )
    # Numba's cache wants to import the module of what it reads back.
    scope: dict[str, Any] = {"__name__": __name__}
    with suppress(OSError):
        _keep(place, one.text)
    exec(compile(one.text, place, "exec"), scope)  # our own text, made of a table
    signature = numba.boolean(*[_type(numba, *parameter) for parameter in one.parameters])
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        made = numba.njit(signature, cache=True, **options)(scope["kernel"])
    except Exception:  # noqa: BLE001 - nowhere to cache, or a file that is damaged
        made = numba.njit(signature, **options)(scope["kernel"])
    return made  # type: ignore[no-any-return]


def _keep(place: str, text: str) -> None:
    """Write the text where it does not stand already: its date is part of the cache's key."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.exists(place):
        with open(place, encoding="utf-8") as file:
            if file.read() == text:
                return
    draft = f"{place}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, place)


def _type(numba: Any, dtype: str, axes: int | None, writable: bool) -> Any:
    scalar = numba.boolean if dtype == "bool" else getattr(numba, dtype)
    if axes is None:
        return scalar
    return numba.types.Array(scalar, axes, "C", readonly=not writable)


COMPILER = Compiler()
"""That of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=COMPILER.before_fork,
        after_in_parent=COMPILER.after_fork_in_parent,
        after_in_child=COMPILER.after_fork_in_child,
    )
atexit.register(COMPILER.stop)
