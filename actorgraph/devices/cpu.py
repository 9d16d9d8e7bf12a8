"""The CPU: NumPy arrays, without lanes or copies; and what the host's cores are doing."""

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
"""Preemptions in a second of CPU time that show crowding: on a crowded host there are two to five
times as many, otherwise less than half."""


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crowding:
    """Detects that other processes compete for the cores, by involuntary context switches."""

    def __init__(self) -> None:
        self._looked, self._found = perf_counter(), True
        self._spent_s, self._lost = _work_so_far()

    def found(self) -> bool:
        """Return whether the last 10 ms or more showed crowding; True before the first result."""
        now = perf_counter()
        if now - self._looked > _GLANCE_S:
            (spent_s, lost), self._looked = _work_so_far(), now
            self._found = lost - self._lost >= _LOST_A_SECOND * (spent_s - self._spent_s)
            self._spent_s, self._lost = spent_s, lost
        return self._found


def _work_so_far() -> tuple[float, int]:
    """Return the CPU seconds of this process, and its involuntary context switches."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return 0.0, 0  # Windows has no such counts
    usage = getrusage(RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nivcsw


def answer_us() -> float:
    """Return the median microseconds until a sleeping thread has answered; takes 0.3 s."""
    questions: SimpleQueue[bool] = SimpleQueue()
    answers: SimpleQueue[bool] = SimpleQueue()

    def answer() -> None:
        while questions.get():
            answers.put(True)

    def ask() -> float:
        sleep(0.001)  # until the thread and its core are asleep
        started = perf_counter()
        questions.put(True)
        answers.get()
        return perf_counter() - started

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    times = sorted(ask() for _ in range(200))
    questions.put(False)
    thread.join()
    return times[len(times) // 2] * 1e6


@final
class CPU(Device):
    """The host's processor; BLAS runs on one thread while any machine is open.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.get("cpu")
    <device cpu>
    """

    name = "cpu"
    is_host = True
    xp = np

    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the array itself."""
        return array

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself, a scalar as a 0-d array."""
        return np.asarray(array)

    def queue(self, lane: Lane) -> Queue:
        """Return a queue that does jobs at once, in the thread that puts them."""
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
