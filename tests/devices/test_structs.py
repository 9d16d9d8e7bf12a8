"""What machine code reads of arrays and tuples, checked before it is used."""

import platform
import sys

import pytest

from actorgraph.devices import structs
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
