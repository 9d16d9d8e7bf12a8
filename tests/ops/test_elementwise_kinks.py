"""Elementwise ops and activations at kinks, ties, infinities and NaN: the documented rules.

Every warning of NumPy is an error here, so these tests also say that none is raised for nothing.
"""

import sys

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops.test_kinks import value_and_gradients

pytest.importorskip("scipy")

INF, NAN = np.inf, np.nan
FLOATS = ["float16", "float32", "float64"]
ops = ag.ops


def values(build, *arrays, dtype="float64"):
    graph = ag.Graph()
    arrays = [np.asarray(array, dtype) for array in arrays]
    xs = [graph.input(f"x{i}", array.shape, dtype) for i, array in enumerate(arrays)]
    return evaluate([build(*xs)], dict(zip(xs, arrays, strict=True)))[0]


def test_large_gradients_of_relu_are_masked():
    x, seed = np.random.default_rng(0).normal(size=(2, 123, 131))
    node = ag.Graph().input("x", x.shape, "float64")
    [dx] = ag.gradients([ops.relu(node)], [node], seeds=[seed])
    for feed in (x, np.asfortranarray(x)):
        np.testing.assert_array_equal(evaluate([dx], {node: feed})[0], np.where(x > 0, seed, 0))
    assert dx.op.memory.in_place == (0,)
    expected = np.where(x > 0, seed, 0)
    np.testing.assert_array_equal(dx.op.forward(np, seed, x, out=seed), expected)
    np.testing.assert_array_equal(seed, expected)


# -- infinities: value and slope at -inf, -largest, largest, inf ------------------------------

LIMITS = {
    # name: (build, value at each end with L for the largest number, slope at each end)
    "sigmoid": (ops.sigmoid, [0, 0, 1, 1], [0, 0, 0, 0]),
    "logsigmoid": (ops.logsigmoid, [-INF, "-L", 0, 0], [1, 1, 0, 0]),
    "relu6": (ops.relu6, [0, 0, 6, 6], [0, 0, 0, 0]),
    "leaky_relu": (lambda x: ops.leaky_relu(x, 0.5), [-INF, "-L/2", "L", INF], [0.5, 0.5, 1, 1]),
    "elu": (ops.elu, [-1, -1, "L", INF], [0, 0, 1, 1]),
    "celu": (lambda x: ops.celu(x, 2.0), [-2, -2, "L", INF], [0, 0, 1, 1]),
    "gelu": (ops.gelu, [0, 0, "L", INF], [0, 0, 1, 1]),
    "gelu tanh": (lambda x: ops.gelu(x, "tanh"), [0, 0, "L", INF], [0, 0, 1, 1]),
    "silu": (ops.silu, [0, 0, "L", INF], [0, 0, 1, 1]),
    "mish": (ops.mish, [0, 0, "L", INF], [0, 0, 1, 1]),
    "hardsigmoid": (ops.hardsigmoid, [0, 0, 1, 1], [0, 0, 0, 0]),
    "hardswish": (ops.hardswish, [0, 0, "L", INF], [0, 0, 1, 1]),
    "hardtanh": (ops.hardtanh, [-1, -1, 1, 1], [0, 0, 0, 0]),
    "softsign": (ops.softsign, [-1, -1, 1, 1], [0, 0, 0, 0]),
    "tanhshrink": (ops.tanhshrink, [-INF, "-L", "L", INF], [1, 1, 1, 1]),
    "softshrink": (ops.softshrink, [-INF, "-L", "L", INF], [1, 1, 1, 1]),
    "hardshrink": (ops.hardshrink, [-INF, "-L", "L", INF], [1, 1, 1, 1]),
    "threshold": (lambda x: ops.threshold(x, 1, -3), [-3, -3, "L", INF], [0, 0, 1, 1]),
    "erf": (ops.erf, [-1, -1, 1, 1], [0, 0, 0, 0]),
    "erfc": (ops.erfc, [2, 2, 0, 0], [0, 0, 0, 0]),
    "arctan": (ops.arctan, [-np.pi / 2, -np.pi / 2, np.pi / 2, np.pi / 2], [0, 0, 0, 0]),
}


@each("dtype", FLOATS)
@each("name", LIMITS)
def test_function_goes_to_its_limits_without_a_warning(name, dtype):
    build, wanted, slopes = LIMITS[name]
    largest = np.finfo(dtype).max
    words = {"L": largest, "-L": -largest, "-L/2": -largest / 2}
    value, gradient = value_and_gradients(build, [-INF, -largest, largest, INF], dtype=dtype)
    wanted = np.array([words.get(one, one) for one in wanted], dtype)
    rtol = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(value, wanted, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(gradient, np.array(slopes, dtype), atol=rtol)


@each("dtype", FLOATS)
@each("name", LIMITS)
def test_second_derivatives_at_the_limits_are_zero_and_finite(name, dtype):
    largest = np.finfo(dtype).max
    x = ag.Graph().input("x", (4,), dtype)
    (first,) = ag.gradients(LIMITS[name][0](x).sum(), [x])
    (second,) = ag.gradients(first.sum(), [x])
    ends = np.array([-INF, -largest, largest, INF], dtype)
    (got,) = evaluate([second], {x: ends})
    np.testing.assert_allclose(got, np.zeros(4), atol=1e-6)


@each("name", LIMITS)
def test_nan_stays_nan(name):
    assert np.isnan(values(LIMITS[name][0], [NAN])[0])


# -- kinks ------------------------------------------------------------------------------------

KINKS = {
    "relu6": (ops.relu6, [0, 6], [0, 0]),
    "hardtanh": (ops.hardtanh, [-1, 1], [0, 0]),
    "hardsigmoid": (ops.hardsigmoid, [-3, 3], [0, 0]),
    "hardswish": (ops.hardswish, [-3, 3], [0, 1]),
    "leaky_relu": (lambda x: ops.leaky_relu(x, 0.25), [0, -0.0], [0.25, 0.25]),
    "elu": (lambda x: ops.elu(x, 0.5), [0], [0.5]),
    "celu": (lambda x: ops.celu(x, 0.5), [0], [1]),
    "softshrink": (ops.softshrink, [-0.5, 0, 0.5], [0, 0, 0]),
    "hardshrink": (ops.hardshrink, [-0.5, 0, 0.5], [0, 0, 0]),
    "threshold": (lambda x: ops.threshold(x, 1, 7), [1], [0]),
    "softsign": (ops.softsign, [0], [1]),
}


@each("name", KINKS)
def test_slope_at_a_kink_is_the_documented_one(name):
    build, points, slopes = KINKS[name]
    _, gradient = value_and_gradients(build, points)
    np.testing.assert_array_equal(gradient, slopes)


@pytest.mark.oracle
@each("name", KINKS)
def test_slope_at_a_kink_is_that_of_pytorch(name):
    torch = pytest.importorskip("torch")
    functions = torch.nn.functional
    theirs = {
        "celu": lambda t: functions.celu(t, 0.5),
        "elu": lambda t: functions.elu(t, 0.5),
        "leaky_relu": lambda t: functions.leaky_relu(t, 0.25),
        "threshold": lambda t: functions.threshold(t, 1, 7),
    }.get(name) or getattr(functions, name)
    t = torch.tensor(KINKS[name][1], dtype=torch.float64, requires_grad=True)
    theirs(t).sum().backward()
    np.testing.assert_array_equal(t.grad.numpy(), KINKS[name][2])


def test_relu_gives_no_nan_where_an_inactive_unit_meets_an_infinite_cotangent():
    x = ag.Graph().input("x", (4,), "float64")
    seed = np.array([INF, NAN, INF, 2.0])
    (gradient,) = ag.gradients([ops.relu(x)], [x], seeds=[seed])
    (got,) = evaluate([gradient], {x: np.array([-1.0, 0.0, 1.0, 3.0])})
    np.testing.assert_array_equal(got, [0, 0, INF, 2])


def test_prelu_takes_one_slope_or_one_per_channel():
    x = ag.Graph().input("x", ("batch", 3, 5), "float32")
    assert ops.prelu(x, 0.2).shape == ("batch", 3, 5)
    assert ops.prelu(x, np.ones(3, "float32")).shape == ("batch", 3, 5)
    with pytest.raises(ShapeError, match=r"prelu: .*3 .*2"):
        ops.prelu(x, np.ones(2, "float32"))
    with pytest.raises(ShapeError, match="one slope or one per channel"):
        ops.prelu(x, np.ones((3, 5), "float32"))


@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_a_number_wins_against_nan_and_gets_the_gradient(name):
    value, x, y = value_and_gradients(
        getattr(ops, name), [NAN, 1.0, NAN, 2.0, 3.0], [1.0, NAN, NAN, 2.0, 4.0]
    )
    first = float(name == "fmin")
    np.testing.assert_array_equal(value, [1, 1, NAN, 2, 3 if name == "fmin" else 4])
    np.testing.assert_array_equal(x, [0, 1, 0, 0.5, first])
    np.testing.assert_array_equal(y, [1, 0, 0, 0.5, 1 - first])


def test_maximum_and_minimum_choose_by_their_own_masks():
    """Gorgonia's MinBetween and MaxBetween used one mask for both (systems.md 1.12, 16)."""
    xs, ys = [1.0, 5.0], [4.0, 2.0]
    _, of_max, _ = value_and_gradients(ops.maximum, xs, ys)
    _, of_min, _ = value_and_gradients(ops.minimum, xs, ys)
    np.testing.assert_array_equal([of_max, of_min], [[0, 1], [1, 0]])


@pytest.mark.parametrize("name", ["hypot", "arctan2"])
def test_gradient_at_the_origin_is_zero(name):
    _, x, y = value_and_gradients(getattr(ops, name), [0.0, 3.0], [0.0, 4.0])
    assert (x[0], y[0]) == (0, 0)
    wanted = {"hypot": (0.6, 0.8), "arctan2": (4 / 25, -3 / 25)}[name]
    np.testing.assert_allclose((x[1], y[1]), wanted)


@pytest.mark.parametrize("name", ["hypot", "arctan2"])
def test_large_sides_do_not_overflow(name):
    value, *gradients = value_and_gradients(getattr(ops, name), [1e300], [1e300])
    assert np.isfinite([value, *gradients]).all()


def test_inverse_hyperbolic_sine_of_large_numbers_has_a_slope():
    _, gradient = value_and_gradients(ops.arcsinh, [1e200, -1e200])
    np.testing.assert_allclose(gradient, [1e-200, 1e-200])


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_logaddexp_of_minus_infinity_has_no_nan(name):
    value, x, y = value_and_gradients(
        getattr(ops, name), [-INF, -INF, 0.0, 1000.0], [-INF, 0.0, 0.0, -1000.0]
    )
    half = {"logaddexp": np.log(2), "logaddexp2": 1}[name]
    np.testing.assert_allclose(value, [-INF, 0, half, 1000])
    np.testing.assert_array_equal(x, [0, 0, 0.5, 1])
    np.testing.assert_array_equal(y, [0, 1, 0.5, 0])


@pytest.mark.filterwarnings("ignore:overflow")  # the sum of two largest numbers itself
@each("dtype", FLOATS)
@each("name", ["logaddexp", "logaddexp2"])
def test_shares_of_logaddexp_are_exact_for_any_size(name, dtype):
    top = float(np.finfo(dtype).max)
    xs, ys = [INF, top, 0.9 * top, INF, -top, -INF], [1.0, top, -0.9 * top, INF, top, 3.0]
    _, x, y = value_and_gradients(getattr(ops, name), xs, ys, dtype=dtype)
    np.testing.assert_array_equal(x, [1, 0.5, 1, 0.5, 0, 0])
    np.testing.assert_array_equal(y, [0, 0.5, 0, 0.5, 1, 1])
    _, x, y = value_and_gradients(getattr(ops, name), [1e4], [1e4], dtype=dtype)
    assert (x, y) == (0.5, 0.5)


def test_lgamma_of_both_infinities_is_infinite():
    np.testing.assert_array_equal(values(ops.lgamma, [-INF, INF]), [INF, INF])


def test_functions_of_the_normal_distribution_keep_their_digits_in_the_tails():
    x = np.array([-1e4, -1e2, -30.0, 30.0, INF])
    value, gradient = value_and_gradients(ops.log_ndtr, x)
    mills = -x[:3] - 1 / x[:3] + 2 / x[:3] ** 3 - 10 / x[:3] ** 5  # of the asymptotic series
    np.testing.assert_allclose(gradient[:3], mills, rtol=1e-7)
    np.testing.assert_allclose(gradient[3:], [np.exp(-450) / np.sqrt(2 * np.pi), 0])
    assert (value[-1], np.isfinite(value).all()) == (0, True)
    x = np.array([99.0, 101.0, 1e5, INF])
    _, gradient = value_and_gradients(ops.erfcx, x)
    wanted = -(x**-2.0) * (1 - 1.5 * x**-2.0 + 3.75 * x**-4.0) / np.sqrt(np.pi)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-10)


def test_limits_of_products_with_logarithms_are_finite():
    value, x, y = value_and_gradients(ops.xlogy, [0.0, 0.0, 0.0, 0.0], [0.0, -1.0, INF, 3.0])
    np.testing.assert_array_equal(value, [0, 0, 0, 0])
    np.testing.assert_allclose(x, [0, 0, 0, np.log(3)])
    np.testing.assert_array_equal(y, [0, 0, 0, 0])
    value, gradient = value_and_gradients(ops.entr, [-1.0, 0.5])
    np.testing.assert_allclose(value, [-INF, np.log(2) / 2])
    np.testing.assert_allclose(gradient, [NAN, np.log(2) - 1])


def test_parts_of_floats_at_zeros_and_infinities():
    value, x, y = value_and_gradients(ops.copysign, [0.0, -2.0, INF], [-0.0, 1.0, -1.0])
    np.testing.assert_array_equal(value, [-0.0, 2, -INF])
    assert np.signbit(value[0])
    np.testing.assert_array_equal(x, [0, -1, -1])
    np.testing.assert_array_equal(y, [0, 0, 0])
    value, _, step = value_and_gradients(ops.heaviside, [0.0, 1.0, NAN], [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(value, [2, 1, NAN])
    np.testing.assert_array_equal(step, [1, 0, 0])
    for name in ("frexp", "modf"):
        xs = np.array([0.0, -3.7, INF])
        for part, wanted in enumerate(getattr(np, name)(xs)):
            got = values(lambda x, name=name, part=part: getattr(ops, name)(x)[part] + 0, xs)
            np.testing.assert_array_equal(got, wanted)
    assert values(ops.fmod, [5.0], [INF]) == 5


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "trunc"])
def test_rounding_has_gradient_zero_and_leaves_integers_alone(name):
    xs = [-2.5, -0.5, 0.5, 1.5, 2.0]
    value, gradient = value_and_gradients(getattr(ops, name), xs)
    np.testing.assert_array_equal(value, getattr(np, name)(xs))
    np.testing.assert_array_equal(gradient, np.zeros(5))
    n = ag.Graph().input("n", (2,), "int32")
    assert getattr(ops, name)(n) is n
    c = n.graph.input("c", (), "complex64")
    if name == "round":  # as in NumPy
        assert ops.round(c).dtype == c.dtype
        return
    with pytest.raises(GraphTypeError, match=rf"{name}: complex64 is not a float"):
        getattr(ops, name)(c)


@pytest.mark.parametrize("decimals", [-1, 0, 2])
def test_round_takes_decimals(decimals):
    xs = np.array([123.456, -7.005, 0.125])
    np.testing.assert_array_equal(
        values(lambda x: ops.round(x, decimals), xs), np.round(xs, decimals)
    )


@each("name", ["isnan", "isinf", "isfinite"])
@each("dtype", ["float16", "float64", "complex64"])
def test_tests_of_elements_are_those_of_numpy(name, dtype):
    xs = np.array([NAN, INF, -INF, 1.0], dtype)
    got = values(getattr(ops, name), xs, dtype=dtype)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, getattr(np, name)(xs))


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64"])
def test_comparison_gives_the_dtype_of_its_operands_on_demand(dtype):
    x = ag.Graph().input("x", (3,), dtype)
    array = np.array([1, 2, 3], dtype)
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        (got,) = evaluate([getattr(ops, name)(x, 2, same_dtype=True)], {x: array})
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, getattr(np, name)(array, 2))
        assert getattr(ops, name)(2, x).dtype == bool


# -- wrong results of the systems before us, by name ------------------------------------------


def test_log2_has_the_gradient_of_log2():
    """Gorgonia's symbolic gradient was ln 2 / x (systems.md 1.12, 2)."""
    _, gradient = value_and_gradients(ops.log2, [3.0])
    np.testing.assert_allclose(gradient, 1 / (3 * np.log(2)), rtol=1e-15)


def test_inverse_square_root_has_the_gradient_of_the_inverse_square_root():
    """Gorgonia's was -1 / (2 y ** 3) (systems.md 1.12, 2)."""
    _, gradient = value_and_gradients(ops.rsqrt, [4.0])
    np.testing.assert_allclose(gradient, -0.5 * 0.5**3, rtol=1e-15)


def test_gelu_by_tanh_has_a_gradient_at_zero():
    """Ginn's Gelu2 gave NaN there (systems.md 3.2)."""
    for approximate in ("tanh", "none"):
        _, gradient = value_and_gradients(lambda x, a=approximate: ops.gelu(x, a), [0.0])
        np.testing.assert_array_equal(gradient, [0.5])


def test_softplus_is_exact_beside_the_point_where_gorgonia_switched():
    """Gorgonia returned x above 16, off by 1e-7 (systems.md 1.13)."""
    value, _ = value_and_gradients(ops.softplus, [16.5])
    np.testing.assert_allclose(value - 16.5, np.exp(-16.5), rtol=1e-6)


def test_gelu_and_silu_keep_their_digits_in_the_left_tail():
    (gelu,) = values(ops.gelu, [-10.0])
    np.testing.assert_allclose(gelu, -10 * 7.619853024160527e-24, rtol=1e-13)
    (silu,) = values(ops.silu, [-40.0])
    np.testing.assert_allclose(silu, -40 * np.exp(-40), rtol=1e-13)


# -- errors -----------------------------------------------------------------------------------


@each(
    "call, said",
    [
        (lambda x: ops.hardtanh(x, 1, -1), r"min_val 1 is above max_val -1"),
        (lambda x: ops.softshrink(x, -1), "lambd has to be at least 0, got -1"),
        (lambda x: ops.hardshrink(x, NAN), "lambd has to be at least 0, got nan"),
        (lambda x: ops.celu(x, 0), "alpha divides x"),
        (lambda x: ops.gelu(x, "fast"), "approximate is 'none' or 'tanh', got 'fast'"),
        (lambda x: ops.polygamma(-1, x), "the order is an int >= 0, got -1"),
    ],
)
def test_wrong_parameters_raise_where_the_node_is_built(call, said):
    with pytest.raises(GraphError, match=said):
        call(ag.Graph().input("x", (2,), "float32"))


def test_special_functions_without_scipy_say_what_to_install(monkeypatch):
    from actorgraph.ops import special

    monkeypatch.setitem(sys.modules, "scipy", None)
    special._library.cache_clear()
    x = ag.Graph().input("x", (2,), "float32")
    for op in (ops.erf, ops.lgamma, ops.gelu):
        with pytest.raises(GraphError, match=r'pip install "actorgraph\[special\]"'):
            op(x)
    assert ops.gelu(x, "tanh").shape == (2,)


@each("dtype", FLOATS)
@each("name", ["erf", "erfc", "lgamma", "digamma", "gelu", "i0", "k1e"])
def test_special_functions_keep_the_dtype(name, dtype):
    value, gradient = value_and_gradients(getattr(ops, name), [0.5, 1.5], dtype=dtype)
    assert value.dtype == gradient.dtype == dtype
