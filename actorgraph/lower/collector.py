"""Pausing the cyclic garbage collector while many objects are made that all stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_MANY = 10_000
"""New objects; of fewer the collector itself makes little work."""

_pausing = 0
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """Collect no cycles meanwhile, in the whole process.

    Compiling a graph makes some hundred thousand objects and no garbage; going through them again
    and again took a third of the time.  Whoever is last of several threads switches it on again,
    and has it go through what there is once, not twice, before that counts as old.
    """
    global _pausing, _was_enabled
    with _lock:
        if _pausing == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pausing += 1
    try:
        yield
    finally:
        with _lock:
            _pausing -= 1
            if _pausing == 0 and _was_enabled:
                if gc.get_count()[0] > _MANY:
                    gc.collect(1)
                gc.enable()
