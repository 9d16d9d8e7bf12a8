"""The laws of solvers, which hold for every formula.

A law gets ``make(lr)``, which returns a new solver of that learning rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from actorgraph.dual import Dual
from actorgraph.graph import Graph
from actorgraph.node import Parameter
from actorgraph.solvers import AbstractSolver
from actorgraph.testing._laws import Laws, check_made, claim, raises, same_bits

Make = Callable[[float], AbstractSolver[Any]]

SOLVER_LAWS = Laws()
"""The laws of solvers: functions of ``make(lr)``."""

_law = SOLVER_LAWS.law


def check_solver(make: Make) -> None:
    """Raise if a solver breaks a law of solvers.

    Among others: it minimises a parabola, keeps dtypes and arrays, steps parameters of machines and
    plain arrays to the same bits, does not write to gradients, and changes nothing if a step fails.

    Parameters
    ----------
    make : callable
        ``make(lr)`` returns a new solver of that learning rate; its attribute ``lr`` may be set.

    Raises
    ------
    AssertionError
        The text says which law, what was got and what was expected.

    Examples
    --------
    Check a solver of your own:

    >>> import numpy as np
    >>> import actorgraph as ag
    >>> class Descent(ag.solvers.AbstractSolver[None]):
    ...     def __init__(self, lr):
    ...         super().__init__()
    ...         self.lr = lr
    ...     def init(self, value):
    ...         return None
    ...     def update(self, state, grad, current, out):
    ...         np.subtract(current, self.lr * grad, out=out)
    >>> ag.testing.check_solver(Descent)
    """
    check_made(SOLVER_LAWS, make, "a solver of a learning rate")


def _parameter(name: str = "W") -> Parameter:
    """Return a leaf of three ones, in a graph of its own."""
    return Graph().parameter(name, np.ones(3))


def _dual_of(parameter: Parameter, grad: Any) -> Dual:
    return Dual(parameter.value, grad, node=parameter)


def _ones(*shape: int, dtype: str = "float64") -> Dual:
    return Dual(np.ones(shape, dtype), np.ones(shape, dtype))


def _smaller(value: Any) -> None:
    claim(
        np.all(value.real < 1.0),
        f"a step against a positive gradient gave {value} from ones, expected less than 1; "
        "`update` writes the new value to `out`, and returns the state",
    )


@_law
def a_parabola_is_minimised(make: Make) -> None:
    weight = Dual(np.array([3.0, -2.0]), None)
    solver = make(0.05)
    for _ in range(500):
        weight.grad = 2.0 * weight.value
        solver.step([weight])
    claim(
        np.abs(weight.value).max() < 1e-2,
        f"got {weight.value} after 500 steps at a learning rate of 0.05, expected 0 to within "
        "0.01; look at signs and at the order of what is updated; if both are right, `make` may "
        "scale the rate and choose settings",
    )


@_law
def rosenbrock_s_function_decreases(make: Make) -> None:
    def rosenbrock(x: Any, y: Any) -> Any:
        return (1.0 - x) ** 2 + 100.0 * (y - x * x) ** 2

    x, y = (Dual(np.array(start), None) for start in (-1.2, 1.0))
    before = rosenbrock(x.value, y.value)
    solver = make(5e-4)
    for _ in range(2000):
        residual = y.value - x.value**2
        x.grad = -2.0 * (1.0 - x.value) - 400.0 * x.value * residual
        y.grad = 200.0 * residual
        solver.step([x, y])
    after = rosenbrock(x.value, y.value)
    claim(after < 0.5 * before, f"got {after} after 2000 steps, before it was {before}")


@_law
def dtype_and_identity_of_the_array_are_kept(make: Make) -> None:
    for dtype in ("float16", "float32", "float64", "complex64", "complex128"):
        value = np.ones((2, 3), dtype)
        weight = Dual(value, np.full((2, 3), 0.5, dtype))
        solver = make(0.1)
        for _ in range(3):
            solver.step([weight])
        claim(weight.value is value, f"{dtype}: the array was replaced")
        claim(value.dtype == dtype, f"got {value.dtype}, expected {dtype}")
        _smaller(value)


@_law
def zero_dimensional_and_empty_parameters_are_stepped(make: Make) -> None:
    scalar = _ones(dtype="float32")
    make(0.1).step([scalar, _ones(0, 3)])
    _smaller(scalar.value)
    claim(scalar.value.dtype == np.float32, f"got {scalar.value.dtype}, expected float32")


@_law
def strided_values_and_read_only_gradients_are_accepted(make: Make) -> None:
    whole = np.ones((4, 4))
    grad = np.broadcast_to(1.0, (4, 2))
    make(0.1).step([Dual(whole[:, ::2], grad)])
    _smaller(whole[:, ::2])
    same_bits(whole[:, 1::2], np.ones((4, 2)), "memory beside a strided parameter")


@_law
def gradients_are_not_written(make: Make) -> None:
    grad = np.full(3, 0.5)
    solver = make(0.1)
    weight = Dual(np.ones(3), grad)
    solver.step([weight])
    solver.step([weight])
    same_bits(grad, np.full(3, 0.5), "the gradient after two steps")


@_law
def a_float64_gradient_keeps_a_float32_parameter(make: Make) -> None:
    value = np.ones(3, "float32")
    make(0.1).step([Dual(value, np.full(3, 0.5))])
    claim(value.dtype == np.float32, f"got {value.dtype}, expected float32")
    _smaller(value)


@_law
def an_array_without_a_node_is_written_in_place(make: Make) -> None:
    weight = _ones(3)
    array = weight.value
    make(0.1).step([weight])
    claim(weight.value is array, "the array was replaced")
    _smaller(array)


@_law
def a_parameter_switches_to_another_array(make: Make) -> None:
    weight = _parameter()
    array = weight.value
    make(0.1).step([_dual_of(weight, np.ones(3))])
    same_bits(array, np.ones(3), "the array that runs in flight read")
    _smaller(weight.value)


@_law
def switching_and_in_place_give_the_same_bits(make: Make) -> None:
    by_node, by_position = make(0.1), make(0.1)
    node, array = _parameter(), np.ones(3)
    for grad in np.random.default_rng(0).normal(size=(5, 3)):
        by_node.step([_dual_of(node, grad)])
        by_position.step([Dual(array, grad)])
    same_bits(node.value, array, "a parameter beside a plain array")


@_law
def state_follows_the_node_not_the_position(make: Make) -> None:
    grads = np.random.default_rng(0).normal(size=(6, 2, 3))
    ordered, shuffled = make(0.1), make(0.1)
    first = [_parameter(name) for name in "ab"]
    second = [_parameter(name) for name in "ab"]
    for turn, grad in enumerate(grads):
        ordered.step([_dual_of(p, g) for p, g in zip(first, grad, strict=True)])
        duals = [_dual_of(p, g) for p, g in zip(second, grad, strict=True)]
        shuffled.step(duals[::-1] if turn % 2 else duals)
    for one, other in zip(first, second, strict=True):
        same_bits(other.value, one.value, f"parameter {one.name!r} in lists of changing order")


@_law
def some_of_the_nodes_may_be_stepped(make: Make) -> None:
    a, b = (_parameter(name) for name in "ab")
    solver = make(0.1)
    solver.step([_dual_of(a, np.ones(3)), _dual_of(b, np.ones(3))])
    kept = b.value.copy()
    solver.step([_dual_of(a, np.ones(3))])
    same_bits(b.value, kept, "a parameter that was not listed")


@_law
def state_goes_by_position_without_nodes(make: Make) -> None:
    grads = np.random.default_rng(0).normal(size=(4, 2, 3))
    by_node, by_position = make(0.1), make(0.1)
    nodes = [_parameter(name) for name in "ab"]
    values = [np.ones(3), np.ones(3)]
    for grad in grads:
        by_node.step([_dual_of(p, g) for p, g in zip(nodes, grad, strict=True)])
        by_position.step(Dual(v, g) for v, g in zip(values, grad, strict=True))
    for node, value in zip(nodes, values, strict=True):
        same_bits(value, node.value, f"parameter {node.name!r} by its position")


@_law
def a_changed_length_raises(make: Make) -> None:
    solver = make(0.1)
    duals = [_ones(3), _ones(3)]
    solver.step(duals)
    with raises(ValueError, "got 1 parameters without a node, the first step had 2"):
        solver.step(duals[:1])


@_law
def a_changed_shape_or_dtype_raises(make: Make) -> None:
    solver = make(0.1)
    solver.step([_ones(3)])
    with raises(ValueError, r"shape \(4,\), at its first step .* shape \(3,\)"):
        solver.step([_ones(4)])
    with raises(ValueError, "is float32 of shape .* it was float64"):
        solver.step([_ones(3, dtype="float32")])


_BAD: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "no gradient": (np.ones(3), None, ValueError, "run with backward=True"),
    "other shape": (np.ones(3), np.ones((1, 3)), ValueError, r"gradient of shape \(1, 3"),
    "integers": (np.ones(3, int), np.ones(3), TypeError, "dtype int64, expected a float"),
    "no array": (1.0, 1.0, TypeError, "a value of float, expected"),
    "complex gradient": (np.ones(3), np.ones(3) * 1j, TypeError, "take the real part"),
    "read only": (np.broadcast_to(1.0, 3), np.ones(3), TypeError, "read-only array"),
}


@_law
def a_bad_parameter_raises_before_anything_is_written(make: Make) -> None:
    for name, (value, grad, error, text) in _BAD.items():
        solver, good = make(0.1), _ones(3)
        with raises(error, text):
            solver.step([good, Dual(value, grad)])
        same_bits(good.value, np.ones(3), f"{name}: a parameter listed before it")
        solver.step([good])  # the failed step has not fixed the length either
        _smaller(good.value)


@_law
def a_step_that_fails_changes_neither_parameters_nor_state(make: Make) -> None:
    wanted = _steps(make, None)
    for at in range(4):
        for got, want in zip(_steps(make, at), wanted, strict=True):
            same_bits(got, want, f"after steps that failed at parameter {at} and were repeated")


def _steps(make: Make, at: int | None) -> list[Any]:
    """Return four parameters after four steps, each of which first fails at parameter `at`."""
    grads = np.random.default_rng(0).normal(size=(4, 4, 3))
    parameters = [_parameter(name) for name in "abc"]
    plain, solver = Dual(np.ones(3), None), make(0.1)
    patched: Any = solver
    update, left = solver.update, [0]

    def fails(*arguments: Any) -> Any:
        left[0] -= 1
        after = update(*arguments)
        if left[0] == -1:
            raise ArithmeticError("no more")
        return after

    for grad, *others in grads:
        plain.grad = grad
        duals = [plain, *map(_dual_of, parameters, others)]
        before = [np.copy(dual.value) for dual in duals]
        if at is not None:
            left[0] = at
            patched.update = fails
            with raises(ArithmeticError, "no more"):
                solver.step(duals)
            patched.update = update
        now = [plain.value, *(parameter.value for parameter in parameters)]
        for number, (one, other) in enumerate(zip(now, before, strict=True)):
            same_bits(one, other, f"parameter {number} after a step that failed at {at}")
        solver.step(duals)
    return [plain.value, *(parameter.value for parameter in parameters)]


@_law
def errors_name_the_node(make: Make) -> None:
    weight = _parameter("hidden.W")
    with raises(ValueError, r"parameter 'hidden.W' has no gradient"):
        make(0.1).step([_dual_of(weight, None)])


@_law
def the_same_node_twice_raises(make: Make) -> None:
    weight = _parameter()
    dual = _dual_of(weight, np.ones(3))
    with raises(ValueError, "'W' is listed twice"):
        make(0.1).step([dual, dual])
    same_bits(weight.value, np.ones(3), "a parameter listed twice")


@_law
def two_solvers_do_not_share_state(make: Make) -> None:
    first, second = _ones(3), _ones(3)
    make(0.1).step([first])
    make(0.1).step([second])
    same_bits(second.value, first.value, "the first step of a second solver")


@_law
def the_learning_rate_may_be_changed_between_steps(make: Make) -> None:
    solver: Any = make(0.1)
    weight = _ones(3)
    solver.step([weight])
    solver.lr = 0.0
    before = weight.value.copy()
    solver.step([weight])
    same_bits(weight.value, before, "a step of lr 0")
