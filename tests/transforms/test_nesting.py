"""Transforms nest in each other, to any order."""

import numpy as np

import actorgraph as ag
from tests._evaluate import evaluate
from tests.transforms._functions import M, V, X, close, hessian_of_scalar, scalar


def test_transforms_nest_to_any_order():
    f = derivative = lambda x: ag.ops.sin(x) * x
    values = [f]
    for _ in range(4):
        derivative = ag.grad(derivative)
        values.append(derivative)
    at = 0.7
    s, c = np.sin(at), np.cos(at)
    for function, wanted in zip(
        values[1:],
        [c * at + s, 2 * c - s * at, -3 * s - c * at, -4 * c + s * at],
        strict=True,
    ):
        close(function(at), wanted)


def test_every_mode_nests_in_every_other():
    h = hessian_of_scalar(X)

    def along(x):
        return ag.jvp(scalar, (x,), (V,))[1]

    def pulled(x):
        return ag.vjp(scalar, x)[1](1.0)[0]

    close(ag.grad(along)(X), h @ V)
    close(ag.jvp(ag.grad(scalar), (X,), (V,))[1], h @ V)
    close(ag.jvp(pulled, (X,), (V,))[1], h @ V)
    close(ag.jvp(along, (X,), (V,))[1], V @ h @ V)
    close(ag.jacobian(pulled)(X), h)
    close(ag.grad(lambda x: ag.hvp(scalar, (x,), (V,))[0].sum())(X), third_order(X) @ V)
    close(ag.grad(lambda x: (ag.jacobian(ag.ops.sin)(x) * M).sum())(X), -np.sin(X) * np.diag(M))
    close(ag.grad(lambda x: ag.hessian(scalar)(x).sum())(X), third_order(X).sum(1))


def third_order(x):
    """The sum over the first index of the third derivatives of `scalar`."""
    e = np.exp(x)
    return np.diag(e * x.sum() + e * 3) + e[:, None] + e[None, :]


def test_inner_derivatives_do_not_see_outer_uses_of_the_same_argument():
    """No confusion of perturbations: d/dx (x * d/dy (x + y)) at y = x is 1."""
    assert ag.grad(lambda x: x * ag.grad(lambda y: x + y)(x))(1.0) == 1
    assert ag.grad(lambda x: x * ag.grad(lambda y: x + y)(2.0))(1.0) == 1
    assert ag.grad(lambda x: x * ag.jvp(lambda y: x + y, (x,), (1.0,))[1])(1.0) == 1
    assert ag.jvp(lambda x: x * ag.jvp(lambda y: x * y, (x,), (1.0,))[1], (3.0,), (1.0,))[1] == 6


def test_transformed_functions_take_nodes(g, x):
    found = ag.grad(scalar)(x)
    assert found.graph is g
    close(evaluate(found, {x: X})[0], np.exp(X) * X.sum() + np.exp(X).sum())
    value, gradient = ag.value_and_grad(lambda a, b: (a * b).sum(), argnums=1)(x, V)
    close(evaluate(gradient, {x: X})[0], X)
    assert value.ndim == 0


def test_gradient_tools_work_inside_functions():
    def f(x):
        clipped = ag.hook_gradient(x, lambda ct: ag.ops.clip(ct, -1.0, 1.0))
        return (ag.checkpoint(ag.ops.exp)(clipped) + ag.stop_gradient(x) * x).sum()

    close(ag.grad(f)(X), np.minimum(np.exp(X), 1) + X)
