"""Where a formula reads 0 / 0, inf - inf or 0 * inf but its limit is finite, or there is none."""

import numpy as np

import actorgraph as ag
from actorgraph import ops
from tests._each import each
from tests._evaluate import evaluate

ORIGIN = np.zeros(3)

KINKS = {  # continuous, without a gradient at the origin: all derivatives are 0 there
    "norm": lambda x: ops.norm(x),
    "norm of rows": lambda x: ops.norm(x.reshape((3, 1)), axis=1).sum(),
    **{f"norm of order {p}": lambda x, p=p: ops.norm(x, p) for p in (0, 1, 1.5, 3, -2, np.inf)},
    "std": lambda x: ops.std(x),
    "abs": lambda x: ops.abs(x).sum(),
    "hypot": lambda x: ops.hypot(x[0], x[1]),
    "arctan2": lambda x: ops.arctan2(x[0], x[1]),
    "distance": lambda x: ops.norm(x - 0 * x) * 3,
}


@each("name", KINKS)
def test_derivatives_at_a_kink_are_zero_to_third_order(name):
    f = KINKS[name]
    with np.errstate(all="raise"):
        value, gradient = ag.value_and_grad(f)(ORIGIN)
        second = ag.hessian(f)(ORIGIN)
        third = ag.jacobian(ag.hessian(f))(ORIGIN)
    assert value == 0
    for derivative, rank in ((gradient, 1), (second, 2), (third, 3)):
        np.testing.assert_array_equal(derivative, np.zeros((3,) * rank))


def test_the_norm_beside_the_origin_has_the_derivatives_of_the_formula():
    x = np.array([3e-3, 0, -4e-3])
    unit = x / 5e-3
    np.testing.assert_allclose(ag.grad(ops.norm)(x), unit, rtol=1e-12)
    hessian = (np.eye(3) - np.outer(unit, unit)) / 5e-3
    np.testing.assert_allclose(ag.hessian(ops.norm)(x), hessian, rtol=1e-12)


def test_second_derivatives_of_a_norm_that_is_squared_are_wrong_at_the_origin_only():
    """What the convention costs: norm(x) ** 2 has the Hessian 2 I, but norm(x) has none at 0."""
    f = lambda x: ops.norm(x) ** 2  # noqa: E731
    np.testing.assert_array_equal(ag.grad(f)(ORIGIN), ORIGIN)
    np.testing.assert_array_equal(ag.hessian(f)(ORIGIN), np.zeros((3, 3)))
    np.testing.assert_allclose(ag.hessian(f)(ORIGIN + 1e-9), 2 * np.eye(3), atol=1e-12)
    squares = lambda x: ops.square(x).sum()  # noqa: E731
    np.testing.assert_array_equal(ag.hessian(squares)(ORIGIN), 2 * np.eye(3))


E = np.exp(-1) / (1 + np.exp(-1))
LIMITS = {  # formula, where, value, gradient, Hessian; as written all three are not finite
    "log(sum(exp))": (
        lambda x: ops.log(ops.exp(x).sum()), [1000, 999, -1000],
        1000 + np.log1p(np.exp(-1)), [1 - E, E, 0],
        [[E * (1 - E), -E * (1 - E), 0], [-E * (1 - E), E * (1 - E), 0], [0, 0, 0]],
    ),
    "log(softmax)": (
        lambda x: ops.log(ops.softmax(x))[1], [1000, 0, -1000], -1000, [-1, 1, 0], np.zeros((3, 3)),
    ),
    "x / x": (lambda x: (x / x).sum(), [0, np.inf, 0], 3, ORIGIN, np.zeros((3, 3))),
    "sqrt(sum(x * x))": (
        lambda x: ops.sqrt((x * x).sum()), ORIGIN, 0, ORIGIN, np.zeros((3, 3)),
    ),
    "sqrt(x * x)": (lambda x: ops.sqrt(x * x).sum(), ORIGIN, 0, ORIGIN, np.zeros((3, 3))),
    "sqrt(x) * sqrt(x)": (
        lambda x: (ops.sqrt(x) * ops.sqrt(x)).sum(), ORIGIN, 0, [1, 1, 1], np.zeros((3, 3)),
    ),
}  # fmt: skip


@each("name", LIMITS)
def test_inexact_transforms_keep_a_formula_finite_where_its_limit_is(name):
    f, point, value, gradient, hessian = LIMITS[name]
    point = np.array(point, "float64")
    with np.errstate(all="ignore"):
        got, slope = ag.value_and_grad(f, exact=False)(point)
        second = ag.hessian(f, exact=False)(point)
        assert not np.isfinite(ag.grad(f)(point)).all()  # as written
    np.testing.assert_allclose(got, value, rtol=1e-12)
    np.testing.assert_allclose(slope, gradient, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(second, hessian, rtol=1e-9, atol=1e-300)


def test_the_square_root_has_an_infinite_slope_at_zero():
    """No limit is finite there, so that none is made up."""
    for exact in (True, False):
        with np.errstate(all="ignore"):
            assert ag.grad(ops.sqrt, exact=exact)(0.0) == np.inf
            assert ag.grad(ag.grad(ops.sqrt, exact=exact))(0.0) == -np.inf


def test_a_guarded_square_root_gets_nothing_from_the_branch_that_is_not_taken():
    x = ag.Graph().input("x", (2,), "float64")
    y = ops.where(x > 0, ops.sqrt(ops.where(x > 0, x, 1.0)), 0.0)
    (got,) = evaluate(ag.gradients(y.sum(), [x]), {x: np.array([0.0, 4.0])})
    np.testing.assert_array_equal(got, [0, 0.25])


def test_derivatives_of_a_complex_length_are_zero_at_zero():
    def turned(z):
        return ag.jvp(ag.grad(lambda z: ops.abs(z).sum()), (z,), (z * 0 + (1 + 1j),))[1]

    origin = np.zeros(2, "complex128")
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(turned(origin), origin)
        np.testing.assert_array_equal(ag.jvp(turned, (origin,), (origin + 1,))[1], origin)
