"""Pausing the cyclic garbage collector while a graph is compiled.

Compiling makes many objects that all stay alive, and no garbage.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_MANY = 10_000
"""New objects above which they are promoted to the old generation by hand."""

_pausing = 0
_was_enabled = False
_OFTEN = 5
"""Promotions before a full collection is considered: a first run makes three, Python takes ten."""

_promoted = _times = _passes = 0
"""Objects promoted here since the last full collection, in how many promotions, and the number of
full collections."""


@contextmanager
def paused() -> Iterator[None]:
    """Disable the garbage collector in the whole process, for the `with` block.

    Compiling a graph makes some hundred thousand objects and no garbage; traversing them again and
    again took a third of the time.  The last of several threads enables the collector again and
    promotes all objects to the old generation, which is traversed when a full collection is due.
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
                    _promote()
                gc.enable()


def _promote() -> None:
    """Promote all objects to the old generation, without traversing them if none are frozen.

    Python runs a full collection when the old generation has grown by a quarter, in several
    promotions.  It does not see objects promoted here, so this function does that.  Python 3.12
    itself freezes its immortal objects.
    """
    global _promoted, _times, _passes
    if gc.get_freeze_count():
        gc.collect(1)
        return
    passes = gc.get_stats()[-1]["collections"]
    if passes != _passes:
        _promoted, _times, _passes = 0, 0, passes
    _promoted += gc.get_count()[0]
    _times += 1
    gc.freeze()
    # Counting them takes as long as compiling some hundred nodes.
    known = gc.get_freeze_count() if _times > _OFTEN else 0
    gc.unfreeze()
    if known and _promoted > known / 4:
        gc.collect()
