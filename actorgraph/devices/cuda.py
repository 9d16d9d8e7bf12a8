"""`cuda:n`: a GPU through CuPy; a lane is a stream.

In CuPy current device and stream belong to a thread, so one thread issues all work of a device: it
enters the stream, calls a job, which launches its kernels, and leaves.  Kernels run later, in the
order of the stream.  The same thread records events and makes streams wait for them; a second
thread sleeps until events that the host waits for are passed, and calls back.  While an instrument
listens, each job is enclosed by two timing events.

Invariants:

- The null stream, ``Stream.use`` and callbacks of the driver, which may hold its lock and the GIL
  at once, are never used.
- CuPy's pool returns a block to its stream as soon as the last reference is gone; so `Lane.settle`
  keeps a reference until other streams are done with it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import Any, final
from weakref import WeakSet

import numpy as np

from actorgraph import instrument
from actorgraph.devices.base import Device, Handed, Job, Lane, Queue
from actorgraph.devices.events import Event
from actorgraph.devices.products import Products
from actorgraph.devices.virtual import ThreadQueue
from actorgraph.errors import GraphError
from actorgraph.options import in_child_of_fork


def count() -> int:
    """Return the number of GPUs that CuPy finds; 0 without it."""
    try:
        from cupy import cuda
    except ImportError:
        return 0
    return int(cuda.runtime.getDeviceCount()) if cuda.is_available() else 0


_OLDEST = 14
"""The first CuPy whose scalars are as weak as NumPy's (NEP 50)."""

_DLPACK_CUDA = 2
_PENDING = 600
"""CUDA's status of an event that is not passed yet."""


@final
class CUDA(Device):
    """A GPU.

    Parameters
    ----------
    index : int

    Raises
    ------
    GraphError
        If there is no CuPy, an old one, no driver, or no GPU with that number.
    """

    def __init__(self, index: int) -> None:
        self.name, self._index = f"cuda:{index}", index
        try:
            import cupy
            import cupyx
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
            needs = "needs CuPy" if missing else f"needs a CuPy that can be imported ({error})"
            raise GraphError(
                f"device {self.name!r} {needs}: pip install 'actorgraph[cuda12]', or "
                "'actorgraph[cuda13]', whichever CUDA your driver has; without a GPU use 'cpu'"
            ) from error
        if int(cupy.__version__.partition(".")[0]) < _OLDEST:
            raise GraphError(
                f"device {self.name!r} needs CuPy {_OLDEST} or later, whose dtypes are NumPy's: "
                f"this is {cupy.__version__}"
            )
        if not cupy.cuda.is_available():
            raise GraphError(
                f"device {self.name!r} is not available: CuPy is installed, but finds no driver or "
                "no GPU (see nvidia-smi), or was made for another CUDA version; use 'cpu'"
            )
        if index >= count():
            raise GraphError(
                f"device {self.name!r} is not there: GPUs are numbered below {count()}"
            )
        self._cupy, self._cupyx = cupy, cupyx
        self._issuer = ThreadQueue(f"{self.name} issuing")
        self._waiter = ThreadQueue(f"{self.name} waiting")
        self._untold: deque[tuple[Job, Any, Any]] = deque()
        self._zero: tuple[Any, float] | None = None  # an event, and the host time of its passing
        self._sides: dict[int, Any] = {}
        self.making = threading.Lock()
        self.events: deque[Any] = deque()  # for reuse: nobody can wait for them any more
        self.products = Products(cupy)
        self.refused = {}
        _all.add(self)

    def _part(self, name: str) -> CUDA:
        part = CUDA(self._index)
        part.name = name
        return part

    @property
    def xp(self) -> Any:
        return self._cupy

    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a copy, from the host (staged through pinned memory) or from a GPU."""
        return array.copy() if isinstance(array, self._cupy.ndarray) else self._cupy.asarray(array)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return pinned memory, which is filled in stream order."""
        array = self._cupy.asarray(array)
        out: np.ndarray[Any, Any] = self._cupyx.empty_pinned(array.shape, array.dtype)
        array.get(out=out, blocking=False)
        return out

    def memory(self) -> dict[str, int]:
        """Return the bytes used by CuPy's arrays, held by its pool, and of the whole GPU."""
        with self._cupy.cuda.Device(self._index):
            pool, total = self._cupy.get_default_memory_pool(), self._cupy.cuda.Device().mem_info[1]
            return {"used": pool.used_bytes(), "pool": pool.total_bytes(), "total": total}

    def holds(self, value: Any) -> bool:
        """Return whether an array is on this GPU, by DLPack or by its address."""
        if hasattr(value, "__dlpack_device__"):
            return tuple(value.__dlpack_device__()) == (_DLPACK_CUDA, self._index)
        pointer = value.__cuda_array_interface__["data"][0]
        return bool(self._cupy.cuda.runtime.pointerGetAttributes(pointer).device == self._index)

    def adopt(self, value: Any) -> Handed:
        """Return an array on this GPU, of CuPy, PyTorch, JAX or Numba, as a value without a copy.

        It is imported by DLPack, or else by ``__cuda_array_interface__``.  The exporting library
        makes the stream of lane ``"in"`` wait for its own current stream in the calling thread.
        """
        self.retain()  # no machine may be open
        try:
            lane = self.lane("in")
            assert isinstance(lane.queue, _Stream)
            stream = lane.queue.made()
            with self._cupy.cuda.Device(self._index):
                has_dlpack = hasattr(value, "__dlpack__")
                capsule = value.__dlpack__(stream=stream.ptr) if has_dlpack else None
                with stream:
                    if has_dlpack:
                        exported = _Exported(capsule, value.__dlpack_device__())
                        array = self._cupy.from_dlpack(exported)
                    else:  # CuPy waits for the stream that the interface names
                        array = self._cupy.asarray(value)
            made = lane.launch(_same, [self.hold(array)], name="adopt", record=True)
            made.cell.array = array  # its shape is known at once
            return made
        finally:
            self.release()

    def queue(self, lane: Lane) -> Queue:
        """Return a stream of its own."""
        return _Stream(self, lane.priority)

    @contextmanager
    def entered(self, stream: Any) -> Iterator[None]:
        """Enter the device and a stream; only in the issuing thread."""
        with self._cupy.cuda.Device(self._index), stream, self._cupyx.errstate(linalg="raise"):
            yield

    def new_stream(self, priority: int = 0) -> Any:
        """Return a stream that never waits for the null stream."""
        with self._cupy.cuda.Device(self._index):
            return self._cupy.cuda.Stream(non_blocking=True, priority=priority)

    def new_event(self) -> Any:
        """Return an event without timing."""
        return self._cupy.cuda.Event(block=True, disable_timing=True)

    def idle_event(self) -> Any:
        """Return a used event that is passed, or a new one."""
        if self.events and self.is_passed(self.events[0]):
            return self.events.popleft()
        return self.new_event()

    def side(self, number: int) -> Any:
        """Return a stream for a lane of captured steps; only in the issuing thread."""
        if number not in self._sides:
            self._sides[number] = self.new_stream()
        return self._sides[number]

    def issue(self, call: Callable[[], object]) -> None:
        """Queue a call for the issuing thread; an error in it means that the GPU is lost."""
        self._issuer.add(partial(self.guarded, call))

    def later(self, call: Callable[[], object]) -> None:
        """Queue a call for the waiting thread."""
        self._waiter.add(partial(self.guarded, call))

    def timed(self, job: Job, stream: Any) -> None:
        """Do a job between two timing events; only in the issuing thread."""
        if self._zero is None:
            tries = [self._passed_event(stream) for _ in range(3)]
            _, event, at = min(tries, key=itemgetter(0))
            self._zero = event, at
        job.tells = False
        begin = self._timing_event(stream)
        job()
        self._untold.append((job, begin, self._timing_event(stream)))

    def _passed_event(self, stream: Any) -> tuple[float, Any, float]:
        """Return an event with the host time of its passing; first how uncertain that is."""
        before = perf_counter()
        event = self._timing_event(stream)
        event.synchronize()
        after = perf_counter()
        return after - before, event, (before + after) / 2

    def _timing_event(self, stream: Any) -> Any:
        made = self._cupy.cuda.Event(block=True)
        made.record(stream)
        return made

    def tell(self) -> None:
        """Tell instruments of timed jobs that are done, in the order of their lanes."""
        left = []
        while self._untold:
            job, begin, end = self._untold.popleft()
            if self._zero is None or not self.is_passed(end):
                left.append((job, begin, end))
                continue
            zero, at = self._zero
            since = self._cupy.cuda.get_elapsed_time
            started, ended = (at + since(zero, one) * 1e-3 for one in (begin, end))
            instrument.tell("on_job", job, started, ended)
        self._untold.extendleft(reversed(left))

    def stop(self, join: bool) -> None:
        """End both threads, the waiting one after all events are passed."""
        self._issuer.stop(join)
        self._waiter.stop(join)

    def is_passed(self, event: Any) -> bool:
        """Return whether an event is passed; ``event.done`` would hide errors."""
        status = self._cupy.cuda.runtime.eventQuery(event.ptr)
        if status not in (0, _PENDING):
            self.lost = self.lost or RuntimeError(f"CUDA error {status}")
        return bool(status != _PENDING)

    def guarded(self, call: Callable[[], object]) -> None:
        """Make a call; an error in it means that the GPU is lost."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - CUDA errors of earlier work come anywhere
            self.lost = self.lost or error


class _Exported:
    """An array that has been exported for a stream already."""

    def __init__(self, capsule: Any, device: Any) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack_device__(self) -> Any:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


def _same(array: Any) -> Any:
    return array


class _StreamEvent(Event):
    """An event of a stream; the issuing thread records it when its turn comes."""

    def __init__(self, device: CUDA) -> None:
        super().__init__()
        self.cuda: Any = None
        self.recorded = threading.Event()
        self._device = device

    @property
    def passed(self) -> bool:
        if not self.recorded.is_set():
            return False
        return self.cuda is None or self._device.is_passed(self.cuda)

    def block(self) -> None:
        self.recorded.wait()
        if self.cuda is not None:
            self.cuda.synchronize()

    def __del__(self) -> None:
        if self.cuda is not None:
            self._device.events.append(self.cuda)

    def then(self, callback: Callable[[], object]) -> None:
        self._device.later(partial(self._call_back, callback))

    def _call_back(self, callback: Callable[[], object]) -> None:
        self._device.guarded(self.block)
        if instrument.listening:
            self._device.guarded(self._device.tell)
        callback()


class _Stream(Queue):
    def __init__(self, device: CUDA, priority: int) -> None:
        self._device, self._priority = device, priority
        self._stream: Any = None  # made at its first use

    def put(self, job: Job) -> None:
        self._device.issue(partial(self._do, job))

    def record(self) -> Event:
        event = _StreamEvent(self._device)
        self._device.issue(partial(self._record, event))
        return event

    def wait(self, event: Event) -> None:
        self._device.issue(partial(self._wait, event))

    def stop(self, join: bool) -> None:
        if join:
            self._device.guarded(self.record().block)
        self._device.stop(join)

    def made(self) -> Any:
        """Return the stream, made at its first use."""
        with self._device.making:
            if self._stream is None:
                self._stream = self._device.new_stream(self._priority)
            return self._stream

    def _do(self, job: Job) -> None:
        with self._device.entered(self.made()):
            if job.launched:
                self._device.timed(job, self._stream)
            else:
                job()

    def _record(self, event: _StreamEvent) -> None:
        try:
            if self._stream is not None:
                with self._device.entered(self._stream):
                    made = self._device.idle_event()
                    made.record(self._stream)
                    event.cuda = made
        finally:
            event.recorded.set()  # after an error, too, or a waiter would block for ever

    def _wait(self, event: Event) -> None:
        if not isinstance(event, _StreamEvent):
            event.block()
            return
        event.recorded.wait()  # the thread of another GPU may have to record it
        if event.cuda is not None:
            with self._device.entered(self.made()):
                self._stream.wait_event(event.cuda)


_all: WeakSet[CUDA] = WeakSet()


@in_child_of_fork
def _after_fork_in_child() -> None:
    for device in _all:
        device.lost = RuntimeError("a CUDA context does not survive a fork: use 'spawn'")
