"""A stand-in for CuPy on the host: strict arrays, late streams, memory that is reused per stream.

What `devices/cuda.py` calls, and what ops call on arrays; numbers are NumPy's.  Each array keeps
two books: its value in program order, computed when a call is made (which gives shape and dtype,
too), and memory that the queued kernel writes.  A stream is a list, and a seed says how far others
run ahead when something is put into one: late, but legal.  Memory that nobody refers to goes back
to the stream that it was allocated on at once, and is written over in that stream's order.  A read
by the host whose two books differ is a race.

Arrays are no NumPy arrays: converting one implicitly, or an operand of NumPy's, is an error.
A stream, an event and an array are of the GPU that was current when they were made; a world has one
GPU or several, and what CuPy or CUDA refuses of another one's is an error.  Captures are in
`graphs`.  Not here: names that only CuPy lacks.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from functools import partial
from random import Random
from time import perf_counter
from types import ModuleType, SimpleNamespace
from weakref import WeakValueDictionary

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import special

from tests._cupy.admitted import OTHERS, REDUCING, SNAPSHOT, check_call, check_ufunc

__all__ = ["World", "cupy", "cupyx"]


class World:
    """All streams of the process, and what must not happen."""

    def __init__(self, seed=0, gpus=1):
        self.random, self.gpus = Random(seed), gpus
        self.lock = threading.RLock()
        self.streams = []
        self.races = []
        self.stepping = False
        self.on_null = 0
        self.copies = self.peers = self.replays = self.kernels = 0
        self.allocations = self.fails_at = 0  # the number of the one for which there is no room
        self.fault = None  # sticky: from then on each call raises it

    def step(self):
        if self.stepping:  # memory that is collected meanwhile is put into a stream
            return False
        ready = [one for one in self.streams if one.todo and one.may_go_on()]
        if ready:
            self.stepping = True
            try:
                self.random.choice(ready).todo.popleft()()
            finally:
                self.stepping = False
        return bool(ready)

    def drive(self, done):
        with self.lock:
            while not done():
                assert self.step(), "streams wait for each other"


world = World()
current = threading.local()


def device_now():
    return getattr(current, "devices", (0,))[-1]


def stream_now():
    """Return the current stream, which a thread has for each GPU."""
    stack = getattr(current, "streams", {}).get(device_now())
    if not stack:
        world.on_null += 1
        return null
    return stack[-1]


class Wait:
    def __init__(self, mark):
        self.mark = mark

    def __call__(self):
        pass


known_streams = {}


class Stream:
    of_graph = False
    capturing = None

    def __init__(self, null=False, non_blocking=False, ptds=False, *, priority=None):
        assert null or non_blocking, "a blocking stream waits for the null stream"
        self.todo, self.priority = deque(), priority
        self.device = -1 if null else device_now()
        self.ptr = len(known_streams) + 1
        known_streams[self.ptr] = self
        world.streams.append(self)

    def may_go_on(self):
        return not isinstance(self.todo[0], Wait) or self.todo[0].mark["passed"]

    def put(self, call):
        if self.capturing is not None:
            self.capturing.lists[self].append(call)
            return
        with world.lock:
            self.todo.append(call)
            while world.random.random() < 0.3 and world.step():
                pass

    def __enter__(self):
        if self.device not in (-1, device_now()):
            raise RuntimeError(f"a stream of GPU {self.device}, where {device_now()} is current")
        streams = getattr(current, "streams", {})
        here = device_now()
        current.streams = streams | {here: [*streams.get(here, []), self]}
        return self

    def __exit__(self, *error):
        here = device_now()
        *before, last = current.streams[here]
        assert last is self, "streams are left in the order in which they were entered"
        current.streams = current.streams | {here: before}

    def wait_event(self, event):
        mark = event.mark
        if isinstance(mark, graphs.Mark):
            if self.capturing is None:
                self.capturing = mark.capture
                mark.capture.lists[self] = []
            assert self.capturing is mark.capture, "a stream of another capture"
            self.put(graphs.Joined(mark))
        elif mark is not None:  # one that was never recorded counts as passed
            if self.capturing is not None:
                self.capturing.invalid = True
                raise graphs.CUDARuntimeError("cudaErrorStreamCaptureIsolation")
            self.put(Wait(mark))

    def synchronize(self):
        with self:
            graphs.synchronizes("a stream that captures is waited for")
        world.drive(lambda: not self.todo)

    def begin_capture(self, mode=None):
        graphs.begin(self)

    def end_capture(self):
        return graphs.end(self)


null = Stream(null=True)


known_events = {}


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.mark, self.timed, self.device = None, not disable_timing, device_now()
        self.ptr = len(known_events) + 1
        known_events[self.ptr] = self

    def record(self, stream=None):
        refuse()
        stream = stream or stream_now()
        if {stream.device, device_now()} - {-1} != {self.device}:
            raise graphs.CUDARuntimeError("cudaErrorInvalidResourceHandle: of another GPU")
        if stream.capturing is not None:
            self.mark = graphs.Mark(stream.capturing, stream)
            stream.put(self.mark)
            return
        mark = self.mark = {"passed": False}
        stream.put(lambda: mark.update(passed=True, at=perf_counter()))

    def synchronize(self):
        refuse()
        mark = self.mark
        if isinstance(mark, graphs.Mark):
            mark.capture.invalid = True
            raise graphs.CUDARuntimeError("cudaErrorCapturedEvent")
        if mark is not None:
            world.drive(lambda: mark["passed"])


def refuse():
    if world.fault is not None:
        raise world.fault


def get_elapsed_time(start, end):
    assert start.timed
    assert end.timed
    assert event_query(start.ptr) == event_query(end.ptr) == 0
    return (end.mark["at"] - start.mark["at"]) * 1e3


class OutOfMemoryError(MemoryError):
    pass


def event_query(pointer):
    if world.fault is not None:
        return 700
    mark = known_events[pointer].mark
    if isinstance(mark, graphs.Mark):
        mark.capture.invalid = True
        return 907
    return 0 if mark is None or mark["passed"] else 600


class Device:
    compute_capability = "90"
    mem_info = 3 << 30, 4 << 30  # free, total

    def __init__(self, index=None):
        self.id = device_now() if index is None else index

    def __enter__(self):
        if self.id >= world.gpus:
            raise graphs.CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        current.devices = (*getattr(current, "devices", (0,)), self.id)
        return self

    def __exit__(self, *error):
        current.devices = current.devices[:-1]


def poison(memory):
    if memory.dtype.kind in "fcV":
        memory.fill(np.nan)
    elif memory.dtype.kind in "iu":
        memory.fill(np.iinfo(memory.dtype).max)


class Block:
    """Memory of a stream's arena; given back when nothing refers to it."""

    def __init__(self, book, memory, stream):
        self.book, self.memory, self.stream, self.device = book, memory, stream, device_now()
        self.pool = getattr(current, "pool", None)

    def __del__(self):
        memory, capture = self.memory, self.stream.capturing
        todo = self.stream.todo if capture is None else capture.lists[self.stream]
        todo.append(graphs.Poisoned(lambda: poison(memory)))  # and nothing else: it may be anywhere


class ndarray(NDArrayOperatorsMixin):
    def __init__(self, book, memory, blocks):
        self.book, self.memory, self.blocks = book, memory, blocks

    device = property(lambda self: Device(self.blocks[0].device))
    shape = property(lambda self: self.book.shape)
    dtype = property(lambda self: self.book.dtype)
    ndim = property(lambda self: self.book.ndim)
    size = property(lambda self: self.book.size)
    nbytes = property(lambda self: self.book.nbytes)
    itemsize = property(lambda self: self.book.itemsize)
    strides = property(lambda self: self.book.strides)
    T = property(lambda self: call(np.transpose, self))
    mT = property(lambda self: call(np.matrix_transpose, self))
    data = property(lambda self: graphs.address_of(self))
    real = property(lambda self: call(np.real, self))
    imag = property(lambda self: call(np.imag, self))

    @property
    def flags(self):
        flags = self.book.flags
        return SimpleNamespace(
            c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous, owndata=flags.owndata
        )

    def __dlpack_device__(self):
        return 2, self.device.id

    @property
    def __cuda_array_interface__(self):
        exported[id(self)] = self
        return {"data": (id(self), False), "stream": stream_now().ptr, "version": 3}

    def __dlpack__(self, stream=None, **_):
        """Have the consumer's stream wait for what the current one was given."""
        event = Event()
        event.record(stream_now())
        consumer = known_streams[stream]
        if consumer is not stream_now():
            consumer.wait_event(event)
        return self

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *args, **options):
        if isinstance(options.get("out"), tuple):  # NumPy wraps it
            (options["out"],) = options["out"]
        found = UFunc(ufunc.__name__)
        return (found if method == "__call__" else getattr(found, method))(*args, **options)

    def __array_function__(self, function, types, args, options):
        raise TypeError(f"{function.__name__} of NumPy was called, not that of the array module")

    def __getattr__(self, name):
        if name not in SNAPSHOT["methods"] or not hasattr(np.ndarray, name):
            raise AttributeError(f"arrays of CuPy have no {name!r}")

        def method(*args, **options):
            check_call("methods", name, args, options)
            graphs.refused_by_capture(name)
            if name == "take":
                options["mode"] = "wrap"
            if name == "copy" and self.device.id != device_now():
                return self.copied_here()
            return call(getattr(np.ndarray, name), self, *args, **options)

        return method

    def copied_here(self):
        """Copy from another GPU, in the order of the stream that is current on this one."""
        if not self.flags.c_contiguous:
            raise NotImplementedError("CuPy cannot copy non-contiguous array between devices.")
        book, memory = self.book.copy(), self.memory
        made = fresh(book, stream_now())
        with world.lock:
            world.peers += 1
            stream_now().put(lambda: np.copyto(made.memory, memory))
        return made

    def item(self):
        return self.host().item()

    def __getitem__(self, key):
        self.refuse_in_capture(key)
        return call(lambda array, key: array[wrapped(array.shape, key)], self, key)

    def refuse_in_capture(self, key):
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, ndarray) and part.dtype == bool:
                graphs.synchronizes("a mask tells how much it selects")
            if isinstance(part, (list, np.ndarray)):
                graphs.copies_to_or_from_host("an index of the host")

    def __setitem__(self, key, value):
        self.refuse_in_capture(key)
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, ndarray) and part.dtype.kind in "iu":
                where = np.broadcast_to(np.arange(self.size).reshape(self.shape), self.shape)
                where = where[wrapped(self.shape, of(key, True))]
                assert np.unique(where).size == where.size, "which of repeated writes stays?"

        def put(array, key, value):
            array[wrapped(array.shape, key)] = value

        call(put, self, key, value)

    def __len__(self):
        return len(self.book)

    def get(self, stream=None, order="C", out=None, blocking=True):
        graphs.copies_to_or_from_host("get")
        if out is None:
            assert blocking, "only copies into pinned memory are asynchronous"
            return self.host().copy()
        assert not blocking
        refuse_of_others([self])
        memory, book = self.memory, self.book.copy()

        def copied():
            out[...] = memory
            if memory.tobytes() != book.tobytes():
                world.races.append("a copy to the host shows what is not there yet, or no more")

        world.copies += 1
        stream_now().put(copied)
        return out

    def host(self):
        """Return the value for who asks for it: a synchronization."""
        graphs.synchronizes("a value is read by the host")
        world.drive(lambda: not any(one.todo for one in world.streams))
        return self.book

    def __bool__(self):
        return bool(self.host())

    def __float__(self):
        return float(self.host())

    def __int__(self):
        return int(self.host())

    __index__ = __int__


def wrapped(shape, key):
    """Return an index whose integers are in range: CuPy raises nothing where they are not."""
    parts = key if isinstance(key, tuple) else (key,)
    if Ellipsis in [part for part in parts if not isinstance(part, np.ndarray)]:
        return key
    dims = iter(shape)
    sizes = [None if part is None else next(dims) for part in parts]
    return tuple(
        part % size if isinstance(part, np.ndarray) and part.dtype.kind in "iu" and size else part
        for part, size in zip(parts, sizes, strict=True)
    )


def of(value, book):
    """Return the book or the memory of what a call is given."""
    if isinstance(value, ndarray):
        return value.book if book else value.memory
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (tuple, list)):
        return type(value)(of(one, book) for one in value)
    return value


def arrays_in(values):
    for value in values:
        if isinstance(value, ndarray):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from arrays_in(value)


def call(function, *args, **options):
    """Call a function of NumPy's in both books: at once in program order, late in memory.

    What it gives is a view (made at once of both books), an operand that it has written to, or an
    array of its own.
    """
    refuse()
    stream = stream_now()
    capture = stream.capturing
    operands = [*arrays_in([*args, *options.values()])]
    refuse_of_others(operands)
    before = [one.book.copy("K") for one in operands] if capture is not None else ()

    def done(book):
        with np.errstate(all="ignore"):
            return function(
                *[of(one, book) for one in args], **{k: of(v, book) for k, v in options.items()}
            )

    with world.lock:
        found = done(True)
        for one, kept in zip(operands, before, strict=False):  # nothing is computed yet
            if one.book.flags.writeable:
                one.book[...] = kept
        many = isinstance(found, (tuple, list))
        values = found if many else [found]
        if found is not None and not any(
            isinstance(one, (np.ndarray, np.generic)) for one in values
        ):
            return found
        written = {id(one.book): one for one in operands}
        made, own = [], []
        shows = [_shows(one, operands) and id(one) not in written for one in values]
        views = done(False) if any(shows) else None
        for place, value in enumerate(values):
            if value is None or id(value) in written:
                made.append(written.get(id(value)))
            elif shows[place]:
                blocks = [block for one in operands for block in one.blocks]
                made.append(ndarray(value, views[place] if many else views, blocks))
            else:
                made.append(fresh(np.asarray(value), stream))
                own.append((place, made[-1].memory))
        if not all(shows):
            given = [of(one, False) for one in args]
            named = {key: of(value, False) for key, value in options.items()}

            def late():
                with np.errstate(all="ignore"):
                    results = function(*given, **named)
                for place, memory in own:
                    memory[...] = results[place] if many else results

            if capture is not None:
                capture.operation(function, args, options, made, own, many)
            stream.put(late)
    if not many:
        return made[0]
    return tuple(made) if isinstance(found, tuple) else made


def refuse_of_others(operands):
    """CuPy would let the kernel read another GPU's memory, slowly, and with a warning."""
    for one in operands:
        if one.device.id != device_now():
            raise RuntimeError(f"an array of GPU {one.device.id}, where {device_now()} is current")


def _shows(value, operands):
    return isinstance(value, np.ndarray) and any(
        np.may_share_memory(value, one.book) for one in operands
    )


def fresh(book, stream):
    world.allocations += 1
    if world.allocations == world.fails_at:
        raise OutOfMemoryError(f"Out of memory allocating {book.nbytes:,} bytes")
    memory = np.empty_like(book, subok=False)
    poison(memory)
    return ndarray(book, memory, [Block(book, memory, stream)])


exported = WeakValueDictionary()


def asarray(value, dtype=None, **_):
    if isinstance(value, ndarray):
        value = value if value.device.id == device_now() else value.copy()
        return value if dtype is None else value.astype(dtype)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        known_streams[interface["stream"]].synchronize()
        found = exported[interface["data"][0]]
        return ndarray(found.book, found.memory, found.blocks)
    graphs.copies_to_or_from_host("asarray")
    book = np.array(value, dtype)
    staged = book.copy()  # CuPy's own pinned memory, filled by the host
    with world.lock:
        made = fresh(book, stream_now())
        memory = made.memory

        def copied():
            memory[...] = staged

        world.copies += 1
        stream_now().put(copied)
    return made


def array(value, dtype=None, copy=True, order="K", **_):
    if isinstance(value, ndarray) and copy:
        return call(np.array, value, dtype, order=order)
    return asarray(value, dtype)


def from_dlpack(exported):
    """Return the same memory as another array."""
    assert exported.__dlpack_device__() == (2, device_now())
    array = exported.__dlpack__(stream=stream_now().ptr)
    return ndarray(array.book, array.memory, array.blocks)


class UFunc:
    """A ufunc, which reduces only by addition and multiplication, and from the start."""

    def __init__(self, name):
        self.name, self.found = name, getattr(np, name)

    def __call__(self, *args, **options):
        if self.name == "matmul" and len(args) > 2:
            raise TypeError("cupy.matmul takes `out` by its name")
        graphs.refused_by_capture(self.name)
        if self.name in SNAPSHOT["ufuncs"]:
            check_ufunc(self.name, args, options)
        else:
            check_call("functions", self.name, args, options)
        return call(self.found, *args, **options)

    def only(self, names, what):
        if self.name not in names:
            raise NotImplementedError(f"cupy.{self.name}.{what}")

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        self.only(REDUCING, "reduce")
        return call(self.found.reduce, array, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def accumulate(self, array, axis=0, dtype=None, out=None):
        self.only(REDUCING, "accumulate")
        return call(self.found.accumulate, array, axis=axis, dtype=dtype, out=out)

    def reduceat(self, array, indices, axis=0, dtype=None, out=None):
        self.only({"add"}, "reduceat")
        return call(self.found.reduceat, array, indices, axis=axis, dtype=dtype, out=out)

    def at(self, a, indices, b=None):
        raise TypeError("the order of atomics differs from run to run: ops._device.combine_at")


class Module(ModuleType):
    """Functions of NumPy's on these arrays, as far as CuPy has them; types are NumPy's own."""

    def __init__(self, name, own, prefix=""):
        super().__init__(name)
        self._own, self._prefix = own, prefix

    def __getattr__(self, name):
        full = self._prefix + name
        found = getattr(self._own, name, None)
        if found is None and full in SNAPSHOT["others"] and not hasattr(self._own, name):
            raise AttributeError(f"the stand-in for CuPy has no {full!r} yet")
        if full in SNAPSHOT["ufuncs"] or isinstance(found, np.ufunc):
            if full in SNAPSHOT["ufuncs"] and self._own is not np:
                return lambda *args, **options: _of_library(full, found, args, options)
            if full in SNAPSHOT["ufuncs"] or full in SNAPSHOT["functions"]:
                return UFunc(name)
        if full in SNAPSHOT["functions"]:
            return lambda *args, **options: _called(full, found, args, options)
        if full in OTHERS or self._prefix == "linalg.":
            return found
        raise AttributeError(f"CuPy has no {full!r}")


def _called(name, function, args, options):
    check_call("functions", name, args, options)
    graphs.refused_by_capture(name, args)
    if name.startswith("linalg.") and not getattr(current, "linalg_raises", False):
        function = partial(_unchecked, function)
    return call(function, *args, **options)


def _unchecked(function, x, *args, **options):
    """Return NaN for a matrix that a decomposition does not take: nobody looks, unless asked to."""
    try:
        return function(x, *args, **options)
    except np.linalg.LinAlgError:
        found = function(np.broadcast_to(np.eye(x.shape[-1]), x.shape), *args, **options)
        for one in found if isinstance(found, tuple) else (found,):
            poison(one)
        return found


def _of_library(name, function, args, options):
    check_ufunc(name, args, options)
    return call(function, *args, **options)


from tests._cupy import c, graphs  # noqa: E402 - which know this module

cupy, cupyx = Module("cupy", np), ModuleType("cupyx")
cupy.__version__ = "14.2.0"
cupy.ndarray, cupy.asarray, cupy.array = ndarray, asarray, array
cupy.get_default_memory_pool = lambda: graphs.MemoryPool()
cupy.from_dlpack, cupy.RawKernel = from_dlpack, c.RawKernel
cupy.linalg, cupy.fft = Module("linalg", np.linalg, "linalg."), Module("fft", np.fft, "fft.")
cupy.cuda = SimpleNamespace(
    Device=Device, Stream=Stream, Event=Event, is_available=lambda: True,
    get_elapsed_time=get_elapsed_time, get_current_stream=stream_now,
    MemoryPool=graphs.MemoryPool, using_allocator=graphs.using_allocator,
    runtime=SimpleNamespace(
        eventQuery=event_query, getDeviceCount=lambda: world.gpus,
        runtimeGetVersion=lambda: 12090,
        pointerGetAttributes=lambda pointer: SimpleNamespace(device=exported[pointer].device.id),
    ),
)  # fmt: skip


@contextmanager
def errstate(*, linalg=None):
    before = getattr(current, "linalg_raises", False)
    current.linalg_raises = linalg == "raise"
    try:
        yield
    finally:
        current.linalg_raises = before


def empty_pinned(shape, dtype=float, order="C"):
    return np.empty(shape, dtype, order)


cupyx.errstate, cupyx.empty_pinned = errstate, empty_pinned
cupyx.scipy = ModuleType("cupyx.scipy")
cupyx.scipy.special = Module("cupyx.scipy.special", special, "special.")
MODULES = {"cupy": cupy, "cupyx": cupyx, "cupyx.scipy": cupyx.scipy,
           "cupyx.scipy.special": cupyx.scipy.special}  # fmt: skip
