"""The random generator of transforms, seeded for each sample of an epoch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from numpy.random import RandomState


@final
class _Sample(threading.local):
    """The sample that a thread is making: its seed, epoch and number, and its generator if used."""

    key: tuple[int, ...] | None = None
    made: RandomState | None = None

    def begin(self, *key: int) -> None:
        """Begin a sample, or without a key end it."""
        self.key, self.made = (key or None), None


SAMPLE = _Sample()


def random() -> RandomState:
    """Return the generator of the current sample; outside a loader, an unseeded one."""
    if SAMPLE.made is None:
        from numpy.random import RandomState  # late: it takes 9 ms

        SAMPLE.made = RandomState(SAMPLE.key)
    return SAMPLE.made
