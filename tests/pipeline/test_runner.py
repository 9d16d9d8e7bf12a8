"""Pipelines run by actors have the bits of microbatches one after another, in the listed order."""

import os
import random
import threading
import weakref
from contextlib import nullcontext
from fractions import Fraction
from functools import reduce
from itertools import pairwise

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import (
    FeedError,
    GraphError,
    MachineClosedError,
    NodeError,
    RunCancelled,
    ScheduleError,
)
from actorgraph.lower.deadlock import check
from actorgraph.pipeline import SCHEDULES, Pipeline, Schedule, blocking, schedule
from actorgraph.trace.live import Live

pytestmark = pytest.mark.timeout(60)

ROWS, WIDTH = 11, 4
SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"
gates: dict[str, threading.Event] = {}
live: list[tuple[weakref.ref[np.ndarray], int]] = []


def gate(xp, value):
    gates["reached"].set()
    assert gates["open"].wait(30)
    return value


def refuse(xp, value):
    raise ValueError(f"rows {len(value)} refused")


def follow(xp, value):
    out = value + 0.0
    alive = sum(reference() is not None for reference, _ in live)
    live.append((weakref.ref(out), alive + 1))
    return out


def mind(xp, value):
    if np.isnan(value).any():
        raise ValueError("not a number")
    return value


followed = ag.ops.define(
    "pipeline_follow", scheme="f[*s] -> f[*s]", forward=follow, vjp=lambda argnum, ct, y, x: ct * y
)
sensitive = ag.ops.define(
    "pipeline_sensitive", scheme="f[*s] -> f[*s]", forward=mind, vjp=lambda argnum, ct, y, x: ct
)
waiting = ag.ops.define(
    "pipeline_gate", scheme="f[*s] -> f[*s]", forward=gate, vjp=lambda argnum, ct, y, x: ct
)
refused = ag.ops.define(
    "pipeline_refuse", scheme="f[*s] -> f[*s]", forward=refuse, vjp=lambda argnum, ct, y, x: ct
)


class Model:
    """x -> tanh(x W0 + b0) -> ... -> loss, with a skip over all stages and a tied weight."""

    def __init__(self, layers=8, dtype="float64", placed=0, between=None, decay=False):
        rng = np.random.default_rng(0)
        self.graph = g = ag.Graph()
        x = g.input("x", shape=("batch", WIDTH), dtype=dtype)
        tied = g.parameter("tied", rng.normal(size=(WIDTH, WIDTH)).astype(dtype))
        h = first = np.tanh(x @ tied)
        for number in range(layers):
            with g.stage(number * placed // layers) if placed else nullcontext():
                W = g.parameter(f"W{number}", rng.normal(size=(WIDTH, WIDTH)).astype(dtype))
                b = g.parameter(f"b{number}", rng.normal(size=WIDTH).astype(dtype))
                h = np.tanh(h @ W + b)
                if between is not None and number == layers // 2:
                    h = self.called = between(h)
        self.hidden = h
        h = h @ tied.T + first
        self.loss = (h * h).mean()
        if decay:
            self.loss = self.loss + 0.1 * (tied * tied).sum()
        self.wrt = list(g.parameters)
        self.feeds = {"x": rng.normal(size=(ROWS, WIDTH)).astype(dtype)}

    def pipeline(self, schedule="1f1b", stages=2, microbatches=4, **options):
        if isinstance(schedule, Schedule):
            stages = microbatches = None
        return Pipeline(
            self.loss, self.wrt, stages=stages, schedule=schedule, microbatches=microbatches,
            **options,
        )  # fmt: skip


def one_after_another(model, pipeline):
    """Return the gradients of the same microbatches on the machine that defines the answer."""
    parts = pipeline.batching.cut(model.feeds)
    losses = [pipeline.batching.batch_loss, pipeline.batching.once_loss]
    seeded = [node for node in losses if node is not None]
    with ag.LispMachine(seeded, wrt=model.wrt) as machine:
        runs = [
            machine.run_sync(part.feeds, backward=pipeline.batching.seeds(number, part))
            for number, part in enumerate(parts)
        ]
    return [reduce(np.add, [run[node].grad for run in runs]) for node in model.wrt]


def assert_same_bits(model, pipeline, run):
    expected = one_after_another(model, pipeline)
    for node, gradient in zip(model.wrt, expected, strict=True):
        assert run[node].grad.tobytes() == gradient.tobytes(), node


# -- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SCHEDULES, "dynamic"])
@pytest.mark.parametrize("microbatches", [1, 5, 8])
def test_gradients_have_the_bits_of_microbatches_one_after_another(name, microbatches):
    model = Model()
    with model.pipeline(name, 3, microbatches) as pipeline:
        for _ in range(2):
            run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 3])
def test_results_do_not_depend_on_workers_and_ready_order(workers, seed):
    model = Model()
    with model.pipeline("zb-h1", 4, 6, workers=workers, seed=seed) as pipeline:
        for _ in range(5):
            assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))


def test_an_uneven_batch_is_close_to_the_whole_in_single_precision():
    model = Model(dtype="float32", decay=True)
    with model.pipeline("1f1b", 3, 4, outputs=[model.hidden]) as pipeline:
        run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)
    with ag.LispMachine([model.loss, model.hidden], wrt=model.wrt) as machine:
        whole = machine.run_sync(model.feeds, backward=True)
    np.testing.assert_allclose(run[model.loss].value, whole[model.loss].value, rtol=1e-5)
    np.testing.assert_allclose(run[model.hidden].value, whole[model.hidden].value, rtol=1e-5)
    for node in model.wrt:
        np.testing.assert_allclose(run[node].grad, whole[node].grad, rtol=1e-5, atol=1e-5)
        assert run[node].value is node.state.array


def test_gradients_of_a_feed_are_joined_along_the_batch():
    model = Model()
    x = model.graph.node("x")
    model.wrt = [x, *model.wrt]
    with model.pipeline("zb-h1", 2, 3) as pipeline:
        run = pipeline.run_sync(model.feeds)
    with ag.LispMachine([model.loss], wrt=[x]) as machine:
        whole = machine.run_sync(model.feeds, backward=True)
    np.testing.assert_allclose(run[x].grad, whole[x].grad, rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(run["x"].value, model.feeds["x"])


def test_a_weight_that_the_loss_does_not_need_has_zeros():
    model = Model()
    spare = model.graph.parameter("spare", np.ones(3))
    model.wrt.append(spare)
    with model.pipeline() as pipeline:
        assert not pipeline.run_sync(model.feeds)[spare].grad.any()


def test_solvers_change_the_weights_of_the_graph_as_after_any_run():
    trained = []
    for split in (True, False):
        model = Model(dtype="float64")
        solver = ag.solvers.SGD(lr=0.1)
        with model.pipeline("1f1b", 2, 3) if split else ag.TapeMachine([model.loss]) as machine:
            for _ in range(5):
                options = {} if split else {"backward": True}
                run = machine.run_sync(model.feeds, **options)
                solver.step([run[node] for node in model.wrt])
        trained.append(model)
    for one, other in zip(trained[0].wrt, trained[1].wrt, strict=True):
        np.testing.assert_allclose(one.value, other.value, rtol=1e-9)


def test_random_ops_draw_in_a_microbatch_what_its_number_says():
    g = ag.Graph()
    x = g.input("x", shape=("batch", WIDTH), dtype="float64")
    W = g.parameter("W", np.ones((WIDTH, WIDTH)))
    h = ag.ops.dropout(x @ W, 0.5)
    loss = (h * h).sum()
    feeds = {"x": np.ones((6, WIDTH))}
    with Pipeline(loss, [W], stages=2, microbatches=3, reduce="sum") as pipeline:
        runs = [pipeline.run_sync(feeds) for _ in range(2)]
    with ag.LispMachine([loss], wrt=[W]) as machine:
        for number, run in enumerate(runs):
            ones = [
                machine.run_sync(
                    {"x": np.ones((2, WIDTH))}, backward=True, run_number=3 * number + microbatch
                )
                for microbatch in range(3)
            ]
            total = reduce(np.add, [one[W].grad for one in ones])
            assert run[W].grad.tobytes() == total.tobytes()
    assert runs[0][W].grad.tobytes() != runs[1][W].grad.tobytes()


def test_a_buffer_is_updated_once_for_each_microbatch_in_their_order():
    g = ag.Graph()
    x = g.input("x", shape=("batch", WIDTH), dtype="float64")
    W = g.parameter("W", np.ones((WIDTH, WIDTH)))
    running = g.buffer("running", np.zeros(WIDTH))
    with g.stage(0):
        h = x @ W
    with g.stage(1):
        loss = (h * h).mean()
        g.assign(running, 0.9 * running + 0.1 * h.mean(axis=0), loss)
    feeds = {"x": np.random.default_rng(0).normal(size=(8, WIDTH))}
    with Pipeline(loss, [W], microbatches=4) as pipeline:
        for _ in range(2):
            pipeline.run_sync(feeds)
    found, running.value = running.value.copy(), np.zeros(WIDTH)
    with ag.LispMachine([loss], wrt=[W]) as machine:
        for start in (0, 2, 4, 6) * 2:
            machine.run_sync({"x": feeds["x"][start : start + 2]}, backward=True)
    assert found.tobytes() == running.value.tobytes()


@pytest.mark.parametrize("stages", [2, 5, 12])
def test_batch_norm_normalises_by_microbatch_and_keeps_its_statistics_in_order(stages):
    g = ag.Graph()
    rng = np.random.default_rng(0)
    h = g.input("x", shape=("batch", WIDTH), dtype="float64")
    for layer in range(5):
        W = g.parameter(f"W{layer}", rng.normal(size=(WIDTH, WIDTH)))
        h = np.tanh(normalised(g, layer, h @ W))
    loss = (h * h).mean()
    weights = list(g.parameters)
    buffers = [buffer for buffer, _, _ in g.assignments]
    assert len(buffers) == 5
    start = [buffer.value.copy() for buffer in buffers]
    feeds = {"x": rng.normal(size=(ROWS, WIDTH))}
    with Pipeline(loss, weights, stages=stages, microbatches=4) as pipeline:
        run = pipeline.run_sync(feeds)
        parts = pipeline.batching.cut(feeds)
    found = [buffer.value.copy() for buffer in buffers]
    for buffer, value in zip(buffers, start, strict=True):
        buffer.value = value
    with ag.LispMachine([loss], wrt=weights) as machine:
        runs = [
            machine.run_sync(part.feeds, backward=pipeline.batching.seeds(number, part))
            for number, part in enumerate(parts)
        ]
    for node in weights:
        assert run[node].grad.tobytes() == reduce(np.add, [r[node].grad for r in runs]).tobytes()
    for buffer, value in zip(buffers, found, strict=True):
        assert buffer.value.tobytes() == value.tobytes()


def test_a_cut_by_cost_leaves_reading_and_assigning_a_buffer_together():
    g = ag.Graph()
    h = g.input("x", shape=("batch", WIDTH), dtype="float64")
    running = g.buffer("running", np.ones(WIDTH))
    faded = 0.5 * running
    for layer in range(6):
        h = np.tanh(h @ g.parameter(f"W{layer}", np.eye(WIDTH)))
    loss = (h * h).mean()
    g.assign(running, faded + h.mean(axis=0), loss)
    with Pipeline(loss, stages=3, microbatches=2) as pipeline:
        pipeline.run_sync({"x": np.zeros((4, WIDTH))})
        assert any(node is faded for node in pipeline.stages()[-1])
    assert running.value.tolist() == [0.25] * WIDTH


def normalised(g, layer, h):
    """Return h normalised over the batch; its running mean is a buffer."""
    running = g.buffer(f"mean{layer}", np.zeros(WIDTH))
    mean = h.mean(axis=0)
    out = (h - mean) / np.sqrt(ag.ops.square(h - mean).mean(axis=0) + 1e-5)
    g.assign(running, 0.9 * running + 0.1 * mean, out)
    return out


# -- order ------------------------------------------------------------------------------------


def actions_of(trace, lane, pipeline):
    """Return what a lane did, as actions of stages; B and W of one stage together are BW."""
    stage_of = {
        frozenset(node.name for node in nodes): stage
        for stage, nodes in enumerate(pipeline.stages())
    }
    names = {"forward": "F", "backward": "B", "weights": "W"}
    found = []
    for part in trace.slices:
        if part.lane == lane and part.actor is not None:
            nodes = set(trace.actors[part.actor].nodes)
            stages = [stage for held, stage in stage_of.items() if nodes <= held]
            if stages:
                found.append((stages[0], names[part.kind], part.microbatch))
    return found


@pytest.mark.parametrize("name", [*SCHEDULES, "custom"])
def test_each_lane_does_its_list_exactly_in_order(name):
    model = Model()
    made = schedule("gpipe" if name == "custom" else name, stages=3, microbatches=7)
    if name == "custom":  # the last in is the first out
        made = Schedule([lane[:7] + lane[:6:-1] for lane in made.lanes])
    split = any(action.kind == "W" for lane in made.lanes for action in lane)
    with model.pipeline(made) as pipeline:
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
        with ag.trace.record() as t:
            pipeline.run_sync(model.feeds)
        tasks = pipeline._plan.at
        assert set(made.lane_names) == {part.lane for part in t.slices if part.actor is not None}
        for name, lane in zip(made.lane_names, made.lanes, strict=True):
            listed = []
            for stage, kind, microbatch, _ in lane:
                kinds = ("B", "W") if kind == "BW" and split else (kind[0],)
                listed += [
                    (stage, one, microbatch)
                    for one in kinds
                    if (stage, {"F": "forward", "B": "backward", "W": "weights"}[one]) in tasks
                ]
            assert actions_of(t, name, pipeline) == listed


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "dynamic"])
def test_a_stage_holds_as_many_microbatches_as_the_formula_says(name):
    stages, microbatches = 3, 8
    model = Model()
    with model.pipeline(name, stages, microbatches) as pipeline:
        pipeline.run_sync(model.feeds)
        with ag.trace.record() as t:
            pipeline.run_sync(model.feeds)
    released = "W" if name == "zb-h1" else "B"
    peaks = []
    for lane in pipeline.schedule.lane_names:
        held = most = 0
        for _, kind, _ in actions_of(t, lane, pipeline):
            held += (kind == "F") - (kind == released)
            most = max(most, held)
        peaks.append(most)
    limits = [stages - stage for stage in range(stages)]
    if name == "gpipe":
        assert peaks == [microbatches] * stages
    elif name == "zb-h1":
        assert peaks == [stages] * stages
    elif name == "1f1b":
        assert peaks == limits
    else:
        assert all(peak <= limit for peak, limit in zip(peaks, limits, strict=True))


def test_a_recording_names_lanes_after_stages_and_takes_predictions_of_them():
    model = Model()
    with model.pipeline("interleaved", 2, 4) as pipeline:
        pipeline.run_sync(model.feeds)
        with ag.trace.record() as t:
            pipeline.run_sync(model.feeds)
        simulation = pipeline.simulate()
        t.predict(simulation.timeline)
    assert {"stages 0, 2", "stages 1, 3"} <= set(t.lanes)
    assert {part.lane for part in t.predicted["predicted"]} == {"stages 0, 2", "stages 1, 3"}
    assert {part.microbatch for part in t.slices if part.actor is not None} == set(range(4))
    # A message stays within its microbatch, and comes after it was sent.
    for message in t.messages:
        if message.source is not None:
            sender, receiver = t.slices[message.source], t.slices[message.target]
            assert sender.microbatch == receiver.microbatch
            assert sender.start <= receiver.start
    for lane in ("stages 0, 2", "stages 1, 3"):
        turns = [part for part in t.slices if part.lane == lane]
        assert all(one.end <= other.start for one, other in pairwise(turns))


def test_costs_are_measured_for_each_stage_and_kind():
    model = Model()
    with model.pipeline("zb-h1", 2, 3) as pipeline:
        with pytest.raises(GraphError, match="after a first run"):
            pipeline.costs()
        pipeline.run_sync(model.feeds)
        (first, last) = pipeline.costs()
        assert first[1] == 0  # nothing waits for it
        assert min(first[0], first[2], *last) > 0
        assert pipeline.simulate().makespan > 3 * last[0]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "dynamic"])
def test_activations_die_with_the_last_task_that_needs_them(name):
    live.clear()
    g = ag.Graph()
    h = g.input("x", shape=("batch", WIDTH), dtype="float64")
    weights = [g.parameter(f"W{stage}", np.eye(WIDTH)) for stage in range(3)]
    for stage, W in enumerate(weights):
        with g.stage(stage):
            h = np.tanh(followed(h @ W) if stage == 1 else h @ W)
    with g.stage(2):
        loss = (h * h).mean()
    with Pipeline(loss, weights, schedule=name, microbatches=9) as pipeline:
        pipeline.run_sync({"x": np.ones((9, WIDTH))})
        assert max(count for _, count in live) <= pipeline.schedule.peak_activations[1]
        assert not any(reference() is not None for reference, _ in live)


def test_instruments_and_the_live_view_hear_of_one_pipeline_as_of_a_machine():
    class Turns(ag.trace.Instrument):
        microbatches: list[int]

        def on_turn(self, task, run, started, ended):
            self.microbatches.append(run.microbatch)

    turns, view = Turns(), Live()
    turns.microbatches = []
    one, other = Model(), Model()
    with one.pipeline() as pipeline, other.pipeline() as silent:
        with ag.trace.use(turns, pipeline), ag.trace.use(view, pipeline):
            pipeline.run_sync(one.feeds)
            silent.run_sync(other.feeds)
            (seen,) = view.views()
        # F and BW of two stages, and the sum of what they give to the tied weight
        assert sorted(turns.microbatches) == sorted([*range(4)] * 5)
        assert seen.ended == 1
        assert {actor.turns for actor in seen.actors} == {4}


# -- stages and schedules that do not fit -----------------------------------------------------


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
    with pytest.raises(ag.GraphTypeError, match="node"):
        Pipeline(3, microbatches=2)
    with pytest.raises(ScheduleError, match="how many stages"):
        model.pipeline("1f1b", None, 3)
    with pytest.raises(ScheduleError, match="takes microbatches="):
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
        r"would never come to its end: lane 0 is at 'B of stage 0' of microbatch 0, which waits "
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

    monkeypatch.setattr(blocking, "check", played)
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


# -- failures and ends ------------------------------------------------------------------------


def test_a_failure_names_its_node_and_harms_no_other_run():
    model = Model(between=refused)
    good = Model()
    with model.pipeline("1f1b", 2, 4) as pipeline:
        runs = [pipeline.start(model.feeds) for _ in range(5)]
        for run in runs:
            with pytest.raises(NodeError, match="rows 3 refused") as caught:
                run.result()
            assert caught.value.op == "pipeline_refuse"
        assert not pipeline._core.admission.in_flight
    with good.pipeline() as pipeline:
        assert_same_bits(good, pipeline, pipeline.run_sync(good.feeds))


def opened():
    gates["reached"], gates["open"] = threading.Event(), threading.Event()


def test_a_cancelled_run_ends_and_its_neighbours_have_the_right_bits():
    model = Model(between=waiting)
    opened()
    with model.pipeline("zb-h1", 2, 4, max_in_flight=3) as pipeline:
        runs = [pipeline.start(model.feeds) for _ in range(4)]
        assert gates["reached"].wait(30)
        assert all([runs[0].cancel(), runs[2].cancel()])
        gates["open"].set()
        for run in (runs[0], runs[2]):
            with pytest.raises(RunCancelled, match="was cancelled"):
                run.result()
        for run in (runs[1], runs[3]):
            assert_same_bits(model, pipeline, run.result())
        assert not pipeline._core.admission.in_flight
        (network,) = pipeline._core.networks.values()
        assert not any(lane.flights for lane in network.lanes)


def test_a_deadline_ends_a_run_that_waits_and_one_that_works():
    model = Model(between=waiting)
    opened()
    with model.pipeline(max_in_flight=1) as pipeline:
        first = pipeline.start(model.feeds, timeout_s=0.05)
        assert gates["reached"].wait(30)
        second = pipeline.start(model.feeds, timeout_s=0.01)
        while not second.done:
            pass
        with pytest.raises(TimeoutError, match="did not end in time"):
            second.result()
        while first.dead is None:
            pass
        gates["open"].set()
        with pytest.raises(TimeoutError, match="did not end in time"):
            first.result()
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))


def test_closing_ends_what_is_in_flight():
    model = Model(between=waiting)
    opened()
    pipeline = model.pipeline()
    run = pipeline.start(model.feeds)
    assert gates["reached"].wait(30)
    closer = threading.Thread(target=pipeline.close)
    closer.start()
    while run.dead is None:
        pass
    gates["open"].set()
    closer.join(30)
    with pytest.raises(MachineClosedError, match="closed during run 0"):
        run.result()
    with pytest.raises(MachineClosedError, match="was closed"):
        pipeline.run_sync(model.feeds)


# -- streams and event loops ------------------------------------------------------------------


def test_a_stream_gives_every_batch_in_order():
    model = Model()
    rng = np.random.default_rng(1)
    batches = [{"x": rng.normal(size=(rows, WIDTH))} for rows in (8, 11, 9, 8, 12)]
    with model.pipeline("1f1b", 3, 4, max_in_flight=3) as pipeline:
        runs = list(pipeline.stream(batches))
        for run, feeds in zip(runs, batches, strict=True):
            model.feeds = feeds
            assert_same_bits(model, pipeline, run)


def drawn_pipeline(rng, model, seed):
    return model.pipeline(
        rng.choice([*SCHEDULES, "dynamic"]), rng.choice([1, 2, 3]), rng.choice([1, 3, 5]),
        workers=rng.choice([1, 2, 4]), max_in_flight=rng.choice([1, 2, 4]), seed=seed,
    )  # fmt: skip


def drawn_run(rng, pipeline, feeds):
    """Start a run that is to end in a way that was drawn; return the way and the run."""
    what = rng.choice(["whole", "whole", "urgent", "failing", "cancelled", "late"])
    run = pipeline.start(
        {"x": feeds["x"] * np.nan} if what == "failing" else feeds,
        timeout_s=rng.choice([0, 0.001]) if what == "late" else None,
        priority=-(what == "urgent"),
    )
    return what, run


@pytest.mark.parametrize("seed", range(40) if SOAK else range(4))
def test_runs_that_end_early_leave_their_neighbours_the_right_bits(seed):
    rng = random.Random(seed)
    model = Model(between=sensitive)
    pipeline = drawn_pipeline(rng, model, seed)
    with pipeline:
        expected = one_after_another(model, pipeline)
        for _ in range(5):
            runs = []
            for _ in range(10):
                what, run = drawn_run(rng, pipeline, model.feeds)
                if what == "cancelled":
                    run.cancel()
                runs.append((what, run))
            for what, run in runs:
                try:
                    run.result()
                except (NodeError, RunCancelled, TimeoutError):
                    assert what in ("failing", "cancelled", "late")
                else:
                    assert what != "failing"  # the others may have been faster
                    for node, gradient in zip(model.wrt, expected, strict=True):
                        assert run[node].grad.tobytes() == gradient.tobytes()
        assert not pipeline._core.admission.in_flight


async def asked(xp, value):
    """Answer in a later turn of the loop."""
    await anyio.lowlevel.checkpoint()
    if np.isnan(value).any():
        raise ValueError("not a number")
    return value * 2.0


service = ag.ops.define(
    "pipeline_service", scheme="f[*s] -> f[*s]", forward=asked, vjp=lambda argnum, ct, y, x: ct * y
)


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dynamic"])
def test_asynchronous_ops_run_on_a_loop_while_their_lane_waits(name):
    model = Model(between=service)
    with model.pipeline(name, 2, 4) as pipeline:
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
        with ag.trace.record() as t:
            run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)
        with pytest.raises(GraphError, match="asynchronous ops, which run on the caller's event"):
            pipeline.start(model.feeds)
    assert len(t.calls) == 4
    stages = [{node.id for node in nodes} for nodes in pipeline.stages()]
    stage = next(i for i, held in enumerate(stages) if model.called.id in held)
    lane = pipeline.schedule.lane_names[pipeline.schedule.device_of[stage]]
    turns = [part for part in t.slices if part.lane == lane]
    for call in t.calls:
        assert any(part.start <= call.start and call.end <= part.end for part in turns)


def test_each_lane_keeps_its_order_where_ops_are_asynchronous():
    model = Model(between=service)
    with model.pipeline("1f1b", 3, 5) as pipeline:
        pipeline.run_sync(model.feeds)
        with ag.trace.record() as t:
            pipeline.run_sync(model.feeds)
        for name, lane in zip(pipeline.schedule.lane_names, pipeline.schedule.lanes, strict=True):
            listed = [(stage, kind[0], number) for stage, kind, number, _ in lane]
            assert actions_of(t, name, pipeline) == listed


@pytest.mark.anyio
async def test_an_asynchronous_op_that_fails_is_named_and_its_neighbours_go_on():
    model = Model(between=service)
    spoilt = {"x": model.feeds["x"] * np.nan}
    async with model.pipeline("zb-h1", 2, 3, max_in_flight=3) as pipeline:
        good, bad, late = [
            pipeline.start(feeds, timeout_s=limit)
            for feeds, limit in ((model.feeds, None), (spoilt, None), (model.feeds, 0))
        ]
        with pytest.raises(NodeError, match="not a number") as caught:
            await bad
        assert caught.value.op == "pipeline_service"
        with pytest.raises(TimeoutError, match="did not end in time"):
            await late
        run = await good
        await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)
        async with pipeline.stream([model.feeds] * 3) as runs:
            async for run in runs:
                await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(40) if SOAK else range(3))
async def test_awaited_runs_that_end_early_leave_their_neighbours_the_right_bits(seed):
    rng = random.Random(seed)
    model = Model(between=service)
    pipeline = drawn_pipeline(rng, model, seed)
    expected = await anyio.to_thread.run_sync(one_after_another, model, pipeline)
    async with pipeline:
        for _ in range(4):
            runs = []
            for _ in range(8):
                what, run = drawn_run(rng, pipeline, model.feeds)
                for _ in range(rng.choice([0, 0, 1, 5])):
                    await anyio.lowlevel.checkpoint()
                if what == "cancelled":
                    run.cancel()
                runs.append((what, run))
            for what, run in runs:
                try:
                    await run
                except (NodeError, RunCancelled, TimeoutError):
                    assert what in ("failing", "cancelled", "late")
                else:
                    assert what != "failing"  # the others may have been faster
                    for node, gradient in zip(model.wrt, expected, strict=True):
                        assert run[node].grad.tobytes() == gradient.tobytes()
        assert not pipeline._core.admission.in_flight
        assert not pipeline._core.calls


async def forever(xp, value):
    """Answer the rows of a batch of 11; for one of 4 rows, never."""
    if len(value) == 1:
        calls["reached"].set()
        try:
            await anyio.sleep_forever()
        finally:
            calls["ended"].append(True)
    return value


calls = {}
endless = ag.ops.define(
    "pipeline_endless", scheme="f[*s] -> f[*s]", forward=forever, vjp=lambda argnum, ct, y, x: ct
)


@pytest.mark.anyio
async def test_a_call_ends_with_its_cancelled_run_and_the_lane_goes_on():
    reached, ended = calls["reached"], calls["ended"] = anyio.Event(), []
    model = Model(between=endless)
    async with model.pipeline(microbatches=4, max_in_flight=2) as pipeline:
        first = pipeline.start({"x": model.feeds["x"][:4]})
        await reached.wait()
        second = pipeline.start(model.feeds)
        first.cancel()
        with pytest.raises(RunCancelled, match="was cancelled"):
            await first
        run = await second
        assert ended == [True]
        await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)


@pytest.mark.anyio
async def test_closing_ends_a_call_that_a_lane_waits_for():
    reached, ended = calls["reached"], calls["ended"] = anyio.Event(), []
    model = Model(between=endless)
    async with model.pipeline(microbatches=4) as pipeline:
        run = pipeline.start({"x": model.feeds["x"][:4]})
        await reached.wait()
    assert ended == [True]
    with pytest.raises(MachineClosedError, match="closed during run 0"):
        await run


@pytest.mark.anyio
async def test_runs_streams_and_cancellation_work_in_event_loops():
    model = Model(between=waiting)
    opened()
    async with model.pipeline() as pipeline:
        with pytest.raises(GraphError, match="await pipeline.run"):
            pipeline.run_sync(model.feeds)
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def cancelled():
                with scope:
                    await pipeline.run(model.feeds)

            tasks.start_soon(cancelled)
            await anyio.to_thread.run_sync(gates["reached"].wait, 30)
            scope.cancel()
            gates["open"].set()
        assert not pipeline._core.admission.in_flight
        run = await pipeline.run(model.feeds)
        await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)
        async with pipeline.stream([model.feeds] * 3) as runs:
            assert [one.number async for one in runs] == [2, 3, 4]


def test_the_simulator_predicts_for_measured_costs_what_it_does_for_given_ones():
    made = schedule("zb-h1", stages=2, microbatches=4)
    costs = [(Fraction(1), Fraction(1), Fraction(1))] * 2
    timeline = ag.pipeline.simulate(made, costs=costs).timeline
    assert [(timed.lane, timed.label) for timed in timeline[:2]] == [
        (made.lane_names[timed.device], str(timed.step[0])) for timed in timeline[:2]
    ]
