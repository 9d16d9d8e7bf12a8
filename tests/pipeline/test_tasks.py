"""Stages computed in the order of a schedule, one action after the other, by hand.

No actors yet: this shows that each action finds what it needs where the schedule puts it, and that
gradients have the bits of the same microbatches run one after another.
"""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.joint import Mode, join
from actorgraph.lower.kernels import kernel
from actorgraph.machines.batching import Batching
from actorgraph.op import CONSTANT
from actorgraph.pipeline import SCHEDULES, schedule
from actorgraph.pipeline.cutting import cut_by_cost, cut_by_placement
from actorgraph.pipeline.staged import stage_tasks
from tests._each import each

BATCH, WIDTH = 11, 4


def chain(g, rng):
    """x -> tanh(x W0) -> ... -> tanh(h W7) -> loss"""
    h = g.input("x", shape=("batch", WIDTH), dtype="float64")
    for number in range(8):
        h = ag.ops.tanh(h @ g.parameter(f"W{number}", rng.normal(size=(WIDTH, WIDTH))))
    return (h * h).mean()


def skips(g, rng):
    """A first layer that the last one takes too, and one weight used at both ends."""
    x = g.input("x", shape=("batch", WIDTH), dtype="float64")
    t = g.input("t", shape=("batch", WIDTH), dtype="float64")
    tied = g.parameter("tied", rng.normal(size=(WIDTH, WIDTH)))
    first = h = ag.ops.tanh(x @ tied)
    for number in range(6):
        h = ag.ops.sigmoid(h @ g.parameter(f"W{number}", rng.normal(size=(WIDTH, WIDTH))) + first)
    return ag.ops.square(h @ tied.T + first - t).mean()


def even(nodes, count):
    return cut_by_cost(nodes, count, costs=dict.fromkeys(range(len(nodes)), 1.0), sizes={})


def play(made, loss, wrt, batching, parts):
    """Do the steps of every action in the order of the schedule; return summed gradients."""
    joint = join([loss], wrt, batching.mode(Mode("backward", (loss,))))
    split = any(action.kind == "W" for lane in made.lanes for action in lane)
    tasks = stage_tasks(joint, even(loss.graph.nodes, made.stages), split=split)
    steps = {(task.region.index, task.direction): task.steps for task in tasks}
    assert sorted(step.id for part in steps.values() for step in part) == sorted(
        step.id for step in joint.order
    )
    values = [leaf_values(joint, part, seeds_of(batching, loss, part)) for part in parts]
    directions = {"F": ["forward"], "B": ["backward"], "W": ["weights"]}
    directions["BW"] = directions["B"] + directions["W"]
    for _, step in made.order:
        for stage, kind, microbatch, _ in step:
            for direction in directions[kind]:
                part = steps.get((stage, direction), ())
                compute(part, values[microbatch], {"batch": parts[microbatch].rows})
    for (region, _), part in steps.items():
        if region >= made.stages:
            for number, held in enumerate(values):
                compute(part, held, {"batch": parts[number].rows})
    gradients = []
    for node in wrt:
        total = values[0][joint.derivatives[node].id].copy()
        for held in values[1:]:
            total = total + held[joint.derivatives[node].id]
        gradients.append(total)
    return gradients


def seeds_of(batching, loss, part):
    return batching.seeds({loss: np.ones(())}, part)


def leaf_values(joint, part, seeds):
    held = {}
    for leaf in joint.leaves:
        given = {"feed": part.feeds, "seed": seeds}.get(leaf.kind)
        held[leaf.node.id] = leaf.source.value if given is None else given[leaf.source]
    return held


def compute(steps, held, symbols):
    for step in steps:
        args = [p.attrs["value"] if p.op is CONSTANT else held[p.id] for p in step.inputs]
        held[step.id] = kernel(step, np, symbols)(*args)


@each("model", [chain, skips])
@each("name", SCHEDULES)
@each("microbatches", [2, 5, 8])
def test_gradients_have_the_bits_of_microbatches_one_after_another(model, name, microbatches):
    g = ag.Graph()
    rng = np.random.default_rng(0)
    loss = model(g, rng)
    wrt = list(g.parameters)
    feeds = {node: rng.normal(size=(BATCH, WIDTH)) for node in g.inputs}
    batching = Batching([loss], wrt, dim="batch")
    parts = batching.cut(*batching.bind(feeds), microbatches)
    made = schedule(name, stages=3, microbatches=microbatches)
    gradients = play(made, loss, wrt, batching, parts)
    with ag.LispMachine([loss], wrt=wrt) as machine:
        runs = [
            machine.run_sync(part.feeds, backward=seeds_of(batching, loss, part)) for part in parts
        ]
        whole = machine.run_sync(feeds, backward=True)
    for node, gradient in zip(wrt, gradients):
        expected = runs[0][node].grad.copy()
        for run in runs[1:]:
            expected = expected + run[node].grad
        assert gradient.tobytes() == expected.tobytes()
        np.testing.assert_allclose(gradient, whole[node].grad, rtol=1e-10, atol=1e-13)


def test_only_what_earlier_stages_wait_for_is_b():
    g = ag.Graph()
    loss = chain(g, np.random.default_rng(0))
    joint = join([loss], list(g.parameters), Mode("backward", (loss,)))
    tasks = stage_tasks(joint, even(g.nodes, 4), split=True)
    directions = {(task.region.index, task.direction) for task in tasks}
    assert (0, "backward") not in directions
    assert {(stage, "weights") for stage in range(3)} <= directions
    weights = {joint.derivatives[node].id for node in g.parameters}
    for task in tasks:
        if task.direction == "backward":
            assert not weights & {step.id for step in task.steps}


@pytest.mark.parametrize("split", [False, True])
def test_what_meets_at_a_weight_is_summed_by_the_stage_that_alone_uses_it(split):
    g = ag.Graph()
    x = g.input("x", ("batch", WIDTH), "float64")
    sliced, tied = (g.parameter(name, np.ones((WIDTH, WIDTH))) for name in ("sliced", "tied"))
    with g.stage(0):
        h = x @ tied
    with g.stage(1):
        h = h @ sliced[:, :1] + h @ sliced[:, -1:] + h @ tied
        loss = h.sum()
    joint = join([loss], [sliced, tied], Mode("backward", (loss,)))
    tasks = stage_tasks(joint, cut_by_placement(g.nodes), split=split)
    home = {step.id: task for task in tasks for step in task.steps}
    found = home[joint.derivatives[sliced].id]
    assert (found.region.index, found.direction) == (1, "weights" if split else "backward")
    assert home[joint.derivatives[tied].id].region.index == 2
