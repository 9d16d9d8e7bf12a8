"""Pipelines whose stages are on devices: the CPU's bits, and nothing unordered."""

import re
import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.virtual import Virtual
from actorgraph.pipeline import SCHEDULES
from tests._soak import SOAK
from tests.machines.conftest import no_thread_is_left  # noqa: F401 - for all tests here
from tests.pipeline._model import WIDTH, Model, assert_same_bits

NAMES = [*SCHEDULES, "dynamic"] if SOAK else ["1f1b", "interleaved", "zb-h1", "dynamic"]


def checked(count):
    return [ag.devices.check(f"virtual:{number}") for number in range(count)]


def adversaries(count):
    return [
        ag.devices.check(ag.devices.adversary(f"virtual:{number}", seed=number))
        for number in range(count)
    ]


def nothing_reported(devices):
    assert [one.report() for one in devices] == [[] for _ in devices]


@pytest.mark.parametrize(
    ("name", "made"),
    [(name, adversaries) for name in NAMES]  # under the checker, too
    + [(name, checked) for name in (NAMES if SOAK else NAMES[:1])],
)
def test_gradients_have_the_bits_of_microbatches_one_after_another(name, made):
    model, devices = Model(), made(3)
    with model.pipeline(name, 3, 5, devices=devices, outputs=[model.hidden]) as pipeline:
        for _ in range(2):
            run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)
        hidden = run[model.hidden].value
        assert pipeline.run_sync(model.feeds, backward=False)[model.hidden].value.tobytes() == (
            hidden.tobytes()
        )
    nothing_reported(devices)


def test_each_stage_launches_on_its_device():
    model = Model()
    names = ["virtual:0", "virtual:1"]
    with model.pipeline(devices=names) as pipeline, ag.trace.record() as trace:
        pipeline.run_sync(model.feeds)
        stages = pipeline.stages()
    lanes = {part.name: part.lane for part in trace.slices if part.kind == "device"}
    for stage, name in zip(stages, names, strict=True):
        assert any(node.name in lanes for node in stage)
        for node in stage:
            assert lanes.get(node.name, f"{name} lane 0") == f"{name} lane 0"
            assert lanes.get(f"{node.name} (backward)", f"{name} lane 0") == f"{name} lane 0"


def test_parameters_are_copied_once_and_what_travels_once():
    model = Model()
    with model.pipeline(devices=["virtual:0", "virtual:1"]) as pipeline:
        pipeline.run_sync(model.feeds)
        first = dict(pipeline.transfers)
        pipeline.run_sync(model.feeds)
        second = {kind: count - first[kind] for kind, count in pipeline.transfers.items()}
    assert first["parameters"] == len(model.wrt) + 1  # the tied one is in both stages
    assert second["parameters"] == 0
    assert second["feeds"] == 2 * 4  # rows and seeds
    assert second["results"] == 4 + len(model.wrt)  # the terms of the loss, and sums of gradients


def test_a_stage_runs_where_the_user_has_placed_its_nodes():
    g = ag.Graph()
    x = g.input("x", shape=("batch", 4))
    with g.stage(0):
        h = ag.ops.tanh(x @ g.parameter("A", np.eye(4, dtype="float32")))
    with g.stage(1), ag.device("virtual:1", lane=2):
        h = ag.ops.tanh(h @ g.parameter("B", np.eye(4, dtype="float32")))
    with g.stage(2):
        loss = (h * h).mean()
    feeds = {"x": np.ones((6, 4), "float32")}
    runs = []
    for node in (None, h):
        if node is None:
            where = h.placement
            g.placements.clear()
        else:
            h.on(where.device, lane=where.lane)
        with ag.pipeline.Pipeline(loss, microbatches=3, max_in_flight=3) as pipeline:
            with ag.trace.record() as trace:
                runs.append([one["B"].grad for one in pipeline.stream([feeds] * 4)])
            lanes = {part.lane for part in trace.slices if part.kind == "device"}
            assert ("virtual:1 lane 2" in lanes) is (node is not None)
    for one, other in zip(*runs, strict=True):
        assert one.tobytes() == other.tobytes()


def test_streams_are_in_order_and_right():
    model, devices = Model(), checked(2)
    feeds = [{"x": model.feeds["x"] * (1.0 + i)} for i in range(6)]
    with model.pipeline() as pipeline:
        wanted = [pipeline.run_sync(one)[model.wrt[0]].grad for one in feeds]
    with model.pipeline(devices=devices, max_in_flight=3) as pipeline:
        got = [run[model.wrt[0]].grad for run in pipeline.stream(feeds)]
    assert [one.tobytes() for one in got] == [one.tobytes() for one in wanted]
    nothing_reported(devices)


def test_tangents_and_buffers_too():
    def between(h):
        count = h.graph.buffer("count", np.zeros(()))
        h.graph.assign(count, count + 1.0, on=h)
        return h * (count + 1.0)

    found = []
    for devices in (["cpu"], checked(1)):
        model = Model(between=between)
        tangents = {model.wrt[0]: np.ones((WIDTH, WIDTH))}
        with model.pipeline("gpipe", devices=devices) as pipeline:
            run = pipeline.run_sync(model.feeds)
            assert model.graph.node("count").value == 4.0
            forward = pipeline.run_sync(model.feeds, tangents=tangents)
            found.append([run[model.wrt[0]].grad, forward[model.loss].tangent])
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("clip", [None, 0.05])
def test_steps_leave_parameters_on_their_devices(clip):
    found, devices = [], adversaries(2)
    for given in (["cpu"], devices):
        model = Model()
        with model.pipeline(devices=given) as pipeline:
            step = pipeline.compile_step(ag.solvers.Adam(0.01, clip_norm=clip))
            for _ in range(3):
                step(model.feeds)
            if given is devices:
                # The tied one is stepped in one place and used in two.
                assert pipeline.transfers["parameters"] <= len(model.wrt) + 4
                assert pipeline.transfers["results"] == 3 * 4
            found.append([one.value.tobytes() for one in model.wrt])
    assert found[0] == found[1]
    nothing_reported(devices)


def test_what_fails_on_a_device_fails_one_run():
    def forward(xp, a):
        if a.shape[0] == 1:
            raise ValueError("one row")
        return a * 1.0

    picky = ag.ops.define("picky_in_a_stage", scheme="x[*s] -> x[*s]", forward=forward,
                          vjp=lambda argnum, ct, y, x: ct)  # fmt: skip
    model = Model(between=picky)
    with model.pipeline(devices=["virtual:0", "virtual:1"]) as pipeline:
        good = pipeline.run_sync(model.feeds)[model.loss].value
        bad = {"x": model.feeds["x"][:4]}
        runs = [pipeline.start(bad), pipeline.start(model.feeds)]
        with pytest.raises(ag.NodeError, match=r"(?s)picky.*one row") as caught:
            runs[0].result()
        assert caught.value.device.startswith("virtual:")
        assert runs[1].result()[model.loss].value == good


def test_a_run_that_is_cancelled_leaves_the_next_right():
    inside, go = threading.Event(), threading.Event()

    def forward(xp, a):
        inside.set()
        assert go.wait(30)
        return a * 1.0

    held = ag.ops.define("held_in_a_stage", scheme="x[*s] -> x[*s]", forward=forward,
                         vjp=lambda argnum, ct, y, x: ct)  # fmt: skip
    model = Model(between=held)
    with model.pipeline(devices=["virtual:0", "virtual:1"]) as pipeline:
        run = pipeline.start(model.feeds)
        assert inside.wait(30)
        assert run.cancel()
        go.set()
        with pytest.raises(ag.RunCancelled):
            run.result()
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))


def test_actions_of_stages_on_two_devices_overlap():
    """Each stage waits inside for the other one, which is at a later or earlier microbatch."""
    meeting = threading.Barrier(2)

    def meeting_but(alone):
        calls = iter(range(3))

        def forward(xp, a):
            if next(calls) != alone:
                meeting.wait(30)
            return a * 1.0

        name = f"meet_in_a_stage_but_{alone}"
        return ag.ops.define(name, scheme="x[*s] -> x[*s]", forward=forward)

    g = ag.Graph()
    x = g.input("x", shape=("batch", 2), dtype="float64")
    with g.stage(0):
        a = ag.ops.exp(meeting_but(0)(x))
    with g.stage(1):
        loss = meeting_but(2)(a).mean()
    devices = [Virtual("one"), Virtual("other")]
    with ag.pipeline.Pipeline(
        loss, wrt=[], microbatches=3, devices=devices, training=False
    ) as pipeline:
        assert np.isclose(pipeline.run_sync({"x": np.ones((3, 2))})[loss].value, np.e)


def test_what_cannot_be_placed_is_told_before_anything_runs():
    model = Model()
    with pytest.raises(ag.ScheduleError, match=r"devices= names 3.*has 2"):
        model.pipeline(devices=["virtual:0", "virtual:1", "cpu"])
    with pytest.raises(ag.GraphError, match="a list of devices"):
        model.pipeline(devices="virtual:0")
    with pytest.raises(ag.ScheduleError, match=r"(?s)'auto'.*on the CPU"):
        model.pipeline(stages="auto", devices=["virtual:0"])

    async def forward(xp, a):
        return a

    call = ag.ops.define("call_in_a_stage", scheme="x[*s] -> x[*s]", forward=forward,
                         vjp=lambda argnum, ct, y, x: ct)  # fmt: skip
    waiting = Model(between=call)
    with (
        waiting.pipeline(devices=["virtual:0"]) as pipeline,
        pytest.raises(ag.GraphError, match=re.escape("runs on the host only")),
    ):
        pipeline.run_sync(waiting.feeds)
    two = Model(placed=2)
    for device, number in (("virtual:0", 0), ("virtual:1", 1)):
        two.graph.node(f"W{number}").graph.nodes[
            next(n.id for n in two.graph.nodes if n.name.startswith("matmul") and n.id > number * 9)
        ].on(device)
    with (
        two.pipeline() as pipeline,
        pytest.raises(ag.ScheduleError, match=r"nodes of stage \d are placed on virtual"),
    ):
        pipeline.run_sync(two.feeds)
