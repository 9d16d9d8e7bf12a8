"""What every solver must do. New solvers are found by themselves; give them a row in FACTORIES."""

import inspect

import numpy as np
import pytest

from actorgraph import solvers
from tests.solvers.fake_node import FakeDual, FakeParameter, dual_of

FACTORIES = {
    "sgd": lambda lr: solvers.SGD(lr=lr),
    "sgd_momentum": lambda lr: solvers.SGD(lr=lr, momentum=0.5),
    "sgd_nesterov": lambda lr: solvers.SGD(lr=lr, momentum=0.5, nesterov=True),
    "sgd_weight_decay": lambda lr: solvers.SGD(lr=lr, momentum=0.5, weight_decay=1e-3),
    "sgd_l1": lambda lr: solvers.SGD(lr=lr, momentum=0.5, l1=1e-3),
    "adam": lambda lr: solvers.Adam(lr=lr),
    "adam_weight_decay": lambda lr: solvers.Adam(lr=lr, weight_decay=1e-4),
    "adamw": lambda lr: solvers.AdamW(lr=lr, weight_decay=1e-4),
}


@pytest.fixture(params=FACTORIES.values(), ids=FACTORIES.keys())
def make(request):
    return request.param


def test_every_public_solver_has_a_row():
    public = {
        cls
        for name in solvers.__all__
        if inspect.isclass(cls := getattr(solvers, name))
        and issubclass(cls, solvers.AbstractSolver)
        and cls is not solvers.AbstractSolver
    }
    assert public == {type(factory(0.1)) for factory in FACTORIES.values()}


def test_parabola_is_minimised(make):
    weight = FakeDual(np.array([3.0, -2.0]), None)
    solver = make(0.05)
    for _ in range(500):
        weight.grad = 2.0 * weight.value
        solver.step([weight])
    assert np.abs(weight.value).max() < 1e-2


def test_rosenbrock_decreases(make):
    def rosenbrock(x, y):
        return (1.0 - x) ** 2 + 100.0 * (y - x * x) ** 2

    x, y = (FakeDual(np.array(start), None) for start in (-1.2, 1.0))
    before = rosenbrock(x.value, y.value)
    solver = make(5e-4)
    for _ in range(2000):
        residual = y.value - x.value**2
        x.grad = -2.0 * (1.0 - x.value) - 400.0 * x.value * residual
        y.grad = 200.0 * residual
        solver.step([x, y])
    assert rosenbrock(x.value, y.value) < 0.5 * before


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_dtype_and_identity_of_the_array_are_kept(make, dtype):
    value = np.ones((2, 3), dtype)
    weight = FakeDual(value, np.full((2, 3), 0.5, dtype))
    solver = make(0.1)
    for _ in range(3):
        solver.step([weight])
    assert weight.value is value
    assert value.dtype == dtype
    assert np.all(value.real < 1.0)


def test_zero_dimensional_and_empty_parameters_are_stepped(make):
    scalar = FakeDual(np.array(1.0, "float32"), np.array(1.0, "float32"))
    empty = FakeDual(np.ones((0, 3)), np.ones((0, 3)))
    make(0.1).step([scalar, empty])
    assert scalar.value < 1.0
    assert scalar.value.dtype == np.float32


def test_strided_values_and_read_only_gradients_are_accepted(make):
    whole = np.ones((4, 4))
    grad = np.broadcast_to(1.0, (4, 2))
    make(0.1).step([FakeDual(whole[:, ::2], grad)])
    assert np.all(whole[:, ::2] < 1.0)
    assert np.all(whole[:, 1::2] == 1.0)


def test_gradient_is_not_written(make):
    grad = np.full(3, 0.5)
    solver = make(0.1)
    weight = FakeDual(np.ones(3), grad)
    solver.step([weight])
    solver.step([weight])
    assert np.all(grad == 0.5)


def test_float64_gradient_keeps_a_float32_parameter(make):
    value = np.ones(3, "float32")
    make(0.1).step([FakeDual(value, np.full(3, 0.5))])
    assert value.dtype == np.float32
    assert np.all(value < 1.0)


def test_an_array_without_a_node_is_written_in_place(make):
    array = np.ones(3)
    weight = FakeDual(array, np.ones(3))
    make(0.1).step([weight])
    assert weight.value is array
    assert np.all(array < 1.0)


def test_a_parameter_switches_to_another_array(make):
    weight = FakeParameter("W", np.ones(3))
    array = weight.value
    make(0.1).step([dual_of(weight, np.ones(3))])
    assert np.all(array == 1.0)
    assert np.all(weight.value < 1.0)


def test_switching_and_in_place_give_the_same_bits(make):
    by_node, by_position = make(0.1), make(0.1)
    node, array = FakeParameter("W", np.ones(4)), np.ones(4)
    for grad in np.random.default_rng(0).normal(size=(5, 4)):
        by_node.step([dual_of(node, grad)])
        by_position.step([FakeDual(array, grad)])
    assert np.array_equal(node.value, array)


def test_state_follows_the_node_not_the_position(make):
    grads = np.random.default_rng(0).normal(size=(6, 2, 3))
    ordered, shuffled = make(0.1), make(0.1)
    first = [FakeParameter(name, np.ones(3)) for name in "ab"]
    second = [FakeParameter(name, np.ones(3)) for name in "ab"]
    for turn, grad in enumerate(grads):
        ordered.step([dual_of(p, g) for p, g in zip(first, grad, strict=True)])
        duals = [dual_of(p, g) for p, g in zip(second, grad, strict=True)]
        shuffled.step(duals[::-1] if turn % 2 else duals)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.value, other.value)


def test_some_of_the_nodes_may_be_stepped(make):
    a, b = (FakeParameter(name, np.ones(3)) for name in "ab")
    solver = make(0.1)
    solver.step([dual_of(a, np.ones(3)), dual_of(b, np.ones(3))])
    kept = b.value.copy()
    solver.step([dual_of(a, np.ones(3))])
    assert np.array_equal(b.value, kept)


def test_state_goes_by_position_without_nodes(make):
    grads = np.random.default_rng(0).normal(size=(4, 2, 3))
    by_node, by_position = make(0.1), make(0.1)
    nodes = [FakeParameter(name, np.ones(3)) for name in "ab"]
    values = [np.ones(3), np.ones(3)]
    for grad in grads:
        by_node.step([dual_of(p, g) for p, g in zip(nodes, grad, strict=True)])
        by_position.step(FakeDual(v, g) for v, g in zip(values, grad, strict=True))
    for node, value in zip(nodes, values, strict=True):
        assert np.array_equal(node.value, value)


def test_changed_length_raises(make):
    solver = make(0.1)
    duals = [FakeDual(np.ones(3), np.ones(3)), FakeDual(np.ones(3), np.ones(3))]
    solver.step(duals)
    with pytest.raises(ValueError, match="got 1 parameters without a node, the first step had 2"):
        solver.step(duals[:1])


def test_changed_shape_or_dtype_raises(make):
    solver = make(0.1)
    solver.step([FakeDual(np.ones(3), np.ones(3))])
    with pytest.raises(ValueError, match=r"shape \(4,\), at its first step .* shape \(3,\)"):
        solver.step([FakeDual(np.ones(4), np.ones(4))])
    with pytest.raises(ValueError, match="is float32 of shape .* it was float64"):
        solver.step([FakeDual(np.ones(3, "float32"), np.ones(3, "float32"))])


BAD = {
    "no gradient": (FakeDual(np.ones(3), None), ValueError, "run with backward=True"),
    "other shape": (FakeDual(np.ones(3), np.ones((1, 3))), ValueError, r"gradient of shape \(1, 3"),
    "integers": (FakeDual(np.ones(3, int), np.ones(3)), TypeError, "dtype int64, expected a float"),
    "no array": (FakeDual(1.0, 1.0), TypeError, "a value of float, expected"),
    "complex gradient": (FakeDual(np.ones(3), np.ones(3) * 1j), TypeError, "take the real part"),
    "read only": (FakeDual(np.broadcast_to(1.0, 3), np.ones(3)), TypeError, "read-only array"),
}


@pytest.mark.parametrize(("bad", "error", "text"), BAD.values(), ids=BAD.keys())
def test_bad_parameter_raises_before_anything_is_written(make, bad, error, text):
    solver = make(0.1)
    good = FakeDual(np.ones(3), np.ones(3))
    with pytest.raises(error, match=text):
        solver.step([good, bad])
    assert np.all(good.value == 1.0)
    solver.step([good])  # nor did the failed step fix the length
    assert np.all(good.value < 1.0)


@pytest.mark.parametrize("at", range(4))
def test_a_step_that_fails_changes_neither_parameters_nor_state(make, at):
    grads = np.random.default_rng(0).normal(size=(4, 4, 3))

    def steps(failing):
        parameters = [FakeParameter(name, np.ones(3)) for name in "abc"]
        plain, solver = FakeDual(np.ones(3), None), make(0.1)
        update, left = solver.update, [at]

        def fails(*given):
            left[0] -= 1
            after = update(*given)
            if left[0] == -1:
                raise ArithmeticError("no more")
            return after

        for grad, *others in grads:
            plain.grad = grad
            duals = [plain, *map(dual_of, parameters, others)]
            before = [np.copy(dual.value) for dual in duals]
            if failing:
                left[0] = at
                solver.update = fails
                with pytest.raises(ArithmeticError, match="no more"):
                    solver.step(duals)
                solver.update = update
            now = [plain.value, *(parameter.value for parameter in parameters)]
            np.testing.assert_array_equal(now, before)
            solver.step(duals)
        return [plain.value, *(parameter.value for parameter in parameters)]

    np.testing.assert_array_equal(steps(True), steps(False))


def test_an_update_that_returns_no_state_is_told_and_changes_nothing():
    class Forgets(solvers.AbstractSolver):
        def init(self, value):
            return {"steps": 0}

        def update(self, state, grad, current, out):
            out[...] = 0

    weight = FakeDual(np.ones(3), np.ones(3))
    with pytest.raises(TypeError, match="Forgets.update returned None, expected the state .* dict"):
        Forgets().step([weight])
    assert np.all(weight.value == 1.0)


def test_errors_name_the_node(make):
    weight = FakeParameter("hidden.W", np.ones(3))
    with pytest.raises(ValueError, match=r"parameter 'hidden.W' has no gradient"):
        make(0.1).step([dual_of(weight, None)])


def test_same_node_twice_raises(make):
    weight = FakeParameter("W", np.ones(3))
    dual = dual_of(weight, np.ones(3))
    with pytest.raises(ValueError, match="'W' is listed twice"):
        make(0.1).step([dual, dual])
    assert np.all(weight.value == 1.0)


def test_two_solvers_do_not_share_state(make):
    results = []
    for _ in range(2):
        weight = FakeDual(np.ones(3), np.ones(3))
        make(0.1).step([weight])
        results.append(weight.value)
    assert np.array_equal(*results)


def test_learning_rate_may_be_changed_between_steps(make):
    solver = make(0.1)
    weight = FakeDual(np.ones(3), np.ones(3))
    solver.step([weight])
    solver.lr = 0.0
    before = weight.value.copy()
    solver.step([weight])
    assert np.array_equal(weight.value, before)
