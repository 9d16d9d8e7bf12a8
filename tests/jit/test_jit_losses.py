"""Softmax-like steps and steps of several results, compiled: what they compute, their errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.errors import NodeError
from actorgraph.jit import groups
from actorgraph.jit import lowering as jit
from actorgraph.jit.compiler import Compiler
from tests._soak import SOAK

pytest.importorskip("llvmlite", reason="the extra jit is not installed")

pytestmark = pytest.mark.usefixtures("machine_code", "eager")

RTOL = {"float32": 1e-6, "float64": 1e-13}


def near(got, wanted, scale=1.0):
    tolerance = RTOL[wanted.dtype.name] * scale
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def steps_of(machine):
    """Return the op names of the steps of the direct programs that have run."""
    return [step.op.name for plan in machine._plans.values() for step in plan.inline.steps]


def agree(outputs, feeds, wrt=(), scale=1.0, modes=({}, {"backward": True})):
    """Insist on values, gradients and tangents of the reference, and on groups in each mode."""
    with (
        ag.LispMachine(outputs, exact=False) as lisp,
        ag.TapeMachine(outputs, exact=False, jit="wait") as tape,
    ):
        for mode in modes:
            wanted, got = lisp.run_sync(feeds, **mode), tape.run_sync(feeds, **mode)
            for node in outputs:
                near(got[node].value, wanted[node].value, scale)
                if "tangents" in mode:
                    near(got[node].tangent, wanted[node].tangent, 10 * scale)
            if "backward" in mode:
                for node in wrt:
                    near(got[node].grad, wanted[node].grad, 10 * scale)
        assert all("fused" in [step.op.name for step in plan.inline.steps]
                   for plan in tape._plans.values())  # fmt: skip
        return steps_of(tape)


def logits_and_classes(shape, dtype="float32", classes_dtype="int64"):
    rng = np.random.default_rng(3)
    graph = ag.Graph()
    sizes = ("n", *shape[1:])
    x = graph.input("x", sizes, dtype)
    b = graph.parameter("b", rng.normal(size=shape[-1]).astype(dtype))
    t = graph.input("t", sizes[:-1], classes_dtype)
    feeds = {
        "x": (4 * rng.normal(size=shape)).astype(dtype),
        "t": rng.integers(0, shape[-1], shape[:-1]).astype(classes_dtype),
    }
    return x, t, b, feeds


# -- classes ----------------------------------------------------------------------------------


FORMS = [
    ((30, 10), "float32", "int64"),
    ((7, 7), "float64", "int64"),  # as many rows as classes
    ((3, 5, 4), "float32", "int32"),
    ((6, 1), "float32", "int64"),
]
REDUCTIONS = ("mean", "sum", "none")
ALL = [(*form, reduction) for form in FORMS for reduction in REDUCTIONS]
# A compilation takes half a second.
SOME = [(*form, reduction) for form, reduction in zip(FORMS, ("mean", "none", "sum"), strict=False)]


@pytest.mark.parametrize(("shape", "dtype", "classes_dtype", "reduction"), ALL if SOAK else SOME)
def test_cross_entropy_and_its_gradient_agree_with_the_reference(
    shape, dtype, classes_dtype, reduction
):
    x, t, b, feeds = logits_and_classes(shape, dtype, classes_dtype)
    loss = ops.cross_entropy(x * 0.5 + b, t, reduction=reduction)
    seeded = loss if reduction != "none" else ops.tanh(loss).sum()
    agree([seeded, loss], feeds, [b])


def test_cross_entropy_along_a_direction_agrees_with_the_reference():
    x, t, b, feeds = logits_and_classes((30, 10))
    loss = ops.cross_entropy(x + b, t)
    along = {"tangents": {"x": feeds["x"][::-1].copy()}}
    agree([loss], feeds, modes=[along])


def test_a_loss_and_its_gradient_are_one_step():
    x, t, b, feeds = logits_and_classes((30, 10))
    loss = ops.cross_entropy(x + b, t)
    steps = agree([loss], feeds, [b], modes=[{"backward": True}])
    assert sorted(steps) == ["fused", "room"]


@pytest.mark.parametrize("wrong", [10, -1, -(2**63), 2**62])
def test_a_class_that_is_none_is_an_error_of_the_loss_and_changes_nothing(wrong):
    x, t, b, feeds = logits_and_classes((30, 10))
    loss = ops.cross_entropy(x + b, t)
    before = b.value.copy()
    with ag.TapeMachine([loss], exact=False, jit="wait") as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.1))
        bad = feeds | {"t": feeds["t"].copy()}
        bad["t"][17] = wrong
        for run in (step, machine.run_sync):
            with pytest.raises(NodeError, match="out of range for 10 classes") as caught:
                run(bad)
            assert caught.value.node == loss.name
        assert b.value.tobytes() == before.tobytes()
        step(feeds)
        assert b.value.tobytes() != before.tobytes()


# -- softmax ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "dtype"), [(ops.softmax, "float32"), (ops.log_softmax, "float64")]
)
def test_softmax_and_its_logarithm_agree_with_the_reference(function, dtype):
    x, _, b, feeds = logits_and_classes((5, 6, 12), dtype)
    y = function(x * b)
    agree([(y * x).sum(), y], {"x": feeds["x"]}, [b])


def test_a_softmax_of_a_vector_is_one_row():
    x = ag.Graph().input("x", (300,))
    value = np.random.default_rng(0).normal(size=300).astype("f")
    agree([ops.softmax(x * 2) * x], {"x": value}, modes=[{}])


def test_along_another_axis_a_softmax_is_numpys():
    x, _, b, feeds = logits_and_classes((5, 6, 12))
    y = ops.softmax(x * b, 1) * 2 + x
    assert "softmax" in agree([y], {"x": feeds["x"]}, modes=[{}])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"] if SOAK else ["float32"])
def test_rows_of_special_values_are_those_of_numpy(dtype):
    x, t, *_ = logits_and_classes((8, 4), dtype)
    inf, nan = np.inf, np.nan
    rows = [
        [0, 0, 0, 0], [-inf, 0, 1, -inf], [-inf] * 4, [inf, 0, 1, 2], [nan, 0, 1, 2],
        [1e38, -1e38, 0, 1e38], [-1e30, 0, -800, -700], [3, 3 - 1e-3, 88, 89],
    ]  # fmt: skip
    feeds = {"x": np.array(rows, dtype), "t": np.array([0, 1, 2, 0, 1, 0, 1, 2])}
    outputs = [
        ops.softmax(x + 0),
        ops.log_softmax(x + 0),
        ops.cross_entropy(x + 0, t, reduction="none"),
    ]
    agree(outputs, feeds, modes=[{}])


def test_exponentials_of_float64_are_exact_to_the_last_bits():
    x = ag.Graph().input("x", (20_001,), "float64")
    value = np.linspace(-700, 0, 20_001)
    with ag.TapeMachine([ops.softmax(x)], exact=False, jit="wait") as machine:
        got = machine.run_sync({"x": value})[machine.outputs["softmax_1"]].value
    wanted = np.exp(value - np.logaddexp.reduce(value))
    np.testing.assert_allclose(got, wanted, rtol=4e-13)  # 700 has that error itself


# -- several results --------------------------------------------------------------------------


def test_a_value_that_others_need_is_a_result_of_the_group():
    x, a = ag.Graph().input("x", ("n", 8)), np.random.default_rng(1).normal(size=(8, 8)).astype("f")
    h = ops.relu(x * 2 - 1)
    mixed = [h @ a, h * x, (h * 3).sum(0), ops.mean(h), h.sum(-1)]
    value = np.random.default_rng(0).normal(size=(20, 8)).astype("f")
    steps = agree([*mixed, h], {"x": value}, modes=[{}])
    assert steps.count("fused") <= 2
    assert "multiply" not in steps


def test_a_group_stands_before_what_takes_its_results():
    x, a = ag.Graph().input("x", ("n", 8)), np.eye(8, dtype="f")
    first = ops.relu(x * 2 - 1)
    across = first @ a  # needs the first and is needed by what could be joined with it
    agree([across * first + x, first], {"x": np.ones((20, 8), "f")}, modes=[{}])


def test_steps_too_small_for_a_group_stay_where_their_operands_are_there(monkeypatch):
    def broken(one):
        raise RuntimeError("nothing is compiled here")

    monkeypatch.setattr(groups, "FEWEST", 256)
    monkeypatch.setattr(jit, "COMPILER", Compiler(broken))
    graph = ag.Graph()
    x = graph.input("x", ("n", 16))
    w = graph.parameter("w", np.linspace(0.5, 1, 16).astype("f"))
    y = x
    for number in range(7):  # sums of 16 numbers are added between the steps of the chain
        y = ops.relu(y * w + 0.1 * number) * x
    value = np.random.default_rng(0).normal(size=(20, 16)).astype("f")
    loss = ops.mean(ops.square(y))
    steps = agree([loss], {"x": value}, [w], modes=[{"backward": True}])
    assert steps.count("add") == 6


def test_a_group_writes_four_arrays_at_most_so_that_loops_fill_vectors():
    x = ag.Graph().input("x", ("n", 8))
    outputs = [ops.relu(x * number) - 1 for number in range(6)]
    steps = agree(outputs, {"x": np.ones((20, 8), "f")}, modes=[{}])
    assert steps.count("fused") == 2
    assert steps.count("room") == 4


def test_numbers_behind_a_sum_are_computed_behind_the_loops():
    graph = ag.Graph()
    x = graph.input("x", ("n", 8))
    w = graph.parameter("w", np.linspace(1, 2, 8).astype("f"))
    loss = ops.sqrt(ops.square(x * w).sum() + 1) * 2
    value = np.random.default_rng(0).normal(size=(20, 8)).astype("f")
    steps = agree([loss], {"x": value}, modes=[{}])
    assert steps == ["fused"]
    agree([loss], {"x": value}, [w])


@pytest.mark.parametrize("kind", ["TapeMachine", "ActorMachine"])
def test_a_training_step_is_its_products_and_a_loop_for_each_layer(kind):
    rng = np.random.default_rng(0)
    graph = ag.Graph()
    x, t = graph.input("x", (32, 16)), graph.input("t", (32,), "int64")
    layers = [(16, 24), (24, 24), (24, 10)]
    weights = [
        graph.parameter(f"w{i}", rng.normal(size=s).astype("f")) for i, s in enumerate(layers)
    ]
    biases = [graph.parameter(f"b{i}", np.zeros(n, "f")) for i, (_, n) in enumerate(layers)]
    h = x
    for w, b in zip(weights, biases, strict=True):
        h = h @ w + b if w is weights[-1] else ops.relu(h @ w + b)
    loss = ops.cross_entropy(h, t)
    feeds = {"x": rng.normal(size=(32, 16)).astype("f"), "t": rng.integers(0, 10, 32)}
    first = [node.value.copy() for node in graph.parameters]
    losses = {}
    for how in (False, "wait"):
        for node, value in zip(graph.parameters, first, strict=True):
            node.value = value
        with getattr(ag, kind)([loss], wrt=graph.parameters, exact=False, jit=how) as machine:
            step = machine.compile_step(ag.solvers.SGD(lr=0.1, momentum=0.9))
            losses[how] = [float(step(feeds)[loss].value) for _ in range(20)]
            steps = [one.op.name for one in step._plan.inline.steps]
    np.testing.assert_allclose(losses["wait"], losses[False], rtol=1e-4)
    assert losses["wait"][-1] < losses["wait"][0] / 2
    assert steps.count("matmul") == 8
    assert steps.count("fused") == 5
    assert set(steps) == {"matmul", "fused", "room", "transpose"}
