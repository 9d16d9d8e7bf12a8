"""Updates of solvers as compiled loops: the bits of the solver itself."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.jit.updates import Updates
from actorgraph.solvers import SGD, Adam, AdamW
from tests._soak import SOAK

pytest.importorskip("numba", reason="the extra jit is not installed")

pytestmark = pytest.mark.usefixtures("machine_code")

SHAPES = [(), (33, 5), (0, 3), (2, 3, 4)]

SOLVERS = {
    "descent": lambda: SGD(lr=0.1),
    "penalties": lambda: SGD(lr=0.1, weight_decay=0.3, l1=0.2),
    "momentum": lambda: SGD(lr=0.1, momentum=0.9),
    "nesterov": lambda: SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda: Adam(lr=0.1),
    "adam with a penalty": lambda: Adam(lr=0.1, weight_decay=0.3, betas=(0.5, 0.7)),
    "adamw": lambda: AdamW(lr=0.1, weight_decay=0.3),
}


def drawn(shapes, dtype, seed):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape)).astype(dtype) for shape in shapes]


def updates_of(solver, values):
    return Updates(solver, values, wait=True)


ALL = [(name, dtype) for name in SOLVERS for dtype in ("float32", "float64")]
# A compilation takes half a second.
SOME = [("penalties", "float32"), ("nesterov", "float64"), ("adam", "float32")]
SOME += [("adam with a penalty", "float32"), ("adamw", "float32")]


@pytest.mark.parametrize(("name", "dtype"), ALL if SOAK else SOME)
def test_loops_have_the_bits_of_the_solver(name, dtype):
    solver, values = SOLVERS[name](), drawn(SHAPES, dtype, 0)
    updates = updates_of(solver, values)
    states = [solver.init(value) for value in values]
    wanted_states = [solver.init(value) for value in values]
    wanted = [value.copy() for value in values]
    for number in range(1, 6):
        grads = drawn(SHAPES, dtype, number)
        outs = [np.empty_like(value) for value in values]
        states = updates(states, grads, values, outs)
        assert states is not None
        values = outs
        outs = [np.empty_like(value) for value in wanted]
        wanted_states = list(map(solver.update, wanted_states, grads, wanted, outs))
        wanted = outs
        for got, expected in zip(values, wanted, strict=True):
            assert got.tobytes() == expected.tobytes()
        solver.lr *= 0.9


def test_many_parameters_are_stepped_in_several_calls():
    shapes = [(number, 2) for number in range(1, 11)]
    solver, values, grads = SGD(lr=0.1), drawn(shapes, "float32", 0), drawn(shapes, "float32", 1)
    values[4], grads[4] = values[4].astype("float64"), grads[4].astype("float64")
    outs, states = list(map(np.empty_like, values)), list(map(solver.init, values))
    assert updates_of(solver, values)(states, grads, values, outs) is not None
    for value, grad, out in zip(values, grads, outs, strict=True):
        np.testing.assert_array_equal(out, value - grad * np.asarray(0.1, value.dtype))


def test_settings_may_change_from_step_to_step():
    results = []
    for loops in (True, False):
        solver, values = SGD(lr=0.1), drawn([(50,)], "float32", 0)
        updates = updates_of(solver, values)
        states = [solver.init(values[0])]
        for momentum in (0.0, 0.9, 0.9, 0.0, 0.5):
            solver.momentum = momentum
            outs = [np.empty_like(values[0])]
            grads = drawn([(50,)], "float32", 1)
            if loops:
                states = updates(states, grads, values, outs)
            else:
                states = [solver.update(states[0], grads[0], values[0], outs[0])]
            values = outs
        results.append(values[0])
    np.testing.assert_array_equal(*results)


def test_arrays_with_gaps_or_another_order_are_taken_through_copies():
    solver, [value, grad] = Adam(lr=0.1), drawn([(6, 4), (6, 4)], "float32", 0)
    updates = updates_of(solver, [value])
    wide = np.zeros((6, 8), "f")
    got, wanted = wide[:, ::2], np.empty_like(value)
    states = [solver.init(value)]
    assert updates(states, [np.asfortranarray(grad)], [value], [got]) is not None
    solver.update(solver.init(value), grad, value, wanted)
    np.testing.assert_array_equal(got, wanted)
    assert not wide[:, 1::2].any()


def test_what_loops_do_not_know_is_left_to_the_solver():
    value = drawn([(5,)], "float32", 0)
    complexes = [value[0].astype("complex64")]
    solver = SGD()
    states = [solver.init(complexes[0])]
    assert updates_of(solver, complexes)(states, complexes, complexes, complexes) is None
    adam = Adam()
    [one, two] = [adam.init(value[0]), adam.init(value[0])]
    two.step = 4  # a parameter that has been stepped more often
    both = value * 2
    updates = updates_of(adam, both)
    assert updates([one, two], both, both, [np.empty(5, "f") for _ in both]) is None


def trained(jit, errors=None):
    graph = ag.Graph()
    x = graph.input("x", ("n", 8))
    w = graph.parameter("w", np.linspace(-1, 1, 8).astype("f"))
    loss = ops.mean(ops.square(x * w - 1))
    solver = Adam(lr=0.1)
    feeds = {"x": np.random.default_rng(0).normal(size=(40, 8)).astype("f")}
    with ag.TapeMachine([loss], exact=False, jit=jit) as machine:
        step = machine.compile_step(solver)
        for _ in range(3):
            step(feeds)
        run = machine.run_sync(feeds, backward=True)
        solver.step([run[w]])  # goes on with the same state
        with np.errstate(**(errors or {})):
            step(feeds)
    return w.value


@pytest.mark.parametrize("errors", [{}, {"over": "raise"}], ids=["", "raising"])
def test_a_compiled_step_and_the_solver_share_their_state(errors):
    np.testing.assert_allclose(trained("wait", errors), trained(False), rtol=1e-6)


def test_under_an_errstate_that_raises_the_solver_raises():
    graph = ag.Graph()
    w = graph.parameter("w", np.ones(8, "f"))
    x = graph.input("x", (8,))
    with ag.TapeMachine([(w * x).sum()], exact=False, jit="wait") as machine:
        step = machine.compile_step(SGD(lr=1e35))
        feeds = {"x": np.full(8, 1e8, "f")}
        before = w.value.copy()
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            step(feeds)
        np.testing.assert_array_equal(w.value, before)
        step(feeds)
        assert np.isinf(w.value).all()
