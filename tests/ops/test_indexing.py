"""Indexing: values and shapes against NumPy, scatter gradients, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.types import bind_dims, dim_max, dim_min, symbol
from tests._each import each
from tests._evaluate import evaluate
from tests._soak import drawn

n = symbol("n")
X = np.arange(60.0).reshape(3, 4, 5)
ROWS, COLS = np.array([2, 0, 2, -1]), np.array([[1], [-3]])

INDICES = [
    0,
    -1,
    np.int32(1),
    slice(1, None),
    slice(None, None, -1),
    slice(-2, None),
    slice(2, 0, -1),
    slice(5, 1),
    ...,
    None,
    (),
    (1, 2, 3),
    (..., 0),
    (slice(None), None, 1, ...),
    (0, ..., slice(None, None, 2)),
    ROWS,
    [0, 2],
    [],
    np.uint8([1, 1, 0]),
    np.zeros((2, 0), int),
    np.array(1),
    (slice(None), COLS),
    (..., ROWS),
    (ROWS, COLS),
    (ROWS, slice(None), COLS),
    (slice(None), ROWS, COLS),
    (0, slice(None), ROWS),
    (0, ROWS),
    (slice(None), 0, ROWS),
    (ROWS, 0),
    (ROWS, None, slice(1, 3)),
    (None, ROWS, None, COLS),
    (np.uint64([0, 2]), slice(1, 2), np.array([0, 1])),
]


def shape_of_run(node, **symbols):
    return tuple(bind_dims(dim, symbols) for dim in node.dims)


@each("index", INDICES)
def test_getitem_equals_numpy(index):
    x = ag.Graph().input("x", X.shape, "float64")
    y = ag.ops.getitem(x, index)
    (result,) = evaluate(y, {x: X})
    assert y.shape == result.shape
    assert np.array_equal(result, X[index])


@each("index", INDICES)
def test_the_gradient_of_getitem_adds_into_zeros(index):
    x = ag.Graph().input("x", X.shape, "float64")
    weight = np.sin(np.arange(X[index].size)).reshape(X[index].shape)
    expected = np.zeros_like(X)
    np.add.at(expected, index, weight)
    (dx,) = ag.gradients((ag.ops.getitem(x, index) * weight).sum(), [x])
    assert dx.shape == X.shape
    assert np.array_equal(evaluate(dx, {x: X})[0], expected)


@each("index", INDICES)
@each("shape", [("a", "b", "c"), (None, None, None)])
def test_getitem_and_its_second_derivative_need_no_known_dims(index, shape):
    x = ag.Graph().input("x", shape, "float64")
    y = ag.ops.getitem(x, index)
    (dx,) = ag.gradients((y * y * y).sum(), [x])
    (ddx,) = ag.gradients((dx * dx * dx).sum(), [x])
    times = np.zeros_like(X)
    np.add.at(times, index, 1)
    results = evaluate([y, dx, ddx], {x: X})
    assert np.array_equal(results[0], X[index])
    assert np.allclose(results[1], 3 * times * X**2, rtol=1e-12)
    assert np.allclose(results[2], 162 * times**3 * X**5, rtol=1e-12)
    if shape[0]:
        assert shape_of_run(y, a=3, b=4, c=5) == X[index].shape


@drawn(70, soak=1000)
@given(st.data())
def test_basic_indexing_of_symbolic_dims_has_the_shape_that_numpy_gives(data):
    shape = data.draw(st.tuples(*[st.integers(0, 5)] * data.draw(st.integers(1, 3))))
    index = data.draw(basic_indices(shape, allow_newaxis=True, max_dims=6))
    g = ag.Graph()
    names = tuple(f"n{i}" for i in range(len(shape)))
    x = g.input("x", names, "float64")
    y = ag.ops.getitem(x, index)
    value = np.zeros(shape)
    assert shape_of_run(y, **dict(zip(names, shape, strict=True))) == value[index].shape
    assert evaluate(y, {x: value})[0].shape == value[index].shape


def test_slices_of_symbols_have_readable_dims():
    x = ag.Graph().input("x", ("n", 4))
    assert ag.ops.getitem(x, slice(10)).shape == (dim_min(10, n), 4)
    assert ag.ops.getitem(x, slice(1, None)).shape == (dim_max(n - 1, 0), 4)
    assert ag.ops.getitem(x, slice(None, -1)).shape == (dim_max(n - 1, 0), 4)
    assert ag.ops.getitem(x, slice(1, -1)).shape == (dim_max(n - 2, 0), 4)
    assert ag.ops.getitem(x, slice(-3, None)).shape == (dim_min(n, 3), 4)
    assert ag.ops.getitem(x, slice(None, None, 2)).shape == ((n + 1) // 2, 4)
    assert ag.ops.getitem(x, slice(None, None, -1)).shape == ("n", 4)
    assert str(ag.ops.getitem(x, slice(1, None)).shape[0]) == "max(n - 1, 0)"


def test_shifted_slices_of_one_symbol_can_be_subtracted():
    x = ag.Graph().input("x", ("n",), "float64")
    steps = ag.ops.getitem(x, slice(1, None)) - ag.ops.getitem(x, slice(None, -1))
    assert steps.checks == []
    assert np.array_equal(evaluate(steps, {x: np.array([1.0, 4.0, 9.0])})[0], [3, 5])


def test_dims_may_stand_in_an_index():
    x = ag.Graph().input("x", ("n", 4), "float64")
    size = x.shape[0]
    half, last = ag.ops.getitem(x, slice(size // 2)), ag.ops.getitem(x, size - 1)
    value = np.arange(20.0).reshape(5, 4)
    results = evaluate([half, last], {x: value})
    assert np.array_equal(results[0], value[:2])
    assert np.array_equal(results[1], value[4])


def test_index_arrays_may_be_nodes():
    g = ag.Graph()
    x, i = g.input("x", (3, 4, 5), "float64"), g.input("i", ("n",), "int32")
    y = ag.ops.getitem(x, (slice(None), i))
    (dx,) = ag.gradients(y.sum(), [x])
    values = np.array([0, 3, 3], "int32")
    result, grad = evaluate([y, dx], {x: X, i: values})
    assert y.shape == (3, "n", 5)
    assert np.array_equal(result, X[:, values])
    assert np.array_equal(grad[0, :, 0], [1, 0, 0, 2])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_a_gather_of_more_rows_than_its_index_dtype_counts_bytes_is_right(dtype):
    """Positions are computed in int64, not in the dtype of the index."""
    g = ag.Graph()
    table = g.input("table", (100, 50), "float64")
    i = g.input("i", (4,), dtype)
    rows = np.array([99, 1, 99, 50], dtype)
    (grad,) = evaluate(
        ag.gradients(ag.ops.take(table, i, 0).sum(), [table]), {table: np.ones((100, 50)), i: rows}
    )
    assert np.array_equal(grad.sum(1), 50.0 * np.bincount(rows.astype(int), minlength=100))


def test_equal_index_expressions_are_one_node():
    """Regression: Gorgonia hashes a slice's start as one byte, so that x[1:] and x[257:] merge."""
    x = ag.Graph().input("x", (600, 4))
    getitem = ag.ops.getitem
    assert getitem(x, slice(0, 600)) is x
    assert getitem(x, -1) is getitem(x, 599)
    assert getitem(x, slice(-5, None)) is getitem(x, (slice(595, 600), ...))
    assert getitem(x, np.array([1, 2])) is getitem(x, [1, 2])
    assert getitem(x, slice(1, None)) is not getitem(x, slice(257, None))
    assert getitem(x, [1, 2]) is not getitem(x, [1, 3])


@each(
    "index, text",
    [
        (1.0, "index 0 of <x.* is 1.0; an index is an int"),
        ("a", "index 0 of <x.* is 'a'"),
        (np.array([0.5]), "is float64; index arrays have to be integers"),
        (slice(0.5), "holds 0.5; a slice holds ints, dims or None"),
        (slice(None, None, 0), "has the step 0"),
    ],
)
def test_what_is_no_index_is_a_type_error(index, text):
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match=text):
        ag.ops.getitem(g.input("x", (3, 4)), index)


@each(
    "index, text",
    [
        (3, "index 3 at position 0 is out of range for dim 3"),
        ((0, -5), "index -5 at position 1 is out of range for dim 4"),
        ([0, 3], "values from 0 to 3, out of range for dim 3"),
        ((0, 0, 0), "3 indices are too many"),
        ((..., ...), "one Ellipsis, got 2"),
        (([0, 1], [0, 1, 2]), r"shapes \(2,\) and \(3,\) do not fit"),
    ],
)
def test_an_index_that_cannot_fit_is_a_shape_error(index, text):
    g = ag.Graph()
    with pytest.raises(ShapeError, match=text):
        ag.ops.getitem(g.input("x", (3, 4)), index)


@pytest.mark.parametrize("index", [5, np.array([5]), np.array([[0], [-6]])])
def test_an_index_out_of_a_symbols_range_raises_in_the_run(index):
    x = ag.Graph().input("x", ("n",), "float64")
    y = ag.ops.getitem(x, index)
    with pytest.raises(IndexError, match="out of bounds"):
        evaluate(y, {x: np.zeros(5)})


@each("axis", [None, 0, 1, -1])
@each("indices", [2, [0, 2, 0], [[1, -1]], np.zeros((2, 0), int)])
def test_take_equals_numpy(axis, indices):
    x = ag.Graph().input("x", X.shape, "float64")
    y = ag.ops.take(x, indices, axis)
    (result,) = evaluate(y, {x: X})
    assert y.shape == result.shape
    assert np.array_equal(result, np.take(X, indices, axis))


def test_take_out_of_range_raises_in_the_run():
    g = ag.Graph()
    x, i = g.input("x", (3,), "float64"), g.input("i", (2,), "int64")
    with pytest.raises(IndexError, match="out of bounds"):
        evaluate(ag.ops.take(x, i, 0), {x: np.zeros(3), i: np.array([0, 3])})


def test_take_along_an_axis_that_is_not_there_is_a_shape_error():
    g = ag.Graph()
    with pytest.raises(ShapeError, match="take: axis 2 is not an int in"):
        ag.ops.take(g.input("x", (3, 4)), 0, axis=2)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_one_hot_has_a_one_at_each_index(dtype):
    i = ag.Graph().input("i", (2, "n"), "uint8")
    y = ag.ops.one_hot(i, 4, dtype)
    values = np.array([[0, 3, 1], [2, 2, 0]], "uint8")
    (result,) = evaluate(y, {i: values})
    assert y.shape == (2, "n", 4)
    assert result.dtype == y.dtype == dtype
    assert np.array_equal(result, np.eye(4, dtype=dtype)[values])


@pytest.mark.parametrize("wrong", [4, -1])
def test_one_hot_of_a_class_that_is_not_there_raises_in_the_run(wrong):
    i = ag.Graph().input("i", (2,), "int64")
    with pytest.raises(IndexError, match="are out of range for 4 classes"):
        evaluate(ag.ops.one_hot(i, 4), {i: np.array([0, wrong])})


def test_one_hot_wants_integers_and_a_depth():
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match="float32 is not an integer"):
        ag.ops.one_hot(g.input("x", (3,), "float32"), 4)
    with pytest.raises(ShapeError, match="depth -1 is negative"):
        ag.ops.one_hot(g.input("i", (3,), "int64"), -1)
