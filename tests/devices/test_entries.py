import gc

import numpy as np
import pytest

from actorgraph.devices import native
from tests._each import each

pytest.importorskip("llvmlite")

TEXT = """
define i64 @told(ptr %first, ptr %address, ptr %last) {{
  %at = getelementptr i8, ptr %last, i64 {data}
  %numbers = load ptr, ptr %at
  %number = load i64, ptr %address
  store i64 %number, ptr %numbers
  %same = icmp eq ptr %first, %last
  %result = select i1 %same, i64 -1, i64 %number
  ret i64 %result
}}
"""


@pytest.fixture
def told(tmp_path):
    """A routine that writes the number at an address into an array, and returns it."""
    text = TEXT.format(data=native.OFFSETS["data"]) + native.entry_text("told", "OPO")
    return native.entry(native.engine(text, str(tmp_path)), "told")


def test_an_entry_gives_objects_and_addresses_to_its_routine(told):
    @each("number", [0, 7, -2, 1 << 32, -(1 << 63), (1 << 63) - 1])
    def returned(number):
        words, into = np.array([number]), np.zeros(1, np.int64)
        assert told("first", words.ctypes.data, into) == number
        assert into[0] == number
        assert told(into, words.ctypes.data, into) == -1

    returned()


def test_an_entry_keeps_its_machine_code_alive(told):
    gc.collect()
    words, into = np.array([5]), np.zeros(1, np.int64)
    assert [told(None, words.ctypes.data, into) for _ in range(3)] == [5] * 3
