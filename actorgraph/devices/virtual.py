"""`virtual:n`: a device of host threads, one for each lane, with memory of its own.

It behaves like a GPU, except for the speed: work is launched asynchronously, lanes overlap, and
values come and go by copies, which may have a latency and a bandwidth.  So code for devices can
run, overlap and fail on any computer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from math import inf
from queue import SimpleQueue
from time import sleep
from typing import Any, final
from weakref import WeakSet

import numpy as np

from actorgraph.devices.base import Device, Job, Lane, Queue
from actorgraph.devices.copies import copied
from actorgraph.devices.events import Event, HostEvent
from actorgraph.devices.threads import start
from actorgraph.options import in_child_of_fork


@final
class Virtual(Device):
    """A device of threads.

    Parameters
    ----------
    name : str
    latency_s, bytes_per_s : float, optional
        Time of a copy to or from it, in addition to the host's own.
    kernel_s, kernel_bytes_per_s : float, optional
        Additional time of other work, the longer of both; bytes are those of operands and result.
    """

    xp = np

    def __init__(
        self, name: str, latency_s: float = 0.0, bytes_per_s: float = inf, kernel_s: float = 0.0,
        kernel_bytes_per_s: float = inf,
    ) -> None:  # fmt: skip
        self.name, self.latency_s, self.bytes_per_s = name, latency_s, bytes_per_s
        self.kernel_s, self.kernel_bytes_per_s = kernel_s, kernel_bytes_per_s

    def _part(self, name: str) -> Virtual:
        times = self.latency_s, self.bytes_per_s, self.kernel_s, self.kernel_bytes_per_s
        return Virtual(name, *times)

    def to_device(self, array: Any) -> Any:
        """Return a copy with the same strides."""
        copy = copied(array)
        takes_s = self.latency_s + copy.nbytes / self.bytes_per_s
        if takes_s:
            sleep(takes_s)
        return copy

    to_host = to_device

    def queue(self, lane: Lane) -> Queue:
        """Return a queue with a thread of its own."""
        timed = self.kernel_s or self.kernel_bytes_per_s != inf
        return ThreadQueue(lane.name, self._timed if timed and not lane.copies else None)

    def _timed(self, work: Callable[..., Any], *arrays: Any) -> Any:
        result = work(*arrays)
        moved = sum([getattr(one, "nbytes", 0) for one in (*arrays, result)])
        sleep(max(self.kernel_s, moved / self.kernel_bytes_per_s))
        return result


class ThreadQueue(Queue):
    """A queue with a thread that lives from the first job to `stop`.

    ``within(work, *operands)``, if given, does the work of each job.
    """

    def __init__(self, name: str, within: Callable[..., Any] | None = None) -> None:
        self._name, self._within = f"actorgraph-{name}", within
        self._reset()
        _queues.add(self)

    def _reset(self) -> None:
        self._todo: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None  # None: nothing is left to do
        self._lock = threading.RLock()

    def put(self, job: Job) -> None:
        """Queue a job for the thread."""
        if self._within is not None:
            job.work = partial(self._within, job.work)
        self.add(job)

    def record(self) -> Event:
        """Return an event that the thread sets."""
        event = HostEvent()
        with self._lock:
            if self._thread is None:
                event.set()
            else:
                self.add(event.set)
        return event

    def wait(self, event: Event) -> None:
        """Make the thread wait."""
        if not event.passed:
            self.add(event.block)

    def stop(self, join: bool) -> None:
        """End the thread, unless more work is queued meanwhile."""
        with self._lock:
            thread, ended = self._thread, threading.Event()
            if thread is not None:
                self._todo.put(partial(self._end, ended))
        if thread is not None and join and thread is not threading.current_thread():
            ended.wait()
            if self._thread is not thread:
                thread.join()

    def _end(self, ended: threading.Event) -> bool:
        with self._lock:
            over = self._todo.empty()
            if over:
                self._thread = None
        ended.set()
        return over

    def add(self, call: Callable[[], object]) -> None:
        """Queue a call for the thread."""
        with self._lock:
            self._todo.put(call)
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread = thread
                try:
                    start(thread)
                except BaseException:
                    self._thread = None
                    raise

    def _serve(self) -> None:
        with self._lock:  # held by who starts this thread
            if self._thread is not threading.current_thread():
                return  # Ctrl-C struck its start, and another may be in its place
        while self._todo.get()() is not True:
            pass


_queues: WeakSet[ThreadQueue] = WeakSet()


@in_child_of_fork
def _after_fork_in_child() -> None:
    for queue in _queues:
        queue._reset()  # the parent's threads do not exist here
