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
_OFTEN = 5
"""Times that objects grow old before all are gone through: a first run has three, Python ten."""

_grown = _times = _passes = 0
"""Objects that have grown old here since all were gone through, in how many times, and how often
all were gone through."""


@contextmanager
def paused() -> Iterator[None]:
    """Collect no cycles meanwhile, in the whole process.

    Compiling a graph makes some hundred thousand objects and no garbage; going through them again
    and again took a third of the time.  Whoever is last of several threads switches it on again,
    and has what there is count as old: it is gone through with all else, when that is due.
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
                    _grow_old()
                gc.enable()


def _grow_old() -> None:
    """Have all objects count as old: what is new is not gone through if nobody has frozen others.

    Python goes through the old ones when a quarter of them has come that way, in several times;
    this way it does not see them come, so it is done here.  Python 3.12 freezes its immortal
    objects by itself.
    """
    global _grown, _times, _passes
    if gc.get_freeze_count():
        gc.collect(1)
        return
    passes = gc.get_stats()[-1]["collections"]
    if passes != _passes:
        _grown, _times, _passes = 0, 0, passes
    _grown += gc.get_count()[0]
    _times += 1
    gc.freeze()
    # To count them takes as long as to compile some hundred nodes.
    known = gc.get_freeze_count() if _times > _OFTEN else 0
    gc.unfreeze()
    if known and _grown > known / 4:
        gc.collect()
