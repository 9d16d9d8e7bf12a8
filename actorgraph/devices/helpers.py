"""`Helpers`: threads that share the work of one call of machine code, without the GIL.

The calling thread publishes a function and its argument in words that helpers poll, takes part in
the work, and returns when no helper is inside the function.  Threads draw parts by number, so a
helper that comes late, or never, costs nothing.  After a call a helper polls for a moment, as the
next may be near, and then sleeps; its thread ends after some idle seconds.

One call at a time is shared: a caller that finds the words taken works alone.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, final

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.cpu import available_cores
from actorgraph.devices.threads import start
from actorgraph.options import in_child_of_fork

_MOST = 3
"""Most helpers: a few cores use up the bandwidth of memory."""

_LOOKS, _OFTEN, _PATIENCE, _IDLE_S = 10_000, 64, 2_000, 5.0
"""Polls of a helper before it sleeps, some 0.2 ms; polls (a power of 2) after which it yields its
core each time, as a machine's worker may have been woken on it; polls of a caller that waits for
helpers before it yields its core; seconds before an idle helper's thread ends."""

_OWNER, _FUNCTION, _ARGUMENT, _INSIDE, _WATCHING, _YIELD = range(0, 48, 8)
"""Byte offsets of the words: whether a caller holds them; its function and argument; helpers inside
the function; helpers that poll; the address of `sched_yield`."""

SHARE = f"""
define internal void @share(ptr %shared, ptr %function, ptr %argument) {{
entry:
  %alone = icmp eq ptr %shared, null
  br i1 %alone, label %single, label %ask
ask:
  %pair = cmpxchg ptr %shared, i64 0, i64 1 seq_cst seq_cst
  %got = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %got, label %publish, label %single
single:
  call void %function(ptr %argument)
  ret void
publish:
  %function.at = getelementptr i8, ptr %shared, i64 {_FUNCTION}
  store ptr %function, ptr %function.at
  %argument.at = getelementptr i8, ptr %shared, i64 {_ARGUMENT}
  store atomic ptr %argument, ptr %argument.at seq_cst, align 8
  call void %function(ptr %argument)
  store atomic ptr null, ptr %argument.at seq_cst, align 8
  %inside.at = getelementptr i8, ptr %shared, i64 {_INSIDE}
  %yield.at = getelementptr i8, ptr %shared, i64 {_YIELD}
  %yield = load ptr, ptr %yield.at
  br label %wait
wait:
  %looks = phi i64 [0, %publish], [%looks.next, %again], [%looks.next, %let]
  %looks.next = add i64 %looks, 1
  %inside = load atomic i64, ptr %inside.at seq_cst, align 8
  %over = icmp eq i64 %inside, 0
  br i1 %over, label %free, label %again
again:
  call void @llvm.x86.sse2.pause()
  %long = icmp sgt i64 %looks, {_PATIENCE}
  br i1 %long, label %let, label %wait
let:  ; a helper may wait for this core
  %yielded = call i32 %yield()
  br label %wait
free:
  store atomic i64 0, ptr %shared seq_cst, align 8
  ret void
}}
"""
"""LLVM text of a function that calls another one here and in the helpers of `shared`.

The called function divides the work among the threads that enter it.
"""

_HELP = f"""
define void @help(ptr %shared) {{
entry:
  %function.at = getelementptr i8, ptr %shared, i64 {_FUNCTION}
  %argument.at = getelementptr i8, ptr %shared, i64 {_ARGUMENT}
  %inside.at = getelementptr i8, ptr %shared, i64 {_INSIDE}
  %watching.at = getelementptr i8, ptr %shared, i64 {_WATCHING}
  %yield.at = getelementptr i8, ptr %shared, i64 {_YIELD}
  %yield = load ptr, ptr %yield.at
  %came = atomicrmw add ptr %watching.at, i64 1 seq_cst
  br label %look
look:
  %looks = phi i64 [0, %entry], [0, %leave], [%looks.next, %again]
  %seen = load atomic ptr, ptr %argument.at seq_cst, align 8
  %nothing = icmp eq ptr %seen, null
  br i1 %nothing, label %none, label %enter
none:
  %looks.next = add i64 %looks, 1
  call void @llvm.x86.sse2.pause()
  %odd = and i64 %looks.next, {_OFTEN - 1}
  %often = icmp eq i64 %odd, 0
  br i1 %often, label %let, label %again
let:
  %yielded = call i32 %yield()
  br label %again
again:
  %more = icmp slt i64 %looks.next, {_LOOKS}
  br i1 %more, label %look, label %over
enter:
  %entered = atomicrmw add ptr %inside.at, i64 1 seq_cst
  ; Published still: who has published waits for this thread from here on.
  %argument = load atomic ptr, ptr %argument.at seq_cst, align 8
  %gone = icmp eq ptr %argument, null
  br i1 %gone, label %leave, label %work
work:
  %function = load ptr, ptr %function.at
  call void %function(ptr %argument)
  br label %leave
leave:
  %left = atomicrmw sub ptr %inside.at, i64 1 seq_cst
  br label %look
over:
  %went = atomicrmw sub ptr %watching.at, i64 1 seq_cst
  ret void
}}
"""


@final
class Helpers:
    """The helper threads of a process, at most one for each other available core."""

    def __init__(self) -> None:
        self._help: Callable[[int], None] | None = None
        self._engine: Any = None
        self.let = 0  # the address of `sched_yield`
        self.count = min(available_cores() - 1, _MOST)
        self.begin()

    def begin(self) -> None:
        """Start without threads; a child of a fork calls it again."""
        self.words = np.zeros(_YIELD // 8 + 1, np.int64)  # what helpers poll
        self.words[-1] = self.let
        self._address = self.words.ctypes.data
        self.called: SimpleQueue[Callable[[], object]] = SimpleQueue()  # work for sleeping helpers
        self._threads: set[threading.Thread] = set()

    def make(self) -> None:
        """Compile the code of the helpers, if there can be any."""
        if self.count > 0 and self._help is None:
            self._engine = native.engine(_HELP)
            atexit.register(id, self._engine)  # a helper may run its code until the process ends
            self.let = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0
            self.words[-1] = self.let
            kind = ctypes.CFUNCTYPE(None, ctypes.c_size_t)
            self._help = kind(self._engine.get_function_address("help"))

    def call(self) -> int:
        """Wake helpers to poll; return the address of their words, 0 if none are there or free."""
        if self._help is None:
            return 0
        missing = self.count - int(self.words[_WATCHING // 8]) - self.called.qsize()
        for _ in range(missing):
            self.called.put(partial(self._help, self._address))
        free = not self.words[_OWNER // 8]
        return self._address if self.awake(self.count) and free else 0

    def are_awake(self) -> bool:
        """Return whether all helpers poll or work."""
        return int(self.words[_WATCHING // 8]) >= self.count

    def awake(self, most: int) -> int:
        """Start missing threads; return how many, up to `most`, serve the queue `called`."""
        while most > 0 and len(self._threads) < self.count:
            one = threading.Thread(target=self._serve, name="actorgraph helper", daemon=True)
            self._threads.add(one)
            try:
                start(one)
            except RuntimeError:  # the process ends, or may have no more
                self._threads.discard(one)
                break
            except BaseException:
                self._threads.discard(one)  # it may or may not run
                raise
        return max(0, min(most, len(self._threads)))

    def _serve(self) -> None:
        called = self.called
        while True:
            try:
                work = called.get(timeout=_IDLE_S)
            except Empty:
                self._threads.discard(threading.current_thread())
                return
            work()
            del work  # drops what it refers to while this thread waits


HELPERS = Helpers()
"""The helpers of this process."""

in_child_of_fork(HELPERS.begin)
