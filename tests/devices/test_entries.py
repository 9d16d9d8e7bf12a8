import gc

import numpy as np
import pytest

from actorgraph.devices import native
from tests._child import printed_by
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
def told():
    """A routine that writes the number at an address into an array, and returns it."""
    text = TEXT.format(data=native.OFFSETS["data"]) + native.entry_text("told", "OPO")
    return native.entry(native.engine(text), "told")


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


RELOADED = """
import gc, importlib, sys
import numpy as np
import actorgraph as ag

g = ag.Graph()
x = g.input("x", (8, 8), "float32")
y = x
for _ in range(10):
    y = ag.ops.tanh(y)
machine, feeds = ag.TapeMachine([y], native="wait"), {"x": np.ones((8, 8), "f")}
walked = machine.run_sync(feeds)[y].value
assert "rows of 10 are written" in str(machine.explain())
importlib.reload(sys.modules["actorgraph.devices.native"])
gc.collect()
for _ in range(3):
    kept = [np.full(1, 7, np.uint8) for _ in range(1000)]
    assert machine.run_sync(feeds)[y].value.tobytes() == walked.tobytes()
    assert all(one[0] == 7 for one in kept)
"""


@pytest.mark.skipif(native.expected() is not None, reason=f"no tables: {native.expected()}")
def test_tables_that_are_written_are_walked_after_a_user_has_reloaded_the_module():
    """Without `_never_freed` the process ends, or writes into memory of others."""
    printed_by(RELOADED)
