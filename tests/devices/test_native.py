"""What machine code reads of arrays and tuples, checked before it is used."""

import platform
import sys

import pytest

from actorgraph.devices import native
from tests._each import each


@pytest.mark.skipif(
    (sys.platform, platform.machine(), platform.python_implementation())
    != ("linux", "x86_64", "CPython") or "free-threading build" in sys.version,
    reason="tables are proved on Linux with x86-64 only",
)  # fmt: skip
def test_there_are_tables_where_they_are_proved():
    pytest.importorskip("llvmlite")
    assert native.expected() is None


@each("name", [*native.OFFSETS])
def test_a_field_in_another_place_is_noticed(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(native.OFFSETS, name, native.OFFSETS[name] + 8)
        assert not native._reads_structs()
    assert native._reads_structs()


def test_items_in_another_place_are_noticed(monkeypatch):
    monkeypatch.setattr(native, "ITEMS", native.ITEMS + 8)
    assert not native._reads_structs()
