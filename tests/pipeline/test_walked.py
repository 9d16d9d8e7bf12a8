"""Actions of lanes are walked as rows, with the bits that they have from Python."""

import warnings

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import native
from actorgraph.devices.cpu import Crowding
from actorgraph.errors import NodeError
from actorgraph.flag import Flag
from actorgraph.memory import arenas
from actorgraph.options import NATIVE
from actorgraph.pipeline import Pipeline
from actorgraph.scheduler import Pool

WIDTH = 160  # an activation of a microbatch has 40 KB, a weight 100 KB: arrays that are kept

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


def perceptron():
    g = ag.Graph()
    rng = np.random.default_rng(0)
    h = g.input("x", ("batch", WIDTH), "float32")
    for number in range(4):
        w = g.parameter(f"w{number}", rng.normal(0, 0.1, (WIDTH, WIDTH)).astype("float32"))
        h = np.tanh(h @ w) * 0.5 + h
    feeds = {"x": rng.normal(size=(257, WIDTH)).astype("float32")}  # the last one has a row more
    return (h * h).mean(), feeds


def walked(pipeline):
    """Return the stretches of a pipeline's programs; rows for some sizes are there."""
    programs = [task.program for network in pipeline._networks() for task in network.tasks]
    found = [part.stretch for program in programs for part in program.parts]
    assert found
    assert all(stretch.covered for stretch in found)
    return found


def gradients(monkeypatch, native, schedule, *factors):
    """Return the bytes of the gradients of runs, and the stretches."""
    monkeypatch.setenv(NATIVE, native)
    loss, feeds = perceptron()
    with Pipeline(loss, stages=2, schedule=schedule, microbatches=4) as pipeline:
        found = []
        for factor in factors:
            with np.errstate(all="ignore"):
                run = pipeline.run_sync({"x": feeds["x"] * np.float32(factor)})
            found.append([run[node].grad.tobytes() for node in pipeline.wrt])
        return found, walked(pipeline) if native == "wait" else []


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "dynamic"])
def test_gradients_have_the_bits_of_calls_from_python(schedule, monkeypatch):
    found, stretches = gradients(monkeypatch, "wait", schedule, 1, 1, 1e30, 1)
    wanted, _ = gradients(monkeypatch, "0", schedule, 1, 1, 1e30, 1)
    assert found == wanted
    # What leaves an action is written where it leaves: no row copies it.
    assert any(stretch.results and not stretch.copied for stretch in stretches)


def test_an_overflow_in_a_row_warns_of_its_node_and_may_fail_the_run(monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    loss, feeds = perceptron()
    large = {"x": feeds["x"] * np.float32(1e30)}
    with Pipeline(loss, stages=2, microbatches=4) as pipeline:
        pipeline.run_sync(feeds)
        walked(pipeline)
        with pytest.warns(RuntimeWarning, match="overflow"):
            pipeline.run_sync(large)
        with np.errstate(over="raise"), pytest.raises(NodeError, match="overflow"):
            pipeline.run_sync(large)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipeline.run_sync(feeds)


def test_a_walk_tells_who_watches_when_it_has_let_go_of_the_lock(monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    monkeypatch.setattr(Crowding, "found", lambda self: True)  # so nobody else sets the flag
    loss, feeds = perceptron()
    with Pipeline(loss, stages=2, microbatches=4, workers=1) as pipeline:
        pipeline.run_sync(feeds, backward=False)
        (network,) = pipeline._networks()
        network.flag.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Flag, "set", lambda self: None)
            pipeline.run_sync(feeds, backward=False)
        assert network.flag._byte[0] == 1


@pytest.mark.parametrize(("mode", "count"), [("0", 2 * 4), ("wait", 0)])
def test_an_action_without_rows_tells_who_watches_before_it_begins(mode, count, monkeypatch):
    monkeypatch.setenv(NATIVE, mode)
    monkeypatch.setattr(Crowding, "found", lambda self: True)
    loss, feeds = perceptron()
    with Pipeline(loss, stages=2, microbatches=4, workers=1) as pipeline:
        pipeline.run_sync(feeds, backward=False)
        told = []
        with monkeypatch.context() as patch:
            patch.setattr(Flag, "set", lambda self: told.append(self))
            pipeline.run_sync(feeds, backward=False)
        assert len(told) == count


def test_arrays_inside_of_others_are_shown_only_where_python_writes_into_them(monkeypatch):
    shown, found = [], []
    show = arenas._PartArrays._show
    monkeypatch.setattr(arenas._PartArrays, "_show", lambda self: shown.append(1) or show(self))
    x = np.random.default_rng(0).normal(size=(256, 256)).astype("float32")
    for mode in ("wait", "0"):
        monkeypatch.setenv(NATIVE, mode)
        h = ag.Graph().input("x", ("batch", 256))
        for number in range(8):  # activations fit into gradients of weights
            h = np.tanh(h @ h.graph.parameter(f"w{number}", np.eye(256, dtype="float32")))
        with (
            warnings.catch_warnings(),
            Pipeline((h * h).mean(), stages=2, microbatches=4) as pipeline,
        ):
            warnings.simplefilter("ignore")
            pipeline.run_sync({"x": x})
            assert not shown
            run = pipeline.run_sync({"x": x * np.float32(1e38)})  # which rows decline
            found.append([run[node].grad.tobytes() for node in pipeline.wrt])
            assert bool(shown) is (mode == "wait")
        shown.clear()
    assert found[0] == found[1]


def test_a_thread_is_woken_for_no_lane_that_has_nothing_left_to_do(monkeypatch):
    woken, submit = [], Pool.submit
    monkeypatch.setattr(Pool, "submit", lambda *args: woken.append(args) or submit(*args))
    loss, feeds = perceptron()
    with Pipeline(loss, stages=1, microbatches=4, workers=1) as pipeline:
        for _ in range(3):
            pipeline.run_sync(feeds)
    assert not woken
