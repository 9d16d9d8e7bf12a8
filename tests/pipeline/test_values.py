"""Pipelines run by actors have the bits of microbatches one after another."""

from functools import reduce

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.machines.run import Run
from actorgraph.pipeline import SCHEDULES, Pipeline
from tests._each import each
from tests.pipeline._model import (
    ROWS,
    WIDTH,
    Model,
    assert_same_bits,
    microbatches_of,
    seeds_of,
)


@each("name", [*SCHEDULES, "dynamic"])
@each("microbatches", [1, 5, 8])
def test_gradients_have_the_bits_of_microbatches_one_after_another(name, microbatches):
    model = Model()
    with model.pipeline(name, 3, microbatches) as pipeline:
        for _ in range(2):
            run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)


@each("workers", [1, 2, 4])
@each("seed", [0, 3])
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
        assert run[node].value is node.held.array


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
        parts = microbatches_of(pipeline, feeds)
    found = [buffer.value.copy() for buffer in buffers]
    for buffer, value in zip(buffers, start, strict=True):
        buffer.value = value
    with ag.LispMachine([loss], wrt=weights) as machine:
        runs = [machine.run_sync(part.feeds, backward=seeds_of(pipeline, part)) for part in parts]
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


def test_all_microbatches_see_the_parameters_of_one_moment(monkeypatch):
    g = ag.Graph()
    w = g.parameter("w", np.zeros(()))
    loss = (g.input("x", ("batch",), "float64") * w).sum()
    take, moments = Run.take_arrays, iter(range(1, 100))

    def overtaken(run):
        take(run)
        w.value = float(next(moments))  # as another thread may

    monkeypatch.setattr(Run, "take_arrays", overtaken)
    with Pipeline(loss, stages=1, microbatches=4) as pipeline:
        run = pipeline.run_sync({"x": np.ones(4)})
    assert run[loss].value == 4 * run[w].value == 0
