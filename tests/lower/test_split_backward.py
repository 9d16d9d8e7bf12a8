"""The B and W parts of a stage's backward: what other stages wait for, and what can wait."""

from __future__ import annotations

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.joint import Mode, join
from actorgraph.lower.regions import by_region, connect, leaving_of, split_backward


def stages(loss, first_stage):
    """Cut `loss` into two stages, the nodes named in `first_stage` and the rest."""
    g = loss.graph
    joint = join([loss], list(g.parameters), Mode("backward", (loss,)))
    own = [node if node.owner is None else node.owner for node in joint.order]
    owners = {node.id: node for node in own}
    nodes = [owners[number] for number in sorted(owners)]
    leaves = [[node] for node in nodes if node.is_leaf]
    one = [node for node in nodes if not node.is_leaf and node.name in first_stage]
    two = [node for node in nodes if not node.is_leaf and node.name not in first_stage]
    results = {node: i for i, node in enumerate(joint.derivatives.values()) if not node.is_leaf}
    tasks = connect(by_region(joint, [one, two, *leaves]), results)
    backward = [task for task in tasks if task.direction == "backward"]
    return [
        next(task for task in backward if task.region.index == stage) for stage in (0, 1)
    ], tasks


def two_layers(weight):
    """x -> h = x @ W1 | y = h @ weight(W2) -> loss"""
    g = ag.Graph()
    x = g.input("x", shape=(4, 3))
    w1 = g.parameter("W1", np.ones((3, 3), "float32"))
    h = (x @ w1).named("h")
    return (h @ weight(g)).sum()


def ops_of(steps):
    return [step.op.name for step in steps]


def plain(g):
    return g.parameter("W2", np.ones((3, 3), "float32"))


def transposed(g):
    return g.parameter("W2", np.ones((3, 3), "float32")).T


def masked(g):
    return g.parameter("W2", np.ones((3, 3), "float32")) * np.eye(3, dtype="float32")


def tied(g):
    return g.node("W1")


@pytest.mark.parametrize("weight", [plain, transposed, masked, tied])
def test_b_is_the_cotangent_that_the_stage_before_waits_for_and_w_the_rest(weight):
    (_, last), tasks = stages(two_layers(weight), {"h"})
    b_part, w_part = split_backward(last, leaving_of(tasks))
    # One product makes the cotangent of h, the other the gradient of the weight.
    assert ops_of(b_part).count("matmul") == 1
    assert ops_of(w_part).count("matmul") == 1
    sent = {node.id for node, consumer in last.sends if not tasks[consumer].region.nodes[0].is_leaf}
    assert sent <= {step.id for step in b_part}
    assert {step.id for step in b_part} | {step.id for step in w_part} == {
        step.id for step in last.steps
    }


def test_the_transpose_of_a_weight_gradient_and_its_mask_belong_to_w():
    (_, last), tasks = stages(two_layers(transposed), {"h"})
    assert "transpose" in ops_of(split_backward(last, leaving_of(tasks))[1])
    (_, last), tasks = stages(two_layers(masked), {"h"})
    assert "multiply" in ops_of(split_backward(last, leaving_of(tasks))[1])


def test_the_first_stage_has_no_b_part():
    (first, _), tasks = stages(two_layers(plain), {"h"})
    b_part, w_part = split_backward(first, leaving_of(tasks))
    assert b_part == []
    assert "matmul" in ops_of(w_part)


def test_w_needs_b_or_what_was_saved_and_never_the_other_way_round():
    (_, last), tasks = stages(two_layers(plain), {"h"})
    b_part, w_part = split_backward(last, leaving_of(tasks))
    later = {step.id for step in w_part}
    assert not any(part.id in later for step in b_part for part in step.inputs)


def deep(width, layers=3):
    g = ag.Graph()
    y = g.input("x", shape=(64, width))
    weights = []
    for i in range(layers):
        weights.append(g.parameter(f"W{i}", np.full((width, width), 0.01, "float32")))
        y = np.tanh(y @ weights[-1])
    return y.sum(), weights


def test_heavy_gradients_of_weights_are_tasks_of_their_own_with_the_same_bits():
    loss, weights = deep(512, layers=6)
    feeds = {"x": np.random.default_rng(0).normal(size=(64, 512)).astype("float32")}
    with ag.LispMachine([loss]) as lisp, ag.ActorMachine([loss], workers=2) as machine:
        expected = lisp.run_sync(feeds, backward=True)
        got = machine.run_sync(feeds, backward=True)
        for node in weights:
            np.testing.assert_array_equal(got[node].grad, expected[node].grad)
        [plan] = machine._plans.values()
        apart = [spec for spec in plan.partition.tasks if spec.direction == "weights"]
        # The first layer has no cotangent to pass on, so its backward is all weights.
        assert [ops_of(spec.steps).count("matmul") for spec in apart] == [1] * 5


def test_light_gradients_of_weights_stay_with_the_cotangent():
    loss, _ = deep(8)
    with ag.ActorMachine([loss], workers=2) as machine:
        machine.run_sync({"x": np.ones((64, 8), "float32")}, backward=True)
        [plan] = machine._plans.values()
        assert {spec.direction for spec in plan.partition.tasks} <= {"forward", "backward"}
