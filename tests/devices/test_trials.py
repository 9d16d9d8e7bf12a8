"""Trials whether helpers pay, in worlds where walks take what a seeded draw says."""

import random
from itertools import groupby

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


class Exact:
    """Walks that take what is said, in us an iteration, by kind; `times` are its iterations.

    The last walk of a burst or stay takes what `odd` says.
    """

    def __init__(self, alone, together, odd=None, times=(1, 1), are_there=True):
        self.us, self.odd, self.times = [alone, together], odd, times
        self.trial, self.kinds = Trial(lambda: are_there), []

    def walk(self, late_us=0.0):
        kind = self.trial.is_together()
        us = self.odd if self.odd and self.trial._left == 1 else self.us
        times = self.times[kind]
        self.trial.note(kind, (us[kind] * times + late_us) * 1e-6, times)
        self.kinds.append(kind)

    def go(self, walks):
        """Walk, and return how many walks of a kind follow each other, from walks alone on."""
        for _ in range(walks):
            self.walk()
        return [len([*some]) for _, some in groupby(self.kinds)]

    def decide(self):
        """Walk until helpers are chosen, and begin to count walks."""
        while not (self.trial.gains and not self.trial._tries):
            self.walk()
        self.kinds = []


@each("alone, together, times, found", [
    # What a trial has lost is little: the least stay, which is doubled four times.
    (100, 60, (1, 1), [4, 4 + 64, 4, 128, 4, 256, 4, 512, 4, 1024, 4, 1024, 4]),
    (100, 140, (1, 1), [4, 4, 64, 4, 128, 4, 256, 4, 512, 4, 1024, 4, 1024, 4]),
    # Four walks with helpers have lost 36 times what a walk alone takes, 20 times of which is 720.
    (100, 1000, (1, 1), [4, 4, 720, 4, 1440, 4, 2048, 4, 2048, 4]),
    (100, 400, (10, 30), [4, 4, 720, 4, 1440, 4, 2048, 4, 2048, 4]),
    # Three walks alone have lost 2.97 times what one takes, later four have lost 3.96 times that.
    (1000, 10, (1, 1), [4, 4 + 64, 4, 158, 4, 316, 4, 633, 4, 1267, 4, 1267, 4]),
    (1000, 10, (10, 30), [4, 4 + 64, 4, 158, 4, 316, 4, 633, 4, 1267, 4, 1267, 4]),
])  # fmt: skip
def test_a_stay_is_as_long_as_its_trial_was_dear_and_doubled_where_the_result_is_that_of_before(
    alone, together, times, found
):
    assert Exact(alone, together, times=times).go(sum(found)) == found


def test_another_result_makes_the_next_stay_short_again():
    walks = Exact(100, 140)
    walks.go(4 + 4 + 64 + 4 + 128 + 4)
    walks.us = [100, 60]
    assert walks.go(256 + 4 + 64 + 4 + 128 + 4)[6:] == [256, 4 + 64, 4, 128, 4]


@each("together, late, last", [
    (60, (5, 13, 21), 4 + 64), (140, (1, 9, 17), 4),
])  # fmt: skip
def test_a_pair_more_than_there_are_odd_times_decides(together, late, last):
    walks = Exact(100, together)
    for number in range(8 * 4 + 64):
        walks.walk(1000 * (number in late))
    assert walks.go(0)[:8] == [*[4] * 7, last]


@each("before, us, gains", [
    (False, 94.9, True), (False, 95.1, False), (True, 99.9, True), (True, 100.1, False),
])  # fmt: skip
def test_where_nothing_is_clear_medians_decide_after_four_pairs(before, us, gains):
    walks = Exact(100, us, odd=[40, 300])
    if before:
        walks.us, walks.odd = [100, 60], None
        walks.decide()
        walks.us, walks.odd = [100, us], [40, 300]
        walks.go(64)
        walks.kinds = []
    assert walks.go(32 - 4 * before) == [4] * (8 - before)
    assert not walks.trial._tries
    assert walks.trial.gains is gains


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


def test_helpers_are_waited_for_during_four_walks_of_a_burst():
    assert Exact(100, 140, are_there=False).go(80)[:3] == [4, 4 + 4, 64]


@each("alone, most_us", [(100, 16_000), (10_000, 200_000)])
def test_helpers_are_left_once_they_have_lost_more_than_they_had_gained(alone, most_us):
    gain = 0.4 * alone
    for walks_before in (0, 30):  # the trial has gained four times, from a quarter on
        balance = most_us / 4 + gain * (4 + walks_before)
        for late_us, kept in ((gain + balance - 1, True), (gain + balance + 1, False)):
            walks = Exact(alone, 0.6 * alone)
            walks.decide()
            walks.go(walks_before)
            walks.walk(late_us)
            assert walks.trial.is_together() is kept


@each("late_us, kept", [(16_039, True), (16_041, False)])
def test_what_helpers_gain_is_kept_for_bad_times_up_to_a_limit(late_us, kept):
    walks = Exact(100, 60)
    walks.go(4 + 4 + 64 + 4 + 128 + 4 + 256 + 4 + 512 + 4 + 450)
    walks.walk(late_us)
    assert walks.trial.is_together() is kept


def test_the_oftener_helpers_are_left_the_longer_until_their_balance_was_full_again():
    walks, lost_us = Exact(100, 60), 16_000 / 4 + 160 + 40 + 1
    stays = []
    for full in (False, False, True, False):
        walks.decide()
        if full:
            walks.trial._left = 1000  # long enough, whatever trials have found before
            walks.go(450)
            walks.kinds = []
            walks.walk(16_041 + 10_000)
        else:
            walks.walk(lost_us)
        assert not walks.trial.is_together()
        stays.append(walks.trial._left)
    assert stays == [800, 1600, 2048, 1600]


def test_a_trial_tells_the_times_that_decide():
    trial = Trial(lambda: True)
    assert trial.timing(2) == "runs by 2 threads have not been timed yet"
    walks = Exact(100, 60)
    walks.decide()
    told = "laps took 100.0 us by one thread, 60.0 us by 3"
    assert walks.trial.timing(3, "laps") == told
