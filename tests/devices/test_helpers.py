"""Threads that compute parts of a call of machine code."""

import ctypes
import os
import threading
from functools import partial

import numpy as np
import pytest

from actorgraph.devices import helpers, native
from actorgraph.devices.helpers import SHARE, Helpers
from tests._child import printed_by

pytest.importorskip("llvmlite", reason="the extra native is not installed")
pytestmark = pytest.mark.skipif(native.expected() is not None, reason=str(native.expected()))

MEETING = (
    SHARE
    + """
define void @wait(ptr %counter) {
entry:
  %came = atomicrmw add ptr %counter, i64 1 seq_cst
  br label %look
look:  ; whoever is waited for may need this core
  %yielded = call i32 @sched_yield()
  %there = load atomic i64, ptr %counter seq_cst, align 8
  %both = icmp sge i64 %there, 2
  br i1 %both, label %end, label %look
end:
  ret void
}
declare i32 @sched_yield()
define void @meet(ptr %shared, ptr %counter) {
  call void @share(ptr %shared, ptr @wait, ptr %counter)
  ret void
}
"""
)
"""A call that ends when two threads have come to it."""


def meeting():
    """Return a function that publishes such a call, then has helpers come until it ends."""
    engine = native.engine(MEETING)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)
    meet = kind(engine.get_function_address("meet"))

    def met(some):
        counter = np.zeros(1, np.int64)
        caller = threading.Thread(target=meet, args=(some._address, counter.ctypes.data))
        caller.start()
        while caller.is_alive():
            some.call()
            caller.join(0.01)
        assert engine is not None  # it holds the code
        return int(counter[0])

    return met


@pytest.fixture
def one_helper():
    made = Helpers()
    made.count = 1
    made.make()
    return made


def test_a_helper_computes_while_its_caller_does(one_helper):
    met = meeting()
    assert met(one_helper) >= 2
    assert met(one_helper) >= 2
    words = one_helper.words.tolist()
    assert words[helpers._OWNER // 8] == words[helpers._INSIDE // 8] == 0


def test_a_helper_that_nobody_calls_ends_and_another_begins(one_helper, monkeypatch):
    monkeypatch.setattr(helpers, "_IDLE_S", 0.0)
    met, before = meeting(), set(threading.enumerate())
    assert met(one_helper) >= 2
    for thread in set(threading.enumerate()) - before:
        if thread.name == "actorgraph helper":
            thread.join()
    assert not one_helper._threads
    assert one_helper.words[helpers._WATCHING // 8] == 0
    monkeypatch.undo()
    assert met(one_helper) >= 2


def test_a_helper_that_polls_lets_other_threads_have_its_core(one_helper):
    yields = []
    let = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: yields.append(1) or 0)
    one_helper.words[helpers._YIELD // 8] = ctypes.cast(let, ctypes.c_void_p).value
    one_helper._help(one_helper._address)
    assert len(yields) == helpers._LOOKS // helpers._OFTEN


def test_helpers_of_another_call_serve_nobody_else(one_helper):
    one_helper.words[helpers._OWNER // 8] = 1
    assert one_helper.call() == 0
    one_helper.words[helpers._OWNER // 8] = 0
    assert one_helper.call() == one_helper._address


def test_nobody_is_called_before_there_is_machine_code():
    assert Helpers().call() == 0


def test_helpers_are_awake_where_all_of_them_poll():
    some = Helpers()
    some.count = 2
    for watching, awake in enumerate((False, False, True)):
        some.words[helpers._WATCHING // 8] = watching
        assert some.are_awake() is awake


def test_where_no_thread_can_start_nobody_is_called_until_one_can(one_helper, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        assert one_helper.call() == 0
        assert one_helper.awake(2) == 0
    assert one_helper.called.qsize() == 1
    monkeypatch.undo()
    assert one_helper.awake(2) == 1
    assert meeting()(one_helper) >= 2


def test_a_call_that_a_helper_has_missed_as_it_ended_is_taken_by_the_next_one(one_helper):
    one_helper.called.put(partial(one_helper._help, one_helper._address))
    assert meeting()(one_helper) >= 2
    assert one_helper.call() == one_helper._address


FORKED = """
import os
from actorgraph.devices.helpers import HELPERS
from tests.devices.test_helpers import meeting
HELPERS.count = 1
HELPERS.make()
met = meeting()
assert met(HELPERS) >= 2
child = os.fork()
if child == 0:
    os._exit(0 if met(HELPERS) >= 2 else 1)
print(met(HELPERS) >= 2, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_has_helpers_of_its_own():
    assert printed_by(FORKED, "-W", "ignore::DeprecationWarning") == ["True", "0"]
