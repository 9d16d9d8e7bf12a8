"""Who is done in machine code waits awake for Python's lock, but not for ever."""

import ctypes
import threading

import pytest

from actorgraph.devices import lock_word, native
from actorgraph.flag import Flag

WAIT_S = 20

pytestmark = [
    pytest.mark.skipif(native.expected() is not None, reason=f"{native.expected()}"),
    pytest.mark.skipif(not lock_word.address(), reason="on one core nobody looks"),
]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    native.RUNTIME.request(str(tmp_path_factory.mktemp("native")))
    assert native.RUNTIME.done.wait(WAIT_S)
    assert native.RUNTIME.reason is None
    return native.RUNTIME


def test_the_word_is_set_while_a_thread_holds_the_lock_and_0_while_none_does():
    word = ctypes.c_int.from_address(lock_word.address())
    assert word.value == 1
    seen, copy = ctypes.c_int(1), ctypes.CDLL(None).memcpy
    while seen.value:  # another thread may have the lock
        copy(ctypes.byref(seen), ctypes.byref(word), 4)  # as every function of a CDLL without it
    assert word.value == 1


def test_the_word_is_found_again_by_any_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(lock_word.address.__wrapped__()))
    thread.start()
    thread.join(WAIT_S)
    assert found == [lock_word.address()]


@pytest.mark.parametrize(("what", "value"), [("available_cores", 1), ("_read", b"")])
def test_on_one_core_or_where_no_such_struct_is_found_nobody_looks(what, value, monkeypatch):
    monkeypatch.setattr(lock_word, what, lambda *_: value)
    assert lock_word.address.__wrapped__() == 0


@pytest.mark.parametrize("known", [False, True])
def test_nobody_waits_for_ever_for_a_lock_that_is_not_given_back(runtime, known):
    flag, lock = Flag(), lock_word.address() * known
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t)  # keeps the lock
    watch = kind(runtime._engine.get_function_address("watch"))
    assert watch(lock, flag._address) == 0
    flag.set()
    assert watch(lock, flag._address) == 1


def test_a_flag_is_watched_by_machine_code_as_by_numpy(runtime, monkeypatch):
    flag, answers = Flag(), []
    for found in (Flag.machine_code, None):
        monkeypatch.setattr(Flag, "machine_code", found)
        flag.clear()
        answers.append(flag.watch())
        flag.set()
        answers.append(flag.watch())
    assert answers == [False, True, False, True]


def test_a_thread_that_watches_is_let_go_by_another(runtime):
    flag, began, seen = Flag(), threading.Event(), threading.Event()

    def watch():
        began.set()
        while not flag.watch():
            pass
        seen.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert began.wait(WAIT_S)
    flag.set()
    assert seen.wait(WAIT_S)
    thread.join(WAIT_S)
