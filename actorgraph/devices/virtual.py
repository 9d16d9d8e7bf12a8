"""`virtual:n`: a device of the host's own threads, one a lane, with a memory of its own.

It has what a GPU has, but for its speed: work is launched and done later, lanes overlap, and values
come and go by copies, which may be given a latency and a bandwidth.  So what is written for devices
runs, overlaps and fails on any machine.
"""

from __future__ import annotations

import os
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
from actorgraph.devices.events import Event, HostEvent


@final
class Virtual(Device):
    """A device of threads.

    Parameters
    ----------
    name : str
    latency_s, bytes_per_s : float, optional
        What a copy to or from it takes, beside the time that the host needs for it.
    kernel_s, kernel_bytes_per_s : float, optional
        What other work takes beside that, whichever is longer; bytes are of operands and result.
    """

    def __init__(
        self,
        name: str,
        latency_s: float = 0.0,
        bytes_per_s: float = inf,
        kernel_s: float = 0.0,
        kernel_bytes_per_s: float = inf,
    ) -> None:
        super().__init__()
        self.name, self.latency_s, self.bytes_per_s = name, latency_s, bytes_per_s
        self.kernel_s, self.kernel_bytes_per_s = kernel_s, kernel_bytes_per_s

    def _part(self, name: str) -> Virtual:
        times = self.latency_s, self.bytes_per_s, self.kernel_s, self.kernel_bytes_per_s
        return Virtual(name, *times)

    @property
    def xp(self) -> Any:
        """NumPy."""
        return np

    def to_device(self, array: Any) -> Any:
        """Return a copy."""
        copy = np.array(array)
        takes_s = self.latency_s + copy.nbytes / self.bytes_per_s
        if takes_s:
            sleep(takes_s)
        return copy

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a copy."""
        return Virtual.to_device(self, array)  # type: ignore[no-any-return]

    def queue(self, lane: Lane) -> Queue:
        """Return a queue with a thread of its own."""
        timed = self.kernel_s or self.kernel_bytes_per_s != inf
        return ThreadQueue(lane.name, self._timed if timed and not lane.copies else None)

    def _timed(self, work: Callable[..., Any], *arrays: Any) -> Any:
        found = work(*arrays)
        moved = sum([getattr(one, "nbytes", 0) for one in (*arrays, found)])
        sleep(max(self.kernel_s, moved / self.kernel_bytes_per_s))
        return found


class ThreadQueue(Queue):
    """A queue whose work is done by a thread, which is there from the first job to `stop`.

    `within` is given the work of each job and its operands, and does it.
    """

    def __init__(self, name: str, within: Callable[..., Any] | None = None) -> None:
        self._name, self._within = f"actorgraph-{name}", within
        self._reset()
        _queues.add(self)

    def _reset(self) -> None:
        self._todo: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None  # None: all is done
        self._lock = threading.RLock()

    def put(self, job: Job) -> None:
        """Have the thread do it."""
        if self._within is not None:
            job.work = partial(self._within, job.work)
        self.add(job)

    def record(self) -> Event:
        """Return a mark that the thread passes."""
        event = HostEvent()
        with self._lock:
            if self._thread is None:
                event.set()
            else:
                self.add(event.set)
        return event

    def wait(self, event: Event) -> None:
        """Have the thread wait."""
        if not event.passed:
            self.add(event.block)

    def stop(self, join: bool) -> None:
        """End the thread, if nobody has given it more to do meanwhile."""
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
        """Have the thread make a call."""
        with self._lock:
            self._todo.put(call)
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def _serve(self) -> None:
        while self._todo.get()() is not True:
            pass


_queues: WeakSet[ThreadQueue] = WeakSet()


def _after_fork_in_child() -> None:
    for queue in _queues:
        queue._reset()  # the parent's threads do not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
