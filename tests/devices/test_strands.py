"""Machine code that walks pieces, on rows that are written by hand."""

import ctypes
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest

from actorgraph.devices import native, strands, structs
from actorgraph.devices.helpers import _OWNER, HELPERS
from actorgraph.devices.loops import loop_of
from actorgraph.devices.strands import Pieces

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


@pytest.fixture(autouse=True)
def helpers(monkeypatch):
    native.RUNTIME.request()
    native.RUNTIME.done.wait()
    monkeypatch.setattr(HELPERS, "count", max(HELPERS.count, 1))


BEHIND = [*range(-8, 0)]
"""Words that are behind those of the last strand, and nobody's."""


class Walk:
    """Rows of one number each, `(name, operand, operand, result)`, which are a piece each.

    `strands` has the numbers of the rows of each strand, and `waits` what the row of a number, if
    it is there, waits for.  The last rows are `copies`, in no strand.
    """

    def __init__(self, rows, strands, waits, heard=native.ALL_ERRORS, copies=0):
        self.numbers = np.zeros(16)
        self.run = structs._idle()
        size, steps = np.ones(1, np.int64), np.zeros(3, np.int64)
        lines = []
        for name, *places in rows:
            loop = loop_of(name, "ddd")
            words = [loop.function, loop.data, size.ctypes.data, steps.ctypes.data, 1, 1]
            words += [word for place in places for word in (0, 8 * place, 0, 0)]
            lines.append([*words, *[0] * (native.ROW_WORDS - 1 - len(words)), heard])
        self._alive = size, steps, np.array(lines, np.int64), np.zeros((0, 5), np.int64)
        *_, lines, specs = self._alive
        order = [row for some in strands for row in some]
        spans = [(row, row + 1) for row in order]
        behind = [[order.index(one) for one in waits.get(row, ())] for row in order]
        begins = [0, *accumulate(map(len, strands))]
        self.pieces = Pieces(begins, spans, behind)
        self.block = native.block(specs, lines, [self.numbers.ctypes.data], len(rows) - copies)
        words, self._owned = self.pieces.words()
        self.words = np.append(words, BEHIND)
        self.block[native.STRANDS] = self.words.ctypes.data

    def __call__(self, together=True):
        self.pieces.trial._together = together
        flags = self.pieces.walk((), self.block.ctypes.data, self.run)
        assert self.words[-len(BEHIND) :].tolist() == BEHIND
        return flags


IN_TURN = pytest.mark.parametrize("together", [True, False])


@IN_TURN
def test_pieces_compute_in_the_order_that_they_wait_in(together):
    rows = [("add", 0, 0, 1), ("multiply", 1, 1, 2), ("add", 2, 1, 3)]
    walk = Walk(rows, [[0, 2], [1]], {1: [0], 2: [1]})
    for number in (1.0, 2.0, 3.0):
        walk.numbers[:] = number
        assert walk(together) == 0
        twice = 2 * number
        assert walk.numbers[:5].tolist() == [number, twice, twice**2, twice**2 + twice, number]


@IN_TURN
def test_each_piece_is_computed_once(together):
    rows = [("add", 0, k, k) for k in range(1, 8)]
    walk = Walk(rows, [[0, 1, 2], [3], [4, 5, 6]], {4: [3]})
    walk.numbers[0] = 1.0
    for times in range(1, 50):
        assert walk(together) == 0
        assert walk.numbers.tolist() == [1.0, *[times] * 7, *[0.0] * 8]


@IN_TURN
@pytest.mark.parametrize("at", [0, 1])
def test_errors_of_any_piece_are_told_by_their_walk_and_by_no_later_one(together, at):
    rows = [("divide", 0, 2, 4), ("divide", 1, 3, 5)]
    walk = Walk(rows, [[0], [1]], {})
    walk.numbers[:] = 1.0
    walk.numbers[2 + at] = 0.0
    assert walk(together) == native.ERRORS["divide"]
    assert walk(together) == native.ERRORS["divide"]
    walk.numbers[at] = 0.0
    assert walk(together) == native.ERRORS["invalid"]
    walk.numbers[:] = 1.0
    assert walk(together) == 0


@IN_TURN
def test_errors_of_all_pieces_are_told_together(together):
    rows = [("divide", 0, 2, 4), ("divide", 1, 2, 5), ("add", 0, 0, 6)]
    walk = Walk(rows, [[0], [1, 2]], {})
    walk.numbers[:3] = 0.0, 1.0, 0.0
    assert walk(together) == native.ERRORS["divide"] | native.ERRORS["invalid"]


@IN_TURN
def test_errors_that_a_row_passes_over_are_left_to_no_other_piece(together):
    walk = Walk([("divide", 0, 1, 2)], [[0]], {}, native.ERRORS["over"])
    walk.numbers[0] = 1.0
    assert walk(together) == 0
    assert np.isinf(walk.numbers[2])
    assert ctypes.CDLL("libm.so.6").fetestexcept(native.ALL_ERRORS) == 0


@IN_TURN
def test_behind_an_error_nothing_is_copied_unless_nobody_heeds_it(together):
    rows = [("multiply", 0, 0, 1), ("add", 1, 2, 3)]
    walk = Walk(rows, [[0]], {}, copies=1)
    walk.numbers[0] = 1e200
    assert walk(together) == native.ERRORS["over"]
    assert walk.numbers[3] == 0.0
    walk.block[native.HEEDLESS] = 1
    assert walk(together) == 0
    assert np.isinf(walk.numbers[3])


@IN_TURN
def test_a_dead_run_ends_its_walk_and_no_later_one(together):
    walk = Walk([("add", 0, 0, 1), ("add", 1, 0, 2)], [[0], [1]], {1: [0]})
    walk.numbers[0] = 1.0
    walk.run.dead = Exception("dead")
    assert walk(together) == native.DEAD
    assert walk.numbers[:3].tolist() == [1, 0, 0]
    walk.run.dead = None
    assert walk(together) == 0
    assert walk.numbers[:3].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("asked", "busy", "alone", "walked"), [
    (True, 0, True, 0), (False, 0, True, 1), (False, 0, False, 0), (True, 0, False, 0),
    (True, 1, True, 1),
])  # fmt: skip
def test_a_trial_is_told_how_long_a_walk_of_its_kind_took(monkeypatch, asked, busy, alone, walked):
    pieces, noted, times = Walk([("add", 0, 0, 1)], [[0]], {}).pieces, [], iter([3, 5.5])
    pieces.trial = SimpleNamespace(is_together=lambda: asked, note=lambda *told: noted.append(told))
    words = HELPERS.words.copy()
    words[_OWNER // 8] = busy
    monkeypatch.setattr(HELPERS, "words", words)
    monkeypatch.setattr(strands, "perf_counter", lambda: next(times))
    monkeypatch.setattr(native.RUNTIME, "walk", lambda arrays, block, run: block)
    blocks = np.zeros((2, native.HELPED + 1), np.int64)
    own, other = [one.ctypes.data for one in blocks]
    found = pieces.walk((), own, structs.IDLE, other if alone else None, times=9)
    assert found == (own, other)[walked]
    together = asked and not busy
    assert noted == [(together, 2.5, 9)]
    assert bool(blocks[0, native.HELPED]) is together
