"""Rules of the user's own, in place of those of the ops."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from tests._evaluate import evaluate
from tests.autodiff._checks import X, every_machine


@ag.custom_vjp
def rounded(x):
    return ag.ops.sign(x)


@rounded.defvjp
def rounded_vjp(ct, y, x):
    return ct


@ag.custom_vjp
def product(x, y, *, power=1):
    return x * y**power


@product.defvjp
def product_vjp(ct, out, x, y, *, power=1):
    return ct * y**power, ct * x * power * y ** (power - 1)


@ag.custom_jvp
def log1pexp(x):
    return ag.ops.log(1.0 + ag.ops.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(tans, y, x):
    return tans[0] * ag.ops.sigmoid(x)


@ag.custom_jvp
def quotient(x, y):
    return x / y


@quotient.defjvp
def quotient_jvp(tans, out, x, y):
    return tans[0] / y - tans[1] * out / y


@every_machine
def test_a_custom_vjp_is_used_in_place_of_the_rules(x, machine, settings):
    y = (rounded(x) * x).sum()
    with machine([y], wrt=[x], **settings) as running:
        run = running.run_sync({"x": X}, backward=True)
    assert run[y].value == np.abs(X).sum()
    assert np.array_equal(run[x].grad, X + np.sign(X))


def test_the_result_bears_the_name_of_the_function(x):
    assert rounded(x).op.name == "rounded"
    assert rounded.__doc__ == rounded.__wrapped__.__doc__


def test_a_custom_vjp_has_second_derivatives_and_keywords(g, x):
    w = g.input("w", (3,), "float64")
    y = product(x, w, power=3).sum()
    dx, dw = ag.gradients(y, [x, w])
    dww, dwx = ag.gradients(dw.sum(), [w, x])
    values = evaluate([dx, dw, dww, dwx], {x: X, w: X + 3})
    for got, wanted in zip(
        values,
        [(X + 3) ** 3, 3 * X * (X + 3) ** 2, 6 * X * (X + 3), 3 * (X + 3) ** 2],
        strict=True,
    ):
        assert np.allclose(got, wanted, rtol=1e-13)


def test_an_argument_may_be_used_twice_or_be_an_array(x):
    y = product(x, x).sum() + product(x, 2 * X).sum()
    (dx,) = ag.gradients(y, [x])
    assert np.allclose(evaluate(dx, {x: X})[0], 4 * X, rtol=1e-14)


def test_a_custom_vjp_may_leave_out_a_cotangent(g, x):
    @ag.custom_vjp
    def scaled(x, by):
        return x * by

    @scaled.defvjp
    def scaled_vjp(ct, y, x, by):
        return ct * by, None

    w = g.input("w", (3,), "float64")
    dx, dw = ag.gradients(scaled(x, w).sum(), [x, w])
    values = evaluate([dx, dw], {x: X, w: X})
    assert np.array_equal(values[0], X)
    assert np.array_equal(values[1], [0, 0, 0])


def test_a_custom_jvp_serves_both_directions_and_second_order(g, x):
    y = log1pexp(x)
    big = np.array([-800.0, 1.0, 30.0])
    (dx,) = ag.gradients(y.sum(), [x])
    (second,) = ag.gradients(dx.sum(), [x])
    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})
    pushed, got, again = evaluate([tangent, dx, second], {x: big})
    sigmoid = np.exp(-np.logaddexp(0, -big))
    assert np.allclose(got, sigmoid, rtol=1e-14)
    assert np.array_equal(pushed, got)
    assert np.allclose(again, sigmoid * np.exp(-np.logaddexp(0, big)), rtol=1e-13)


@every_machine
def test_a_custom_jvp_of_two_arguments_is_transposed_in_every_machine(g, x, machine, settings):
    w = g.input("w", (3,), "float64")
    y = quotient(x * 1.0, w)
    with machine([y], wrt=[x, w], **settings) as running:
        run = running.run_sync({"x": X, "w": X + 3}, backward={y: np.ones(3)})
        forward = running.run_sync({"x": X, "w": X + 3}, tangents={"w": np.ones(3)})
    assert np.allclose(run[x].grad, 1 / (X + 3), rtol=1e-14)
    assert np.allclose(run[w].grad, -X / (X + 3) ** 2, rtol=1e-14)
    assert np.allclose(forward[y].tangent, run[w].grad, rtol=1e-14)


def test_custom_rules_work_on_dims_known_in_a_run_only(g):
    v = g.input("v", (None, "n"), "float64")
    value = np.arange(6.0).reshape(2, 3) + 1
    found = ag.gradients((log1pexp(v) + rounded(v)).sum(), [v])
    assert np.allclose(evaluate(found, {v: value})[0], 1 + 1 / (1 + np.exp(-value)), rtol=1e-14)


def test_a_custom_jvp_that_is_not_linear_says_so(x):
    @ag.custom_jvp
    def wrong(x):
        return x * 2.0

    @wrong.defjvp
    def wrong_jvp(tans, y, x):
        return tans[0] * tans[0]

    with pytest.raises(GraphTypeError, match="jvp rule of wrong is not linear in its tangents"):
        ag.gradients(wrong(x).sum(), [x])


def test_misuse_of_custom_rules_says_what_to_do(g, x):
    w = g.parameter("w", np.ones(3))

    def double(x):
        return x * 2.0

    captured, ruleless = ag.custom_vjp(lambda x: x * w), ag.custom_vjp(double)
    captured.defvjp(rounded_vjp)
    wrong = ag.custom_vjp(double)
    wrong.defvjp(lambda ct, y, x: (ct, ct))
    tuples = ag.custom_vjp(lambda x: (x, x))
    tuples.defvjp(rounded_vjp)
    with pytest.raises(GraphTypeError, match=r"uses <w.*no argument.*pass it as an argument"):
        captured(x)
    with pytest.raises(GraphTypeError, match=r"double has no rule; write @double\.defvjp"):
        ruleless(x)
    with pytest.raises(GraphTypeError, match="double is a custom_vjp; give it defvjp"):
        ruleless.defjvp(rounded_vjp)
    with pytest.raises(GraphTypeError, match="double has a defvjp already"):
        wrong.defvjp(rounded_vjp)
    with pytest.raises(GraphTypeError, match="has to return one node, got tuple"):
        tuples(x)
    with pytest.raises(GraphTypeError, match="needs a node among its positional arguments"):
        rounded(X)
    with pytest.raises(GraphTypeError, match="give nodes as positional arguments"):
        product(x, x, power=x)
    with pytest.raises(FeedError, match="returned 2 cotangents for 1 arguments"):
        ag.gradients(wrong(x).sum(), [x])
    with pytest.raises(GraphTypeError, match="op 'rounded'.*no forward-mode rule"):
        tangents(rounded(x), {x: g.constant(X)})


def test_a_cotangent_of_another_shape_is_refused(x):
    bad = ag.custom_vjp(lambda x: x * 2.0)
    bad.defvjp(lambda ct, y, x: ct.sum())
    with pytest.raises(ShapeError, match="cotangent that the rule of <lambda> gave"):
        ag.gradients(bad(x).sum(), [x])


def test_the_rule_may_be_the_pair_of_jax():
    @ag.custom_vjp
    def inside(x, y, *, times=1.0):
        return ag.ops.sin(x) * y * times

    inside.defvjp(
        lambda x, y, times: (ag.ops.sin(x) * y * times, (ag.ops.cos(x), y)),
        lambda residuals, ct: (residuals[0] * residuals[1] * ct * 3.0, None),
    )
    x, y = ag.Graph().input("x", (3,), "float64"), np.array([1.0, 2.0, 3.0])
    (slope,) = ag.gradients(inside(x, y, times=2.0).sum(), [x])
    found = evaluate([slope], {x: X[:3]})[0]
    np.testing.assert_allclose(found, np.cos(X[:3]) * y * 3.0)
