"""What random transforms draw from: a generator that belongs to a sample of an epoch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from numpy.random import RandomState


@final
class _Sample(threading.local):
    """The sample that a thread makes: seed, epoch, number; and its generator, once it is asked."""

    key: tuple[int, ...] | None = None
    made: RandomState | None = None

    def begin(self, *key: int) -> None:
        """Make a sample from now on, or none."""
        self.key, self.made = (key or None), None


SAMPLE = _Sample()


def random() -> RandomState:
    """Return the generator of the sample that is made, outside of a loader one of its own."""
    if SAMPLE.made is None:
        from numpy.random import RandomState  # late: it takes 9 ms

        SAMPLE.made = RandomState(SAMPLE.key)
    return SAMPLE.made
