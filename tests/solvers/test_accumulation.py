"""Gradients of several calls make one step, by their mean; nothing else of the step changes."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each

rng = np.random.default_rng(2)
GRADS = [rng.normal(size=(2, 3)) for _ in range(8)]
SOLVERS = ("SGD", "Adam", "RMSProp", "BarzilaiBorwein", "LAMB")


def parameter():
    held = ag.nn.Parameter(np.ones((2, 3)))
    held.name = "w"
    return held


def stepped(solver, held, grads):
    for grad in grads:
        held.grad = grad
        solver.step([held])
    return np.array(held.array)


@each("name", SOLVERS)
def test_a_step_takes_the_mean_of_the_gradients_of_so_many_calls(name):
    kind = getattr(ag.solvers, name)
    solver, held, other = kind(lr=0.1, accumulate=4, clip_norm=0.5), parameter(), parameter()
    found = stepped(solver, held, GRADS)
    means = [np.add.reduce(GRADS[start : start + 4]) * 0.25 for start in (0, 4)]
    np.testing.assert_array_equal(found, stepped(kind(lr=0.1, clip_norm=0.5), other, means))
    assert (solver.steps, solver.accumulated) == (2, 0)


def test_nothing_moves_before_and_a_saved_state_goes_on_in_between():
    solver, held = ag.solvers.Adam(lr=0.1, accumulate=4), parameter()
    stepped(solver, held, GRADS[:4])
    moved = stepped(solver, held, GRADS[4:6])
    assert (solver.steps, solver.accumulated) == (1, 2)
    np.testing.assert_array_equal(moved, stepped(ag.solvers.Adam(lr=0.1, accumulate=4),
                                                 parameter(), GRADS[:4]))  # fmt: skip
    again, resumed = ag.solvers.Adam(lr=0.1, accumulate=4), parameter()
    again.load_state_dict(solver.state_dict())
    resumed.value = moved
    np.testing.assert_array_equal(
        stepped(again, resumed, GRADS[6:]), stepped(solver, held, GRADS[6:])
    )


def test_compiled_steps_accumulate_too():
    found = []
    for compiled in (False, True):
        g = ag.Graph()
        w = g.parameter("w", np.ones((2, 3)))
        loss = (w * g.input("x", (2, 3), "float64")).sum()
        solver = ag.solvers.Adam(lr=0.1, accumulate=3)
        with ag.TapeMachine(loss) as machine:
            step = machine.compile_step(solver)
            for grad in GRADS:
                if compiled:
                    step({"x": grad})
                else:
                    solver.step([machine.run_sync({"x": grad}, backward=True)[w]])
        found.append(w.value.copy())
        assert (solver.steps, solver.accumulated) == (2, 2)
    np.testing.assert_array_equal(*found)


def test_gradients_of_a_sum_are_divided_by_the_batch_size():
    one = stepped(ag.solvers.SGD(lr=0.1, batch_size=4), parameter(), GRADS)
    other = stepped(ag.solvers.SGD(lr=0.1), parameter(), [grad / 4 for grad in GRADS])
    np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="batch_size divides gradients"):
        ag.solvers.SGD(batch_size=0.0)


def test_a_pipeline_accumulates_over_whole_steps():
    def trained(make):
        g = ag.Graph()
        w = g.parameter("w", np.ones((2, 3)))
        x = g.input("x", ("batch", 2), "float64")
        with g.stage(0):
            h = x @ w
        with g.stage(1):
            loss = ag.ops.tanh(h).mean()
        solver = ag.solvers.Adam(lr=0.1, accumulate=2)
        with make(loss) as machine:
            step = machine.compile_step(solver)
            for grad in GRADS[:4]:
                step({"x": np.repeat(grad[:, :2], 2, axis=0)})
        return solver.steps, w.value.copy()

    steps, value = trained(lambda loss: ag.pipeline.Pipeline(loss, microbatches=2))
    wanted_steps, wanted = trained(ag.TapeMachine)
    assert steps == wanted_steps == 2
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
