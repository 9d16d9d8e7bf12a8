"""Compiled steps of pipelines, forward passes alone, checkpoints in stages, and memory."""

import resource
import tracemalloc

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph import scratch
from actorgraph.errors import GraphError, NodeError, ScheduleError
from actorgraph.lower import program
from actorgraph.pipeline import SCHEDULES, Pipeline, Schedule
from actorgraph.pipeline.lanes import PipelineLane, Sum
from tests import _allocator
from tests._each import each
from tests._soak import SOAK
from tests.conftest import await_threads
from tests.pipeline._model import WIDTH, Model, assert_same_bits

SOLVERS = {
    "sgd": lambda: ag.solvers.SGD(lr=0.1, momentum=0.9),
    "adam": lambda: ag.solvers.Adam(lr=0.1),
    "clipped": lambda: ag.solvers.SGD(lr=0.1, clip_norm=0.01),
    "left out": lambda: ag.solvers.SGD(lr=0.1, skip_nonfinite=True),
    "by all gradients": lambda: ag.solvers.BarzilaiBorwein(lr=0.1),
}
FORWARD = Schedule.parse(["0F0 0F1 0F2", "1F0 1F1 1F2"])


def values(model):
    return [node.value.copy() for node in model.wrt]


# -- compiled steps -----------------------------------------------------------------------------


@each("schedule", ["1f1b", "zb-h1", "dynamic"])
@each("solver", SOLVERS)
def test_a_compiled_step_has_the_bits_of_a_run_and_a_step_of_the_solver(schedule, solver):
    stepped, other = Model(), Model()
    by_hand = SOLVERS[solver]()
    with stepped.pipeline(schedule, 3) as one, other.pipeline("gpipe", 1) as two:
        step = one.compile_step(SOLVERS[solver]())
        for _ in range(4):
            run, whole = step(stepped.feeds), two.run_sync(other.feeds)
            by_hand.step([whole[node] for node in other.wrt])
            assert run[stepped.loss].value.tobytes() == whole[other.loss].value.tobytes()
            for got, wanted in zip(stepped.wrt, other.wrt, strict=True):
                assert got.value.tobytes() == wanted.value.tobytes()


@pytest.mark.anyio
async def test_a_compiled_step_may_be_awaited():
    def by_hand():
        other = Model()
        with other.pipeline() as pipeline:
            step = pipeline.compile_step(SOLVERS["adam"]())
            return [step(other.feeds)[other.loss].value.tobytes() for _ in range(3)]

    model, wanted = Model(), await anyio.to_thread.run_sync(by_hand)
    async with model.pipeline() as pipeline:
        step = pipeline.compile_step(SOLVERS["adam"]())
        assert [(await step.run(model.feeds))[model.loss].value.tobytes() for _ in wanted] == wanted


class Noted(ag.solvers.AbstractSolver):
    """Notes what else was under way when a parameter was stepped, and may fail."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.fails_at, self.in_flight, self.machine = fails_at, [], None

    def init(self, value):
        return None

    def update(self, state, grad, current, out):
        if len(self.in_flight) == self.fails_at:
            raise ArithmeticError("no more")
        self.in_flight.append(len(self.machine._core.admission.in_flight))
        np.subtract(current, 0.1 * grad, out=out)


def test_lanes_step_their_parameters_while_the_run_goes_on():
    model = Model()
    with model.pipeline("1f1b", 2) as pipeline:
        solver = Noted()
        solver.machine = pipeline
        pipeline.compile_step(solver)(model.feeds)
    assert solver.in_flight == [1] * len(model.wrt)


@pytest.mark.parametrize("place", [0, 3])
def test_a_solver_that_fails_in_a_lane_changes_no_parameter(place):
    model = Model()
    before = values(model)
    with model.pipeline("zb-h1", 2) as pipeline:
        solver = Noted(fails_at=place)
        solver.machine = pipeline
        step = pipeline.compile_step(solver)
        with pytest.raises(ArithmeticError, match="no more"):
            step(model.feeds)
        assert all(np.array_equal(a, b) for a, b in zip(before, values(model), strict=True))
        solver.fails_at = None
        step(model.feeds)
        assert not any(np.array_equal(a, b) for a, b in zip(before, values(model), strict=True))
    assert solver.steps == 1


def _fail_late(xp, a):
    if not np.isfinite(a).all():
        raise ValueError("not finite")
    return a * 1


checked = ag.ops.define(
    "pipeline_checked", scheme="f[*s] -> f[*s]", forward=_fail_late,
    vjp=lambda argnum, ct, y, x: checked(ct * 1e308),
)  # fmt: skip


def test_a_run_that_fails_behind_stepped_parameters_changes_none():
    """The first layer's backward pass overflows when later stages have been stepped."""
    g = ag.Graph()
    x = g.input("x", ("batch", WIDTH), "float64")
    with g.stage(0):
        h = checked(x * g.parameter("W0", np.full(WIDTH, 10.0)))
    with g.stage(1):
        loss = (h * g.parameter("W1", np.full(WIDTH, 10.0))).sum()
    before = [node.value.copy() for node in g.parameters]
    with Pipeline(loss, microbatches=2) as pipeline, np.errstate(over="ignore"):
        step = pipeline.compile_step(ag.solvers.SGD(lr=0.1))
        with pytest.raises(NodeError, match="not finite"):
            step({"x": np.full((4, WIDTH), 10.0)})
    assert all(np.array_equal(a, node.value) for a, node in zip(before, g.parameters, strict=True))


# -- forward only -------------------------------------------------------------------------------


@each("schedule", [*SCHEDULES, "dynamic"])
@each("how", ["no wrt", "not training", "asked"])
def test_a_forward_pass_goes_through_the_lists_of_any_schedule(schedule, how):
    model = Model()
    options, asked = {}, {}
    if how == "no wrt":
        model.wrt = []
    elif how == "not training":
        options = {"training": False}
    else:
        asked = {"backward": False}
    with ag.LispMachine([model.loss, model.hidden]) as machine:
        whole = machine.run_sync(model.feeds)
    with model.pipeline(schedule, 2, 4, outputs=[model.hidden], **options) as pipeline:
        with ag.trace.record() as t:
            runs = [pipeline.run_sync(model.feeds, **asked)]
        runs += pipeline.stream([model.feeds] * 3, **asked)
    assert {part.kind for part in t.slices if part.actor is not None} == {"forward"}
    for run in runs:
        np.testing.assert_allclose(run[model.loss].value, whole[model.loss].value, rtol=1e-12)
        np.testing.assert_allclose(run[model.hidden].value, whole[model.hidden].value, rtol=1e-12)
        assert run[model.loss].value.tobytes() == runs[0][model.loss].value.tobytes()
        assert all(run[node].grad is None for node in model.wrt)


def test_lists_of_forward_actions_alone_are_for_forward_passes_alone():
    model = Model()
    with model.pipeline(FORWARD, training=False) as pipeline:
        assert np.isfinite(pipeline.run_sync(model.feeds)[model.loss].value)
        with pytest.raises(ScheduleError, match="has forward actions only; run with backward=Fal"):
            pipeline.run_sync(model.feeds, backward=True)
        with pytest.raises(ScheduleError, match="has forward actions only"):
            pipeline.compile_step(ag.solvers.SGD(lr=0.1))(model.feeds)
    with pytest.raises(ScheduleError, match="has forward actions only; set training=False, or"):
        model.pipeline(FORWARD)
    with pytest.raises(ScheduleError, match="device 1 does not list 1F1; a stage needs F"):
        Schedule.parse(["0F0 0F1", "1F0"])
    assert ag.pipeline.simulate(FORWARD, costs=(1, 1, 1)).makespan == 4


def test_modes_of_one_pipeline_take_turns():
    model = Model()
    x = model.graph.node("x")
    with model.pipeline("zb-h1", 2, 3) as pipeline, ag.LispMachine([model.loss]) as machine:
        for _ in range(2):
            assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
            pipeline.run_sync(model.feeds, backward=False)
            for tangents in ({x: np.ones_like(model.feeds["x"])}, {model.wrt[0]: np.eye(WIDTH)}):
                got = pipeline.run_sync(model.feeds, tangents=tangents)[model.loss].tangent
                wanted = machine.run_sync(model.feeds, tangents=tangents)[model.loss].tangent
                np.testing.assert_allclose(got, wanted, rtol=1e-10)
            doubled = pipeline.run_sync(model.feeds, backward={model.loss: 2.0})
            once = pipeline.run_sync(model.feeds)
            np.testing.assert_allclose(doubled["W0"].grad, 2 * once["W0"].grad, rtol=1e-12)


def test_a_run_number_repeats_what_random_ops_draw():
    g = ag.Graph()
    x = g.input("x", ("batch", WIDTH), "float64")
    loss = ag.ops.dropout(x @ g.parameter("W", np.eye(WIDTH)), 0.5).sum()
    with Pipeline(loss, stages=2, microbatches=2) as pipeline:
        feeds = {"x": np.ones((8, WIDTH))}
        first, again, other = (pipeline.run_sync(feeds, run_number=n) for n in (5, 5, 6))
    assert first["W"].grad.tobytes() == again["W"].grad.tobytes() != other["W"].grad.tobytes()


def test_what_pipelines_are_cut_into_is_known_after_a_run():
    model = Model()
    with model.pipeline() as pipeline:
        with pytest.raises(GraphError, match="known after a first run"):
            pipeline.check()
        with pytest.raises(GraphError, match="known after a first run"):
            pipeline.stages()
        pipeline.run_sync(model.feeds)
        assert pipeline.check().ok
        assert "The stages of a schedule" in str(pipeline.explain())


# -- checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name.startswith("zb")])
def test_schedules_without_bubbles_are_right_with_checkpoints_in_stages(schedule):
    def build(wrap):
        rng = np.random.default_rng(0)
        g = ag.Graph()
        h = g.input("x", ("batch", WIDTH), "float64")
        for number in range(8):
            w = g.parameter(f"W{number}", rng.normal(size=(WIDTH, WIDTH)))

            def layer(h, w):
                return ag.ops.tanh(ag.ops.tanh(h @ w) @ w)

            h = wrap(layer)(h, w)
        return (h * h).mean(), list(g.parameters)

    feeds = {"x": np.random.default_rng(1).normal(size=(11, WIDTH))}
    grads = []
    for wrap in (ag.checkpoint, lambda function: function):
        loss, wrt = build(wrap)
        with Pipeline(loss, wrt, stages=2, schedule=schedule, microbatches=4) as pipeline:
            run = pipeline.run_sync(feeds)
        with ag.LispMachine([loss]) as machine:
            whole = machine.run_sync(feeds, backward=True)
        for node in wrt:
            np.testing.assert_allclose(run[node].grad, whole[node].grad, rtol=1e-9, atol=1e-12)
        grads.append([run[node].grad.tobytes() for node in wrt])
    assert grads[0] == grads[1]


# -- memory -------------------------------------------------------------------------------------


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def perceptron(g):
    width = 160  # an activation of a microbatch has 80 KB, a weight 100 KB
    h = g.input("x", ("batch", width), "float32")
    for _ in range(4):
        h = np.tanh(ag.nn.Linear(width, width, bias=False)(h))
    return h, (512, width)


def transformer(g):
    h = g.input("x", ("batch", 32, 64), "float32")
    for _ in range(2):
        h = ag.nn.TransformerEncoderLayer(64, 2, 128, 0.0, batch_first=True)(h)
    return h, (64, 32, 64)


def convolutions(g):
    h = g.input("x", ("batch", 16, 12, 12), "float32")
    for _ in range(3):
        h = ag.ops.relu(ag.nn.Conv2d(16, 16, 3, padding=1)(h))
    return h, (48, 16, 12, 12)


@pytest.mark.parametrize(
    ("schedule", "compiled"),
    [("gpipe", False), ("1f1b", True), ("zb-h1", False),
     *([("gpipe", True), ("1f1b", False), ("zb-h1", True)] if SOAK else [])],
)  # fmt: skip
@pytest.mark.parametrize("model", [perceptron, transformer, convolutions])
def test_nothing_large_is_allocated_after_the_first_step(schedule, compiled, model, monkeypatch):
    # Else a text is compiled, which takes 0.1 MB, in the step that brings its calls in the process
    # to some number, those of other tests included.
    monkeypatch.setattr(program, "stepping_code", lambda key: None)
    h, shape = model(ag.Graph())
    loss = (h * h).mean()
    feeds = {"x": np.random.default_rng(0).normal(size=shape).astype("float32")}
    with Pipeline(loss, stages=2, schedule=schedule, microbatches=4, workers=1) as pipeline:
        solver = ag.solvers.SGD(lr=0.1)
        step = pipeline.compile_step(solver) if compiled else pipeline.run_sync
        step(feeds)
        with _allocator.replaced() as allocator:
            step(feeds)
        step(feeds)
        await_threads("actorgraph compiler")  # kernels were called often enough to have asked it
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            step(feeds)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        new_pages = []
        for _ in range(5):
            began = faults()
            step(feeds)
            new_pages.append(faults() - began)
    assert 0 < allocator.largest <= 64 * 1024
    # Of the others: small results, and buffers of NumPy, of 32 KB an operand that is not in a row.
    assert most - before < (64 if model is perceptron else 256) * 1024
    assert min(new_pages) <= 10


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "dynamic"])
@pytest.mark.parametrize("model", [perceptron, convolutions])
def test_whichever_lane_comes_first_no_later_step_makes_an_array(schedule, model):
    for seed in range(1, 7 if SOAK else 4):  # lanes take turns in another order in each
        h, shape = model(ag.Graph())
        feeds = {"x": np.random.default_rng(0).normal(size=shape).astype("float32")}
        loss = (h * h).mean()
        with Pipeline(
            loss, stages=2, schedule=schedule, microbatches=4, workers=1, seed=seed
        ) as pipeline:
            pipeline.run_sync(feeds)
            with _allocator.replaced() as allocator:
                for _ in range(3):
                    pipeline.run_sync(feeds)
        assert 0 < allocator.largest <= 64 * 1024


def test_every_worker_has_scratch_for_ops_from_the_first_step_on(monkeypatch):
    monkeypatch.setattr(scratch, "_rooms", [])
    h, _ = transformer(ag.Graph())
    feeds = {"x": np.random.default_rng(0).normal(size=(16, 32, 64)).astype("float32")}
    with Pipeline((h * h).mean(), stages=2, microbatches=1) as pipeline:
        pipeline.run_sync(feeds)  # lanes wait for each other: never do two ask at once
        copied = 16 * 32 * 64  # what a lane copies, since its rows are not in order
        with _allocator.replaced() as allocator:
            held = [scratch.scratch(np, (copied,), np.dtype("float32")) for _ in range(2)]
            np.ones(100)
    assert not np.shares_memory(*held)
    assert 0 < allocator.largest <= 64 * 1024


def test_a_step_gives_its_results_where_there_is_no_memory_for_scratch_of_later_ones(monkeypatch):
    h, _ = transformer(ag.Graph())
    feeds = {"x": np.random.default_rng(0).normal(size=(16, 32, 64)).astype("float32")}
    loss = (h * h).mean()
    room, reserve, refused = scratch._room, scratch.reserve, []

    def reserved_without_memory(count):
        def exhausted(size):
            refused.append(size)
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(scratch, "_room", exhausted)
            reserve(count)

    monkeypatch.setattr(scratch, "_rooms", [room(1 << 17)])
    monkeypatch.setattr(scratch, "reserve", reserved_without_memory)
    with Pipeline(loss, stages=2, microbatches=1) as pipeline:
        found = pipeline.start(feeds).result(timeout_s=20)[loss].value
    assert refused
    np.testing.assert_array_equal(found, ag.LispMachine([loss], wrt=[]).run_sync(feeds)[loss].value)


def test_every_worker_has_memory_for_turns_before_the_first():
    h, shape = perceptron(ag.Graph())
    with Pipeline((h * h).mean(), stages=2, microbatches=4) as pipeline:
        seen = []
        arenas = pipeline._started().networks.arenas
        take = arenas.take
        arenas.take = lambda size: seen.append(arenas.count) or take(size)
        pipeline.run_sync({"x": np.ones(shape, "float32")})
        assert set(seen) == {2}


def test_a_message_leaves_before_sums_and_when_its_sender_has_let_go_of_operands(monkeypatch):
    told, added = [], []
    tell, add = PipelineLane.tell, Sum.add

    def noted(lane, message, push):
        lane_run, microbatch, values = message
        if values and not lane.number:  # a cotangent, of the other lane
            tasks = lane.network.plan.stage_tasks
            [operands] = [task.computed for task in tasks if 0 in task.sends]
            told.append((len(added), {*operands} & lane_run.siblings[1].held[microbatch].keys()))
        tell(lane, message, push)

    monkeypatch.setattr(PipelineLane, "tell", noted)
    monkeypatch.setattr(Sum, "add", lambda self, *args: added.append(1) or add(self, *args))
    model = Model()
    with model.pipeline("1f1b", 2, 2, workers=1) as pipeline:
        pipeline.run_sync(model.feeds)
    assert told[0] == (0, set())
    assert len(told) == 2
    assert not told[1][1]


def test_gradients_that_a_caller_keeps_are_his_own():
    model = Model(dtype="float32")
    with model.pipeline("1f1b", 2, 4) as pipeline:
        runs, copies = [], []
        for factor in (1.0, 2.0, 3.0, 4.0):
            run = pipeline.run_sync({"x": model.feeds["x"] * np.float32(factor)})
            runs.append(run)
            copies.append([run[node].grad.copy() for node in model.wrt])
        for run, wanted in zip(runs, copies, strict=True):
            for node, array in zip(model.wrt, wanted, strict=True):
                assert run[node].grad.tobytes() == array.tobytes()
