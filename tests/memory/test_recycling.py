"""Arrays that are used again when nobody holds them: scratch of forwards, and recycled results."""

from threading import Barrier, Thread

import numpy as np
import pytest

import actorgraph.scratch as rooms
from actorgraph.memory.free_lists import FreeList, Recycling
from actorgraph.scratch import borrowing, reserve, scratch, scratch_bytes, scratch_like

FLOAT = np.dtype("float32")
SHAPE = 128, 128


def place(array):
    return array.__array_interface__["data"][0]


def test_scratch_is_used_again_when_nobody_holds_a_view_of_it():
    first = scratch(np, SHAPE, FLOAT)
    where, row = place(first), first[3]
    del first
    second = scratch(np, SHAPE, FLOAT)
    assert not np.may_share_memory(row, second)
    del row
    assert where in {place(scratch(np, SHAPE, FLOAT)) for _ in range(2)}


def test_scratch_begins_at_a_cache_line_and_may_be_cleared():
    scratch(np, SHAPE, FLOAT).fill(7)
    array = scratch(np, SHAPE, FLOAT, cleared=True)
    assert not array.any()
    assert not place(array) % 64


def test_scratch_lies_as_the_result_of_a_ufunc_would_or_is_none():
    x = np.ones(SHAPE, FLOAT)
    assert scratch_like(np, x).strides == np.square(x).strides
    assert scratch_like(np, x.T) is None


def test_threads_that_hold_scratch_at_once_have_rooms_of_their_own():
    places, together = [], Barrier(3)

    def work():
        mine = scratch(np, SHAPE, FLOAT)
        places.append(place(mine))
        together.wait()

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*places}) == 3


@pytest.fixture
def no_rooms(monkeypatch):
    monkeypatch.setattr(rooms, "_rooms", [])


def size_of(shape):
    """Return the bytes of a room for an array: it begins at a cache line of them."""
    return 4 * np.prod(shape) + 64


@pytest.mark.usefixtures("values_share_memory")
def test_a_room_is_as_large_as_the_largest_array_so_far_and_grows_if_nobody_is_in_it(no_rooms):
    held = scratch(np, SHAPE, FLOAT)
    assert scratch_bytes() == size_of(SHAPE)
    larger = 256, 128
    other = scratch(np, larger, FLOAT)
    assert scratch_bytes() == size_of(SHAPE) + size_of(larger)
    third = scratch(np, SHAPE, FLOAT)
    assert scratch_bytes() == size_of(SHAPE) + 2 * size_of(larger)
    del held
    for _ in range(2):
        scratch(np, larger, FLOAT)
        assert scratch_bytes() == 3 * size_of(larger)
    assert not np.may_share_memory(other, third)


@pytest.mark.usefixtures("values_share_memory")
@pytest.mark.parametrize(
    ("size", "count"), [(2**13 - 1, 0), (2**13, 1), (2**20, 1), (2**20 + 1, 0)]
)
def test_arrays_from_32_kb_to_4_mb_have_rooms(size, count, no_rooms):
    scratch(np, (size,), FLOAT)
    assert scratch_bytes() == count * size_of((size,))


@pytest.mark.usefixtures("values_share_memory")
def test_there_are_16_rooms_and_what_finds_none_is_an_array_of_its_own(no_rooms):
    held = [scratch(np, SHAPE, FLOAT) for _ in range(18)]
    assert scratch_bytes() == 16 * size_of(SHAPE)
    assert len({*map(place, held)}) == 18


@pytest.mark.usefixtures("values_share_memory")
def test_rooms_for_threads_are_those_of_the_largest_array_and_keep_what_is_held(no_rooms):
    reserve(2)
    assert scratch_bytes() == 0  # nobody has asked for an array yet
    held = scratch(np, SHAPE, FLOAT)
    held.fill(7)
    larger = 256, 128
    scratch(np, larger, FLOAT)
    for count in (4, 1):
        reserve(count)
        assert scratch_bytes() == 4 * size_of(larger)
    reserve(99)
    assert scratch_bytes() == 16 * size_of(larger)
    taken = [scratch(np, larger, FLOAT) for _ in range(16)]
    assert not any(np.may_share_memory(held, one) for one in taken)
    assert (held == 7).all()


def test_a_call_takes_scratch_from_its_caller_one_after_the_other_and_only_in_its_thread():
    taken, lent = [], np.ones(2 * 128 * 128 * 4 + 64, np.uint8)

    def kernel(x, out=None):
        taken[:] = [scratch(np, SHAPE, FLOAT, cleared=one == 0) for one in range(3)]
        other = Thread(target=lambda: taken.append(scratch(np, SHAPE, FLOAT)))
        other.start()
        other.join()
        return np.add(x, x, out=out)

    x, out = np.ones(3), np.empty(3)
    assert borrowing(kernel)(x, out=(out, lent)) is out
    assert [np.may_share_memory(lent, one) for one in taken] == [True, True, False, False]
    assert not np.may_share_memory(taken[0], taken[1])
    assert not taken[0].any()
    assert not np.may_share_memory(lent, scratch(np, SHAPE, FLOAT))
    for given in ({}, {"out": None}, {"out": out}):
        assert borrowing(kernel)(x, **given).tolist() == [2, 2, 2]
        assert not any(np.may_share_memory(lent, one) for one in taken)


def test_what_was_lent_to_a_call_that_fails_is_lent_to_nobody_after_it():
    def kernel(x, out):
        raise ArithmeticError

    lent = np.empty(128 * 128 * 4, np.uint8)
    with pytest.raises(ArithmeticError):
        borrowing(kernel)(np.ones(3), out=(np.empty(3), lent))
    assert not np.may_share_memory(lent, scratch(np, SHAPE, FLOAT))


def test_a_recycled_result_lies_as_the_kernels_own_and_is_not_written_while_somebody_holds_it():
    twice = Recycling(lambda x, out=None: np.multiply(x, 2, out=out), live=2)
    x = np.arange(128 * 128, dtype=FLOAT).reshape(SHAPE)
    for operand in (x, x.T):
        held, seen = twice(operand)[5], []
        for factor in (1, 2, 3):
            found = twice(operand * factor)
            assert found.strides == (operand * 2).strides
            np.testing.assert_array_equal(found, operand * factor * 2)
            seen.append(place(found))
            del found
        assert len({*seen}) == 1  # the other one is held
        np.testing.assert_array_equal(held, operand[5] * 2)


def test_the_array_that_was_taken_last_comes_first_where_it_is_idle_and_then_the_oldest():
    arrays = FreeList(SHAPE, FLOAT)
    arrays.limit = 3
    held = [arrays.take() for _ in range(3)]
    places = [place(array) for array in held]
    held[0] = held[2] = None
    assert [place(arrays.take()) for _ in range(3)] == [places[2]] * 3
    held[2] = arrays.take()
    assert place(arrays.take()) == places[0]


def test_what_is_a_view_of_an_operand_stays_one():
    flat = Recycling(lambda x, out=None: x.reshape(-1) if out is None else None, live=2)
    x = np.ones(SHAPE, FLOAT)
    assert all(np.shares_memory(flat(x), x) for _ in range(2))
