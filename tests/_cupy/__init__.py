"""A stand-in for CuPy on the host: strict arrays, late streams, memory that is reused per stream.

What `devices/cuda.py` calls, and what ops call on arrays; numbers are NumPy's.  Each array keeps
two books: its value in program order, computed when a call is made (which gives shape and dtype,
too), and memory that the queued kernel writes.  A stream is a list, and a seed says how far others
run ahead when something is put into one: late, but legal.  Memory that nobody refers to goes back
to the stream that it was allocated on at once, and is written over in that stream's order.  A read
by the host whose two books differ is a race.

Arrays are no NumPy arrays: converting one implicitly, or an operand of NumPy's, is an error.  Not
here: captures, several GPUs, sticky faults, and names that only CuPy lacks.
"""

from __future__ import annotations

import threading
from collections import deque
from random import Random
from types import ModuleType, SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

__all__ = ["World", "cupy", "cupyx"]


class World:
    """All streams of the process, and what must not happen."""

    def __init__(self, seed=0):
        self.random = Random(seed)
        self.lock = threading.RLock()
        self.streams = []
        self.races = []
        self.on_null = 0
        self.copies = 0

    def step(self):
        ready = [one for one in self.streams if one.todo and one.may_go_on()]
        if ready:
            self.random.choice(ready).todo.popleft()()
        return bool(ready)

    def drive(self, done):
        with self.lock:
            while not done():
                assert self.step(), "streams wait for each other"


world = World()
current = threading.local()


def stream_now():
    stack = getattr(current, "streams", None)
    if not stack:
        world.on_null += 1
        return null
    return stack[-1]


class Wait:
    def __init__(self, mark):
        self.mark = mark

    def __call__(self):
        pass


class Stream:
    def __init__(self, null=False, non_blocking=False, ptds=False, *, priority=None):
        assert null or non_blocking, "a blocking stream waits for the null stream"
        self.todo = deque()
        world.streams.append(self)

    def may_go_on(self):
        return not isinstance(self.todo[0], Wait) or self.todo[0].mark["passed"]

    def put(self, call):
        with world.lock:
            self.todo.append(call)
            while world.random.random() < 0.3 and world.step():
                pass

    def __enter__(self):
        current.streams = [*getattr(current, "streams", []), self]
        return self

    def __exit__(self, *error):
        current.streams = current.streams[:-1]

    def wait_event(self, event):
        if event.mark is not None:  # one that was never recorded counts as passed
            self.put(Wait(event.mark))

    def synchronize(self):
        world.drive(lambda: not self.todo)


null = Stream(null=True)


known_events = {}


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.mark = None
        self.ptr = len(known_events) + 1
        known_events[self.ptr] = self

    def record(self, stream=None):
        mark = self.mark = {"passed": False}
        (stream or stream_now()).put(lambda: mark.update(passed=True))

    def synchronize(self):
        mark = self.mark
        if mark is not None:
            world.drive(lambda: mark["passed"])


def event_query(pointer):
    mark = known_events[pointer].mark
    return 0 if mark is None or mark["passed"] else 600


class Device:
    def __init__(self, index=0):
        self.id = index

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def poison(memory):
    if memory.dtype.kind in "fcV":
        memory.fill(np.nan)
    elif memory.dtype.kind in "iu":
        memory.fill(np.iinfo(memory.dtype).max)


class Block:
    """Memory of a stream's arena; given back when nothing refers to it."""

    def __init__(self, memory, stream):
        self.memory, self.stream = memory, stream

    def __del__(self):
        memory = self.memory
        self.stream.put(lambda: poison(memory))


HIDDEN = {"tolist", "tobytes", "item", "data", "ctypes", "base"}
METHODS = {name for name in dir(np.ndarray) if name[0] != "_"} - HIDDEN


class ndarray(NDArrayOperatorsMixin):
    def __init__(self, book, memory, blocks):
        self.book, self.memory, self.blocks = book, memory, blocks

    shape = property(lambda self: self.book.shape)
    dtype = property(lambda self: self.book.dtype)
    ndim = property(lambda self: self.book.ndim)
    size = property(lambda self: self.book.size)
    nbytes = property(lambda self: self.book.nbytes)
    flags = property(lambda self: self.book.flags)
    T = property(lambda self: call(np.transpose, self))

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *args, **options):
        return call(getattr(ufunc, method), *args, **options)

    def __array_function__(self, function, types, args, options):
        return call(function, *args, **options)

    def __getattr__(self, name):
        if name not in METHODS:
            raise AttributeError(name)
        return lambda *args, **options: call(getattr(np.ndarray, name), self, *args, **options)

    def __getitem__(self, key):
        return call(np.ndarray.__getitem__, self, key)

    def __setitem__(self, key, value):
        call(np.ndarray.__setitem__, self, key, value)

    def __len__(self):
        return len(self.book)

    def get(self, stream=None, order="C", out=None, *, blocking=True):
        assert out is not None, "only copies into pinned memory are asynchronous"
        assert not blocking
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
        world.drive(lambda: not any(one.todo for one in world.streams))
        return self.book

    def __bool__(self):
        return bool(self.host())

    def __float__(self):
        return float(self.host())

    def __int__(self):
        return int(self.host())

    __index__ = __int__


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
    """Call a function of NumPy's in both books."""
    stream = stream_now()
    operands = [*arrays_in([*args, *options.values()])]

    def done(book):
        return function(
            *[of(one, book) for one in args], **{k: of(v, book) for k, v in options.items()}
        )

    with world.lock:
        found = done(True)
        many = isinstance(found, (tuple, list))
        values = found if many else [found]
        if not any(isinstance(one, (np.ndarray, np.generic)) for one in values):
            return found
        books = [np.asarray(one) for one in values]
        if any(np.may_share_memory(one, two.book) for one in books for two in operands):
            with np.errstate(all="ignore"):
                later = done(False)
            blocks = [block for one in operands for block in one.blocks]
            memories = later if many else [later]
            made = [ndarray(b, m, blocks) for b, m in zip(books, memories, strict=True)]
        else:
            made = [fresh(book, stream) for book in books]
            memories = [one.memory for one in made]
            given = [of(one, False) for one in args]
            named = {key: of(value, False) for key, value in options.items()}

            def late():
                with np.errstate(all="ignore"):
                    results = function(*given, **named)
                for out, one in zip(memories, results if many else [results], strict=True):
                    out[...] = one

            stream.put(late)
    return type(found)(made) if many and type(found) in (tuple, list) else made[0]


def fresh(book, stream):
    memory = np.empty_like(book, subok=False)
    poison(memory)
    return ndarray(book, memory, [Block(memory, stream)])


def asarray(value, dtype=None, **_):
    if isinstance(value, ndarray):
        return value if dtype is None else value.astype(dtype)
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


class UFunc:
    """A ufunc, which reduces only by addition and multiplication, and from the start."""

    def __init__(self, found):
        self.found = found

    def __call__(self, *args, **options):
        return call(self.found, *args, **options)

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        if self.found not in (np.add, np.multiply):
            raise NotImplementedError(f"cupy.{self.found.__name__}.reduce")
        return call(self.found.reduce, array, axis=axis, dtype=dtype, out=out, keepdims=keepdims)


class Module(ModuleType):
    """Functions of NumPy's on these arrays; types and constants are NumPy's own."""

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found
        if isinstance(found, np.ufunc):
            return UFunc(found)
        return lambda *args, **options: call(found, *args, **options)


cupy, cupyx = Module("cupy"), ModuleType("cupyx")
cupy.ndarray, cupy.asarray, cupy.array = ndarray, asarray, asarray
cupy.linalg = SimpleNamespace()
cupy.cuda = SimpleNamespace(
    Device=Device, Stream=Stream, Event=Event, is_available=lambda: True,
    runtime=SimpleNamespace(eventQuery=event_query, getDeviceCount=lambda: 1),
)  # fmt: skip


class errstate:
    def __init__(self, *, linalg=None):
        assert linalg == "raise"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def empty_pinned(shape, dtype=float, order="C"):
    return np.empty(shape, dtype, order)


cupyx.errstate, cupyx.empty_pinned = errstate, empty_pinned
