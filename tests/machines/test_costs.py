"""Regions are cut by cost: predicted, measured or given; the bits are the same."""

from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphError
from actorgraph.lower.cuts import by_cost
from actorgraph.machines.tuner import CUT_AFTER, ROWS_AFTER, ROWS_TRIED, TRIAL_AFTER, Tuner


def branches(count=4, size=200):
    x = ag.Graph().input("x", (size, size), "float64")
    return [np.tanh((x * (i + 1.0)).named(f"scaled_{i}")).named(f"end_{i}") for i in range(count)]


FEEDS = {"x": np.random.default_rng(0).normal(size=(200, 200))}


def regions(machine):
    return sorted(spec.name for plan in machine._plans.values() for spec in plan.partition.tasks)


def tuner_of(machine):
    [tuner] = machine._tuners.values()
    return tuner


def given(machine, costs):
    """Have runs to come go by a plan that is cut by other costs; return its tuner."""
    mode, plan = next(iter(machine._plans.items()))
    machine._plans[mode] = plan.cut_anew(by_cost, costs)
    tuner = machine._tuners[mode] = Tuner(machine._plans[mode])
    return tuner


def bits(machine, ends):
    run = machine.run_sync(FEEDS, backward={ends[0]: 1.0})
    return [run[end].value.tobytes() for end in ends]


def test_given_costs_decide_the_cut_and_freeze_it():
    ends = branches()
    with ag.ActorMachine(ends, workers=2, costs=dict.fromkeys(ends, 500.0)) as machine:
        expected = bits(machine, ends)
        assert "8 regions" in machine.explain()
        assert machine.costs()["end_1"] == pytest.approx(500.0)
        plans = list(machine._plans.values())
        for _ in range(TRIAL_AFTER + 1):
            assert bits(machine, ends) == expected
        assert list(machine._plans.values()) == plans
    with ag.ActorMachine(ends, workers=2, costs={end.name: 0.5 for end in ends}) as machine:
        assert bits(machine, ends) == expected
        assert "given" in machine.explain()


def test_a_turn_that_finds_a_message_missing_is_not_measured():
    ends = branches(3)
    end = ag.ops.stack(ends).named("end")
    costs = dict.fromkeys([*ends, end], 500.0)
    with ag.ActorMachine([end], fuse="none", workers=1, costs=costs) as machine:
        for _ in range(10):
            machine.run_sync(FEEDS)
        tasks = [task for network in machine._core.networks.values() for task in network.tasks]
        turns = {task.spec.name: task.turns for task in tasks}
        assert [turns[node.name] for node in (*ends, end)] == [10] * 4


def test_costs_of_one_machine_are_taken_by_another():
    ends = branches()
    with ag.ActorMachine(ends) as first:
        bits(first, ends)
        with ag.ActorMachine(ends, costs=first.costs()) as second:
            bits(second, ends)
            assert second.costs() == pytest.approx(first.costs())
            assert regions(second) == regions(first)


def test_measured_time_that_predictions_missed_cuts_anew_with_the_same_bits():
    ends = branches()
    with ag.LispMachine(ends) as lisp, ag.ActorMachine(ends, workers=2) as machine:
        expected = bits(lisp, ends)
        machine.run_sync(FEEDS, backward={ends[0]: 1.0})
        [plan] = machine._plans.values()
        assert plan.factors == {}
        for network in machine._networks():
            for task in network.tasks:
                task.latest = (5.0, 0.01, 5.0, 0.01, 5.0, 0.01, 5.0, 0.01, 0.01)
        plan.latest.direct_latest.clear()
        tuner_of(machine).runs = CUT_AFTER - 1
        assert bits(machine, ends) == expected
        [better] = machine._plans.values()
        assert better is not plan
        assert "refined by measured time" in machine.explain()
        assert machine.costs()["end_1"] > 1000
        assert machine.costs() == pytest.approx(dict.fromkeys(machine.costs(), 10_000.0))
        assert bits(machine, ends) == expected
        assert all(network.plan is better for network in machine._networks())


@pytest.mark.parametrize("fuse", ["none", "auto", "all"])
def test_a_graph_of_leaves_alone_runs_on_though_nothing_is_predicted(fuse):
    x = ag.Graph().input("x", (2,))
    with ag.ActorMachine([x], fuse=fuse) as machine:
        for _ in range(CUT_AFTER + 1):
            run = machine.run_sync({"x": np.ones(2, "float32")})
            assert run[x].value.tolist() == [1.0, 1.0]
        assert isinstance(machine.busiest(), list)


@pytest.mark.parametrize(("seconds", "stays"), [(10.0, "one sequence"), (1e-9, "regions")])
def test_regions_stay_only_where_their_runs_are_faster_than_one_sequence(seconds, stays):
    ends = branches()
    costs = {end.name: 500.0 for end in ends}
    with ag.ActorMachine(ends, workers=2) as machine:
        expected = bits(machine, ends)
        tuner = given(machine, {machine.graph.node(name): 100.0 for name in costs})
        parallel = tuner.plan
        assert bits(machine, ends) == expected
        tuner.measured_s.extend([seconds] * 5)
        tuner.runs = TRIAL_AFTER - 1
        assert bits(machine, ends) == expected
        [tried] = machine._plans.values()
        assert tuner.incumbent is parallel
        assert "on trial" in machine.explain()
        for _ in range(CUT_AFTER):
            assert tuner.incumbent is parallel
            assert bits(machine, ends) == expected
        [stayed] = machine._plans.values()
        assert stayed is (tried if stays == "one sequence" else parallel)
        assert ("runs took" in machine.explain()) == (stays == "one sequence")
        told = "10000000 us as 8 tasks on 2 workers" in machine.explain()
        assert told == (stays == "one sequence")
        assert tuner.incumbent is None


def test_a_sequence_that_won_is_computed_in_the_thread_that_waits_whatever_was_predicted():
    ends = branches()
    with ag.ActorMachine(ends, workers=2) as machine:
        expected = bits(machine, ends)
        tuner = given(machine, dict.fromkeys(ends, 1e6))  # turns were delayed by other work
        assert bits(machine, ends) == expected
        assert tuner.plan.only_binding.direct_turns == 0
        tuner.measured_s.extend([10.0] * 5)
        tuner.runs = TRIAL_AFTER - 1
        for _ in range(CUT_AFTER + 2):
            assert bits(machine, ends) == expected
        binding = tuner.plan.only_binding
        assert binding.predicted_us > 1e6 > 1e5 > binding.run_us > 0.0
        assert binding.direct_turns > 0


@pytest.mark.parametrize(("seconds", "stays"), [(1e-3, "one sequence"), (1e-9, "regions")])
def test_brief_regions_show_again_that_they_are_faster_when_rows_stand_for_steps(seconds, stays):
    pytest.importorskip("llvmlite")
    ends = branches()
    with ag.ActorMachine(ends, workers=2) as machine:
        expected = bits(machine, ends)
        tuner = given(machine, dict.fromkeys(ends, 100.0))
        parallel = tuner.plan
        assert bits(machine, ends) == expected
        for runs, lasts in ((TRIAL_AFTER, CUT_AFTER), (ROWS_AFTER, ROWS_TRIED)):
            tuner.runs = runs - 1
            tuner.measured_s.extend([1e-9 if runs == TRIAL_AFTER else seconds] * 20)
            assert bits(machine, ends) == expected
            assert tuner.incumbent is parallel
            assert not tuner.is_done()
            tuner.runs = lasts - 1
            if tuner.plan is not parallel:
                tuner.measured_s.extend([1e-4] * 20)
            assert bits(machine, ends) == expected
            assert tuner.incumbent is None
        assert tuner.is_done()
        [stayed] = machine._plans.values()
        assert (stayed is parallel) == (stays == "regions")


def test_a_task_of_few_steps_which_get_no_rows_wakes_nobody():
    x = ag.Graph().input("x", (8, 64))
    y = x @ x.graph.parameter("w", np.ones((64, 64), "float32"))
    with ag.ActorMachine([y.sum()], workers=2, fuse="none", costs={y: 9.0}) as machine:
        machine.run_sync({"x": np.ones((8, 64), "float32")}, backward=True)
        [plan] = machine._plans.values()
        assert not any(plan.latest.heavy)


def test_a_tuner_looks_after_runs_of_certain_numbers_from_the_first_on():
    tuner = Tuner(None)
    looks = [run for run in range(1, 2 * ROWS_AFTER) if tuner.is_due()]
    assert looks == [3, CUT_AFTER, TRIAL_AFTER, ROWS_TRIED, ROWS_AFTER]


@pytest.mark.parametrize(
    ("reason", "took_s", "last"),
    [(None, 0.0, TRIAL_AFTER), (None, 1e-3, ROWS_AFTER), (None, 1.0, TRIAL_AFTER),
     ("one path", 1e-3, TRIAL_AFTER)],
)  # fmt: skip
def test_only_brief_tasks_that_have_won_a_trial_are_tried_again_with_rows(reason, took_s, last):
    tuner = Tuner(SimpleNamespace(sequential=reason, compiled=SimpleNamespace(native=True)))
    tuner._incumbent_s = took_s
    tuner.runs = last - 1
    assert not tuner.is_done()
    tuner.runs = last
    assert tuner.is_done()


def test_runs_that_met_others_decide_nothing():
    ends = branches()
    with ag.ActorMachine(ends, workers=2) as machine:
        machine.run_sync(FEEDS, backward={ends[0]: 1.0})
        tuner = given(machine, dict.fromkeys(ends, 100.0))
        parallel = tuner.plan
        for run in [machine.start(FEEDS, backward={ends[0]: 1.0}) for _ in range(4)]:
            run.result()
        assert not tuner.measured_s
        tuner.runs = TRIAL_AFTER - 1
        machine.run_sync(FEEDS, backward={ends[0]: 1.0})
        assert [*machine._plans.values()] == [parallel]


def test_a_small_run_that_takes_long_leaves_the_calling_thread():
    x = ag.Graph().input("x", (4,), "float64")
    y = np.tanh(x)
    with ag.ActorMachine([y], workers=2) as machine:
        machine.run_sync({"x": np.ones(4)})
        [plan] = machine._plans.values()
        assert plan.latest.direct_turns == 1
        plan.latest.direct_latest.extend([0.1] * 9)
        tuner_of(machine).runs = CUT_AFTER - 1
        machine.run_sync({"x": np.ones(4)})
        [better] = machine._plans.values()
        assert better.latest.predicted_us == pytest.approx(100_000)
        assert better.latest.direct_turns == 0


def test_predictions_that_hold_are_left_alone():
    ends = branches()
    with ag.ActorMachine(ends, workers=2) as machine:
        bits(machine, ends)
        [plan] = machine._plans.values()
        for network in machine._networks():
            for task in network.tasks:
                cost = sum(plan.cost_us(step, {}) for step in task.spec.steps)
                task.latest = (cost * 1e-6,) * 9
        plan.latest.direct_latest.clear()
        tuner_of(machine).runs = CUT_AFTER - 1
        bits(machine, ends)
        assert list(machine._plans.values()) == [plan]


def test_runs_in_flight_keep_their_regions_while_later_ones_have_others():
    ends = branches()
    with ag.ActorMachine(ends, workers=2) as machine:
        expected = bits(machine, ends)
        runs = []
        for number in range(30):
            if number in (10, 20):
                [plan] = machine._plans.values()
                given(machine, {ends[0]: 100.0 * number})
                with machine._core.lock:
                    machine._core.networks.drop_idle(machine._core.admission.runs, plan)
            runs.append(machine.start(FEEDS, backward={ends[0]: 1.0}))
        for run in runs:
            assert [run.result()[end].value.tobytes() for end in ends] == expected


def test_explain_tells_regions_costs_and_reasons():
    ends = branches()
    with ag.ActorMachine(ends, workers=2) as machine:
        assert "cut at the first run" in machine.explain()
        machine.run_sync(FEEDS)
        text = machine.explain()
        assert "mode forward" in text
        assert "predicted us" in text
        assert "scaled_0" in text
    with ag.TapeMachine(ends) as tape:
        tape.run_sync(FEEDS)
        assert "sequential order" in tape.explain()


def test_costs_that_are_none_are_refused_before_anything_runs():
    ends = branches()
    with pytest.raises(FeedError, match="unknown cost 'nobody'"):
        ag.ActorMachine(ends, costs={"nobody": 1.0})
    for cost in (-1, 0, True, "1"):
        with pytest.raises(GraphError, match=f"microseconds above 0, got {cost!r}"):
            ag.ActorMachine(ends, costs={"end_0": cost})


def test_runs_of_the_calling_thread_count_among_the_busiest_for_all_sizes_and_modes():
    x = ag.Graph().input("x", ("n",))
    end = np.tanh(x).named("end").sum()
    with ag.TapeMachine([end], wrt=[x]) as machine:
        for size, runs in ((3, 5), (4, 2)):
            for _ in range(runs):
                machine.run_sync({"x": np.zeros(size, "float32")}, backward=True)
        machine.run_sync({"x": np.zeros(3, "float32")})
        firings = {name: turns for name, _, _, turns in machine.busiest()}
    assert firings["end"] == 8
