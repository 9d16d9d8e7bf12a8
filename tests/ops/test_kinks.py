"""Values and gradients at kinks, ties, infinities and NaN: the documented rules.

Every warning of NumPy is an error here, so these tests also say that none is raised for nothing.
"""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import ShapeError
from tests._each import each
from tests._evaluate import evaluate

INF, NAN = np.inf, np.nan


def value_and_gradients(build, *arrays, dtype="float64"):
    """Evaluate ``build(*nodes)`` and the gradients of its sum."""
    graph = ag.Graph()
    values = [np.asarray(array, dtype) for array in arrays]
    xs = [graph.input(f"x{i}", value.shape, dtype) for i, value in enumerate(values)]
    y = build(*xs)
    got = evaluate([y, *ag.gradients(y.sum(), xs)], dict(zip(xs, values, strict=True)))
    assert all(value.dtype == dtype for value in got)
    return got


@pytest.mark.parametrize("op", [ag.ops.abs, ag.ops.relu, ag.ops.sign])
def test_gradient_at_zero_is_zero(op):
    _, gradient = value_and_gradients(op, [0.0, -0.0])
    np.testing.assert_array_equal(gradient, [0, 0])


def test_gradients_beside_zero_are_the_slopes():
    _, of_abs = value_and_gradients(ag.ops.abs, [-2.0, 3.0])
    _, of_relu = value_and_gradients(ag.ops.relu, [-2.0, 3.0])
    _, of_sign = value_and_gradients(ag.ops.sign, [-2.0, 3.0])
    np.testing.assert_array_equal([of_abs, of_relu, of_sign], [[-1, 1], [0, 1], [0, 0]])


@pytest.mark.parametrize("op", [ag.ops.maximum, ag.ops.minimum])
def test_a_tie_of_two_gives_each_half(op):
    _, left, right = value_and_gradients(op, [1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    picked = [0.5, 0, 1] if op is ag.ops.maximum else [0.5, 1, 0]
    np.testing.assert_array_equal(left, picked)
    np.testing.assert_array_equal(right, 1 - np.array(picked))


def test_a_node_against_itself_gets_the_whole_gradient():
    _, gradient = value_and_gradients(lambda x: ag.ops.maximum(x, x), [1.0, -2.0])
    np.testing.assert_array_equal(gradient, [1, 1])


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_of_a_reduction_share_equally(name):
    rows = [[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, 5.0, 2.0], [4.0, 4.0, 4.0, 4.0]]
    _, gradient = value_and_gradients(lambda x: getattr(x, name)(axis=1), rows)
    third, quarter = 1 / 3, 1 / 4
    wanted = {
        "max": [[0, third, third, third], [0, 0, 1, 0], [quarter] * 4],
        "min": [[1, 0, 0, 0], [third, third, 0, third], [quarter] * 4],
    }
    np.testing.assert_array_equal(gradient, wanted[name])


@pytest.mark.parametrize("name", ["max", "min", "median"])
def test_nan_wins_a_reduction_and_gets_the_gradient(name):
    rows = [[1.0, NAN, 2.0], [2.0, 2.0, 2.0]]
    value, gradient = value_and_gradients(lambda x: getattr(ag.ops, name)(x, axis=1), rows)
    np.testing.assert_array_equal(value, [NAN, 2])
    np.testing.assert_array_equal(gradient[0], [0, 1, 0])
    assert gradient[1].sum() == pytest.approx(1)


@each("name", ["nanmax", "nanmin", "nanmedian", "nanmean", "nansum", "nanprod"])
def test_nan_that_is_passed_over_gets_no_gradient(name):
    value, gradient = value_and_gradients(
        lambda x: getattr(ag.ops, name)(x, axis=1), [[NAN, 3.0, NAN], [3.0, NAN, -INF]]
    )
    assert value[0] == 3
    np.testing.assert_array_equal(gradient[0], [0, 1, 0])
    assert gradient[1, 1] == 0


def test_running_logarithm_starts_at_minus_infinity_and_does_not_overflow():
    value, gradient = value_and_gradients(ag.ops.logcumsumexp, [-INF, -INF, 1.0, 800.0, -800.0])
    np.testing.assert_array_equal(value, [-INF, -INF, 1, 800, 800])
    np.testing.assert_array_equal(gradient, [0, 0, 1, 2, 0])


@each("name", ["nanmax", "nanmin", "nanmedian", "nanmean", "nanvar", "nanstd"])
def test_row_of_nan_is_nan_without_a_warning(name):
    value, _ = value_and_gradients(lambda x: getattr(ag.ops, name)(x, axis=1), [[NAN, NAN]])
    np.testing.assert_array_equal(value, [NAN])


def test_clip_passes_the_gradient_in_the_closed_interval():
    xs = [-2.0, -1.0, 0.0, 1.0, 2.0]
    value, gradient = value_and_gradients(lambda x: ag.ops.clip(x, -1, 1), xs)
    np.testing.assert_array_equal(value, [-1, -1, 0, 1, 1])
    np.testing.assert_array_equal(gradient, [0, 1, 1, 1, 0])


def test_bounds_of_clip_get_what_they_hold():
    build = lambda x, low, high: ag.ops.clip(x, low, high)  # noqa: E731 - one use
    value, x, low, high = value_and_gradients(build, [-2.0, 0.0, 2.0, 0.0], -1.0, 1.0)
    np.testing.assert_array_equal(x, [0, 1, 0, 1])
    assert (low, high) == (1, 1)
    value, x, low, high = value_and_gradients(build, [-2.0, 0.5, 2.0], 1.0, 0.0)
    np.testing.assert_array_equal(value, [0, 0, 0])
    assert (x.sum(), low, high) == (0, 0, 3)


def test_half_open_clips_leave_the_other_side_alone():
    xs = [-INF, -3.0, 3.0, INF]
    below, of_below = value_and_gradients(lambda x: ag.ops.clip(x, low=0), xs)
    above, of_above = value_and_gradients(lambda x: ag.ops.clip(x, high=0), xs)
    np.testing.assert_array_equal([below, above], [[0, 0, 3, INF], [-INF, -3, 0, 0]])
    np.testing.assert_array_equal([of_below, of_above], [[0, 0, 1, 1], [1, 1, 0, 0]])


def test_where_hides_what_is_not_chosen():
    def safe_log(x):
        positive = x > 0
        return ag.ops.where(positive, ag.ops.log(ag.ops.where(positive, x, 1)), 0)

    value, gradient = value_and_gradients(safe_log, [-1.0, 0.0, 2.0])
    np.testing.assert_allclose(value, [0, 0, np.log(2)])
    np.testing.assert_allclose(gradient, [0, 0, 0.5])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sigmoid_and_softplus_stay_finite_for_any_argument(dtype):
    top = float(np.finfo(dtype).max)
    xs = [-INF, -top, -1000.0, 0.0, 1000.0, top, INF]
    value, gradient = value_and_gradients(ag.ops.sigmoid, xs, dtype=dtype)
    np.testing.assert_array_equal(value, [0, 0, 0, 0.5, 1, 1, 1])
    np.testing.assert_array_equal(gradient, [0, 0, 0, 0.25, 0, 0, 0])
    value, gradient = value_and_gradients(ag.ops.softplus, xs, dtype=dtype)
    log2 = np.log(np.array(2, dtype))
    np.testing.assert_allclose(value, np.array([0, 0, 0, log2, 1000, top, INF], dtype))
    np.testing.assert_array_equal(gradient, [0, 0, 0, 0.5, 1, 1, 1])


def test_sigmoid_keeps_its_relative_accuracy_in_the_tail():
    value, _ = value_and_gradients(ag.ops.sigmoid, [-30.0, -700.0])
    np.testing.assert_allclose(value, np.exp([-30.0, -700.0]), rtol=1e-13)


@pytest.mark.parametrize(("op", "sign"), [(ag.ops.softplus, 1), (ag.ops.logsigmoid, -1)])
def test_second_derivatives_of_softplus_and_logsigmoid_keep_their_digits_in_the_tail(op, sign):
    x = ag.Graph().input("x", shape=(3,), dtype="float64")
    [slope] = ag.gradients(ag.ops.sum(op(x)), [x])
    [bend] = ag.gradients(ag.ops.sum(slope), [x])
    places = np.array([20.0, 50.0, 700.0])
    [found] = evaluate([bend], {x: sign * places})
    np.testing.assert_allclose(found, sign * np.exp(-places), rtol=1e-8)


@pytest.mark.parametrize(("op", "wanted"), [(ag.ops.log1p, 1e-20), (ag.ops.expm1, 1e-20)])
def test_small_arguments_are_not_lost(op, wanted):
    value, _ = value_and_gradients(op, [1e-20])
    assert value[0] == wanted


def test_logsumexp_neither_overflows_nor_loses_small_terms():
    rows = [[1000.0, 1000.0], [-1000.0, -1000.0], [0.0, 0.0], [0.0, -800.0]]
    value, gradient = value_and_gradients(lambda x: ag.ops.logsumexp(x, 1), rows)
    log2 = np.log(2)
    np.testing.assert_allclose(value, [1000 + log2, log2 - 1000, log2, 0], rtol=1e-15)
    np.testing.assert_allclose(gradient, [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [1, 0]], atol=1e-300)


def test_logsumexp_of_minus_infinity_is_minus_infinity_without_gradient():
    value, gradient = value_and_gradients(
        lambda x: ag.ops.logsumexp(x, 1), [[-INF, -INF], [-INF, 0.0]]
    )
    np.testing.assert_array_equal(value, [-INF, 0])
    np.testing.assert_array_equal(gradient, [[0, 0], [0, 1]])


def test_logsumexp_passes_infinity_and_nan_on():
    x = ag.Graph().input("x", (2, 2), "float64")
    (got,) = evaluate([ag.ops.logsumexp(x, 1)], {x: np.array([[INF, 0.0], [NAN, 0.0]])})
    np.testing.assert_array_equal(got, [INF, NAN])


def test_power_differentiates_by_its_base_at_zero():
    _, base, _ = value_and_gradients(ag.ops.power, [0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0])
    np.testing.assert_array_equal(base, [0, 1, 0, 0])
    _, base = value_and_gradients(lambda x: x**2.5, [0.0, 4.0])
    np.testing.assert_array_equal(base, [0, 20])


@pytest.mark.filterwarnings("ignore:divide by zero")  # 0 ** -2 itself
def test_power_differentiates_by_its_exponent_as_documented():
    _, _, exponent = value_and_gradients(
        ag.ops.power, [0.0, 0.0, 0.0, -2.0, 2.0, 1.0], [2.0, 0.0, -2.0, 2.0, 3.0, 5.0]
    )
    np.testing.assert_allclose(exponent, [0, 0, -INF, NAN, 8 * np.log(2), 0])


def test_powers_of_negative_bases_have_the_gradient_of_the_base():
    _, gradient = value_and_gradients(lambda x: x**3 + x**-1 + x**5, [-2.0])
    np.testing.assert_allclose(gradient, 12 - 0.25 + 80)


def test_mod_has_the_sign_of_the_divisor_and_slopes_as_documented():
    value, left, right = value_and_gradients(ag.ops.mod, [5.5, -5.5, 5.5], [2.0, 2.0, -2.0])
    np.testing.assert_array_equal(value, [1.5, 0.5, -0.5])
    np.testing.assert_array_equal(left, [1, 1, 1])
    np.testing.assert_array_equal(right, [-2, 3, 3])


def test_floor_division_is_a_staircase():
    value, left, right = value_and_gradients(ag.ops.floor_divide, [5.5, -5.5], [2.0, 2.0])
    np.testing.assert_array_equal([value, left, right], [[2, -3], [0, 0], [0, 0]])


def test_mean_of_nothing_is_nan_without_a_warning():
    value, gradient = value_and_gradients(lambda x: x.mean(axis=1), np.ones((2, 0)))
    np.testing.assert_array_equal(value, [NAN, NAN])
    assert gradient.shape == (2, 0)
    value, gradient = value_and_gradients(lambda x: x.mean(), np.ones((0, 2)))
    assert np.isnan(value)
    assert gradient.shape == (0, 2)


def test_mean_of_an_empty_symbolic_batch_works():
    x = ag.Graph().input("x", ("batch", 2), "float32")
    outputs = [x.mean(axis=1), *ag.gradients(x.mean(), [x])]
    for rows in (0, 3):
        row_means, gradient = evaluate(outputs, {x: np.ones((rows, 2), "float32")})
        assert row_means.shape == (rows,)
        assert gradient.dtype == np.float32
        np.testing.assert_allclose(gradient, np.full((rows, 2), 1 / 6), rtol=1e-6)


def test_mean_over_dims_only_a_run_knows_divides_by_what_came():
    x = ag.Graph().input("x", (None, 2), "float64")
    (gradient,) = ag.gradients(x.mean(), [x])
    (got,) = evaluate([gradient], {x: np.ones((5, 2))})
    np.testing.assert_allclose(got, np.full((5, 2), 0.1))


@pytest.mark.parametrize("name", ["max", "min", "logsumexp"])
def test_extremum_of_nothing_raises_where_it_is_built(name):
    x = ag.Graph().input("x", (2, 0), "float64")
    with pytest.raises(ShapeError, match=rf"{name}: no elements to choose from along"):
        getattr(ag.ops, name)(x, axis=1)
    assert getattr(ag.ops, name)(x, axis=0).shape == (0,)


@each("dtype", ["bool", "int8", "int64", "float16", "float32", "float64", "complex64"])
@each(
    "shapes",
    [
        ((64, 64), (64, 64), (64, 64)),
        ((64, 64), (), ()),
        ((64, 64), (64, 64), ()),
        ((64, 64), (), (64, 64)),
        ((4096, 1), (1, 3), (3,)),
        ((64, 64), (2, 64, 64), (64, 1)),
    ],
)
def test_large_selections_have_the_bits_of_numpys(dtype, shapes):
    rng = np.random.default_rng(3)
    condition = rng.integers(0, 2, shapes[0]).astype(bool)
    x, y = (np.array(rng.normal(size=shape) * 3, dtype) for shape in shapes[1:])
    if x.ndim == 2 and x.dtype.kind == "f":
        x[0, :3] = [NAN, -0.0, INF]
    for one, other in (
        (x, y),
        (x, np.zeros_like(y)),
        (x.T.copy().T, -y if dtype != "bool" else ~y),
    ):
        graph = ag.Graph()
        nodes = [graph.input(n, a.shape, a.dtype) for n, a in zip("cxy", (condition, one, other))]
        feeds = dict(zip(nodes, (condition, one, other), strict=True))
        (got,) = evaluate([ag.ops.where(*nodes)], feeds)
        wanted = np.where(condition, one, other)
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes()
