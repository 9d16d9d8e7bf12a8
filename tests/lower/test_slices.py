"""Sums of adjoints of disjoint slices are written once, and keep every bit."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops

SHAPE = (6, 4, 5)
INDICES = {
    "rows": [(i,) for i in range(6)],
    "some rows": [(0,), (4,), (2,)],
    "halves": [(slice(0, 3),), (slice(3, None),)],
    "odd and even": [(slice(0, None, 2),), (slice(1, None, 2),)],
    "backwards": [(slice(None, 3, -1),), (slice(3, None, -1),)],
    "inner axis": [(slice(None), slice(None), slice(0, 2)), (slice(None), 1, slice(2, 5))],
    "new axis": [(None, 0), (None, slice(1, 6))],
    "single elements": [(0, 0, 0), (1, 2, 3), (2, 0, 0)],
}


def summed_over(indices, dims=SHAPE):
    """Return a graph's loss, which reads `x * w` slice by slice, and `w`."""
    g = ag.Graph()
    x = g.input("x", dims, "float32")
    w = g.parameter("w", np.ones(SHAPE[1:], np.float32))
    u = x * w
    loss = sum([ops.tanh(u[index]).sum() for index in indices[1:]], ops.tanh(u[indices[0]]).sum())
    return loss, w, u


def steps_of(machine):
    [plan] = machine._plans.values()
    return [step.op.name for spec in plan.partition.tasks for step in spec.steps]


def grads(loss, wrt, x, kind=ag.TapeMachine, **options):
    with kind([loss], wrt=wrt, **options) as machine:
        run = machine.run_sync({"x": x}, backward=True)
        return [run[node].grad.tobytes() for node in wrt], steps_of(machine)


@pytest.fixture
def x():
    values = np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)
    values[0, 0], values[2, 1, :3], values[1, 2, 3] = -0.0, np.nan, -0.0
    return values


@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES)
def test_slices_without_a_common_element_are_written_once_with_the_bits_of_the_sum(indices, x):
    loss, w, u = summed_over(indices)
    found, steps = grads(loss, [w, u], x)
    assert steps.count("slices") == 1
    assert "getitem_adjoint" not in steps
    assert found == grads(loss, [w, u], x, passes=())[0]
    assert found == grads(loss, [w, u], x, ag.LispMachine)[0]
    assert found == grads(loss, [w, u], x, ag.ActorMachine, fuse="none")[0]


def test_slices_with_a_common_element_are_added_up(x):
    loss, w, _ = summed_over([(slice(0, 3),), (slice(2, 5),)])
    found, steps = grads(loss, [w], x)
    assert "slices" not in steps
    assert found == grads(loss, [w], x, passes=())[0]


def test_what_else_is_added_stays_an_addition(x):
    loss, w, u = summed_over(INDICES["rows"])
    loss = loss + (u * u).sum()
    found, steps = grads(loss, [w], x)
    assert "add" in steps
    assert found == grads(loss, [w], x, passes=())[0]


@pytest.mark.parametrize("dims", [(6, "n", 5), ("m", 4, 5)])
def test_sizes_of_a_run_are_no_obstacle_beside_the_axis_that_tells_slices_apart(dims, x):
    loss, w, _ = summed_over([(slice(None), 0), (slice(None), slice(1, 4))], (*dims[:1], 4, 5))
    found, steps = grads(loss, [w], x)
    assert steps.count("slices") == 1
    assert found == grads(loss, [w], x, passes=())[0]
    loss, w, _ = summed_over(INDICES["rows"], dims)
    assert grads(loss, [w], x)[0] == grads(loss, [w], x, passes=())[0]


def test_an_adjoint_that_others_need_stays():
    x = ag.Graph().input("x", (4,), "float64")
    parts = [x[:2], x[2:]]
    (dx,) = ag.gradients((parts[0] * parts[0]).sum() + (parts[1] * 3.0).sum(), [x])
    with ag.TapeMachine([dx, dx.inputs[0]]) as machine:
        run = machine.run_sync({"x": np.arange(4.0)})
        assert run[dx].value.tolist() == [0, 2, 3, 3]
        assert "slices" not in steps_of(machine)
