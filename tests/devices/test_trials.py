"""Trials whether helpers pay, in worlds where walks take what a seeded draw says."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorgraph.devices import trials
from actorgraph.devices.trials import Trial
from tests._each import each
from tests._soak import drawn

STALL_S = 4e-3
"""How long a caller waits for a helper whose core another process has."""


class World:
    """Walks of `alone_s` without helpers and `together_s` with them, up to a tenth longer.

    With helpers there are so many stalls in a second of walking.
    """

    def __init__(self, alone_s, together_s, stalls=0.0, seed=0):
        self.seconds, self.stalls = {False: alone_s, True: together_s}, stalls
        self.draw, self.trial = random.Random(seed), Trial(lambda: True)
        self.kinds, self.spent = [], []

    def walk(self, times=1):
        together = self.trial.is_together()
        seconds = times * self.seconds[together] * self.draw.uniform(1.0, 1.1)
        if together and self.draw.random() < self.stalls * seconds:
            seconds += self.draw.expovariate(1 / STALL_S)
        self.trial.note(together, seconds, times)
        self.kinds.append(together)
        self.spent.append(seconds)

    def go(self, walks):
        """Walk, and return the share of walks with helpers and the mean seconds."""
        before = len(self.kinds)
        for _ in range(walks):
            self.walk()
        return sum(self.kinds[before:]) / walks, sum(self.spent[before:]) / walks


def test_clear_evidence_decides_after_one_burst_of_each_kind():
    for together_s, pays in ((60e-6, True), (140e-6, False)):
        world = World(100e-6, together_s)
        world.go(8)
        assert world.kinds == [False] * 4 + [True] * 4
        assert world.trial.gains is world.trial.is_together() is pays
        alone_us, together_us = world.trial.medians_us
        assert 100 <= alone_us <= 110
        assert 1e6 * together_s <= together_us <= 1.1e6 * together_s


def test_walks_that_other_work_delays_decide_nothing():
    trial = Trial(lambda: True)
    for number in range(200):
        together = trial.is_together()
        delayed = number in (1, 2, 5, 6)
        trial.note(together, (60e-6 if together else 100e-6) + delayed * 1e-3)
        if not trial._tries and number > 8:
            break
    assert trial.gains
    assert number < 2 * 4 * trials._PAIRS


@each("ratio", [0.5, 0.9, 1.0, 1.1, 2.0])
def test_most_walks_are_of_the_faster_kind_and_trials_cost_little(ratio):
    world = World(100e-6, ratio * 100e-6)
    world.go(100)
    share, mean_s = world.go(20_000)
    assert mean_s < 1.01 * min(100e-6, ratio * 100e-6) * 1.05
    if ratio != 1.0:
        assert share > 0.98 if ratio < 1 else share < 0.02


def test_what_is_as_fast_with_helpers_is_done_without_them():
    share, _ = World(100e-6, 100e-6).go(20_000)
    assert share < 0.1


def test_when_helpers_begin_or_cease_to_pay_it_is_noticed_within_a_stay():
    world = World(100e-6, 150e-6)
    for together_s, pays in ((60e-6, True), (110e-6, False), (60e-6, True)):
        world.go(10_000)
        world.seconds[True] = together_s
        world.go(trials._MOST_STAY + 40)
        share, _ = world.go(500)
        assert share > 0.9 if pays else share < 0.1


def test_whoever_walks_alone_faster_all_at_once_has_no_helpers_within_a_stay():
    world = World(100e-6, 60e-6)
    world.go(10_000)
    world.seconds[False] = 40e-6
    world.go(trials._MOST_STAY + 40)
    assert world.go(500)[0] < 0.1


@each("stalls", [300.0, 1000.0])
def test_helpers_that_lose_their_core_too_often_are_left_though_medians_are_good(stalls):
    world = World(100e-6, 60e-6, stalls)
    _, mean_s = world.go(40_000)
    assert mean_s < 1.1 * 105e-6


def test_helpers_that_lose_their_core_seldom_are_kept():
    share, mean_s = World(100e-6, 60e-6, stalls=5.0).go(40_000)
    assert share > 0.9
    assert mean_s < 75e-6


def test_helpers_are_used_again_after_other_work_has_ended():
    world = World(100e-6, 60e-6)
    world.go(5_000)
    world.stalls = 2000.0
    world.go(5_000)
    world.stalls = 0.0
    world.go(trials._MOST_STAY + 40)
    assert world.go(500)[0] > 0.9


def test_walks_before_helpers_have_woken_up_are_not_timed():
    awake = False
    trial = Trial(lambda: awake)
    for _ in range(4):
        trial.note(False, 100e-6)
    for _ in range(3):  # they take longer, as nobody comes
        trial.note(trial.is_together(), 120e-6)
    awake = True
    for _ in range(3):
        trial.note(trial.is_together(), 60e-6)
    assert trial.gains
    assert trial.medians_us == pytest.approx((100, 60))


def test_helpers_that_never_come_in_time_are_not_waited_for():
    trial = Trial(lambda: False)
    for _ in range(4 + 4 + trials._LATE):
        trial.note(trial.is_together(), 120e-6 if trial.is_together() else 100e-6)
    assert not trial.gains
    assert not trial.is_together()


def test_walks_of_many_iterations_count_by_iteration():
    world = World(10e-6, 6e-6)
    for number in range(5_000):
        world.walk(times=1 + number % 50)
    assert sum(world.kinds[100:]) > 0.98 * 4_900


def test_a_kind_that_was_never_timed_does_not_win():
    trial = Trial(lambda: True)
    for _ in range(500):
        trial.note(False, 100e-6)
    assert not trial.gains


@drawn(50, 1000)
@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1e-2), st.integers(1, 9)), max_size=400))
def test_walks_of_several_threads_in_any_order_break_nothing(walks):
    trial = Trial(lambda: True)
    for together, seconds, times in walks:
        trial.note(together, seconds, times)
        assert isinstance(trial.is_together(), bool)
        assert trial._left <= trials._MOST_STAY
