"""Stages, schedules and feeds that do not fit are told before anything starts."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, ScheduleError
from actorgraph.lower.deadlock import check
from actorgraph.pipeline import SCHEDULES, Pipeline, Schedule, batches, schedule
from tests.pipeline._model import Model, assert_same_bits


def test_feeds_that_only_other_outputs_need_are_checked_and_left_out():
    graph = ag.Graph()
    x, label = graph.input("x", ("batch", 2)), graph.input("label", ("batch",), "int64")
    w = graph.parameter("w", np.ones((2, 2), "float32"))
    loss = np.tanh(x @ w).mean()
    feeds = {"x": np.ones((4, 2), "float32"), "label": np.zeros(4, "int64")}
    with ag.pipeline.Pipeline(loss, stages=2, microbatches=2) as pipeline:
        assert pipeline.run_sync(feeds)[w].grad.shape == (2, 2)
        assert pipeline.run_sync({x: feeds["x"], label: feeds["label"]})[w].grad.shape == (2, 2)
        with pytest.raises(ag.FeedError, match="feed 'label' .* batch = 3, but 'x' has batch = 4"):
            pipeline.run_sync({**feeds, "label": np.zeros(3, "int64")})
        with pytest.raises(ag.FeedError, match="unknown feed 'labels'; did you mean 'label'"):
            pipeline.run_sync({"x": feeds["x"], "labels": feeds["label"]})


def test_stages_are_those_that_the_user_placed():
    model = Model(placed=2)
    with model.pipeline("1f1b", None, 3) as pipeline:
        run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)
        names = [{node.name for node in nodes} for nodes in pipeline.stages()]
    assert model.hidden.name in names[1] - names[0]
    with pytest.raises(ScheduleError, match=r"placed in 2 stages, but .* has 3"):
        model.pipeline("1f1b", 3, 3)


def test_what_does_not_fit_is_told_before_anything_starts():
    model = Model()
    with pytest.raises(ag.GraphTypeError, match="expected a node, .* got 3"):
        Pipeline(3, microbatches=2)
    with pytest.raises(ScheduleError, match="how many stages"):
        model.pipeline("1f1b", None, 3)
    with pytest.raises(
        ScheduleError, match="needs the number of microbatches, such as microbatches="
    ):
        model.pipeline("1f1b", 2, None)
    with pytest.raises(ScheduleError, match="there is no schedule '1f1c'.*a Pipeline 'dynamic'"):
        model.pipeline("1f1c")
    with pytest.raises(ScheduleError, match="microbatches is 3, but .* has 4"):
        Pipeline(model.loss, schedule=schedule("1f1b", stages=2, microbatches=4), microbatches=3)
    with model.pipeline("1f1b", 2, 12) as pipeline, pytest.raises(FeedError, match="batch is 11"):
        pipeline.run_sync(model.feeds)
    with model.pipeline() as pipeline, pytest.raises(FeedError, match="unknown feed 'y'"):
        pipeline.run_sync({"y": 1.0})


def test_lists_that_would_wait_for_each_other_are_refused_before_anything_starts():
    model = Model(placed=2)
    made = Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"])
    # No `Schedule` says this; a check of the graph's own tasks finds it whoever has written it.
    late = Schedule.parse(["0F0 0BW0 0F1 0BW1", "1F0 1BW0 1F1 1BW1"]).lanes[0]
    blocked = (late, made.lanes[1][:1] + made.lanes[1][2:] + made.lanes[1][1:2])
    with pytest.raises(ScheduleError, match="this order cannot be executed: device 0 cannot start"):
        Schedule(blocked)
    object.__setattr__(made, "lanes", blocked)
    match = (
        r"would never end: lane 0 is at 'B of stage 0' of microbatch 0, which waits "
        r"for a message in B of stage 1 -> B of stage 0; lane 1 is at 'F of stage 1' of "
        r"microbatch 1, which waits for a message in F of stage 0 -> F of stage 1; change the order"
    )
    with model.pipeline(made, None, None) as pipeline:
        for _ in range(2):
            with pytest.raises(ScheduleError, match=match):
                pipeline.run_sync(model.feeds)
        assert pipeline._core is None


@pytest.mark.parametrize("name", [*SCHEDULES, "dynamic"])
def test_the_check_of_lanes_looks_at_every_task_once_for_a_microbatch(name, monkeypatch):
    given = []

    def played(tasks, edges, lanes, *args, **options):
        given.append((tasks, edges, lanes))
        return check(tasks, edges, lanes, *args, **options)

    monkeypatch.setattr(batches, "check", played)
    model = Model()
    with model.pipeline(name, 2, 4) as pipeline:
        for _ in range(2):
            pipeline.run_sync(model.feeds)
    ((tasks, edges, lanes),) = given
    assert sorted(action for lane in lanes for action in lane) == [
        (task, microbatch) for task in range(len(tasks)) for microbatch in range(4)
    ]
    assert {edge.target for edge in edges} >= set(range(1, len(tasks)))


def test_a_buffer_read_in_another_stage_than_it_is_assigned_in_is_refused():
    g = ag.Graph()
    x = g.input("x", shape=("batch",), dtype="float64")
    running = g.buffer("running", np.zeros(()))
    w = g.parameter("w", np.ones(()))
    with g.stage(0):
        h = x * w + running
    with g.stage(1):
        loss = (h * h).mean()
        g.assign(running, h.mean(), loss)
    refused = pytest.raises(ScheduleError, match="'running' is read in stage 0, but assigned")
    with Pipeline(loss, [w], microbatches=2) as pipeline, refused:
        pipeline.run_sync({"x": np.ones(4)})
