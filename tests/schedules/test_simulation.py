"""The simulator: exact times, devices and links that differ, the critical path, pictures."""

from fractions import Fraction
from itertools import pairwise
from time import process_time

import pytest

from actorgraph.errors import ScheduleError
from actorgraph.pipeline import SCHEDULES, Schedule, recommend, schedule, simulate
from tests._each import each

every_name = pytest.mark.parametrize("name", SCHEDULES)
FOUR = {"stages": 4, "microbatches": 8}


def test_whole_numbers_and_fractions_stay_exact():
    third = simulate("gpipe", costs=(Fraction(1, 3), 1, Fraction(1, 7)), **FOUR)
    assert third.makespan == 11 * (Fraction(1, 3) + 1 + Fraction(1, 7))
    assert isinstance(third.makespan, Fraction)
    assert isinstance(simulate("gpipe", costs=(1, 1, 1), **FOUR).makespan, int)
    assert simulate("gpipe", costs=(0.1, 0.2, 0.3), **FOUR).makespan == pytest.approx(6.6)


@every_name
def test_no_action_starts_before_what_it_needs_and_no_device_does_two_things(name):
    found = simulate(name, costs=(2, 3, 1), latency=1, bandwidth=2, message_size=1, **FOUR)
    ends = {}
    for timed in found.timeline:
        ends.update({action[:3]: timed.end for action in timed.step})
    free = [0] * 4
    for device, step, start, end, _ in found.timeline:
        assert start >= free[device]
        free[device] = end
        for stage, kind, microbatch, _ in step:
            before = []
            if kind == "F" and stage:
                before = [(stage - 1, "F", microbatch)]
            if kind in ("B", "BW"):
                before = [(stage, "F", microbatch)]
                before += [(stage + 1, other, microbatch) for other in ("B", "BW")]
            for other in before:
                if other in ends:
                    away = found.schedule.device_of[other[0]] != device
                    assert start >= ends[other] + Fraction(3, 2) * away


@every_name
def test_the_critical_path_leads_from_the_start_to_the_end(name):
    found = simulate(name, costs=(2, 3, 1), **FOUR)
    path = found.critical_path
    assert (path[0].start, path[-1].end) == (0, found.makespan)
    assert all(one.end == other.start for one, other in pairwise(path))
    assert "on device" in str(path[0])


def test_a_stage_may_have_costs_of_its_own():
    costs = [(1, 1, 1), (5, 5, 5)]
    found = simulate("1f1b", stages=2, microbatches=4, costs=costs)
    assert found.busy == (12, 60)
    assert found.makespan == 60 + 1 + 2
    assert found.global_bubble == 3


def test_costs_of_a_device_are_shared_by_its_chunks():
    found = simulate("interleaved", stages=2, microbatches=4, chunks=2, costs=(2, 2, 2))
    assert {timed.end - timed.start for timed in found.timeline} == {1, 2}
    assert found.busy == (24, 24)


def test_a_device_of_twice_the_speed_takes_half_the_time():
    found = simulate("gpipe", stages=2, microbatches=3, costs=(2, 2, 2), speeds=(1, 2))
    assert found.busy == (18, 9)


def test_links_may_differ():
    one_way = {(0, 1): 3, (1, 0): 0}
    found = simulate("gpipe", stages=2, microbatches=1, costs=(1, 1, 1), latency=one_way)
    assert found.makespan == 6 + 3


def test_messages_follow_one_another_on_a_link():
    """Three microbatches leave at 1, 2 and 3; each keeps the link busy for 4."""
    sizes = {"bandwidth": Fraction(1, 2), "message_size": 2}
    found = simulate("gpipe", stages=2, microbatches=3, costs=(1, 1, 1), **sizes)
    forwards = [timed.start for timed in found.timeline if str(timed.step[0]).startswith("1F")]
    assert forwards == [5, 9, 13]


def test_messages_of_which_no_size_is_given_take_no_time_on_a_link():
    found = simulate("gpipe", stages=2, microbatches=1, costs=(1, 1, 1), bandwidth=1)
    assert found.makespan == 6


def test_a_joined_pair_takes_its_own_time():
    usual = simulate("dualpipe-v", costs=(2, 2, 2), **FOUR)
    overlapping = simulate("dualpipe-v", costs=(2, 2, 2), t_fb=2, **FOUR)
    pairs = [timed.end - timed.start for timed in usual.timeline if len(timed.step) == 2]
    assert set(pairs) == {3}
    pairs = [timed.end - timed.start for timed in overlapping.timeline if len(timed.step) == 2]
    assert set(pairs) == {2}
    assert overlapping.makespan < usual.makespan


def test_memory_is_weights_and_peak_activations():
    found = simulate("1f1b", costs=(1, 1, 1), activation_size=10, weight_size=(1, 2, 3, 4), **FOUR)
    assert found.peak_memory == (41, 32, 23, 14)


def test_activations_are_held_until_the_weights_have_their_gradients():
    held = Schedule.parse(["0F0 0B0 0F1 0B1 0W0 0W1"]).peak_activations
    freed = Schedule.parse(["0F0 0B0 0W0 0F1 0B1 0W1"]).peak_activations
    assert (held, freed) == ((2,), (1,))


def test_a_large_plan_is_simulated_in_two_seconds():
    started = process_time()
    found = simulate("1f1b", stages=64, microbatches=512, costs=(1, 1, 1))
    assert found.makespan == (512 + 63) * 3
    assert process_time() - started < 2


def test_a_simulation_shows_its_figures():
    found = simulate("zb-h1", costs=(1, 1, 1), **FOUR)
    assert repr(found) == (
        "<Simulation of zb-h1: 4 devices, 8 microbatches, makespan 27, bubble 3 (within spans 3), "
        "peak activations 4>"
    )
    assert repr(found.schedule) == "<Schedule 'zb-h1': 4 devices, 4 stages, 8 microbatches>"


def test_the_grid_shows_times_and_fits_a_width():
    found = simulate("1f1b", stages=2, microbatches=2, costs=(1, 2, 1), latency=1)
    assert found.grid().splitlines() == [
        "0 | F0 F1 ...............BW0      ...BW1",
        "1 | ......F0 BW0      F1 BW1",
    ]
    assert found.grid(width=20).splitlines() == ["0 | FF......BW0..BW1", "1 | ..FBW0 FBW1"]


def test_steps_that_take_no_time_are_not_drawn():
    found = simulate("zb-h1", stages=2, microbatches=2, costs=(2, 2, 0))
    assert found.grid().splitlines() == ["0 | F0 F1 ...B0 ...B1", "1 | ...F0 B0 F1 B1"]
    none = simulate("gpipe", stages=2, microbatches=2, costs=(0, 0, 0))
    assert none.grid().splitlines() == none.grid(width=20).splitlines() == ["0 |", "1 |"]


@each(
    ("options", "text"),
    [
        ({"costs": (1, 1)}, "costs is .1, 1.; expected three times: forward, backward to the"),
        ({"costs": 3}, "costs is .3.; expected three times"),
        ({"costs": (1, -1, 1)}, "B of costs is -1; expected a number of at least 0"),
        ({"costs": (1, "2", 1)}, "B of costs is '2'; expected a number of at least 0"),
        ({"costs": (1, 1, float("nan"))}, "W of costs is nan; expected a number"),
        ({"costs": [(1, 1, 1)] * 3}, "costs has 3 entries, but there are 4 stages"),
        ({"costs": [(1, 1, 1)] * 3 + [(1, 1)]}, "costs.3. is .1, 1.; expected three times"),
        ({"latency": -1}, "latency is -1; expected a number of at least 0"),
        ({"latency": {(0, 1): 1}}, "latency has no entry for .1, 0., the link from device to"),
        ({"bandwidth": 0}, "bandwidth is 0; expected a number above 0"),
        ({"speeds": (1, 2)}, "speeds has 2 entries, but there are 4 devices"),
        ({"speeds": (1, 2, 0, 1)}, "speeds.2. is 0; expected a number above 0"),
        ({"stages": None}, "simulating '1f1b' by name needs stages= and microbatches="),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options, text):
    with pytest.raises(ScheduleError, match=text):
        simulate("1f1b", **{"costs": (1, 1, 1), **FOUR, **options})


@pytest.mark.parametrize(
    ("name", "number"),
    [("stages", 5), ("microbatches", 7), ("chunks", 2), ("extra_warmup", 1)],
)
def test_a_made_schedule_takes_no_other_numbers(name, number):
    made = schedule("1f1b", **FOUR)
    same = simulate(made, costs=(1, 1, 1), chunks=1, **FOUR)
    assert same.makespan == simulate("1f1b", costs=(1, 1, 1), **FOUR).makespan
    with pytest.raises(
        ScheduleError, match=f"{name} is {number}, but the schedule '1f1b' was made"
    ):
        simulate(made, costs=(1, 1, 1), **{name: number})


# -- recommendations --------------------------------------------------------------------------


def test_schedules_are_ranked_by_time():
    found = recommend(costs=(1, 1, 1), **FOUR)
    times = [simulation.makespan for simulation in found]
    assert times == sorted(times)
    assert {simulation.schedule.name for simulation in found} >= set(SCHEDULES)


def test_a_limit_of_memory_leaves_out_what_does_not_fit():
    found = recommend(costs=(1, 1, 1), memory=4, **FOUR)
    assert all(max(simulation.peak_activations) <= 4 for simulation in found)
    assert {simulation.schedule.name for simulation in found} == {
        "1f1b", "zb-h1", "zb-h1 chunks=2", "zb-v",
    }  # fmt: skip
    tapering = recommend(costs=(1, 1, 1), memory=(4, 3, 2, 1), **FOUR)
    assert [simulation.schedule.name for simulation in tapering] == ["1f1b"]


def test_schedules_for_two_stages_a_device_can_be_left_out():
    found = recommend(costs=(1, 1, 1), chunks=(1,), **FOUR)
    assert all(simulation.schedule.stages == 4 for simulation in found)


def test_costs_by_stage_choose_the_number_of_chunks():
    found = recommend(costs=[(1, 1, 1)] * 8, **FOUR)
    assert all(simulation.schedule.stages == 8 for simulation in found)


def test_where_nothing_fits_the_least_is_named():
    text = "no schedule fits memory=3; '1f1b' takes the least, 4 on one device"
    with pytest.raises(ScheduleError, match=text):
        recommend(costs=(1, 1, 1), memory=3, **FOUR)
    with pytest.raises(ScheduleError, match="can hold 1 or 2 stages on a device, with costs for 5"):
        recommend(costs=[(1, 1, 1)] * 5, **FOUR)


def test_the_timeline_of_a_simulation_has_the_lanes_and_steps_of_its_schedule():
    made = schedule("zb-h1", stages=2, microbatches=4)
    timeline = simulate(made, costs=[(Fraction(1), Fraction(1), Fraction(1))] * 2).timeline
    for name, lane in zip(made.lane_names, made.lanes, strict=True):
        timed = [timed.label for timed in timeline if timed.lane == name]
        assert timed == [str(action) for action in lane]
