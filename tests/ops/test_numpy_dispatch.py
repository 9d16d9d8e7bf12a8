"""NumPy functions applied to nodes build nodes."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError
from actorgraph.ops import _numpy
from tests._evaluate import evaluate

VALUE = np.random.default_rng(1).uniform(0.5, 2, (2, 3))
OTHER = np.random.default_rng(2).uniform(0.5, 2, (2, 3))
UNARY = [
    "absolute", "arcsinh", "arctan", "cbrt", "ceil", "conjugate", "cos", "cosh", "deg2rad",
    "degrees", "exp", "exp2", "expm1", "fabs", "floor", "isfinite", "isinf", "isnan", "log",
    "log10", "log1p", "log2", "negative", "positive", "rad2deg", "radians", "reciprocal", "rint",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = [
    "add", "arctan2", "divide", "equal", "floor_divide", "fmax", "fmin", "greater", "greater_equal",
    "hypot", "less", "less_equal", "logaddexp", "logaddexp2", "maximum", "minimum", "mod",
    "multiply", "not_equal", "power", "remainder", "subtract", "true_divide",
]  # fmt: skip
CALLS = {
    "sum": lambda x: np.sum(x),
    "sum of an axis": lambda x: np.sum(x, axis=0),
    "sum with positional axis": lambda x: np.sum(x, 1, keepdims=True),
    "mean": lambda x: np.mean(x, axis=(0, 1)),
    "max": lambda x: np.max(x, axis=-1),
    "amin": lambda x: np.amin(x, 0),
    "min of all": lambda x: np.min(x, axis=None, out=None),
    "prod": lambda x: np.prod(x, axis=1),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "cumprod flat": lambda x: np.cumprod(x),
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "var corrected": lambda x: np.var(x, axis=0, correction=1),
    "std": lambda x: np.std(x, 1, keepdims=True),
    "argmax": lambda x: np.argmax(x, 1),
    "argmin": lambda x: np.argmin(x, axis=0, keepdims=True),
    "any": lambda x: np.any(x > 1, axis=0),
    "all": lambda x: np.all(x > 1, keepdims=True),
    "count_nonzero": lambda x: np.count_nonzero(x > 1, axis=1),
    "round": lambda x: np.round(x, 1),
    "around": lambda x: np.around(x, decimals=2),
    "real": lambda x: np.real(x),
    "imag": lambda x: np.imag(x),
    "angle": lambda x: np.angle(x - 1.2),
    "reshape": lambda x: np.reshape(x, (3, 2)),
    "reshape flat": lambda x: np.reshape(x, -1),
    "transpose": lambda x: np.transpose(x),
    "transpose axes": lambda x: np.transpose(x, axes=(1, 0)),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "where": lambda x: np.where(x > 1, x, 0.5),
    "clip": lambda x: np.clip(x, 0.8, 1.2),
    "clip from below": lambda x: np.clip(x, 0.8, None),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "squeeze": lambda x: np.squeeze(x[:1], axis=0),
    "concatenate": lambda x: np.concatenate([x, OTHER, x], axis=1),
    "stack": lambda x: np.stack([OTHER, x], axis=1),
    "broadcast_to": lambda x: np.broadcast_to(x, (4, 2, 3)),
    "take": lambda x: np.take(x, [2, 0], axis=1),
    "dot": lambda x: np.dot(x, OTHER.T),
    "dot of a node on the right": lambda x: np.dot(OTHER.T, x),
    "outer": lambda x: np.outer(x[0], OTHER[1]),
    "matmul": lambda x: np.matmul(OTHER, x.T),
    "isclose": lambda x: np.isclose(x, OTHER, 0.2, 0.1),
    "isclose on the left": lambda x: np.isclose(OTHER, x, rtol=0.3),
    "allclose": lambda x: np.allclose(x, OTHER, rtol=3.0),
    "array_equal": lambda x: np.array_equal(x, OTHER),
    "array_equal of other shapes": lambda x: np.array_equal(x, OTHER[0]),
    "select": lambda x: np.select([x > 1.5, x > 1], [x, OTHER], 0.25),
    "select of arrays": lambda x: np.select([OTHER > 1.5, x > 1], [OTHER, OTHER]),
    "partition": lambda x: np.partition(x, 1)[:, 1],
    "partition of the flat array": lambda x: np.partition(x, [0, -1], axis=None)[[0, -1]],
    "argpartition": lambda x: np.argpartition(x, 2, axis=1)[:, 2],
    "layer": lambda x: np.tanh(x @ OTHER.T + OTHER[:, 0]),
}


@pytest.fixture
def x():
    return ag.Graph().input("x", (2, 3), "float64")


@pytest.mark.parametrize("name", UNARY)
def test_ufunc_of_one_argument_does_on_nodes_what_it_does_on_arrays(x, name):
    (got,) = evaluate([getattr(np, name)(x)], {x: VALUE})
    np.testing.assert_array_equal(got, getattr(np, name)(VALUE))


@pytest.mark.parametrize("name", BINARY)
def test_ufunc_of_two_arguments_takes_a_node_on_either_side(x, name):
    ufunc = getattr(np, name)
    got = evaluate([ufunc(x, OTHER), ufunc(OTHER, x)], {x: VALUE})
    np.testing.assert_array_equal(got[0], ufunc(VALUE, OTHER))
    np.testing.assert_array_equal(got[1], ufunc(OTHER, VALUE))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "bitwise_and"])
def test_logical_ufuncs_take_bool_nodes(x, name):
    ufunc = getattr(np, name)
    (got,) = evaluate([ufunc(OTHER > 1, x > 1)], {x: VALUE})
    np.testing.assert_array_equal(got, ufunc(OTHER > 1, VALUE > 1))


@pytest.mark.parametrize("name", "erf erfcx erfinv expit gammaln i0e j1 logit ndtr psi".split())
def test_ufunc_of_scipy_does_on_nodes_what_it_does_on_arrays(x, name):
    function = getattr(pytest.importorskip("scipy.special"), name)
    (got,) = evaluate([function(x / 3)], {x: VALUE})
    np.testing.assert_allclose(got, function(VALUE / 3), rtol=1e-15)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_numpy_function_means_the_same_on_nodes(x, call):
    node = call(x)
    (got,) = evaluate([node], {x: VALUE})
    wanted = call(VALUE)
    assert node.shape == np.shape(wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_array_and_numpy_scalar_on_the_left_reach_the_node():
    x = ag.Graph().input("x", (3,), "float32")
    for node in (np.ones(3, "float32") + x, np.float32(2) * x, np.float64(2) * x, np.int64(2) - x):
        assert node.dtype == np.float32
        assert node.shape == (3,)


def test_numpy_scalar_compared_with_a_node_builds_a_node():
    x = ag.Graph().input("x", (3,), "float32")
    assert (np.float32(1) == x).op.name == "equal"
    assert (np.float32(1) < x).op.name in ("greater", "less")


def test_power_takes_the_cheap_form_through_numpy_too(x):
    assert np.power(x, 2).op.name == "square"


def test_shape_and_ndim_are_answered_without_a_node(x):
    assert np.shape(x) == (2, 3)
    assert np.ndim(x) == 2


@pytest.mark.parametrize(
    ("call", "nearest"),
    [
        (lambda x: np.nansum(x), "ag.ops.sum"),
        (lambda x: np.corrcoef(x), "ag.ops."),
        (lambda x: np.nanmean(x), "ag.ops.mean"),
    ],
)
def test_function_without_an_op_names_the_nearest(x, call, nearest):
    with pytest.raises(GraphTypeError, match=f"has no op.*{nearest}"):
        call(x)


@pytest.mark.parametrize("call", [np.histogram, lambda x: np.interp(x, x, x)])
def test_function_like_no_op_is_told_where_the_list_is(x, call):
    with pytest.raises(GraphTypeError, match=r"has no op; docs/numpy\.md lists .*ag\.ops\.define"):
        call(x)


def test_all_functions_of_linalg_and_fft_are_there():
    frequencies = {"fft.fftfreq", "fft.rfftfreq"}  # of numbers, never of arrays
    for module in (np.linalg, np.fft):
        short = module.__name__.removeprefix("numpy.")
        functions = {f"{short}.{name}" for name in module.__all__ if name != "LinAlgError"}
        assert functions - frequencies <= set(_numpy.names())


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.minimum])
def test_reduce_of_a_ufunc_names_the_reduction(x, ufunc):
    wanted = {"add": "sum", "maximum": "max", "minimum": "min"}[ufunc.__name__]
    with pytest.raises(GraphTypeError, match=f"{ufunc.__name__}.reduce .* use ag.ops.{wanted}"):
        ufunc.reduce(x)


@pytest.mark.parametrize("method", ["accumulate", "outer"])
def test_other_methods_of_ufuncs_raise(x, method):
    with pytest.raises(GraphTypeError, match=f"np.add.{method} does not take nodes"):
        getattr(np.add, method)(*[x] * (2 if method == "outer" else 1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: np.add(x, 1, out=np.ones((2, 3))), "np.add on nodes takes no out="),
        (lambda x: np.add(x, 1, where=np.ones((2, 3), bool)), "np.add on nodes takes no where="),
        (lambda x: np.add(x, 1, dtype="float32"), r"no dtype=; convert with \.astype"),
        (lambda x: np.sum(x, dtype="float32"), r"np.sum .* no dtype=; convert with \.astype"),
        (lambda x: np.sum(x, out=np.ones(())), "np.sum on nodes takes no out="),
        (lambda x: np.mean(x, where=True), "np.mean on nodes takes no where="),
        (lambda x: np.concatenate([x, x], out=np.ones((4, 3))), "np.concatenate .* no out="),
        (lambda x: np.where(x > 1), "np.where on nodes: missing a required argument"),
        (lambda x: np.take(x, [0], mode="clip"), "np.take on nodes takes no mode="),
        (lambda x: np.linspace(x[0, 0], 1, retstep=True), "np.linspace .* takes no retstep="),
        (lambda x: np.cross(x, x, axis=0), "cross takes vectors of 3 along axis -1"),
        (lambda x: np.diff(x, 1, 0, 0), "np.diff on nodes: too many positional"),
        (lambda x: np.linalg.norm(x, 3), "the order is one of 'fro', 'nuc', 1, -1, .*, got 3"),
        (lambda x: np.gradient(x, np.arange(3.0)), "takes one number, or one for each axis"),
        (lambda x: np.select([x > 1], []), "as many conditions as choices, got 1 and 0"),
        (lambda x: np.partition(x, 3), "kth=3 is outside of 3 entries"),
        (lambda x: np.partition(x, 1, kind="introselect"), "np.partition .* takes no kind="),
        (lambda x: np.sort(x, kind="stable"), "np.sort on nodes takes no kind="),
    ],
)
def test_parameters_that_nodes_cannot_honour_raise(x, call, said):
    with pytest.raises(GraphError, match=said):
        call(x)


def test_writing_a_node_into_an_array_raises(x):
    array = np.ones((2, 3))
    with pytest.raises(GraphTypeError, match="takes no out=; a node is built, never written to"):
        array += x
    with pytest.raises(GraphTypeError, match="has no value outside a run"):
        np.array([x, x])
