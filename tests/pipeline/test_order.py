"""Lanes do their lists exactly in order, hold what the formulae say, and say so to instruments."""

import weakref
from itertools import pairwise

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from actorgraph.pipeline import SCHEDULES, Pipeline, Schedule, schedule
from actorgraph.trace.live import Live
from tests._each import each
from tests.pipeline._model import WIDTH, Model, actions_of, assert_same_bits, recorded

live: list[tuple[weakref.ref[np.ndarray], int]] = []


def follow(xp, value):
    out = value + 0.0
    alive = sum(reference() is not None for reference, _ in live)
    live.append((weakref.ref(out), alive + 1))
    return out


followed = ag.ops.define(
    "pipeline_follow", scheme="f[*s] -> f[*s]", forward=follow, vjp=lambda argnum, ct, y, x: ct * y
)


@each("name", [*SCHEDULES, "custom"])
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
        tasks = pipeline._staged("tasks").at
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


def test_recordings_name_what_a_task_receives_as_those_of_other_machines_do():
    model = Model()
    with model.pipeline("gpipe", 3, 4) as pipeline:
        t = recorded(pipeline, model.feeds)
    first, last = t.actors[0].name, t.actors[2].name
    names = {edge.name for actor in t.actors for edge in actor.edges}
    assert f"8 values of the run -> {first}" in names
    assert f"residual of {last} -> {last} (backward)" in names


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "dynamic"])
def test_a_stage_holds_as_many_microbatches_as_the_formula_says(name):
    stages, microbatches = 3, 8
    model = Model()
    with model.pipeline(name, stages, microbatches) as pipeline:
        t = recorded(pipeline, model.feeds)
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
        t = recorded(pipeline, model.feeds)
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
            pipeline.stage_costs()
        pipeline.run_sync(model.feeds)
        (first, last) = pipeline.stage_costs()
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
