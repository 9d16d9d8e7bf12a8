"""When walks have helpers: timed walks decide, and one that took much too long sends them off.

Who takes which piece, and the bits, are tested in `tests/lower/test_strands.py`.
"""

from itertools import groupby

import pytest

from actorgraph.devices.strands import _Trial


class Trial(_Trial):
    """One of few walks: each trial has 2 without helpers and 3 with them."""

    alone, together, kept, most, rest, longest = 2, 3, 10, 40, 4, 8


def walked(trial, walks, alone_s=0.5, together_s=0.25):
    """Return for each walk whether it has helpers."""
    found = []
    for _ in range(walks):
        together = trial.is_together()
        trial.note(together, together_s if together else alone_s)
        found.append(together)
    return found


@pytest.mark.parametrize(("together_s", "gains"), [(0.47, True), (0.475, False), (0.9, False)])
def test_walks_have_helpers_where_these_have_made_them_faster(together_s, gains):
    trial = Trial()
    assert not trial.gains
    assert walked(trial, 15, together_s=together_s) == [False] * 2 + [True] * 3 + [gains] * 10
    assert trial.gains is gains
    assert trial.medians_us == (500_000.0, together_s * 1e6)


def test_the_median_decides_and_nothing_is_known_before():
    trial = Trial()
    assert trial.medians_us == (0.0, 0.0)
    for together, seconds in ((0, 1.0), (0, 0.5), (1, 0.25), (1, 9.0), (1, 0.125)):
        assert trial.is_together() == together
        trial.note(bool(together), seconds)
    assert trial.medians_us == (1_000_000.0, 250_000.0)
    assert trial.is_together()


def test_trials_become_rarer_while_they_decide_the_same():
    trial, pauses = Trial(), []
    for together_s in (0.25, 0.25, 0.25, 0.25, 0.75, 0.75):
        walked(trial, 5, together_s=together_s)
        walks = 0
        while not walks or trial._made:
            assert walked(trial, 1, together_s=together_s) == [together_s == 0.25]
            walks += 1
        pauses.append(walks)
    assert pauses == [11, 21, 41, 41, 11, 21]


def test_a_walk_whose_helper_has_lost_its_core_is_followed_by_walks_without_helpers(monkeypatch):
    trial, rests = Trial(), []
    monkeypatch.setattr(Trial, "kept", 1000)
    assert walked(trial, 8)[-3:] == [True] * 3
    assert walked(trial, 1, together_s=0.75) == [True]
    assert walked(trial, 5) == [True] * 5  # three times the median is no more than that
    for _ in range(3):
        assert walked(trial, 1, together_s=0.76) == [True]
        (which, some), *_ = [(which, [*some]) for which, some in groupby(walked(trial, 9))]
        rests.append((which, len(some)))
    assert rests == [(False, 3), (False, 7), (False, 7)]


def test_a_walk_that_takes_long_by_itself_is_no_reason_to_rest():
    trial = Trial()
    assert walked(trial, 5, together_s=0.45) == [False] * 2 + [True] * 3
    trial.is_together()
    trial.note(False, 9.0)
    assert trial.is_together()
