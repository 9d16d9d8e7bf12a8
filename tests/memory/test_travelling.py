"""Memory of a run: a value gets its place only where nobody refers to who lay there before."""

import numpy as np
import pytest

from actorgraph.memory.free_lists import FreeList
from actorgraph.memory.packing import Place
from actorgraph.memory.travelling import Places, RunMemory

SIZE = 8 * 64
FLOATS = np.dtype("float64")
FIRST, SECOND, WIDE, RESULT, IN_RESULT, OVER = range(6)


def run_memory(overwrites=None):
    """Two values of 64 floats, which a wide one covers; and one in the array of a result."""
    values = {
        FIRST: (SIZE, Place(-1, 0)),
        SECOND: (SIZE, Place(-1, SIZE)),
        WIDE: (2 * SIZE, Place(-1, 0)),
        OVER: (SIZE, Place(-1, 0)),
        IN_RESULT: (SIZE, Place(0, 0)),
    }
    places = Places(2 * SIZE, values, [RESULT], overwrites or {})
    room, host = FreeList((2 * SIZE + 64,), np.dtype(np.uint8)), FreeList((2, 64), FLOATS)
    room.limit = host.limit = 2
    return RunMemory(places, room, [host])


def taken(held, number, count=64):
    return held.take(number, (count,), FLOATS)


def test_a_value_lies_where_dead_ones_lay_and_has_no_place_before():
    held = run_memory().take()
    first, second = taken(held, FIRST), taken(held, SECOND)
    assert not np.shares_memory(first, second)
    place = first.ctypes.data
    assert place % 64 == 0
    assert taken(held, WIDE, 128) is None
    del first
    assert taken(held, WIDE, 128) is None
    del second
    wide = taken(held, WIDE, 128)
    assert wide.ctypes.data == place
    assert taken(held, FIRST) is None
    assert taken(held, SECOND) is None


def test_a_view_of_a_value_keeps_its_place_taken():
    held = run_memory().take()
    view = taken(held, FIRST).reshape(8, 8).T[1:]
    assert taken(held, WIDE, 128) is None
    del view
    assert taken(held, WIDE, 128) is not None


def test_a_result_gets_its_array_when_nobody_refers_to_what_lies_in_it():
    held = run_memory().take()
    own = id(held._hosts[0])  # no reference, which would count
    inner = taken(held, IN_RESULT)
    assert held.host(0) is None
    del inner
    result = held.host(0)
    assert result.shape == (2, 64)
    assert id(result) == own
    assert taken(held, IN_RESULT) is None


def test_a_value_lies_over_an_operand_to_which_only_its_reader_refers():
    held = run_memory({OVER: FIRST}).take()
    message = [taken(held, FIRST)]
    other = message[0]
    assert taken(held, OVER) is None
    del other
    over = taken(held, OVER)
    assert over is message[0]
    assert taken(held, WIDE, 128) is None
    message.clear()
    del over
    assert taken(held, WIDE, 128) is not None


@pytest.mark.parametrize("number", [FIRST, IN_RESULT])
def test_memory_of_a_run_serves_another_one_when_nobody_refers_to_its_arrays(number):
    memory = run_memory()
    held = memory.take()
    value = taken(held, number)
    place = value.ctypes.data
    del held
    other = taken(memory.take(), number)
    assert not np.shares_memory(value, other)
    del value, other
    two = [memory.take() for _ in range(2)]
    assert place in [taken(one, number).ctypes.data for one in two]
