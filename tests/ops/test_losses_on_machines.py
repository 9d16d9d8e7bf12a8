"""Cross entropy and logsumexp on machines: the bits of the reference, and what errors name."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.errors import NodeError
from tests._each import each

REDUCTIONS = ("mean", "sum", "none")


def classes(shape, dtype="float32", targets="int64", dims=None):
    """Return a graph's logits, computed from x and a bias, its targets, bias, and feeds."""
    rng = np.random.default_rng(7)
    g = ag.Graph()
    dims = dims or shape
    x, t = g.input("x", dims, dtype), g.input("t", dims[:-1], targets)
    b = g.parameter("b", rng.normal(size=shape[-1]).astype(np.float32).astype(x.dtype))
    feeds = {
        "x": (4 * rng.normal(size=shape)).astype(np.float32).astype(x.dtype),
        "t": rng.integers(0, shape[-1], shape[:-1]).astype(targets),
    }
    return x + b, t, b, feeds


def steps_of(machine):
    """Return the op names of what one thread computes at once, or else of all tasks, by plan."""
    return [
        [step.op.name for step in steps]
        for plan in machine._plans.values()
        for steps in (
            [plan.inline.steps]
            if plan.inline.program
            else [[step for spec in plan.partition.tasks for step in spec.steps]]
        )
    ]


def same_bits(one, other, nodes):
    for node in nodes:
        for part in ("value", "grad"):
            got, wanted = getattr(one[node], part), getattr(other[node], part)
            assert (got is None) == (wanted is None)
            if got is not None:
                assert got.tobytes() == wanted.tobytes()


@each("kind", [ag.TapeMachine, ag.ActorMachine])
@each("reduction", REDUCTIONS)
@each(
    "shape, dims",
    [((40, 10), ("n", 10)), ((5, 10), None), ((2, 30, 4), (None, None, 4)), ((3, 70), None)],
)
def test_a_loss_and_its_gradient_compute_one_logarithm_of_softmax_and_keep_their_bits(
    kind, reduction, shape, dims
):
    logits, t, b, feeds = classes(shape, dims=dims)
    loss = ops.cross_entropy(logits, t, reduction=reduction)
    total = loss if reduction != "none" else (loss * loss).sum()
    with ag.LispMachine([total, loss]) as lisp, kind([total, loss]) as machine:
        same_bits(
            machine.run_sync(feeds, backward=True),
            lisp.run_sync(feeds, backward=True),
            [total, loss, b],
        )
        (steps,) = steps_of(machine)
    assert steps.count("log_softmax") == 1


def test_a_long_loss_in_actors_writes_into_buffers():
    logits, t, b, feeds = classes((3000, 400))
    loss = ops.cross_entropy(logits, t)
    with ag.LispMachine([loss]) as lisp, ag.ActorMachine([loss], workers=1) as machine:
        same_bits(
            machine.run_sync(feeds, backward=True), lisp.run_sync(feeds, backward=True), [loss, b]
        )
        (plan,) = machine._plans.values()
        (spec,) = plan.partition.tasks
    (first,) = [step for step in spec.steps if step.op.name == "log_softmax"]
    assert first.id in plan.partition.buffered[0]


def test_a_loss_beside_other_tasks_keeps_its_bits_in_every_mode():
    logits, t, b, feeds = classes((64, 10))
    loss = ops.cross_entropy(logits, t)
    heavy = [ops.tanh(logits * float(factor)) for factor in range(1, 5)]
    outputs = [loss + sum(branch.sum() for branch in heavy), loss]
    costs = dict.fromkeys([*heavy, loss], 500.0)
    with (
        ag.LispMachine(outputs) as lisp,
        ag.ActorMachine(outputs, workers=2, costs=costs) as actors,
    ):
        for mode in ({}, {"backward": True}, {"tangents": {"b": b.value}}):
            same_bits(actors.run_sync(feeds, **mode), lisp.run_sync(feeds, **mode), outputs)
        assert all(len(plan.partition.tasks) > 1 for plan in actors._plans.values())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_two_bytes_are_rounded_once_and_not_between(dtype):
    logits, t, b, feeds = classes((40, 10), dtype)
    loss = ops.cross_entropy(logits, t)
    with ag.LispMachine([loss]) as lisp, ag.TapeMachine([loss]) as machine:
        done = machine.run_sync(feeds, backward=True)
        same_bits(done, lisp.run_sync(feeds, backward=True), [loss, b])
    z = (feeds["x"] + b.value).astype(np.float32)
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    wanted = np.float32(-logs[np.arange(40), feeds["t"]].mean())
    assert done[loss].value == wanted.astype(loss.dtype)


@pytest.mark.parametrize("wrong", [10, -1])
def test_a_class_out_of_range_is_an_error_of_the_loss(wrong):
    logits, t, _, feeds = classes((40, 10))
    feeds["t"][17] = wrong
    loss = ops.cross_entropy(logits, t)
    with (
        ag.TapeMachine([loss]) as machine,
        pytest.raises(NodeError, match="out of range for 10 classes") as caught,
    ):
        machine.run_sync(feeds, backward=True)
    assert (caught.value.node, caught.value.op) == (loss.name, "cross_entropy")
    assert caught.value.phase == "forward"


@pytest.mark.parametrize("wrong", [10, -1])
def test_a_class_out_of_range_is_an_error_of_a_gradient_without_its_loss(wrong):
    logits, t, b, feeds = classes((40, 10))
    feeds["t"][17] = wrong
    gradients = ag.gradients(ops.cross_entropy(logits, t), [b])
    with (
        ag.TapeMachine(gradients) as machine,
        pytest.raises(NodeError, match="out of range for 10 classes"),
    ):
        machine.run_sync(feeds)


def test_logits_that_are_infinite_are_an_error_of_the_logarithm_of_softmax():
    logits, t, _, feeds = classes((40, 10))
    feeds["x"][3] = np.inf
    loss = ops.cross_entropy(logits, t)
    with (
        np.errstate(invalid="raise"),
        ag.TapeMachine([loss]) as machine,
        pytest.raises(NodeError, match="invalid value") as caught,
    ):
        machine.run_sync(feeds, backward=True)
    assert (caught.value.node, caught.value.op) == (loss.inputs[0].name, "log_softmax")
    assert caught.value.phase == "forward"


@each("kind", [ag.TapeMachine, ag.ActorMachine])
@each("far", [0, 200, -200, 1e4])
@each("axis", [1, 0, None])
def test_logsumexp_and_its_gradient_keep_their_bits_also_where_rows_overflow(kind, far, axis):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 70)).astype("float32")
    values[1] += far
    p = ag.Graph().parameter("p", values)
    loss = (ops.logsumexp(p * 1.5, axis) ** 2).sum()
    with ag.LispMachine([loss]) as lisp, kind([loss]) as machine:
        done = machine.run_sync(backward=True)
        same_bits(done, lisp.run_sync(backward=True), [loss, p])
    assert np.isfinite(done[p].grad).all()
