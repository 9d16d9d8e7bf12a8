"""What steps share: a loss and its gradient compute the logarithm of softmax once."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.errors import NodeError

SHARED = ["log_softmax", "cross_entropy_of_logs", "cross_entropy_pull_of_logs"]
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


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((40, 10), ("n", 10)), ((5, 10), None), ((2, 30, 4), (None, None, 4)), ((3, 70), None)],
)
def test_a_loss_and_its_gradient_share_the_logarithm_of_softmax_and_keep_their_bits(
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

    assert [name for name in steps if name in SHARED] == SHARED
    assert not {"cross_entropy", "cross_entropy_pull"} & set(steps)


def test_long_steps_in_actors_share_too_and_write_into_buffers():
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


def test_tasks_that_may_stand_beside_each_other_share_in_every_mode():
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


def test_gradients_that_were_built_as_nodes_share_with_their_loss():
    logits, t, b, feeds = classes((40, 10))
    loss = ops.cross_entropy(logits, t)
    (db,) = ag.gradients(loss, [b])
    with ag.LispMachine([loss, db]) as lisp, ag.TapeMachine([loss, db]) as machine:
        same_bits(machine.run_sync(feeds), lisp.run_sync(feeds), [loss, db])
        (steps,) = steps_of(machine)

    assert steps.count("log_softmax") == 1


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (lambda z, t: [ops.cross_entropy(z, t)], "a loss alone"),
        (lambda z, t: ag.gradients(ops.cross_entropy(z, t), [z]), "a gradient alone"),
        (
            lambda z, t: [
                ops.cross_entropy(z, t),
                *ag.gradients(ops.cross_entropy(z, ops.maximum(t, 1)), [z]),
            ],
            "other classes, which nobody has checked",
        ),
    ],
)
def test_nothing_is_shared_where_there_is_nothing_to_share(nodes, why):
    logits, t, _, feeds = classes((40, 10))
    with ag.TapeMachine(nodes(logits, t)) as machine:
        machine.run_sync(feeds)
        (steps,) = steps_of(machine)

    assert "log_softmax" not in steps, why


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_two_bytes_are_rounded_once_and_not_between(dtype):
    logits, t, b, feeds = classes((40, 10), dtype)
    loss = ops.cross_entropy(logits, t)
    with ag.LispMachine([loss]) as lisp, ag.TapeMachine([loss]) as machine:
        same_bits(
            machine.run_sync(feeds, backward=True), lisp.run_sync(feeds, backward=True), [loss, b]
        )
        (steps,) = steps_of(machine)

    assert "log_softmax" not in steps


def test_a_pass_switches_sharing_off():
    logits, t, _, feeds = classes((40, 10))
    others = [one for one in ag.rewrite.passes() if one.name != "share" and not one.changes_bits]
    with ag.TapeMachine([ops.cross_entropy(logits, t)], passes=others) as machine:
        machine.run_sync(feeds, backward=True)
        (steps,) = steps_of(machine)

    assert "log_softmax" not in steps


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


def test_what_fails_in_the_shared_part_names_the_users_loss():
    logits, t, _, feeds = classes((40, 10))
    feeds["x"][3] = np.inf
    loss = ops.cross_entropy(logits, t)
    with (
        np.errstate(invalid="raise"),
        ag.TapeMachine([loss]) as machine,
        pytest.raises(NodeError, match="log_softmax' of its rewritten form") as caught,
    ):
        machine.run_sync(feeds, backward=True)

    assert (caught.value.node, caught.value.phase) == (loss.name, "forward")


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine])
@pytest.mark.parametrize("far", [0, 200, -200, 1e4])
@pytest.mark.parametrize("axis", [1, 0, None])
def test_logsumexp_and_its_gradient_share_exponentials_also_where_rows_overflow(kind, far, axis):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 70)).astype("float32")
    values[1] += far
    g = ag.Graph()
    p = g.parameter("p", values)
    loss = (ops.logsumexp(p * 1.5, axis) ** 2).sum()
    with ag.LispMachine([loss]) as lisp, kind([loss]) as machine:
        done = machine.run_sync(backward=True)
        same_bits(done, lisp.run_sync(backward=True), [loss, p])
        (steps,) = steps_of(machine)

    assert steps.count("exponentials") == 1
    assert not {"logsumexp", "logsumexp_pull"} & set(steps)
    assert np.isfinite(done[p].grad).all()
