"""The CPU: NumPy arrays as they are."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import Any, final

import numpy as np

from actorgraph.devices.base import Device, Job, Lane, Queue
from actorgraph.devices.events import Event, HostEvent

_GLANCE_S = 0.01
_LOST_A_SECOND = 1000
"""Of work; where others want the cores it is twice to five times as often, else under half."""


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crowding:
    """Tells whether others want our cores: then threads lose them in the middle of their work."""

    def __init__(self) -> None:
        self._looked, self._found = perf_counter(), True
        self._spent_s, self._lost = _work_so_far()

    def found(self) -> bool:
        """Return what the last hundredth of a second has shown, True before."""
        now = perf_counter()
        if now - self._looked > _GLANCE_S:
            (spent_s, lost), self._looked = _work_so_far(), now
            self._found = lost - self._lost >= _LOST_A_SECOND * (spent_s - self._spent_s)
            self._spent_s, self._lost = spent_s, lost
        return self._found


def _work_so_far() -> tuple[float, int]:
    """Return the seconds that this process has worked, and how often threads lost their core."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return 0.0, 0  # Windows does not tell
    usage = getrusage(RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nivcsw


def answer_us() -> float:
    """Return the median microseconds until a thread that slept has answered; takes 0.3 s."""
    asked: SimpleQueue[bool] = SimpleQueue()
    answered: SimpleQueue[bool] = SimpleQueue()

    def answer() -> None:
        while asked.get():
            answered.put(True)

    def ask() -> float:
        sleep(0.001)  # until it is asleep, and its core too
        started = perf_counter()
        asked.put(True)
        answered.get()
        return perf_counter() - started

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    times = sorted(ask() for _ in range(200))
    asked.put(False)
    thread.join()
    return times[len(times) // 2] * 1e6


@final
class CPU(Device):
    """The host's processor; BLAS runs on one thread while workers live.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.get("cpu")
    <device cpu>
    """

    name = "cpu"
    is_host = True

    @property
    def xp(self) -> Any:
        """NumPy."""
        return np

    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the array itself."""
        return array

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself, a scalar as a 0-d array."""
        return np.asarray(array)

    def queue(self, lane: Lane) -> Queue:
        """Return a queue that does its work at once, where it is put."""
        return _AtOnce()


class _AtOnce(Queue):
    def put(self, job: Job) -> None:
        job()

    def record(self) -> Event:
        event = HostEvent()
        event.set()
        return event

    def wait(self, event: Event) -> None:
        event.block()
