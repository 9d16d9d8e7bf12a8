"""Spans that live at once never overlap, and loans are left before their owners write."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.memory import packing
from actorgraph.memory.packing import (
    LENT_BYTES,
    Loan,
    Place,
    Span,
    _bound,
    _by_size,
    _by_time,
    assign,
    idle,
    pack,
)
from actorgraph.store import CACHE_LINE
from tests._soak import drawn

SIZES = st.sampled_from([0, 4, 100, LENT_BYTES, LENT_BYTES + 4, 3 * LENT_BYTES])


@st.composite
def spans(draw):
    begins = sorted(draw(st.lists(st.integers(0, 20), max_size=25)))
    return [Span(draw(SIZES), begin, begin + draw(st.integers(0, 12))) for begin in begins]


@st.composite
def loans(draw):
    untils = sorted(draw(st.lists(st.integers(0, 30), max_size=5)))
    return [Loan(draw(SIZES), until) for until in untils]


@drawn(100, soak=2000)
@given(spans(), loans())
@pytest.mark.parametrize("lay", [_by_time, _by_size, pack])
def test_no_two_spans_that_live_at_once_overlap(lay, spans, loans):
    total, places = lay(spans, loans)
    assert total >= _bound(spans, loans)
    assert len(places) == len(spans)
    for i, (span, place) in enumerate(zip(spans, places, strict=True)):
        end = place.begin + span.size
        assert place.begin % CACHE_LINE == 0
        assert place.loan >= -1
        assert end <= (total if place.loan < 0 else loans[place.loan].size)
        assert place.loan < 0 or span.end < loans[place.loan].written_at
        for other, where in list(zip(spans, places, strict=True))[:i]:
            if span.begin <= other.end and other.begin <= span.end and place.loan == where.loan:
                assert end <= where.begin or where.begin + other.size <= place.begin


@drawn(100, soak=2000)
@given(spans(), loans(), st.lists(st.integers(0, 30), max_size=8))
def test_what_is_idle_in_a_turn_is_the_largest_gap_between_what_lives_then(spans, loans, starts):
    total, places = pack(spans, loans)
    turns = [range(one, one + 1 + one % 3) for one in sorted(starts)]
    for turn, (begin, end) in zip(turns, idle(total, spans, places, turns), strict=True):
        free = np.ones(total // CACHE_LINE, np.bool)
        for span, place in zip(spans, places, strict=True):
            if place.loan < 0 and span.begin < turn.stop and turn.start <= span.end:
                until = place.begin + span.size + CACHE_LINE - 1
                free[place.begin // CACHE_LINE : until // CACHE_LINE] = False
        runs = "".join(map(str, free.astype(int))).split("0")
        assert free[begin // CACHE_LINE : end // CACHE_LINE].all()
        assert begin % CACHE_LINE == 0
        assert 0 <= begin <= end <= total
        assert end - begin == CACHE_LINE * max(map(len, runs))


def test_a_span_lies_in_a_loan_only_while_nobody_writes_there():
    loan = Loan(LENT_BYTES, written_at=5)
    assert pack([Span(LENT_BYTES, 0, 4)], [loan]) == (0, [Place(0, 0)])
    assert pack([Span(LENT_BYTES, 0, 5)], [loan]) == (LENT_BYTES, [Place(-1, 0)])


def test_what_is_small_lies_together():
    assert pack([Span(100, 0, 4)], [Loan(LENT_BYTES, written_at=5)]) == (128, [Place(-1, 0)])


@pytest.mark.parametrize("loans", [[], [Loan(LENT_BYTES, written_at=99)]])
def test_gaps_that_nothing_fits_into_are_closed_by_laying_again(loans):
    """By time, b lies behind a; c is larger than what a leaves, and has to lie behind b.

    a ██░░░░
    b ░█████
    c ░░░███
    """
    unit = 1 << 20
    a, b, c = Span(unit, 0, 2), Span(unit, 1, 6), Span(2 * unit, 3, 6)
    assert _by_time([a, b, c], loans)[0] == 4 * unit
    assert pack([a, b, c], loans)[0] == 3 * unit


def test_what_lies_as_close_as_can_be_is_not_laid_again(monkeypatch):
    monkeypatch.setattr(packing, "_by_size", None)
    unit = 1 << 20
    assert pack([Span(unit, 0, 1), Span(unit, 1, 2), Span(unit, 2, 3)], [])[0] == 2 * unit


def test_gaps_in_little_memory_are_left(monkeypatch):
    monkeypatch.setattr(packing, "_by_size", None)
    a, b, c = Span(CACHE_LINE, 0, 2), Span(CACHE_LINE, 1, 6), Span(2 * CACHE_LINE, 3, 6)
    assert pack([a, b, c], [])[0] == 4 * CACHE_LINE


def test_a_gap_is_joined_with_those_on_both_sides():
    """b ends last, and leaves one gap that is as large as d.

    a ██░      b ████      c ██░      d ░░██
    """
    a, b, c = Span(CACHE_LINE, 0, 0), Span(2 * CACHE_LINE, 0, 1), Span(CACHE_LINE, 0, 0)
    assert _by_time([a, b, c, Span(4 * CACHE_LINE, 2, 2)], [])[0] == 4 * CACHE_LINE


def test_what_fits_into_two_gaps_lies_in_the_smaller():
    """a and c leave gaps before and behind b; e is as large as c was, and leaves a's to others.

    a ██░░      b ████      c ██░░      d ████      e ░░██
    """
    unit = 1 << 20
    a, b, c, d = Span(3 * unit, 0, 1), Span(unit, 0, 3), Span(2 * unit, 0, 1), Span(unit, 0, 3)
    begins = [place.begin // unit for place in _by_time([a, b, c, d, Span(2 * unit, 2, 3)], [])[1]]
    assert begins == [0, 3, 4, 6, 4]


@pytest.mark.parametrize("size", [LENT_BYTES, 2 * LENT_BYTES])
@pytest.mark.parametrize("lay", [_by_time, _by_size])
def test_what_lives_at_once_lies_beside_each_other_in_the_first_loan(lay, size):
    loan = Loan(2 * size, written_at=5)
    first, second = Span(size, 0, 4), Span(size, 0, 4)
    assert lay([first, second], [loan]) == (0, [Place(0, 0), Place(0, size)])


@pytest.mark.parametrize(("dtype", "places"), [("float64", 1), ("complex128", 2)])
@pytest.mark.usefixtures("values_share_memory")
def test_a_step_writes_over_an_operand_that_ends_with_it_but_for_complex_ones(dtype, places):
    x = ag.Graph().input("x", (8,), dtype)
    first = np.exp(x)
    second = -first
    for ends, count in ((True, places), (False, 2)):
        steps = [first, second, second.sum() if ends else second + first]
        found = assign(steps, steps[2:], {first.id, second.id}, {})
        assert len(set(found.place_of.values())) == count
        assert found.in_place == ({second.id} if count == 1 else set())
        assert found.total_bytes == count * 8 * x.dtype.itemsize


@pytest.mark.parametrize(("begin", "times"), [(0, 1), (1, 2), (2, 1)])
def test_steps_are_laid_again_only_if_a_range_has_to_keep_a_value(begin, times, monkeypatch):
    laid = []
    monkeypatch.setattr(packing, "pack", lambda *given: laid.append(given) or pack(*given))
    x = ag.Graph().input("x", (8,), "float64")
    first = np.exp(x)
    second = np.sin(first)
    steps = [first, second, np.cos(second), second.sum()]
    planned = {first.id, second.id} if begin < 2 else {first.id}
    assign(steps, steps[2:], planned, {}, (), [(begin, 4)])
    assert len(laid) == times


def test_a_step_writes_over_no_operand_of_other_dims_or_dtype():
    g = ag.Graph()
    e, rows = np.exp(g.input("x", (8,))), g.input("rows", (4, 8))
    for step in (e > 1, e + rows):
        assert not assign([e, step], [step], {e.id, step.id}, {}).in_place


def test_a_selection_writes_over_an_operand_but_where_another_may_show_it():
    x = ag.Graph().input("x", (8, 8), "float64")
    mask, e, n = x > 0, np.exp(x), np.sin(x)
    for other, written in ((n, True), (e.T, False)):
        steps = [mask, e, other, chosen := ag.ops.where(mask, e, other), chosen.sum()]
        found = assign(steps, steps[4:], {e.id, n.id, chosen.id}, {})
        assert found.in_place == ({chosen.id} if written else set())
