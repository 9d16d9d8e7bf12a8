"""What a pipeline chooses by itself: stages, microbatches and schedule, by what one core takes."""

import warnings

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphError, ScheduleError
from actorgraph.pipeline import (
    SCHEDULES,
    Measured,
    Pipeline,
    automatic,
    recommend,
    schedule,
    simulate,
)
from tests.pipeline._model import WIDTH, Model, assert_same_bits

ROWS = 32


def priced(monkeypatch, price, beside_s=0.0):
    """Let a microbatch of so many take `price(count)` seconds for each of F, B and W."""

    def shown(pipeline, feeds, trains):
        made = pipeline.schedule
        costs = [(price(made.microbatches) / made.stages,) * 3] * made.stages
        predicted = simulate(made, costs=costs, latency=0.001)
        return Measured(
            made, 9.0, 0.0, 9.0 + beside_s, [], predicted, costs, overhead_s=0.002, latency_s=0.003
        )

    monkeypatch.setattr(automatic, "_fastest_run", shown)
    monkeypatch.setattr(automatic, "_shortest_s", lambda machine, feeds, trains: 3 * price(1))
    monkeypatch.setattr(automatic, "available_cores", lambda: 2)


def feeds():
    return {"x": np.random.default_rng(0).normal(size=(ROWS, WIDTH))}


def automatic_pipeline(model, **options):
    given = {"stages": "auto", "schedule": "auto", "microbatches": "auto"} | options
    return Pipeline(model.loss, model.wrt, **given)


def test_microbatches_at_the_price_of_the_whole_batch_fill_the_bubble(monkeypatch):
    priced(monkeypatch, lambda count: 1.0 / count)
    model = Model()
    model.feeds = feeds()
    with automatic_pipeline(model) as pipeline:
        with pytest.raises(GraphError, match="known after a first run, which chooses it"):
            _ = pipeline.schedule
        run = pipeline.run_sync(model.feeds)
        assert (pipeline.schedule.devices, pipeline.schedule.microbatches) == (2, ROWS)
        assert_same_bits(model, pipeline, run)
        assert "one core takes 3e+03 ms for the whole batch" in str(pipeline.explain())


def test_more_microbatches_are_not_tried_where_twice_as_many_take_longer(monkeypatch):
    tried = []
    priced(monkeypatch, lambda count: tried.append(count) or (1.0 if count == 4 else 9.0))
    model = Model()
    with automatic_pipeline(model) as pipeline:
        pipeline.run_sync(feeds())
        assert pipeline.schedule.microbatches == 4
    assert sorted(set(tried)) == [1, 2, 4, 8]


def test_one_core_that_is_faster_with_the_whole_batch_is_told_once(monkeypatch):
    priced(monkeypatch, lambda count: 1.0)
    model = Model()
    with automatic_pipeline(model) as pipeline:
        with pytest.warns(UserWarning, match="which is less: train by a TapeMachine"):
            pipeline.run_sync(feeds())
        pipeline.run_sync(feeds())
        assert pipeline.schedule.microbatches == 2
        assert "which is less" in str(pipeline.explain())


@pytest.mark.parametrize(
    "given", [{"stages": 3}, {"microbatches": 5}, {"schedule": "gpipe"}, {"schedule": "dynamic"}]
)
def test_what_is_said_is_kept(monkeypatch, given):
    priced(monkeypatch, lambda count: 1.0 / count)
    model = Model()
    with automatic_pipeline(model, **given) as pipeline:
        pipeline.run_sync(feeds())
        made = pipeline.schedule
    found = {"stages": made.devices, "microbatches": made.microbatches, "schedule": made.name}
    assert {name: found[name] for name in given} == given


def test_nodes_that_are_placed_say_how_many_stages(monkeypatch):
    priced(monkeypatch, lambda count: 1.0 / count)
    model = Model(placed=3)
    with automatic_pipeline(model) as pipeline:
        pipeline.run_sync(feeds())
        assert pipeline.schedule.stages == 3


def test_a_choice_by_the_clock_computes_what_any_machine_does():
    model = Model()
    with automatic_pipeline(model) as pipeline, ag.LispMachine([model.loss]) as machine:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few rows may well be faster on one core
            runs = [pipeline.run_sync(feeds()), *pipeline.stream([feeds()] * 3)]
        whole = machine.run_sync(feeds(), backward=True)
    for run in runs:
        for node in model.wrt:
            np.testing.assert_allclose(run[node].grad, whole[node].grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["auto", "zb-h1", "interleaved"])
def test_a_prediction_is_of_what_a_trial_has_shown_and_of_what_lies_beside_its_actions(
    monkeypatch, name
):
    priced(monkeypatch, lambda count: 2.0, beside_s=100.0)
    model = Model()
    chunks = 2 if name == "interleaved" else None
    with automatic_pipeline(model, schedule=name, microbatches=4, chunks=chunks) as pipeline:
        with pytest.warns(UserWarning, match="which is less"):
            pipeline.run_sync(feeds())
        made = pipeline.schedule
        said = str(pipeline.explain())
    costs = [(2.0 / made.stages,) * 3] * made.stages
    predicted_s = float(simulate(made, costs=costs, latency=0.001).makespan) + 100.0
    assert f"{made.name}, {made.stages} stages, 4 microbatches, {predicted_s * 1e3:.3g} ms" in said


def test_what_is_only_measured_assigns_nothing():
    g = ag.Graph()
    h = np.tanh(g.input("x", ("batch", WIDTH), "float64") @ g.parameter("W", np.eye(WIDTH)))
    seen = g.buffer("seen", np.zeros(()))
    g.assign(seen, seen + 1.0, on=h)
    with Pipeline(h.sum(), stages="auto", schedule="auto", microbatches="auto") as pipeline:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one core is faster
            pipeline.run_sync(feeds())
        assert seen.value == pipeline.schedule.microbatches


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_of_any_name_gets_its_microbatches(monkeypatch, name):
    priced(monkeypatch, lambda count: 1.0 / count)
    model = Model()
    with automatic_pipeline(model, schedule=name) as pipeline:
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
        assert pipeline.schedule.name == name


def test_nodes_that_are_placed_otherwise_are_refused(monkeypatch):
    priced(monkeypatch, lambda count: 1.0 / count)
    with pytest.raises(ScheduleError, match="nodes are placed in 3 stages, but"):
        automatic_pipeline(Model(placed=3), stages=2).run_sync(feeds())


def test_a_longer_warm_up_is_kept(monkeypatch):
    priced(monkeypatch, lambda count: 1.0 / count)
    model = Model()
    with automatic_pipeline(model, stages=4, schedule="1f1b", extra_warmup=2) as pipeline:
        pipeline.run_sync(feeds())
        made = pipeline.schedule
    wanted = schedule("1f1b", stages=4, microbatches=made.microbatches, extra_warmup=2)
    assert made.lanes == wanted.lanes


async def _later(xp, a):
    return a


later = ag.ops.define("automatic_later", scheme="f[*s] -> f[*s]", forward=_later)


def test_what_cannot_be_chosen_is_refused(monkeypatch):
    model = Model()
    for wrong in ({"stages": 0}, {"microbatches": 1.5}, {"stages": "all"}):
        with pytest.raises(ValueError, match="must be an int of at least 1"):
            automatic_pipeline(model, **wrong)
    made = schedule("1f1b", stages=2, microbatches=2)
    with pytest.raises(ScheduleError, match="is complete; nothing is left to be chosen"):
        automatic_pipeline(model, schedule=made)
    priced(monkeypatch, lambda count: 1.0)
    pipeline = automatic_pipeline(model)
    with pytest.raises(FeedError, match="batch is 1: too few rows to cut"):
        pipeline.run_sync({"x": np.ones((1, WIDTH))})
    with pytest.raises(ScheduleError, match="1f2b"):
        automatic_pipeline(model, schedule="1f2b").run_sync(feeds())
    with pytest.raises(ScheduleError, match="an op that waits cannot be measured"):
        automatic_pipeline(Model(between=later)).start(feeds())


def test_recommend_compares_the_whole_batch_on_one_device():
    plan = {"stages": 2, "microbatches": 8, "costs": (1, 1, 1)}
    assert recommend(**plan, whole=(8, 8, 8))[0].schedule.name == "whole batch on one device"
    assert recommend(**plan, whole=(16, 16, 16))[-1].makespan == 48
    with pytest.raises(ScheduleError, match="no schedule fits memory"):
        recommend(**plan, whole=(8, 8, 8), memory=0.5)
