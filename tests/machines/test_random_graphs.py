"""Every machine gives the bits of the sequential one, on graphs that hypothesis builds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.lower import cuts, fusion, regions
from actorgraph.testing._examples import bits, check_in_turn, check_overlapping, expected
from tests._soak import drawn
from tests.machines._graphs import graphs

quick = drawn(12, soak=500)

options = st.fixed_dictionaries(
    {
        "fuse": st.sampled_from(["none", "auto", "all"]),
        "capacity": st.sampled_from([None, 1, 2]),
        "seed": st.integers(0, 5),
        "max_in_flight": st.sampled_from([1, 2, 8]),
        "statistics": st.booleans(),
    }
)


@quick
@given(graphs(), st.data())
def test_actors_give_the_bits_of_the_sequential_machine(example, data):
    nodes, wanted = expected(example)
    for workers in (1, 2, 4):
        drawn = data.draw(options)
        with ag.ActorMachine(example.outputs, wrt=example.wrt, workers=workers, **drawn) as machine:
            check_in_turn(machine, example, nodes, wanted)
            check_overlapping(machine, example, nodes, wanted)


@drawn(8, soak=250)
@given(graphs(), st.data())
def test_actors_on_threads_that_really_meet_give_the_same_bits(example, data):
    nodes, wanted = expected(example)
    with pytest.MonkeyPatch.context() as patch:
        # Every turn is offered to idle workers, and the cut by cost makes many regions.
        patch.setattr(fusion, "HEAVY_US", data.draw(st.sampled_from([0.5, 1.0, 3.0])))
        patch.setattr(fusion, "PARALLEL_US", data.draw(st.sampled_from([0.1, 5.0])))
        patch.setattr(fusion, "_PARTS", data.draw(st.sampled_from([1, 4, 16])))
        # Additions of cotangents are tasks, as those of large ones are.
        patch.setattr(regions, "LARGE_BYTES", data.draw(st.sampled_from([0, regions.LARGE_BYTES])))
        for workers in (2, 4):
            drawn = data.draw(options)
            with ag.ActorMachine(
                example.outputs, wrt=example.wrt, workers=workers, **drawn
            ) as machine:
                check_overlapping(machine, example, nodes, wanted)


@quick
@given(graphs())
def test_the_tape_gives_the_bits_of_the_sequential_machine(example):
    nodes, wanted = expected(example)
    with ag.TapeMachine(example.outputs, wrt=example.wrt) as machine:
        check_in_turn(machine, example, nodes, wanted)
        check_overlapping(machine, example, nodes, wanted)


@quick
@given(graphs(), st.data())
def test_values_that_travel_in_bundles_have_the_same_bits(example, data):
    nodes, wanted = expected(example)
    with pytest.MonkeyPatch.context() as patch:
        # As in graphs of thousands of nodes: many stretches, many values between two of them.
        patch.setattr(cuts, "REGION_LIMIT", data.draw(st.integers(2, 9)))
        patch.setattr(regions, "BUNDLED", 2)
        with ag.TapeMachine(example.outputs, wrt=example.wrt) as machine:
            check_in_turn(machine, example, nodes, wanted)
            check_overlapping(machine, example, nodes, wanted)
        drawn = data.draw(options)
        with ag.ActorMachine(example.outputs, wrt=example.wrt, workers=2, **drawn) as machine:
            check_overlapping(machine, example, nodes, wanted)


@quick
@given(graphs())
def test_small_runs_in_the_calling_thread_have_the_same_bits(example):
    nodes, wanted = expected(example)
    with ag.ActorMachine(example.outputs, wrt=example.wrt) as machine:
        for _ in range(2):
            check_in_turn(machine, example, nodes, wanted)


@quick
@given(graphs(), st.sampled_from([ag.LispMachine, ag.TapeMachine, ag.ActorMachine]))
def test_symbolic_gradients_have_the_bits_of_the_reverse_channels(example, machine_type):
    wrt = example.wrt or list(example.graph.parameters)
    scalars = [node for node in example.outputs if not node.ndim]
    if not scalars:
        return
    loss = scalars[0]
    gradients = ag.gradients(loss, wrt)
    with machine_type([loss], wrt=wrt) as machine:
        through_channels = machine.run_sync(example.feeds[0], backward=True)
    with machine_type([loss, *gradients], wrt=[]) as machine:
        symbolic = machine.run_sync(example.feeds[0])
    for node, gradient in zip(wrt, gradients, strict=True):
        assert bits(symbolic[gradient].value) == bits(through_channels[node].grad)


SMOOTH = {"relu", "clip", "max", "min", "maximum", "minimum", "where", "less", "greater"}


@quick
@given(graphs(dtype="float64", feed_count=1))
def test_gradients_and_tangents_agree_with_finite_differences(example):
    if SMOOTH & {node.op.name for node in example.graph.nodes}:
        return  # a kink within reach of the step would say nothing
    x = example.graph["x"]
    feeds = example.feeds[0]
    direction = np.random.default_rng(0).normal(size=feeds["x"].shape)
    step = 1e-6
    with ag.LispMachine(example.outputs, wrt=[x]) as machine:
        ahead = machine.run_sync({**feeds, "x": feeds["x"] + step * direction})
        behind = machine.run_sync({**feeds, "x": feeds["x"] - step * direction})
        along = machine.run_sync(feeds, tangents={x: direction})
        for node in machine.outputs.values():
            slope = (ahead[node].value - behind[node].value) / (2 * step)
            np.testing.assert_allclose(along[node].tangent, slope, rtol=1e-5, atol=1e-6)
            if node is x:
                continue
            seed = np.random.default_rng(1).normal(size=along[node].value.shape)
            back = machine.run_sync(feeds, backward={node: seed})
            pulled = np.sum(back[x].grad * direction)
            assert pulled == pytest.approx(np.sum(seed * along[node].tangent), rel=1e-9, abs=1e-9)
