"""`Adversary`: a device that does everything as late, and in as odd an order, as is legal.

Its lanes are lists.  Work is done only when somebody waits for an event, or by chance; then in an
order that the seed draws among all that lanes and events allow.  Returned memory is filled with NaN
in the order of its home lane, as if the next job there had overwritten it at once.  So a missing
wait or release shows as a wrong value for some seed, and always for the same seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, TypeAlias, final
from weakref import ref

import numpy as np

from actorgraph.devices import base
from actorgraph.devices.base import Cell, Device, Lane, Queue
from actorgraph.devices.copies import copied
from actorgraph.devices.events import Event

_AHEAD = 0.3
"""Probability that a lane does one thing more after something was put."""

_Step: TypeAlias = Callable[[], object] | Event
"""A call, or a wait for an event."""


@final
class Adversary(Device):
    """A device whose lanes do their work in random legal orders; see the module.

    It uses the array module of the device inside, in host memory.
    """

    def __init__(self, inner: Device, seed: int = 0) -> None:
        self.inner, self.name = inner, f"adversary({inner.name})"
        self.random = Random(seed)
        self.queues: list[_LateQueue] = []
        with base.issuing:
            _all[:] = [one for one in _all if one() is not None] + [ref(self)]

    @property
    def xp(self) -> Any:
        assert self.inner is not None
        return self.inner.xp

    def to_device(self, array: Any) -> Any:
        """Return a copy with the same strides."""
        return copied(array)

    to_host = to_device

    def queue(self, lane: Lane) -> Queue:
        """Return a queue that delays its work."""
        made = _LateQueue(self)
        self.queues.append(made)
        return made

    def step(self) -> bool:
        """Let a lane, drawn among those that can go on, do one thing; return False if none can.

        The lane may be another adversary's, since these wait for each other.
        """
        there = [device for one in _all if (device := one()) is not None]
        ready = [queue for device in there for queue in device.queues if queue.may_go_on()]
        if ready:
            self.random.choice(ready).go_on()
        return bool(ready)

    def drive(self, done: Callable[[], bool]) -> None:
        """Do work until `done` is true."""
        with base.issuing:
            while not done():
                if not self.step():
                    raise RuntimeError(f"the lanes of {self.name} wait for each other")


_all: list[ref[Adversary]] = []


class _LateEvent(Event):
    """An event whose device does work when somebody waits for it."""

    passed = False

    def __init__(self, device: Adversary) -> None:
        super().__init__()
        self._device = device

    def set(self) -> None:
        """Mark it as passed."""
        self.passed = True

    def block(self) -> None:
        self._device.drive(partial(getattr, self, "passed"))

    def then(self, callback: Callable[[], object]) -> None:
        self.block()
        callback()


class _LateQueue(Queue):
    def __init__(self, device: Adversary) -> None:
        self._device = device
        self._todo: deque[_Step] = deque()
        self._busy = False

    def record(self) -> Event:
        event = _LateEvent(self._device)
        self.put(event.set)
        return event

    def wait(self, event: Event) -> None:
        self.put(event)

    def free(self, cell: Cell) -> None:
        self.put(partial(_poison, cell))

    def stop(self, join: bool) -> None:
        if join:
            self._device.drive(self._is_empty)

    def _is_empty(self) -> bool:
        return not self._todo

    def put(self, step: _Step) -> None:
        self._todo.append(step)
        device = self._device
        while device.random.random() < _AHEAD and device.step():
            pass

    def may_go_on(self) -> bool:
        """Return whether the queue has something to do that is not a blocked wait."""
        first = self._todo[0] if self._todo and not self._busy else None
        if isinstance(first, Event):
            return first.passed or not isinstance(first, _LateEvent)
        return first is not None

    def go_on(self) -> None:
        """Do the first thing; it may make other lanes go on, but never this one."""
        step, self._busy = self._todo.popleft(), True
        try:
            (step.block if isinstance(step, Event) else step)()
        finally:
            self._busy = False


def _poison(cell: Cell) -> None:
    """Overwrite an array that nobody may read any more."""
    for array in cell.array if isinstance(cell.array, tuple) else (cell.array,):
        if not (isinstance(array, np.ndarray) and array.flags.owndata) or cell.shared:
            continue
        if array.dtype.kind in "fcV":
            array.fill(np.nan)
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max)
        else:
            np.logical_not(array, out=array)
