"""Captures of the stand-in: what CUDA and CuPy refuse while a stream captures, and graphs.

A capture has a list for each of its streams.  Nothing runs: results are not there before a launch,
which runs the lists as streams of its own, late by the seed.  What goes back to a private pool
while a stream captures is written over in each launch, at that place; memory of another pool that a
graph uses and nobody holds any more is a race.
"""

from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace
from weakref import WeakValueDictionary, ref

import numpy as np

import tests._cupy as stand_in

LIBRARIES = {"matmul", "dot", "vdot", "tensordot", "inner", "einsum"}
"""What CuPy calls cuBLAS for; beside these it is all of `linalg` but what is said here."""

WITHOUT = {"linalg.norm", "linalg.cross", "linalg.matrix_transpose"}
SYNCHRONIZING = {
    "sort", "argsort", "lexsort", "partition", "argpartition", "nonzero", "flatnonzero", "argwhere",
    "unique", "extract", "compress", "bincount", "median", "percentile", "quantile", "array_equal",
}  # fmt: skip


class CUDARuntimeError(RuntimeError):
    pass


class Mark:
    """An event that was recorded while its stream was capturing."""

    def __init__(self, capture, stream):
        self.capture, self.stream, self.place = capture, stream, len(capture.lists[stream])


class Joined:
    """What waits for a mark in a capture."""

    def __init__(self, mark):
        self.mark = mark


class Poisoned:
    """What is done to memory that goes back to the pool."""

    def __init__(self, call):
        self.call = call

    def __call__(self):
        self.call()


class Capture:
    def __init__(self, root):
        self.root, self.lists = root, {root: []}
        self.early, self.blocks = [], []
        self.invalid = False

    def use(self, arrays):
        for one in arrays:
            for block in one.blocks:
                pool = block.pool
                self.blocks.append((ref(block), _nobody if pool is None else ref(pool)))

    def operation(self, function, args, options, made, own, many):
        """Note what a launch does in the book of program order; nothing is computed before."""
        given = [stand_in.of(one, True) for one in args]
        named = {key: stand_in.of(value, True) for key, value in options.items()}
        books = [(place, made[place].book) for place, _ in own]

        def early():
            with np.errstate(all="ignore"):
                results = function(*given, **named)
            for place, book in books:
                book[...] = results[place] if many else results

        self.early.append(early)
        self.use([*stand_in.arrays_in([*args, *options.values()]), *[made[at] for at, _ in own]])
        for _, book in books:
            stand_in.poison(book)

    def reached(self):
        """Return how far the root has waited for each stream."""
        found = {self.root: len(self.lists[self.root])}
        before = None
        while found != before:
            before = dict(found)
            for stream, count in before.items():
                for one in self.lists[stream][:count]:
                    if isinstance(one, Joined):
                        other = one.mark.stream
                        found[other] = max(found.get(other, 0), one.mark.place)
        return found


def _nobody():
    return None


def refused_by_capture(name, args=()):
    """Raise what CuPy or CUDA does for a function while the current stream captures."""
    if stand_in.stream_now().capturing is None:
        return
    if name in LIBRARIES or (name.startswith("linalg.") and name not in WITHOUT):
        raise NotImplementedError(f"calling cuBLAS API during stream capture: {name}")
    if name in SYNCHRONIZING or (name == "where" and len(args) == 1):
        synchronizes(name)


def synchronizes(what):
    """Raise where the current stream captures, and that is over then."""
    capture = stand_in.stream_now().capturing
    if capture is not None:
        capture.invalid = True
        raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {what}")


def copies_to_or_from_host(what):
    if stand_in.stream_now().capturing is not None:
        raise RuntimeError(
            f"{what}: the current stream is capturing, so synchronous API is refused"
        )


def begin(stream):
    if stream is stand_in.null:
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: the null stream")
    if stream.capturing is not None:
        raise CUDARuntimeError("cudaErrorIllegalState: it captures already")
    stream.capturing = Capture(stream)


def end(stream):
    capture = stream.capturing
    if capture is None:
        raise CUDARuntimeError("cudaErrorIllegalState: it does not capture")
    if capture.root is not stream:
        raise CUDARuntimeError("cudaErrorStreamCaptureUnmatched")
    for one in capture.lists:
        one.capturing = None
    if capture.invalid:
        raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
    reached = capture.reached()
    for one, todo in capture.lists.items():
        behind = todo[reached.get(one, 0) :]
        if not all(isinstance(call, (Poisoned, Mark)) for call in behind):
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined")
        if one is not stream:  # the mark that was waited for stays
            del todo[reached.get(one, 0) + 1 :]
    return Graph(capture)


class Graph:
    def __init__(self, capture):
        self.capture = capture
        self.launches = 0
        self.done = {"passed": True}

    def launch(self, stream=None):
        stand_in.refuse()
        stream = stand_in.stream_now() if stream is None else stream
        world, capture = stand_in.world, self.capture
        self.launches += 1
        world.replays += 1
        with world.lock:
            for block, pool in capture.blocks:
                if block() is None and pool() is None:
                    world.races.append("a graph uses memory that went back to a pool")
            for call in capture.early:
                call()
            stream.put(stand_in.Wait(self.done))  # one at a time
            begun, self.done = {"passed": False}, {"passed": False}
            stream.put(lambda: begun.update(passed=True))
            marks = {}
            ends = []
            world.streams[:] = [one for one in world.streams if one.todo or not one.of_graph]
            for source in capture.lists:
                side = SimpleNamespace(todo=deque([stand_in.Wait(begun)]), of_graph=True)
                side.may_go_on = lambda side=side: stand_in.Stream.may_go_on(side)
                for one in capture.lists[source]:
                    side.todo.append(_again(one, marks))
                ended = {"passed": False}
                ends.append(ended)
                side.todo.append(lambda ended=ended: ended.update(passed=True))
                world.streams.append(side)
            for ended in ends:
                stream.put(stand_in.Wait(ended))
            done = self.done
            stream.put(lambda: done.update(passed=True))


def _again(one, marks):
    if isinstance(one, Joined):
        return stand_in.Wait(marks.setdefault(one.mark, {"passed": False}))
    if isinstance(one, Mark):
        mark = marks.setdefault(one, {"passed": False})
        return lambda: mark.update(passed=True)
    return one


class MemoryPool:
    def malloc(self, size):
        raise AssertionError("the stand-in allocates by itself")

    def used_bytes(self):
        return 1 << 20

    def total_bytes(self):
        return 2 << 20


@contextmanager
def using_allocator(allocator):
    before = getattr(stand_in.current, "pool", None)
    stand_in.current.pool = allocator.__self__
    try:
        yield
    finally:
        stand_in.current.pool = before


# -- cuBLAS -----------------------------------------------------------------------------------

KINDS = {"S": "f", "D": "d", "C": "F", "Z": "D"}


class CuBLAS:
    """The functions that `devices.products` calls, on the memory that addresses stand for."""

    def __init__(self):
        self.stream = self.room = None
        self.status = self.calls = 0

    def cublasCreate_v2(self, handle):
        handle._obj.value = 7
        return self.status

    def cublasSetStream_v2(self, handle, stream):
        assert handle.value == 7
        self.stream, self.room = stand_in.known_streams[stream.value], None
        return 0

    def cublasSetWorkspace_v2(self, handle, place, size):
        block = pointers[place.value]
        assert size.value == block.memory.nbytes
        self.room = stand_in.ndarray(block.book, block.memory, [block])
        assert self.stream is stand_in.stream_now()
        return 0

    def __getattr__(self, name):
        assert name.startswith("cublas")
        assert name.endswith("gemmStridedBatched"), name
        return lambda *args: self.gemm(np.dtype(KINDS[name[6]]), *args)

    def gemm(self, dtype, handle, flag_y, flag_x, columns, rows, inner, one, y, gap_y, apart_y, x,
             gap_x, apart_x, zero, out, gap, apart, count):  # fmt: skip
        """Multiply as it is told to: columns first, so all is turned and so is the order.

        What is in the workspace is read later: NaN where another stream has written there.
        """
        assert self.room is not None, "a workspace of cuBLAS's own is shared by streams"
        assert [np.frombuffer(given._obj, dtype)[0] for given in (one, zero)] == [1, 0]
        x = matrices(x.value, dtype, count, rows, inner, gap_x, apart_x.value, flag_x)
        y = matrices(y.value, dtype, count, inner, columns, gap_y, apart_y.value, flag_y)
        out = matrices(out.value, dtype, count, rows, columns, gap, apart.value, 0)
        self.calls += 1
        mark, place = self.calls % 100, self.room
        self.room = None

        def multiply(x, y, room, out):
            np.matmul(x, y, out=out)
            if (room != mark).any():
                out.fill(np.nan)

        stand_in.call(np.ndarray.fill, place, mark)
        stand_in.call(multiply, x, y, place, out)
        return self.status


pointers = WeakValueDictionary()
"""By the addresses that were asked for: what was allocated there."""


def address_of(array):
    address = array.memory.ctypes.data
    pointers[address] = array.blocks[0]
    return SimpleNamespace(ptr=address)


def matrices(address, dtype, count, rows, columns, gap, apart, flag):
    """Return a stack of matrices at an address, in both books."""
    block = pointers[address]
    offset = address - block.memory.ctypes.data
    size = dtype.itemsize
    strides = (gap * size, size) if flag == 0 else (size, gap * size)
    books = [
        np.ndarray((count, rows, columns), dtype, one.ravel("K"), offset, (apart * size, *strides))
        for one in (block.book, block.memory)
    ]
    return stand_in.ndarray(*books, [block])
