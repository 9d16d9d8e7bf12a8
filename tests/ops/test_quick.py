"""The fast ways of `ops._arrays` give what the obvious ones give."""

import warnings

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.op import REGISTRY
from actorgraph.ops import _arrays
from tests._each import each

SIZES = (0, 1, 8191, 8192, 16384, 16385, 40000)


def floats(shape, dtype="float32"):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    if x.size > 3:
        x.reshape(-1)[:4] = np.nan, np.inf, -np.inf, -0.0
    return x


def forward(name, *arrays, **attrs):
    return REGISTRY[name].forward(np, *arrays, **attrs)


@each("size", SIZES)
@each("dtype", ["float16", "float32", "float64"])
def test_limits_are_those_of_numpy_for_few_and_for_many_numbers(size, dtype):
    x = floats(size, dtype)
    low, high = x.dtype.type(-0.5), x.dtype.type(0.25)
    np.testing.assert_array_equal(_arrays.at_least(np, x, low), np.maximum(x, low))
    np.testing.assert_array_equal(_arrays.at_most(np, x, high), np.minimum(x, high))
    np.testing.assert_array_equal(_arrays.limited(np, x, low, high), np.clip(x, low, high))


@pytest.mark.parametrize("shape", [(128, 129), (3, 64, 128)])
def test_limits_go_into_the_array_that_is_given(shape):
    x, out = floats(shape), np.empty(shape, "float32")
    assert _arrays.at_least(np, x, np.float32(0), out) is out
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    assert _arrays.at_most(np, x, np.float32(0), x) is x
    np.testing.assert_array_equal(x, np.minimum(floats(shape), 0))


def test_limits_of_what_lies_apart_are_those_of_numpy():
    x, out = floats((200, 200)).T, np.empty((200, 400), "float32")[:, ::2]
    np.testing.assert_array_equal(_arrays.at_least(np, x, np.float32(0)), np.maximum(x, 0))
    np.testing.assert_array_equal(_arrays.at_least(np, x, np.float32(0), out), np.maximum(x, 0))
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    np.testing.assert_array_equal(
        _arrays.limited(np, x, np.float32(-1), np.float32(1)), np.clip(x, -1, 1)
    )


def test_the_sign_of_a_limit_of_zero_is_kept_whatever_limits_were_before():
    zeros = np.zeros(20000, "float32")
    for low in (np.float32(-0.0), np.float32(0.0), np.float32(-0.0)):
        few, many = (np.maximum(x, np.full_like(x, low)) for x in (zeros[:1], zeros))
        found = _arrays.at_least(np, zeros, low)
        assert (np.signbit(found) == np.signbit(many)).all()
        assert np.signbit(found[0]) == np.signbit(few[0])


def test_limits_that_differ_by_place_are_those_of_numpy():
    x, low = floats((128, 129)), np.linspace(-1, 0, 129, dtype="float32")
    np.testing.assert_array_equal(
        _arrays.limited(np, x, low, np.float32(1)), np.clip(x, low, np.float32(1))
    )


@each("shape", [(5, 7), (3, 4, 4096), (2, 4097), (6, 0), (0, 6), (9,)])
@each("dtype", ["float16", "float32", "float64"])
@each("keepdims", [False, True])
def test_sums_of_rows_are_as_exact_as_those_of_numpy(shape, dtype, keepdims):
    x = np.random.default_rng(0).random(shape).astype(dtype)
    error = 8 * np.finfo(dtype).eps
    for axis in ((len(shape) - 1,), tuple(range(len(shape))), (0,)):
        found = _arrays.row_sums(x, axis, keepdims)
        wanted = np.add.reduce(x.astype(float), axis=axis, keepdims=keepdims)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, wanted, rtol=error)
        if dtype != "float16":
            squares = np.add.reduce(x.astype(float) ** 2, axis=axis, keepdims=keepdims)
            found = _arrays.row_squares(x, axis, keepdims)
            np.testing.assert_allclose(found, squares, rtol=error)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_all_finite_sees_a_single_infinity_or_nan(dtype):
    x = np.ones(1000, dtype)
    assert _arrays.all_finite(np, x)
    assert _arrays.all_finite(np, x[:0])
    for bad in (np.inf, -np.inf, np.nan):
        x[500] = bad
        assert not _arrays.all_finite(np, x)


@each("size", [3, 20000])
@each("dtype", ["float16", "float32", "float64"])
def test_formulae_that_overflow_are_replaced_row_by_row_without_a_warning(size, dtype):
    far = np.array([-np.inf, -5e4, -300, -20, -1e-3, 0, 1e-3, 20, 300, 5e4, np.inf], dtype)
    x = np.resize(far, size).astype(dtype)
    wide = x.astype("longdouble")
    small = np.minimum(wide, 0) - np.log1p(np.exp(-np.abs(wide)))
    exact = {
        "softplus": np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide))),
        "logsigmoid": small,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op, wanted in exact.items():
            found = forward(op, x)
            tiny = float(np.finfo(dtype).smallest_normal)
            np.testing.assert_allclose(
                found, wanted.astype(dtype), rtol=4 * np.finfo(dtype).eps, atol=tiny
            )


def test_log_sum_exp_is_exact_in_rows_near_zero_and_in_rows_far_from_it():
    rng = np.random.default_rng(0)
    near = rng.normal(size=(300, 7))
    rows = np.concatenate([near, near + 200, near - 200, near * 1e4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for part in (rows[:300], rows[:2], rows):
            x = part.astype("float32")
            wide = x.astype("longdouble")
            top = wide.max(1, keepdims=True)
            wanted = np.log(np.exp(wide - top).sum(1)) + top[:, 0]
            found = forward("logsumexp", x, axis=(1,), keepdims=False)
            np.testing.assert_allclose(found, wanted.astype("float32"), rtol=1e-6, atol=1e-6)


@each("level", [-59, -29, 29, 59])
@each("cotangent", [1e-20, 1.0, 1e20])
def test_gradients_of_log_sum_exp_keep_their_digits_for_small_and_large_cotangents(
    level, cotangent
):
    x = ag.Graph().parameter("x", np.full((2, 4), level, "float32"))
    loss = (ag.ops.logsumexp(x, 1) * cotangent).sum()
    with warnings.catch_warnings(), ag.LispMachine([loss]) as machine:
        warnings.simplefilter("error")
        found = machine.run_sync(backward=True)[x].grad
    np.testing.assert_allclose(found, cotangent / 4, rtol=1e-5)
