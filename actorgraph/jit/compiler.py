"""Compiling loops with Numba, in the background, with a cache on disk.

The `Background` of the process imports Numba (seconds) and compiles what was asked for.  Whoever
waits for nothing goes on with ordinary kernels and looks at `CompiledLoop.function`, which is set
at once.

Numba's own cache keeps machine code beside the text that it belongs to, by the version of Numba,
the CPU and the types; a file of it that cannot be read costs a compilation, no more.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, final

from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.files import write_whole


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
        self._warned = False

    def request(self, text: str, parameters: tuple[Any, ...], directory: str) -> CompiledLoop:
        """Return what becomes of the text, which is compiled once; does not block."""
        new = CompiledLoop(text, parameters, directory)
        found = self._known.setdefault((text, parameters), new)
        if found is new:
            BACKGROUND.submit(partial(self._make, found))
        else:
            BACKGROUND.resume()
        return found

    def _make(self, one: CompiledLoop) -> None:
        try:
            one.function = self._compile(one)
        except BaseException as error:  # noqa: BLE001 - ordinary kernels go on
            one.error = error
            self._warn(error)
        one.done.set()

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            logging.getLogger("actorgraph").warning(
                "a fused step could not be compiled and runs its ordinary kernels; others of this "
                "process that fail say nothing: %s: %s", type(error).__name__, error,
            )  # fmt: skip


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
    if os.path.exists(place):
        with open(place, encoding="utf-8") as file:
            if file.read() == text:
                return
    write_whole(place, text.encode())


def _type(numba: Any, dtype: str, axes: int | None, writable: bool) -> Any:
    scalar = numba.boolean if dtype == "bool" else getattr(numba, dtype)
    if axes is None:
        return scalar
    return numba.types.Array(scalar, axes, "C", readonly=not writable)


COMPILER = Compiler()
"""That of this process."""
