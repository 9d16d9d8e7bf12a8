"""What machine code reads of arrays and tuples, checked before it is used."""

import platform
import struct
import sys

import numpy as np
import pytest

from actorgraph.devices import structs
from actorgraph.options import NATIVE
from tests._each import each


@pytest.mark.skipif(
    (sys.platform, platform.machine(), platform.python_implementation())
    != ("linux", "x86_64", "CPython") or "free-threading build" in sys.version,
    reason="tables are proved on Linux with x86-64 only",
)  # fmt: skip
def test_there_are_tables_where_they_are_proved():
    pytest.importorskip("llvmlite")
    assert structs.expected() is None


@each("name", [*structs.OFFSETS])
def test_a_field_in_another_place_is_noticed(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(structs.OFFSETS, name, structs.OFFSETS[name] + 8)
        assert not structs._reads_structs()
    assert structs._reads_structs()


def test_items_in_another_place_are_noticed(monkeypatch):
    monkeypatch.setattr(structs, "ITEMS", structs.ITEMS + 8)
    assert not structs._reads_structs()


def test_flags_are_the_bits_that_numpy_sets():
    one = np.zeros((2, 3))
    part = np.frombuffer(bytes(17), np.uint8)[1:].view(float)[::-1]
    for bit, name in (
        (structs.CONTIGUOUS, "c_contiguous"), (structs.ALIGNED, "aligned"),
        (structs.WRITABLE, "writeable"),
    ):  # fmt: skip
        assert bit & (bit - 1) == 0 < one.flags.num & bit
        assert not part.flags.num & bit
        assert not getattr(part.flags, name)


def test_the_word_of_a_field_is_found_once_and_holds_nothing_in_an_idle_run(monkeypatch):
    find = structs.dead_offset.__wrapped__
    assert find() == structs.dead_offset() > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structs, "IDLE", structs._idle(Exception()))
        assert find() == 0
    monkeypatch.setattr(structs, "_word", lambda address: 0)
    assert find() == 0


def test_another_kind_of_processor_is_told(monkeypatch):
    asked = structs.callable_from_python.__wrapped__
    for module, name, value in ((sys, "byteorder", "big"), (struct, "calcsize", lambda _: 4)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, value)
            assert asked() == "it needs a processor with 64 bits, little-endian"


@pytest.mark.skipif(not structs.proves_tables(), reason="tables are proved elsewhere only")
def test_tables_need_what_calls_of_machine_code_need_and_the_word_of_a_field(monkeypatch):
    asked = structs.expected.__wrapped__
    monkeypatch.setattr(structs, "callable_from_python", lambda: None)
    monkeypatch.setattr(structs, "dead_offset", lambda: 0)
    assert asked() == structs.DIFFERENT
    monkeypatch.setattr(structs, "dead_offset", lambda: 24)
    assert asked() is None
    monkeypatch.setattr(structs, "callable_from_python", lambda: "it needs more")
    assert asked() == "it needs more"


@pytest.mark.parametrize(("value", "text"), [("0", f"{NATIVE}=0 says so"), ("1", None), ("", None)])
def test_only_a_0_in_the_environment_switches_machine_code_off(value, text, monkeypatch):
    monkeypatch.setenv(NATIVE, value)
    assert structs.switched_off() == text
