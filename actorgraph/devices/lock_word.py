"""Python's lock as machine code sees it: a word that is not 0 while a thread holds it.

Who asks for a lock that is held goes to sleep, and comes back some 50 us after it was given back:
that is as long as an action of a small stage.  So machine code that is done, or that waits for
another thread, looks at the word first, for as long as sleeping would take.  The word is only read,
and nothing depends on it but time: where it is not found nobody looks.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from string import Template
from struct import pack

from actorgraph.devices.cpu import available_cores

_WINDOW = 1 << 20
"""Bytes of an interpreter in which the struct of its lock is looked for."""

_TRIES = 10
"""Times to look, if other threads have the lock."""

_TEXT = Template("""
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()

define void @till_free(ptr %lock) {
entry:
  %begun = call i64 @llvm.readcyclecounter()
  %known = icmp ne ptr %lock, null
  br i1 %known, label %look, label %end
look:
  %held = load volatile i32, ptr %lock
  %is.held = icmp ne i32 %held, 0
  br i1 %is.held, label %wait, label %end
wait:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %now, %begun
  %goes.on = icmp ult i64 %spent, $most_free
  br i1 %goes.on, label %look, label %end
end:
  ret void
}

define i64 @watch(ptr %lock, ptr %byte) {
entry:
  %begun = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %set = load volatile i8, ptr %byte
  %is.set = icmp ne i8 %set, 0
  br i1 %is.set, label %end, label %wait
wait:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %now, %begun
  %goes.on = icmp ult i64 %spent, $most_set
  br i1 %goes.on, label %look, label %end
end:
  call void @till_free(ptr %lock)
  %found = zext i1 %is.set to i64
  ret i64 %found
}

define i64 @walk_and_wait(ptr %tuple, ptr %block, ptr %run) {
  %flags = call i64 @walk(ptr %tuple, ptr %block, ptr %run)
  %lock.at = getelementptr ptr, ptr %block, i64 $lock
  %lock = load ptr, ptr %lock.at
  call void @till_free(ptr %lock)
  ret i64 %flags
}
""")


def text(lock: int) -> str:
    """Return the text, for blocks that have the word's address at `lock`.

    Cycles are those of the counter, 2 to 4 a nanosecond: a thread sleeps for 100,000 at least.
    """
    return _TEXT.substitute(most_free=100_000, most_set=1_000_000, lock=lock)


@cache
def address() -> int:
    """Return where the word lies, 0 where it is not found or no other core could give it back.

    The struct begins with the switch interval, the thread that held the lock last, and the word.
    To read a file gives the lock back, so then the word is 0.
    """
    if available_cores() < 2:
        return 0
    python = ctypes.PyDLL(None)  # of our own, for types of results are kept in it
    begins = [ctypes.addressof(ctypes.c_char.in_dll(python, "_PyRuntime"))]
    for function in (python.PyInterpreterState_Get, python.PyThreadState_Get):
        function.restype = ctypes.c_void_p
        begins.append(function())
    thread, interval = begins.pop(), round(sys.getswitchinterval() * 1e6)
    for begin in begins * _TRIES:
        wanted = pack("QQi", interval, thread, 0)
        place = _read(begin).find(wanted)
        found = begin + place + len(wanted) - 4
        if place >= 0 and ctypes.c_int.from_address(found).value == 1:
            return found
    return 0


def _read(begin: int) -> bytes:
    """Return what lies there, as far as there is memory."""
    try:
        with open("/proc/self/mem", "rb", 0) as memory:
            return os.pread(memory.fileno(), _WINDOW, begin)
    except OSError:
        return b""
