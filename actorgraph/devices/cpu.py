"""The CPU: NumPy arrays as they are."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import Any, final

import numpy as np

from actorgraph.devices.base import Cell, Device, Job, Queue
from actorgraph.devices.events import Event, HostEvent

__all__ = ["CPU", "answer_us", "available_cores"]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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

    def queue(self, name: str) -> Queue:
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

    def passed(self, event: Event) -> bool:
        return event.passed

    def free(self, cell: Cell) -> None:
        pass

    def stop(self, join: bool) -> None:
        pass
