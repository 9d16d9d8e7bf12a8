"""Quantiles, what passes over NaN, counting, finding, sampling: values are NumPy's."""

import warnings

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, NodeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate

RNG = np.random.default_rng(5)
VALUE = RNG.normal(size=(2, 3, 4))
HOLES = np.where(VALUE > 0.8, np.nan, VALUE)
HOLES[1] = np.nan
HOLES[1, 2, 3] = 1.0
SHAPES = [(2, 3, 4), ("n", None, 4), (None, None, None)]
AXES = [None, 0, -1, (0, 2), (2, 1)]
METHODS = (
    "linear lower higher nearest midpoint hazen weibull median_unbiased normal_unbiased "
    "inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf"
).split()


def same(nodes, feeds, wanted, rtol=1e-12):
    """The nodes have these values, and the shapes and dtypes that they promise."""
    for node, got, want in zip(nodes, evaluate(nodes, feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-13)
        assert got.shape == np.shape(want)
        assert got.dtype == node.dtype
        assert node.ndim == got.ndim


def numpy(name, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(np, name)(*args, **options)


@pytest.fixture
def x():
    return ag.Graph().input("x", (3, 4), "float64")


FLAT = VALUE[0]

# -- quantiles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantile_by_any_method_is_that_of_numpy(name, method):
    for shape in SHAPES:
        x = ag.Graph().input("x", shape, "float64")
        for axis in AXES:
            for q in (0.37, [0, 0.25, 0.5, 1]):
                options = {"axis": axis, "keepdims": axis == 0, "method": method}
                node = getattr(ag.ops, name)(x, q, **options)
                for value in (VALUE, HOLES):
                    same([node], {x: value}, [numpy(name, value, q, **options)])


@each("name", ["median", "nanmedian", "percentile", "nanpercentile"])
@each("axis", AXES)
def test_median_and_percentile_are_those_of_numpy(name, axis):
    x = ag.Graph().input("x", (2, None, 4), "float64")
    args = () if "median" in name else ([30, 70],)
    node = getattr(ag.ops, name)(x, *args, axis=axis)
    same([node], {x: HOLES}, [numpy(name, HOLES, *args, axis=axis)])


def test_quantile_between_infinities_is_no_nan():
    value = np.array([-np.inf, -np.inf, 1.0, np.inf, np.inf])
    x = ag.Graph().input("x", (5,), "float64")
    nodes = [ag.ops.quantile(x, q) for q in (0, 0.1, 0.5, 0.9, 1)]
    same(nodes, {x: value}, [-np.inf, -np.inf, 1, np.inf, np.inf])


def test_quantile_of_ints_is_one_of_them():
    x = ag.Graph().input("x", (4,), "int64")
    same([ag.ops.quantile(x, 0.5, method="lower")], {x: np.array([7, 1, 3, 5])}, [3])


def test_quantile_has_a_gradient_by_its_fraction():
    graph = ag.Graph()
    x, q = graph.input("x", (3,), "float64"), graph.input("q", (), "float64")
    (slope,) = ag.gradients(ag.ops.quantile(x, q), [q])
    same([slope], {x: np.array([1.0, 2, 4]), q: np.array(0.8)}, [4.0])


# -- what passes over NaN -----------------------------------------------------------------------


@each("axis", AXES)
@each("shape", SHAPES)
@each("name", ["sum", "prod", "mean", "max", "min", "var", "std"])
def test_reduction_that_passes_over_nan_is_that_of_numpy(name, shape, axis):
    x = ag.Graph().input("x", shape, "float64")
    options = {"axis": axis, "keepdims": axis == -1}
    if name in ("var", "std"):
        options["ddof"] = 1
    node = getattr(ag.ops, f"nan{name}")(x, **options)
    same([node], {x: HOLES}, [numpy(f"nan{name}", HOLES, **options)])


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd"])
def test_complex_numbers_are_passed_over_too(name):
    value = FLAT + 1j * FLAT[::-1]
    value[0, 1] = np.nan
    x = ag.Graph().input("x", (3, 4), "complex128")
    same([getattr(ag.ops, name)(x, 1)], {x: value}, [numpy(name, value, 1)])


@each("name", ["nansum", "nanmax", "nanmean", "nanstd", "nanmedian"])
def test_float32_stays_float32(name):
    x = ag.Graph().input("x", (2, 3, 4), "float32")
    value = HOLES.astype("float32")
    same([getattr(ag.ops, name)(x, 0)], {x: value}, [numpy(name, value, 0)], rtol=1e-5)


@each("name", ["nancumsum", "nancumprod"])
@each("axis", [None, 0, -1])
def test_running_result_that_passes_over_nan_is_that_of_numpy(name, axis):
    x = ag.Graph().input("x", (2, 3, 4), "float64")
    same([getattr(ag.ops, name)(x, axis)], {x: HOLES}, [numpy(name, HOLES, axis)])


@pytest.mark.parametrize(("name", "wanted"), [("nanargmax", [1, 2, 1]), ("nanargmin", [1, 0, 1])])
def test_position_passes_over_nan_and_finds_infinities(name, wanted):
    """NumPy's, which puts an infinity for NaN, is wrong in the first and the last row."""
    value = np.array([[np.nan, -np.inf, np.nan], [1, np.nan, 3], [np.nan, np.inf, np.inf]])
    x = ag.Graph().input("x", (3, 3), "float64")
    same([getattr(ag.ops, name)(x, 1)], {x: value}, [wanted])


# -- finding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_positions_of_what_is_not_zero_are_those_of_numpy(shape):
    value = np.where(VALUE > 0, VALUE, 0)
    value[0, 0, 0] = np.nan
    x = ag.Graph().input("x", shape, "float64")
    nodes = [*ag.ops.nonzero(x), ag.ops.argwhere(x), ag.ops.flatnonzero(x), x[ag.ops.nonzero(x)]]
    wanted = [*np.nonzero(value), np.argwhere(value), np.flatnonzero(value), value[value != 0]]
    same(nodes, {x: value}, wanted)
    assert nodes[3].shape == (None, 3)


@pytest.mark.parametrize("test", [[0.5, 2], [[1], [2]], [], 1.5], ids=str)
@pytest.mark.parametrize("invert", [False, True])
def test_isin_is_that_of_numpy(x, test, invert):
    value = np.round(FLAT * 2) / 2
    same([ag.ops.isin(x, test, invert=invert)], {x: value}, [np.isin(value, test, invert=invert)])


# -- counting -----------------------------------------------------------------------------------


def test_bincount_is_that_of_numpy():
    graph = ag.Graph()
    i, w = graph.input("i", (None,), "uint8"), graph.input("w", (None,), "float32")
    value, weights = np.array([3, 0, 3, 1], "uint8"), np.array([0.5, 1, 2, 4], "float32")
    nodes = [ag.ops.bincount(i), ag.ops.bincount(i, w), ag.ops.bincount(i, minlength=6)]
    wanted = [np.bincount(value), np.bincount(value, weights), np.bincount(value, minlength=6)]
    same(nodes, {i: value, w: weights}, wanted)


@pytest.mark.parametrize("bins", [[-1, 0, 0, 1.0], [1, 0.5, -1], [0.0]], ids=str)
@pytest.mark.parametrize("right", [False, True])
def test_digitize_is_that_of_numpy(x, bins, right):
    value = np.round(FLAT * 2) / 2
    same([ag.ops.digitize(x, bins, right)], {x: value}, [np.digitize(value, bins, right)])


@each("bins", [1, 5, [-2, 0, 0.1, 3.0]])
@each(
    "options",
    [{}, {"range": (-1, 1.0)}, {"density": True}, {"weights": VALUE[1]}, {"range": (1, 1)},
     {"weights": VALUE[1] ** 2, "density": True}],
)  # fmt: skip
def test_histogram_is_that_of_numpy(x, bins, options):
    value = np.round(FLAT * 4) / 4
    nodes = ag.ops.histogram(x, bins, **options)
    same(nodes, {x: value}, numpy("histogram", value, bins, **options))


def test_histogram_of_ints_and_of_one_value():
    x = ag.Graph().input("x", (None,), "int64")
    for value in (np.array([1, 2, 2, 9]), np.array([4, 4])):
        same(ag.ops.histogram(x, 3), {x: value}, np.histogram(value, 3))


# -- functions by samples -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"left": 3.0, "right": -2.0}, {"period": 0.7}], ids=str)
@pytest.mark.parametrize("count", [1, 2, 6])
def test_interp_is_that_of_numpy(x, options, count):
    places, values = np.sort(RNG.normal(size=count)).tolist(), RNG.normal(size=count).tolist()
    value = FLAT.copy()
    value[0, 0], value[0, 1] = places[0], places[-1]
    wanted = np.interp(value, places, values, **options)
    same([ag.ops.interp(x, places, values, **options)], {x: value}, [wanted])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_trapezoid_is_that_of_numpy(x, axis):
    places = np.arange(FLAT.shape[axis]) ** 2.0
    for options in ({"dx": 0.3}, {"x": places}, {"x": FLAT**3}):
        wanted = np.trapezoid(FLAT, **options, axis=axis)
        same([ag.ops.trapezoid(x, **options, axis=axis)], {x: FLAT}, [wanted])


@each("sizes", [(5, 3), (3, 5), (4, 4), (5, 2), (6, 4), (1, 1)])
@each("dtype", ["float32", "float64", "int64", "complex128"])
@each("mode", ["full", "same", "valid"])
def test_convolve_is_that_of_numpy(sizes, dtype, mode):
    a, v = ((RNG.normal(size=size) * 5).astype(dtype) for size in sizes)
    node = ag.Graph().input("a", (sizes[0],), dtype)
    wanted = np.convolve(a, v, mode)
    same([ag.ops.convolve(node, v, mode)], {node: a}, [wanted], rtol=1e-4)


# -- what varies together -----------------------------------------------------------------------

SQUARES = VALUE[1] ** 2


@pytest.mark.parametrize(
    ("axis", "weights"),
    [(None, None), (0, [1, 2, 3.0]), (1, SQUARES), ((1, 0), SQUARES.T), (None, SQUARES)],
    ids=str,
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_average_is_that_of_numpy(x, axis, weights, keepdims):
    nodes = ag.ops.average(x, axis, weights, True, keepdims)
    same(nodes, {x: FLAT}, np.average(FLAT, axis, weights, True, keepdims=keepdims))


@pytest.mark.parametrize(
    "options",
    [{}, {"rowvar": False}, {"bias": True}, {"ddof": 0}, {"y": SQUARES}, {"fweights": [1, 2, 1, 3]},
     {"aweights": [0.1, 0.2, 1, 2]}, {"fweights": [1, 2, 1, 3], "aweights": [0.1, 0.2, 1, 2]},
     {"aweights": [0.1, 0.2, 1, 2], "ddof": 0}],
    ids=str,
)  # fmt: skip
def test_covariance_is_that_of_numpy(x, options):
    same([ag.ops.cov(x, **options)], {x: FLAT}, [np.cov(FLAT, **options)])
    if options.keys() <= {"rowvar", "y"}:
        same([ag.ops.corrcoef(x, **options)], {x: FLAT}, [np.corrcoef(FLAT, **options)])


def test_covariance_of_complex_numbers_and_of_one_variable(x):
    z = x.graph.input("z", (3, 4), "complex128")
    value = FLAT + 1j * SQUARES
    nodes = [ag.ops.cov(z), ag.ops.corrcoef(z), ag.ops.cov(x[0]), ag.ops.corrcoef(x[0])]
    wanted = [np.cov(value), np.corrcoef(value), np.cov(FLAT[0]), np.corrcoef(FLAT[0])]
    same(nodes, {x: FLAT, z: value}, wanted)


def test_covariance_of_too_few_observations_is_nan_without_a_warning(x):
    z = x.astype("complex128")
    nodes = [ag.ops.cov(x[:, :1]), ag.ops.cov(z[:, :1])]
    for got in evaluate(nodes, {x: FLAT}):
        assert np.isnan(got).all()


def test_mean_of_complex_numbers_of_which_none_counts_is_nan_without_a_warning(x):
    z = ag.ops.where(x == x, np.nan, x).astype("complex128")
    (got,) = evaluate([ag.ops.nanmean(z, 0)], {x: FLAT})
    assert np.isnan(got).all()


# -- order --------------------------------------------------------------------------------------


def test_mode_is_the_smallest_of_the_most_frequent(x):
    value = np.array([[3.0, 1, 3, 1], [2, 2, 2, 0], [np.nan, np.nan, 5, 5]])
    nodes = [*ag.ops.mode(x), *ag.ops.mode(x, 0, keepdims=True)]
    wanted = [[1, 2, 5], [3, 2, 3], [[2, 1, 2, 0]], [[1, 0, 1, 1]]]
    same(nodes, {x: value}, wanted)


# -- arrays of nodes ----------------------------------------------------------------------------


def test_array_joins_nested_lists_of_nodes_arrays_and_numbers(x):
    node = ag.ops.array([[x[0, 0], 1], (x[1, 1], np.float64(2))], "float32")
    same([node], {x: FLAT}, [np.array([[FLAT[0, 0], 1], [FLAT[1, 1], 2]], "float32")])


# -- rounding of ints, Python's own functions ---------------------------------------------------


@each("dtype", ["int8", "uint8", "int16", "int64"])
@each("decimals", [-1, -2, -3, 0, 1])
def test_ints_are_rounded_to_tens_as_numpy_does(dtype, decimals):
    value = np.array([0, 4, 5, 15, 25, 44, 45, 55, 95, 104, 119], dtype)
    value = np.concatenate([value, -value]) if dtype[0] == "i" else value
    x = ag.Graph().input("x", value.shape, dtype)
    same([np.round(x, decimals)], {x: value}, [np.round(value, decimals)])


def test_functions_of_python_round_and_divide(x):
    import math

    nodes = [round(x), round(x, 1), math.floor(x), math.ceil(x), math.trunc(x)]
    nodes += [*divmod(x, 0.3), *divmod(2.0, x)]
    wanted = [np.round(FLAT), np.round(FLAT, 1), np.floor(FLAT), np.ceil(FLAT), np.trunc(FLAT)]
    wanted += [*np.divmod(FLAT, 0.3), *np.divmod(2.0, FLAT)]
    same(nodes, {x: FLAT}, wanted)


@each("dtype", ["int8", "bool", "bfloat16", "float16", "complex64"])
def test_nan_to_num_takes_any_dtype(dtype):
    value = np.array([0, 1, 1]).astype(ag.types.dtype_of(dtype))
    wanted = value.copy()
    if value.dtype.kind not in "ib":
        value[1], value[2] = np.nan, np.inf
        wanted[1], wanted[2] = 0, {"bfloat16": 3.3895314e38}.get(dtype, 0)
        if dtype != "bfloat16":
            wanted = np.nan_to_num(value)
    x = ag.Graph().input("x", (3,), dtype)
    (got,) = evaluate([np.nan_to_num(x)], {x: value})
    np.testing.assert_array_equal(got, wanted)


# -- bad input ----------------------------------------------------------------------------------


@each(
    ("call", "said"),
    [
        (lambda x: ag.ops.quantile(x, 1.5), "quantile: q is between 0 and 1, got 1.5"),
        (lambda x: ag.ops.percentile(x, -1), "percentile: q is between 0 and 100, got -1"),
        (lambda x: ag.ops.quantile(x, [[0.5]]), "q is a number or has one dim, got shape"),
        (lambda x: ag.ops.quantile(x, 0.5, method="best"), "no method 'best'; there are linear"),
        (lambda x: ag.ops.median(x[:, :0], 1), "median: no elements to choose from along axis"),
        (lambda x: ag.ops.median(x.astype("int64")), r"no numbers between .*\.astype"),
        (lambda x: ag.ops.narrow(x, 0, 2, 2), "narrow: 2 entries from 2 on are not all in dim 3"),
        (lambda x: ag.ops.kthvalue(x, 5), "kthvalue: k is between 1 and the dim 4 .* got 5"),
        (lambda x: ag.ops.nanmean(x.astype("int64")), r"nanmean: mean of .* convert it first"),
        (lambda x: np.var(x.astype("int64"), where=x > 0), r"var of .* convert it first"),
        (lambda x: ag.ops.mode(x.astype("complex128")), "mode: .* is not a real number"),
        (lambda x: ag.ops.nonzero(x[0, 0]), "nonzero: .* is a scalar|nonzero: .* has no axes"),
        (lambda x: ag.ops.masked_scatter(x, x, x), "masked_scatter: the mask holds bools"),
        (lambda x: ag.ops.bincount(x), "bincount: float64 is not an integer"),
        (lambda x: ag.ops.bincount(x, minlength=-1), "minlength is an int from 0 on, got -1"),
        (lambda x: ag.ops.digitize(x, [0, 2, 1]), "digitize: bins are edges of one dim in rising"),
        (lambda x: ag.ops.histogram(x, "auto"), "bins is a number of bins or their edges"),
        (lambda x: ag.ops.histogram(x, 0), "there is at least 1 bin, got 0"),
        (lambda x: ag.ops.histogram(x, 2, (1, 0)), r"range is \(lowest, highest\), got"),
        (lambda x: ag.ops.interp(x, [], []), "at least one entry"),
        (lambda x: ag.ops.interp(x, [0.0], [0.0], period=0), "period is not 0"),
        (lambda x: ag.ops.convolve(x[0], x[1], "best"), "mode is 'full', 'same' or 'valid'"),
        (lambda x: ag.ops.convolve(x, x), "convolve: the arguments have one dim of known size"),
        (lambda x: ag.ops.average(x, 0, [1.0, 2]), "average: "),
        (lambda x: ag.ops.cov(x[None]), "cov: variables have at most two dims"),
        (lambda x: ag.ops.mode(x[:, :0]), "mode_indices: no elements|no elements to choose"),
        (lambda x: ag.ops.array([1, 2]), "array: there is no node in"),
        (lambda x: pow(x, 2, 3), r"pow of .* no third argument; write \(x \*\* y\) % z"),
        (lambda x: ag.ops.scatter_reduce(x, 0, [[0]], x, "max"), "reduce is one of sum, mean"),
        (lambda x: ag.ops.index_reduce(x, 0, [[0]], x, "prod"), "the index has one dim"),
        (lambda x: ag.ops.segment_reduce(x, "sum"), "either lengths= or offsets="),
        (
            lambda x: ag.ops.segment_reduce(x.astype("int8"), "mean", lengths=[3]),
            "segment_reduce: mean of .* convert it first",
        ),
        (lambda x: ag.ops.segment_reduce(x, "sum", lengths=[1, 1]), "are not all of dim 3"),
        (lambda x: ag.ops.segment_reduce(x, "sum", offsets=[1, 3]), "are not all of dim 3"),
        (lambda x: ag.ops.segment_reduce(x, "sum", lengths=[[3]]), "lengths and offsets have one"),
    ],
)  # fmt: skip
def test_bad_input_is_told(x, call, said):
    with pytest.raises((GraphError, GraphTypeError, ShapeError), match=said):
        call(x)


def test_lengths_of_segments_that_leave_entries_raise_in_the_run():
    graph = ag.Graph()
    x, lengths = graph.input("x", ("n", 4), "float64"), graph.input("lengths", (2,), "int64")
    node = ag.ops.segment_reduce(x, "sum", lengths=lengths)
    with pytest.raises((NodeError, IndexError), match="out of bounds"):
        evaluate([node], {x: FLAT, lengths: np.array([1, 1])})
