"""NumPy functions applied to nodes build nodes."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.ops import _numpy
from tests._each import each
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
    "diff of none": lambda x: np.diff(x, 0, prepend=1.0),
    "gradient": lambda x: np.gradient(x, 0.5, axis=1, edge_order=2),
    "gradient at coordinates": lambda x: np.gradient(x, np.array([0.1, 0.4, 1.2]), axis=1),
    "gradient at coordinates with parabolas at the ends": lambda x: np.gradient(
        np.concatenate([x, x + x], 0), [0.1, 0.4, 1.2, 1.5], axis=0, edge_order=2
    ),
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
    "sort of a kind": lambda x: np.sort(x, axis=0, kind="heapsort"),
    "argsort that is stable": lambda x: np.argsort(x, stable=True),
    "diff between values": lambda x: np.diff(x, 2, 0, 1.5, x[:1]),
    "sum from a value": lambda x: np.sum(x, axis=0, initial=2.5),
    "sum of some": lambda x: np.sum(x, axis=1, where=x > 1),
    "prod of some": lambda x: np.prod(x, where=OTHER > 1, keepdims=True),
    "mean of some": lambda x: np.mean(x, axis=1, where=OTHER > 0.6),
    "std of some": lambda x: np.std(x, where=OTHER > 0.6, ddof=1),
    "var of some": lambda x: np.var(x, axis=0, where=[[True], [True]]),
    "max of some": lambda x: np.max(x, axis=0, initial=0.0, where=x > 1),
    "min of none": lambda x: np.min(x[:, :0], axis=1, initial=3.0),
    "max of nothing kept": lambda x: np.amax(x[:0], axis=0, initial=1.0, keepdims=True),
    "any of some": lambda x: np.any(x > 1, axis=0, where=OTHER > 1),
    "all of some": lambda x: np.all(x > 1, where=x > 0.9),
    "nansum of some": lambda x: np.nansum(x, axis=0, where=OTHER > 1, initial=1.0),
    "nanmax of some": lambda x: np.nanmax(x, initial=0.0, where=OTHER > 1),
    "where without choices": lambda x: x[np.where(x > -1)],
    "floor of halves": lambda x: np.divmod(x, 0.3)[0],
    "layer": lambda x: np.tanh(x @ OTHER.T + OTHER[:, 0]),
}


@pytest.fixture
def x():
    return ag.Graph().input("x", (2, 3), "float64")


@each("name", UNARY)
def test_ufunc_of_one_argument_does_on_nodes_what_it_does_on_arrays(x, name):
    (got,) = evaluate([getattr(np, name)(x)], {x: VALUE})
    np.testing.assert_array_equal(got, getattr(np, name)(VALUE))


@each("name", BINARY)
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


@each("call", CALLS.values())
def test_numpy_function_means_the_same_on_nodes(x, call):
    node = call(x)
    (got,) = evaluate([node], {x: VALUE})
    wanted = call(VALUE)
    assert node.shape == np.shape(wanted) or None in node.shape
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
        (lambda x: np.put(x, [0], 1), "ag.ops.put"),
        (lambda x: np.histogram2d(x, x), "ag.ops.histogram"),
    ],
)
def test_function_without_an_op_names_the_nearest(x, call, nearest):
    with pytest.raises(GraphTypeError, match=f"has no op.*{nearest}"):
        call(x)


@pytest.mark.parametrize("call", [np.trim_zeros, lambda x: np.polyfit(x, x, 1)])
def test_function_like_no_op_is_told_where_the_list_is(x, call):
    with pytest.raises(GraphTypeError, match=r"has no op; docs/numpy\.md lists .*ag\.ops\.define"):
        call(x)


def test_all_functions_of_linalg_and_fft_are_there():
    frequencies = {"fft.fftfreq", "fft.rfftfreq"}  # of numbers, never of arrays
    for module in (np.linalg, np.fft):
        short = module.__name__.removeprefix("numpy.")
        functions = {f"{short}.{name}" for name in module.__all__ if name != "LinAlgError"}
        assert functions - frequencies <= set(_numpy.names())


@each("options", [{}, {"axis": 1}, {"axis": None, "keepdims": True}])
@each("ufunc", [np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin])
def test_reduce_of_a_ufunc_is_the_reduction(x, ufunc, options):
    (got,) = evaluate([ufunc.reduce(x, **options)], {x: VALUE})
    np.testing.assert_allclose(got, ufunc.reduce(VALUE, **options), rtol=1e-14)


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.minimum], ids=repr)
def test_accumulate_of_a_ufunc_is_the_running_one(x, ufunc):
    got = evaluate([ufunc.accumulate(x), ufunc.accumulate(x, axis=1)], {x: VALUE})
    np.testing.assert_allclose(got[0], ufunc.accumulate(VALUE), rtol=1e-14)
    np.testing.assert_allclose(got[1], ufunc.accumulate(VALUE, 1), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: np.add.outer(x, x), "np.add.outer does not take nodes"),
        (lambda x: np.divide.reduce(x), "np.divide.reduce does not take nodes"),
        (lambda x: np.add.reduce(x, dtype="float32"), r"np.add.reduce .* no dtype=; convert"),
    ],
)
def test_other_methods_and_parameters_of_ufuncs_raise(x, call, said):
    with pytest.raises(GraphTypeError, match=said):
        call(x)


def test_like_makes_numpy_build_nodes_of_lists_and_constants(x):
    nodes = [
        np.array([x[0], x[1] * 2], like=x),
        np.array([[x[0, 0], 1], [0, 3.5]], like=x),
        np.full((2, 2), x[1, 1], like=x),
        np.zeros((2, 2), like=x),
        np.array(x[0], ndmin=3, like=x),
    ]
    got = evaluate(nodes, {x: VALUE})
    wanted = [
        [VALUE[0], VALUE[1] * 2],
        [[VALUE[0, 0], 1], [0, 3.5]],
        np.full((2, 2), VALUE[1, 1]),
        np.zeros((2, 2)),
        VALUE[None, None, 0],
    ]
    for array, want in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(array, want)


def test_what_a_type_tells_is_answered_without_a_node(x):
    assert (np.size(x), np.size(x, 0), np.isrealobj(x), np.iscomplexobj(x)) == (6, 2, True, False)
    unknown = ag.Graph().input("x", (None, 2))
    with pytest.raises(ShapeError, match=r"known only in a run; use ag\.ops\.size_of"):
        np.size(unknown)


@each(
    ("call", "said"),
    [
        (lambda x: np.add(x, 1, out=np.ones((2, 3))), "np.add on nodes takes no out="),
        (lambda x: np.add(x, 1, where=np.ones((2, 3), bool)), "np.add on nodes takes no where="),
        (lambda x: np.add(x, 1, dtype="float32"), r"no dtype=; convert with \.astype"),
        (lambda x: np.sum(x, dtype="float32"), r"np.sum .* no dtype=; convert with \.astype"),
        (lambda x: np.sum(x, out=np.ones(())), "np.sum on nodes takes no out="),
        (lambda x: np.max(x, where=x > 1), "max with where= takes initial= too"),
        (lambda x: np.sum(x, where=np.ones((2, 3))), "sum: where= is a mask of bools"),
        (lambda x: np.real_if_close(x.astype("complex128")), "would depend on values; use np.real"),
        (lambda x: np.quantile(x, 0.5, weights=x), "np.quantile on nodes takes no weights="),
        (lambda x: np.concatenate([x, x], out=np.ones((4, 3))), "np.concatenate .* no out="),
        (lambda x: np.take(x, [0], mode="clip"), "np.take on nodes takes no mode="),
        (lambda x: np.linspace(x[0, 0], 1, retstep=True), "np.linspace .* takes no retstep="),
        (lambda x: np.cross(x, x, axis=0), "cross takes vectors of 3 along axis -1"),
        (lambda x: np.linalg.norm(x, 3), "the order is one of 'fro', 'nuc', 1, -1, .*, got 3"),
        (lambda x: np.gradient(x, 1, 2, 3), "one spacing, or one for each of 2 axes, got 3"),
        (lambda x: np.gradient(x, np.ones((2, 2)), 1), "a spacing has one dim at most"),
        (lambda x: np.gradient(x, edge_order=2), "np.gradient needs 3 entries along axis 0"),
        (lambda x: np.gradient(x, edge_order=3), "edge_order is 1 or 2, got 3"),
        (lambda x: np.select([x > 1], []), "as many conditions as choices, got 1 and 0"),
        (lambda x: np.partition(x, 3), "kth=3 is outside of 3 entries"),
        (lambda x: np.partition(x, 1, kind="introselect"), "np.partition .* takes no kind="),
        (lambda x: np.sort(x, order="a"), "np.sort on nodes takes no order="),
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
