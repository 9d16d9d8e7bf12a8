"""Reductions, running sums and products, and norms: where they have edges, and small floats."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, NodeError, ShapeError
from actorgraph.ops._arrays import dot_tells
from tests._each import each
from tests._evaluate import evaluate
from tests.ops.test_kinks import value_and_gradients

INF, NAN = np.inf, np.nan
ops = ag.ops


def leaf(shape, dtype="float64"):
    return ag.Graph().input("x", shape, dtype)


def value_of(build, array):
    x = leaf(np.shape(array), np.asarray(array).dtype)
    return evaluate([build(x)], {x: np.asarray(array)})[0]


def test_reductions_are_methods_of_nodes_too():
    x = leaf((2, 3))
    for name in ("sum", "mean", "max", "min", "prod", "var", "std", "any", "all", "argmax"):
        assert getattr(x, name)(axis=1) is getattr(ops, name)(x, 1)
        assert getattr(x, name)().shape == ()
    assert x.cumsum(0) is ops.cumsum(x, 0)
    assert x.cumprod(0) is ops.cumprod(x, 0)
    assert x.argmin(0, keepdims=True).shape == (1, 3)
    assert x.round(1) is ops.round(x, 1)
    assert x.conj() is x


# -- products ---------------------------------------------------------------------------------


@each(
    "row, gradient",
    [
        ([2.0, 3.0, 4.0], [12, 8, 6]),
        ([2.0, 0.0, 4.0], [0, 8, 0]),
        ([0.0, 0.0, 4.0], [0, 0, 0]),
        ([0.0, 0.0, 0.0], [0, 0, 0]),
        ([5.0], [1]),
    ],
)
def test_product_has_its_gradient_with_any_number_of_zeros(row, gradient):
    _, got = value_and_gradients(lambda x: ops.prod(x, 0), row)
    np.testing.assert_array_equal(got, gradient)


def test_second_derivative_of_a_product_survives_a_zero():
    x = leaf((3,))
    (first,) = ag.gradients(ops.prod(x), [x])
    rows = [ag.gradients(first[i], [x])[0] for i in range(3)]
    got = evaluate(rows, {x: np.array([0.0, 3.0, 5.0])})
    np.testing.assert_array_equal(got, [[0, 5, 3], [5, 0, 0], [3, 0, 0]])


def test_product_over_several_axes_has_the_gradient_of_the_flat_one():
    array = np.random.default_rng(1).normal(size=(2, 3, 2))
    array[0, 1, 1] = 0
    _, flat = value_and_gradients(lambda x: ops.prod(x.reshape(-1)), array)
    _, joint = value_and_gradients(lambda x: ops.prod(x), array)
    _, both = value_and_gradients(lambda x: ops.prod(ops.prod(x, (0, 2)), 0), array)
    np.testing.assert_allclose(joint, flat, rtol=1e-12)
    np.testing.assert_allclose(both, flat, rtol=1e-12)


def test_running_product_has_its_gradient_with_zeros():
    row = [2.0, 0.0, 3.0, 0.0, 5.0]
    _, got = value_and_gradients(ops.cumprod, row)
    # d/dx of 2 + 0 + 0 + 0 + 0, by each factor with the others held.
    np.testing.assert_array_equal(got, [1, 2 + 2 * 3, 0, 0, 0])


@each("name", ["cumsum", "cumprod"])
@each("axis", [None, 0, -1])
@each("dtype", ["int32", "float16", "float64", "complex64"])
def test_running_reductions_are_those_of_numpy_in_their_own_dtype(name, axis, dtype):
    array = np.arange(1, 7).reshape(2, 3).astype(dtype)
    got = value_of(lambda x: getattr(ops, name)(x, axis), array)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, getattr(np, name)(array, axis).astype(dtype))


@each("name", ["cumsum", "cumprod"])
@each("rows", [0, 1, 4])
def test_running_reductions_work_along_a_symbolic_dim(name, rows):
    x = leaf(("batch", 2))
    outputs = [getattr(ops, name)(x, 0)]
    outputs += ag.gradients(outputs[0].sum(), [x])
    array = np.full((rows, 2), 2.0)
    value, gradient = evaluate(outputs, {x: array})
    np.testing.assert_array_equal(value, getattr(np, name)(array, 0))
    assert gradient.shape == (rows, 2)


def test_products_of_dims_only_a_run_knows_have_gradients():
    x = leaf((None, 2))
    (gradient,) = ag.gradients(ops.prod(x), [x])
    (got,) = evaluate([gradient], {x: np.array([[1.0, 2], [3, 4], [5, 6]])})
    np.testing.assert_allclose(got, 720 / np.array([[1.0, 2], [3, 4], [5, 6]]))


# -- var and std ------------------------------------------------------------------------------


def test_standard_deviation_of_equal_elements_has_gradient_zero():
    value, gradient = value_and_gradients(lambda x: ops.std(x, 1), [[3.0, 3.0], [1.0, 3.0]])
    np.testing.assert_array_equal(value, [0, 1])
    np.testing.assert_array_equal(gradient, [[0, 0], [-0.5, 0.5]])


def test_second_derivative_of_a_standard_deviation_of_zero_is_finite():
    x = leaf((3,))
    (first,) = ag.gradients(ops.std(x), [x])
    (second,) = ag.gradients(first[0], [x])
    (got,) = evaluate([second], {x: np.full(3, 2.0)})
    assert np.isfinite(got).all()


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("shape", [(2, 0), (2, 1)])
def test_spread_of_too_few_elements_is_nan_without_a_warning(name, shape):
    got = value_of(lambda x: getattr(ops, name)(x, 1, ddof=1), np.ones(shape))
    np.testing.assert_array_equal(got, [NAN, NAN])


@pytest.mark.parametrize("dims", [("batch", 3), (None, 3)])
def test_variance_over_a_batch_divides_by_what_came(dims):
    x = leaf(dims)
    node = ops.var(x, 0, ddof=1)
    array = np.random.default_rng(2).normal(size=(5, 3))
    got, gradient = evaluate([node, *ag.gradients(node.sum(), [x])], {x: array})
    np.testing.assert_allclose(got, array.var(0, ddof=1), rtol=1e-13)
    np.testing.assert_allclose(gradient, 2 * (array - array.mean(0)) / 4, rtol=1e-13)


def test_variance_does_not_cancel_beside_a_large_mean():
    array = 1e8 + np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(value_of(ops.var, array), 2 / 3, rtol=1e-12)


# -- norm -------------------------------------------------------------------------------------


@each("p", [0, 0.5, 1, 1.5, 2, 3, -1, INF, -INF])
def test_norm_has_a_finite_gradient_at_zero_and_beside_it(p):
    value, gradient = value_and_gradients(
        lambda x: ops.norm(x, p, 1), [[0.0, 0.0], [0.0, 3.0], [-4.0, 4.0]]
    )
    assert value[0] == 0
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[0], [0, 0])
    x = leaf((2,))
    (first,) = ag.gradients(ops.norm(x, p), [x])
    (second,) = ag.gradients(first.sum(), [x])
    for point in ([0.0, 0.0], [0.0, 2.0]):
        (got,) = evaluate([second], {x: np.array(point)})
        assert np.isfinite(got).all()


@pytest.mark.parametrize("p", [1, 3])
def test_norm_takes_absolute_values(p):
    """Gorgonia's took none for p other than 2 (systems.md 1.12, 7)."""
    got = value_of(lambda x: ops.norm(x, p), [-1.0, -2.0])
    np.testing.assert_allclose(got, {1: 3, 3: 9 ** (1 / 3)}[p], rtol=1e-15)


@each("p", [1.5, 2, 4])
@each("scale", [1e-200, 1e200])
def test_norm_neither_overflows_nor_vanishes(p, scale):
    row = np.array([3.0, -4.0])
    value, gradient = value_and_gradients(lambda x: ops.norm(x, p), row * scale)
    wanted = (np.abs(row) ** p).sum() ** (1 / p)
    np.testing.assert_allclose(value, wanted * scale, rtol=1e-14)
    np.testing.assert_allclose(gradient, np.sign(row) * (np.abs(row) / wanted) ** (p - 1))


def test_norm_of_nothing_is_zero_and_of_infinity_infinite():
    for p in (0, 1, 2, 3, INF):
        assert value_of(lambda x, p=p: ops.norm(x, p), np.ones(0)) == 0
        if p:
            assert value_of(lambda x, p=p: ops.norm(x, p), [1.0, -INF]) == INF


def test_ties_of_the_infinite_norm_share_the_gradient():
    _, gradient = value_and_gradients(lambda x: ops.norm(x, INF), [3.0, -3.0, 1.0])
    np.testing.assert_array_equal(gradient, [0.5, -0.5, 0])


@pytest.mark.parametrize("p", ["fro", True, NAN])
def test_norm_of_an_order_that_is_no_number_raises(p):
    with pytest.raises(GraphError, match=r"norm: p is a number such as 1, 2 or inf"):
        ops.norm(leaf((2,)), p)


def test_logsumexp_of_two_zeros_is_the_logarithm_of_two():
    """Gorgonia summed after the logarithm (systems.md 1.12, 1)."""
    assert value_of(ops.logsumexp, [0.0, 0.0]) == np.log(2)


# -- positions, any, all, counts --------------------------------------------------------------


@each("name", ["argmax", "argmin", "any", "all", "count_nonzero"])
@each("axis", [None, 0, -1])
@each("keepdims", [False, True])
@each("dtype", ["int8", "float16", "float64"])
def test_reduction_without_gradient_is_that_of_numpy(name, axis, keepdims, dtype):
    array = np.random.default_rng(4).integers(-1, 2, (3, 4)).astype(dtype)
    got = value_of(lambda x: getattr(ops, name)(x, axis, keepdims), array)
    wanted = getattr(np, name)(array, axis=axis, keepdims=keepdims)
    assert got.dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ["any", "all"])
def test_any_of_nothing_is_false_and_all_of_nothing_true(name):
    assert value_of(getattr(ops, name), np.ones((0,), bool)) == (name == "all")


def test_the_first_of_equal_elements_is_the_position():
    assert value_of(ops.argmax, [1.0, 3.0, 3.0]) == 1
    assert value_of(ops.argmin, [1.0, 3.0, 1.0]) == 0


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_needs_elements_and_one_axis(name):
    x = leaf((2, 0))
    with pytest.raises(ShapeError, match="no elements to choose from along axis 1"):
        getattr(ops, name)(x, 1)
    with pytest.raises(ShapeError, match=rf"{name} takes one axis or None, got \(0, 1\)"):
        getattr(ops, name)(x, (0, 1))


def test_positions_have_no_gradient():
    x = leaf((3,))
    with pytest.raises(GraphTypeError, match="is int64 and has no gradient"):
        ag.gradients(ops.argmax(x), [x])


# -- floats of two bytes ----------------------------------------------------------------------


def _halves():
    found = ["float16"]
    try:
        import ml_dtypes  # noqa: F401 - it declares bfloat16
    except ImportError:
        return found
    return [*found, "bfloat16"]


HALVES = _halves()


def half_array(dtype, values):
    return np.asarray(values).astype(np.dtype(dtype))


@each("dtype", HALVES)
@each("name", ["sum", "mean", "norm", "var", "std", "logsumexp", "cumsum"])
def test_reductions_of_halves_accumulate_in_float32_and_round_once(name, dtype):
    array = half_array(dtype, np.random.default_rng(3).uniform(0, 1, 4000))
    wide = array.astype("float64")
    reference = {
        "norm": np.linalg.norm,
        "logsumexp": np.logaddexp.reduce,
    }.get(name) or getattr(np, name)
    got = value_of(getattr(ops, name), array)
    assert got.dtype == np.dtype(dtype)
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(got.astype("float64"), reference(wide), rtol=2 * eps)


@pytest.mark.parametrize("dtype", HALVES)
def test_matrix_product_of_halves_accumulates_in_float32(dtype):
    rng = np.random.default_rng(5)
    left = half_array(dtype, rng.uniform(0, 1, (3, 2000)))
    right = half_array(dtype, rng.uniform(0, 1, (2000, 2)))
    graph = ag.Graph()
    x, y = (graph.input(n, a.shape, dtype) for n, a in (("x", left), ("y", right)))
    node = x @ y
    got, dx, dy = evaluate([node, *ag.gradients(node.sum(), [x, y])], {x: left, y: right})
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    wide = left.astype("float64") @ right.astype("float64")
    np.testing.assert_allclose(got.astype("float64"), wide, rtol=2 * eps)
    assert got.dtype == dx.dtype == dy.dtype == np.dtype(dtype)
    wanted = np.broadcast_to(right.astype("float64").sum(1), (3, 2000))
    np.testing.assert_allclose(dx.astype("float64"), wanted, rtol=4 * eps)


@pytest.mark.parametrize("dtype", HALVES)
def test_gradient_of_a_broadcast_of_halves_is_summed_in_float32(dtype):
    graph = ag.Graph()
    x, b = graph.input("x", (4096, 2), dtype), graph.input("b", (2,), dtype)
    (gradient,) = ag.gradients((x + b).sum(), [b])
    feeds = {x: half_array(dtype, np.zeros((4096, 2))), b: half_array(dtype, np.zeros(2))}
    (got,) = evaluate([gradient], feeds)
    np.testing.assert_array_equal(got.astype("float64"), [4096, 4096])


# -- sums of rows -----------------------------------------------------------------------------


@each("order", ["C", "F", "strided"])
@each("dtype", ["float32", "float64"])
@each("shape", [(32, 10), (3, 5, 7), (1, 4), (0, 3), (4, 0), (2, 0, 3), (5000, 3)])
def test_sums_of_rows_are_those_of_numpy_in_any_layout(shape, dtype, order):
    value = np.random.default_rng(1).normal(size=shape).astype(dtype)
    laid = np.asfortranarray(value) if order == "F" else value
    if order == "strided":
        laid = np.repeat(value, 2, axis=-1)[..., ::2]
    axes = tuple(range(value.ndim - 1))
    x = ag.Graph().input("x", shape, dtype)
    total = x.sum(axis=axes)
    with ag.LispMachine([total]) as lisp, ag.TapeMachine([total]) as tape:
        one, other = lisp.run_sync({"x": laid}), tape.run_sync({"x": laid})
    assert one[total].value.tobytes() == other[total].value.tobytes()
    wanted = value.sum(axis=axes)
    scale = np.abs(value).sum(axis=axes) * 4 * np.finfo(dtype).eps
    assert other[total].value.dtype == dtype
    assert (np.abs(other[total].value - wanted) <= scale).all()


@pytest.mark.skipif(not dot_tells(), reason="sums are NumPy's own before NumPy 2.3")
def test_a_sum_of_rows_that_overflows_is_told_as_errstate_wants():
    x = ag.Graph().input("x", (3, 4))
    total = x.sum(axis=0)
    with (
        np.errstate(over="raise"),
        ag.TapeMachine([total]) as machine,
        pytest.raises(NodeError, match="overflow"),
    ):
        machine.run_sync({"x": np.full((3, 4), 3e38, "float32")})


def test_infinities_and_nan_stay_in_their_column_of_a_sum_of_rows():
    x = ag.Graph().input("x", (40, 4))
    value = np.ones((40, 4), "float32")
    value[3, 1], value[5, 2], value[6, 2] = np.inf, np.inf, np.nan
    total = x.sum(axis=0)
    with ag.TapeMachine([total]) as machine:
        found = machine.run_sync({"x": value})[total].value
    assert np.array_equal(found, [40, np.inf, np.nan, 40], equal_nan=True)
