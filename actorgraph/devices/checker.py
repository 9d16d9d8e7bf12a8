"""`Checked`: a device with a race detector for the work of its lanes.

It sees what lanes put into their queues (jobs, events, waits, returned memory) and keeps its own
vector clocks.  So it is independent of the protocol in `Lane` that it checks, and finds a missing
wait in every run, whatever the timing.  Its rules:

- A job comes after the jobs that make its operands.
- Returning memory counts as a write by its home lane: it comes after all jobs that make or read it.
- Returned memory is not read.
- Only the thread that holds `base.issuing` gives work to lanes.

Source: the happens-before detectors of L. Lamport's clocks, as in FastTrack (Flanagan and Freund).
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, TypeAlias, final
from weakref import WeakKeyDictionary

import numpy as np

from actorgraph.devices import base
from actorgraph.devices.base import Cell, Device, Job, Lane, Queue
from actorgraph.devices.events import Event


class Finding(NamedTuple):
    """A race or a wrong lifetime, with the two jobs that nothing orders.

    Its kind is ``"missing wait"``, ``"released too early"``, ``"used after release"`` or ``"used by
    two threads"``.
    """

    kind: str
    first: str
    second: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class _Access(NamedTuple):
    queue: _CheckedQueue
    time: int
    name: str

    def __str__(self) -> str:
        return f"{self.name!r} on {self.queue.name}"


class _History:
    """The accesses to a cell, and the cells whose memory it may share."""

    def __init__(self, write: _Access, shows: dict[Cell, None]) -> None:
        self.write, self.shows = write, shows
        self.reads: dict[_CheckedQueue, _Access] = {}
        self.freed = False


# Global, because values travel between devices.
_Clock: TypeAlias = "WeakKeyDictionary[_CheckedQueue, int]"
_histories: WeakKeyDictionary[Cell, _History] = WeakKeyDictionary()
_orders: WeakKeyDictionary[Event, _Clock] = WeakKeyDictionary()
_host: _Clock = WeakKeyDictionary()


def _merge(clock: _Clock, other: _Clock) -> None:
    for queue, time in other.items():
        clock[queue] = max(time, clock.get(queue, 0))


@final
class Checked(Device):
    """A device with a race detector; see the module."""

    def __init__(self, inner: Device) -> None:
        self.inner = self._own = inner
        self.name = f"check({inner.name})"
        self.products, self.refused = inner.products, inner.refused
        self._findings: dict[Finding, None] = {}

    @property
    def xp(self) -> Any:
        return self._own.xp

    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        return self._own.to_device(array)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        return self._own.to_host(array)

    def queue(self, lane: Lane) -> Queue:
        """Return a checked queue of the device inside."""
        return _CheckedQueue(self, lane.name, self._own.queue(lane))

    def report(self) -> list[Finding]:
        """Return the distinct findings since the device was wrapped."""
        with base.issuing:
            return [*self._findings]

    def found(self, kind: str, first: object, second: object, text: str) -> None:
        """Add a finding."""
        self._findings[Finding(kind, str(first), str(second), text)] = None


class _CheckedQueue(Queue):
    def __init__(self, device: Checked, name: str, inner: Queue) -> None:
        self.device, self.name, self._inner = device, name, inner
        self._clock: _Clock = WeakKeyDictionary()
        self._latest = _Access(self, 0, "nothing")

    def _next(self, name: str) -> _Access:
        """Return the next access of this lane, ordered after all that the host has seen."""
        _merge(self._clock, _host)
        time = self._clock[self] = self._clock.get(self, 0) + 1
        before, self._latest = self._latest, _Access(self, time, name)
        self._check_thread(before, self._latest)
        return self._latest

    def _check_thread(self, before: object, now: object) -> None:
        if not base.issuing._is_owned():  # type: ignore[attr-defined]
            self.device.found(
                "used by two threads", before, now,
                f"{now} comes from {threading.current_thread().name}, and another thread may give "
                f"the lane something since {before}: nobody holds `issuing`",
            )  # fmt: skip

    def _is_after(self, other: _Access) -> bool:
        return self._clock.get(other.queue, 0) >= other.time

    def put(self, job: Job) -> None:
        now = self._next(job.name)
        seen = dict.fromkeys(job.reads)
        for cell in job.reads:
            if cell in _histories:
                seen |= _histories[cell].shows
        for cell in seen:
            history = _histories.get(cell)
            if history is None:
                continue
            made = history.write
            if history.freed:
                self.device.found(
                    "used after release", made, now,
                    f"{now} reads what {made} has made, whose memory was given back before",
                )  # fmt: skip
            elif not self._is_after(made):
                self.device.found(
                    "missing wait", made, now,
                    f"{now} reads what {made} makes, and waits for no event behind it",
                )  # fmt: skip
            history.reads[self] = now
        made_now = _History(now, {} if job.fresh else seen)
        _histories.update(dict.fromkeys((job.cell, *job.parts), made_now))
        self._inner.put(job)

    def record(self) -> Event:
        self._check_thread(self._latest, f"an event on {self.name}")
        event = self._inner.record()
        _orders[event] = self._clock.copy()
        return event

    def wait(self, event: Event) -> None:
        self._check_thread(self._latest, f"a wait on {self.name}")
        if event in _orders:
            _merge(self._clock, _orders[event])
        self._inner.wait(event)

    def note_passed(self, event: Event) -> None:
        if event in _orders:
            _merge(_host, _orders[event])

    def free(self, cell: Cell) -> None:
        history = _histories.get(cell)
        if history is not None:
            self._next("release")
            for one in (history.write, *history.reads.values()):
                if not self._is_after(one):
                    self.device.found(
                        "released too early", one, history.write,
                        f"the memory of {history.write} is given back, and {one} may be using it "
                        "still: nothing waits for it",
                    )  # fmt: skip
            history.freed = True
        self._inner.free(cell)

    def stop(self, join: bool) -> None:
        with base.issuing:
            done = self._clock.copy()
        self._inner.stop(join)
        with base.issuing:
            if join:
                _merge(_host, done)
