"""Spans that live at once never overlap, and loans are left before their owners write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorgraph.memory.buffers import ALIGNMENT
from actorgraph.memory.packing import (
    LENT_BYTES,
    Loan,
    Place,
    Span,
    _by_size,
    _by_time,
    pack,
)
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
    assert len(places) == len(spans)
    for i, (span, place) in enumerate(zip(spans, places, strict=True)):
        end = place.begin + span.size
        assert place.begin % ALIGNMENT == 0
        assert end <= (total if place.loan < 0 else loans[place.loan].size)
        assert place.loan < 0 or span.end < loans[place.loan].written_at
        for other, where in list(zip(spans, places, strict=True))[:i]:
            if span.begin <= other.end and other.begin <= span.end and place.loan == where.loan:
                assert end <= where.begin or where.begin + other.size <= place.begin


def test_a_span_lies_in_a_loan_only_while_nobody_writes_there():
    loan = Loan(LENT_BYTES, written_at=5)
    assert pack([Span(LENT_BYTES, 0, 4)], [loan]) == (0, [Place(0, 0)])
    assert pack([Span(LENT_BYTES, 0, 5)], [loan]) == (LENT_BYTES, [Place(-1, 0)])


def test_what_is_small_lies_together():
    assert pack([Span(100, 0, 4)], [Loan(LENT_BYTES, written_at=5)]) == (128, [Place(-1, 0)])


def test_gaps_that_nothing_fits_into_are_closed_by_laying_again():
    """By time, b lies behind a; c is larger than what a leaves, and has to lie behind b.

    a ██░░░░
    b ░█████
    c ░░░███
    """
    unit = 1 << 20
    a, b, c = Span(unit, 0, 2), Span(unit, 1, 6), Span(2 * unit, 3, 6)
    assert _by_time([a, b, c], [])[0] == 4 * unit
    assert pack([a, b, c], [])[0] == 3 * unit


def test_what_fits_into_two_gaps_lies_in_the_smaller():
    """a and c leave gaps before and behind b; e is as large as c was, and leaves a's to others.

    a ██░░      b ████      c ██░░      d ████      e ░░██
    """
    unit = 1 << 20
    a, b, c, d = Span(3 * unit, 0, 1), Span(unit, 0, 3), Span(2 * unit, 0, 1), Span(unit, 0, 3)
    begins = [place.begin // unit for place in _by_time([a, b, c, d, Span(2 * unit, 2, 3)], [])[1]]
    assert begins == [0, 3, 4, 6, 4]
