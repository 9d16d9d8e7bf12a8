"""Reading and writing by positions: against NumPy and PyTorch, repeated positions, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.types import symbol
from tests._each import each
from tests._evaluate import evaluate

ops = ag.ops
RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4, 2))


def node(value, name="x", g=None, shape=None):
    g = ag.Graph() if g is None else g
    return g.input(name, shape or value.shape, value.dtype)


# -- reading ----------------------------------------------------------------------------------


@each("shape", [X.shape, ("a", "b", "c"), (None, None, None)])
@each("axis", [0, 1, 2, -1, -3])
def test_take_along_axis_is_that_of_numpy(axis, shape):
    index = RNG.integers(-2, 2, X.shape)
    x = node(X, shape=shape)
    y = ops.take_along_axis(x, index, axis)
    (dx,) = ag.gradients((y * y).sum(), [x])
    value, gradient = evaluate([y, dx], {x: X})
    np.testing.assert_array_equal(value, np.take_along_axis(X, index, axis))
    times = np.zeros_like(X)
    grid = list(np.ogrid[:3, :4, :2])
    grid[axis] = index
    np.add.at(times, tuple(grid), 1)
    np.testing.assert_allclose(gradient, 2 * times * X)


@each(
    "shape, index_shape, axis",
    [
        ((3, 4), (1, 2), 1),
        ((3, 4), (5, 1), 0),
        ((1, 4), (3, 2), 1),
        ((3, 1), (3, 4), 0),
        ((2, 0), (2, 0), 0),
    ],
)
def test_take_along_axis_broadcasts_the_other_axes(shape, index_shape, axis):
    value, index = RNG.normal(size=shape), np.zeros(index_shape, int)
    x = node(value)
    y = ops.take_along_axis(x, index, axis)
    wanted = np.take_along_axis(value, index, axis)
    assert y.shape == wanted.shape
    np.testing.assert_array_equal(evaluate(y, {x: value})[0], wanted)


def test_take_along_no_axis_takes_from_the_flattened_array():
    x = node(X)
    np.testing.assert_array_equal(
        evaluate(ops.take_along_axis(x, [5, 0, -1], None), {x: X})[0], X.ravel()[[5, 0, -1]]
    )


def test_gather_nd_takes_an_entry_or_a_slice_for_each_position():
    x = node(X)
    index = np.array([[[0, 1], [2, 3]], [[1, 1], [0, -1]]])
    got = evaluate(
        [
            ops.gather_nd(x, index),
            ops.gather_nd(x, [[1, 2, 0]]),
            ops.gather_nd(x, np.zeros((2, 0), int)),
        ],
        {x: X},
    )
    np.testing.assert_array_equal(got[0], X[index[..., 0], index[..., 1]])
    np.testing.assert_array_equal(got[1], [X[1, 2, 0]])
    np.testing.assert_array_equal(got[2], [X, X])


def test_at_reads_one_element_and_sends_the_gradient_there():
    """Regression: Gorgonia's At has no gradient."""
    g = ag.Graph()
    x, i = node(X, g=g), g.input("i", (), "int64")
    y = ops.at(x, 1, i, -1)
    (dx,) = ag.gradients(y * y, [x])
    value, gradient = evaluate([y, dx], {x: X, i: np.array(2)})
    wanted = np.zeros_like(X)
    wanted[1, 2, -1] = 2 * X[1, 2, -1]
    assert value == X[1, 2, -1]
    np.testing.assert_array_equal(gradient, wanted)


def test_size_of_an_axis_is_a_scalar_of_the_graph():
    x = ag.Graph().input("x", ("n", 3, None), "float64")
    sizes = [ops.size_of(x, axis) for axis in (0, 1, -1, None)]
    assert [size.shape for size in sizes] == [()] * 4
    assert sizes[1].op.name == "constant"
    got = evaluate(sizes, {x: np.zeros((2, 3, 5))})
    assert [int(size) for size in got] == [2, 3, 5, 30]
    assert {size.dtype for size in got} == {np.dtype("int64")}


# -- writing ----------------------------------------------------------------------------------

INDICES = [
    1,
    (slice(None), -1),
    (..., 0),
    (slice(None, None, -2), None, slice(1, 3)),
    [2, 0],
    (slice(None), [1, 3]),
    ([0, 2], [1, 3]),
    X[:, :, 0] > 0,
    (slice(None), slice(None), np.array([False, True])),
    np.zeros((0,), int),
]


@each("shape", [X.shape, ("a", "b", "c"), (None, None, None)])
@each("index", INDICES)
def test_index_put_is_assignment_to_a_copy(index, shape):
    g = ag.Graph()
    wanted = X.copy()
    values = RNG.normal(size=X[index].shape)
    wanted[index] = values
    x, v = node(X, g=g, shape=shape), node(values, "v", g)
    y = ops.index_put(x, index, v)
    weights = np.sin(np.arange(X.size)).reshape(X.shape)
    dx, dv = ag.gradients((y * weights).sum(), [x, v])
    before = X.copy()
    value, gradient_x, gradient_v = evaluate([y, dx, dv], {x: X, v: values})
    np.testing.assert_array_equal(value, wanted)
    np.testing.assert_array_equal(X, before)
    kept = weights.copy()
    kept[index] = 0
    np.testing.assert_array_equal(gradient_x, kept)
    np.testing.assert_array_equal(gradient_v, weights[index])
    assert y.shape == x.shape


@each("index", INDICES)
def test_index_put_may_add(index):
    x = node(X)
    wanted = X.copy()
    np.add.at(wanted, index, 2.5)
    (value,) = evaluate(ops.index_put(x, index, 2.5, accumulate=True), {x: X})
    np.testing.assert_array_equal(value, wanted)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_of_repeated_writes_the_last_in_c_order_stays_and_gets_the_gradient(data):
    """For any layout of the operands, which NumPy's own assignment does not promise."""
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    index = np.array(
        data.draw(st.lists(st.integers(-3, 2), min_size=rows * columns, max_size=rows * columns))
    ).reshape(rows, columns)
    if data.draw(st.booleans()):
        index = np.asfortranarray(index)
    values = np.arange(1.0, 1 + rows * columns).reshape(rows, columns)
    wanted, winner = np.zeros(3), {}
    for place, value in zip(index.ravel(), values.ravel(), strict=True):
        wanted[place] = value
        winner[place % 3] = value
    g = ag.Graph()
    x, v, i = g.input("x", (3,), "float64"), node(values, "v", g), node(index, "i", g)
    y = ops.put(x, i, v)
    dx, dv = ag.gradients((y * np.array([1.0, 10, 100])).sum(), [x, v])
    value, gradient_x, gradient_v = evaluate([y, dx, dv], {x: np.zeros(3), v: values, i: index})
    np.testing.assert_array_equal(value, wanted)
    share = np.array([1.0, 10, 100])
    for place in range(3):
        assert gradient_x[place] == (0 if place in winner else share[place])
    expected = np.where(
        [
            value == winner[place % 3]
            for place, value in zip(index.ravel(), values.ravel(), strict=True)
        ],
        share[index.ravel() % 3],
        0,
    )
    np.testing.assert_array_equal(gradient_v.ravel(), expected)


def test_put_is_that_of_numpy_on_a_copy():
    x = node(X)
    wanted = X.copy()
    np.put(wanted, [0, 23, -2], [1.0, 2, 3])
    np.testing.assert_array_equal(
        evaluate(ops.put(x, [0, 23, -2], np.array([1.0, 2, 3])), {x: X})[0], wanted
    )
    np.testing.assert_array_equal(
        evaluate(ops.put(x, [1, 1], 2, accumulate=True), {x: np.zeros_like(X)})[0].ravel()[:3],
        [0, 4, 0],
    )


def test_known_gradient_of_a_slice_adds_into_zeros():
    """Systems 1.13: slice and ByIndices; repeated rows add up."""
    x = node(X)
    (dx,) = ag.gradients(ops.take(x, [1, 1, 0], 0).sum() + x[1:].sum(), [x])
    np.testing.assert_array_equal(evaluate(dx, {x: X})[0][:, 0, 0], [1, 3, 1])


# -- errors -----------------------------------------------------------------------------------

EYE = np.zeros((3, 4, 2), int)


@each(
    ("call", "error", "text"),
    [
        (lambda x: ops.gather(x, 0, [0]), ShapeError, "gather: the index has rank 1, but .*rank 3"),
        (lambda x: ops.gather(x, 0, np.zeros((1, 5, 1), int)), ShapeError, "dim 5 .* exceeds 4"),
        (lambda x: ops.gather(x, 3, EYE), ShapeError, "gather: axis 3"),
        (lambda x: ops.gather(x, 0, EYE * 0.5), GraphTypeError, "positions are integers"),
        (lambda x: ops.take_along_axis(x, EYE[:2], 1), ShapeError, "dims 3 and 2 at axis 0"),
        (lambda x: ops.take_along_axis(x, EYE[0], 1), ShapeError, "take_along_axis: .* rank 2"),
        (lambda x: ops.gather_nd(x, np.zeros((2, 4), int)), ShapeError, "an int of at most 3"),
        (lambda x: ops.at(x, 0), ShapeError, "at: 1 coordinates for .* of rank 3"),
        (lambda x: ops.at(x, 0, 0, slice(1)), GraphTypeError, "a coordinate is an int or a 0-d"),
        (lambda x: ops.at(x, 0, 4, 0), ShapeError, "index 4 at position 1 is out of range"),
        (lambda x: ops.index_put(x, 0, np.zeros(3)), ShapeError, "broadcast"),
        (lambda x: ops.index_put(x, 0, np.zeros(2, "float32")), GraphTypeError, "mixed dtypes"),
        (lambda x: ops.index_put(x, 3, 0), ShapeError, "index 3 at position 0 is out of range"),
        (lambda x: ops.put(x, [0.5], 0), GraphTypeError, "put: positions are integers"),
        (lambda x: ops.scatter(x, 0, [[0]], 1), ShapeError, "scatter: the index has rank 2"),
        (lambda x: ops.scatter(x, 0, EYE, np.zeros(3)), ShapeError, "broadcast"),
        (lambda x: ops.index_add(x, 0, [[0]], 1), ShapeError, "index_add: the index has one dim"),
        (lambda x: ops.size_of(x, 3), ShapeError, "size_of: axis 3"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_built(call, error, text):
    with pytest.raises(error, match=text):
        call(node(X))


def test_an_integer_array_cannot_hold_a_float():
    with pytest.raises(GraphTypeError, match="would change as int32"):
        ops.index_put(ag.Graph().input("x", (3,), "int32"), 0, 1.5)


@pytest.mark.parametrize("wrong", [3, -4])
def test_positions_out_of_range_raise_in_the_run(wrong):
    g = ag.Graph()
    x, i = node(np.zeros(3), g=g), g.input("i", (2,), "int64")
    for y in (ops.gather(x, 0, i), ops.put(x, i, 1.0), ops.scatter_add(x, 0, i, 1.0),
              ops.index_add(x, 0, i, 1.0), ops.scatter(x, 0, i, 1.0)):  # fmt: skip
        with pytest.raises(IndexError, match="out of bounds"):
            evaluate(y, {x: np.zeros(3), i: np.array([0, wrong])})


def test_symbolic_dims_stay():
    n = symbol("n")
    g = ag.Graph()
    x, i = g.input("x", ("n", 4), "float64"), g.input("i", ("n", 2), "int64")
    assert ops.gather(x, 1, i).shape == ("n", 2)
    assert ops.scatter(x, 1, i, 0.0).shape == ("n", 4)
    assert ops.index_add(x, 0, g.input("rows", ("k",), "int64"), 1.0).shape == (n, 4)
    assert ops.take_along_axis(x, i, 1).shape == ("n", 2)


# -- PyTorch ----------------------------------------------------------------------------------


def compare(ours, theirs, values):
    """Compare the value and the gradients of the sum of cubes."""
    torch = pytest.importorskip("torch")
    g = ag.Graph()
    xs = [node(value, f"x{i}", g) for i, value in enumerate(values)]
    ts = [torch.tensor(value, requires_grad=True) for value in values]
    y, z = ours(*xs), theirs(torch, *ts)
    (z**3).sum().backward()
    got = evaluate([y, *ag.gradients((y * y * y).sum(), xs)], dict(zip(xs, values, strict=True)))
    for mine, other in zip(got, [z, *(t.grad for t in ts)], strict=True):
        np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_is_that_of_pytorch(axis):
    index = RNG.integers(0, X.shape[axis], (2, 3, 2))
    compare(
        lambda x: ops.gather(x, axis, index),
        lambda torch, t: t.gather(axis, torch.tensor(index)),
        [X],
    )


@pytest.mark.oracle
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_add_is_that_of_pytorch(axis):
    """With more values than positions PyTorch has the value, but its gradient raises."""
    index, src = RNG.integers(0, X.shape[axis], (2, 3, 2)), RNG.normal(size=(3, 3, 4))
    compare(
        lambda x, s: ops.scatter_add(x, axis, index, s),
        lambda torch, t, s: t.scatter_add(axis, torch.tensor(index), s[:2, :3, :2]),
        [X, src],
    )


@pytest.mark.oracle
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_to_different_places_is_that_of_pytorch(axis):
    index = np.argsort(RNG.normal(size=X.shape), axis)
    compare(
        lambda x, s: ops.scatter(x, axis, index, s),
        lambda torch, t, s: t.scatter(axis, torch.tensor(index), s),
        [X, RNG.normal(size=X.shape)],
    )


@pytest.mark.oracle
def test_index_add_is_that_of_pytorch():
    index = np.array([0, 3, 0, 1])
    compare(
        lambda x, s: ops.index_add(x, 1, index, s, alpha=0.5),
        lambda torch, t, s: t.index_add(1, torch.tensor(index), s, alpha=0.5),
        [X, RNG.normal(size=(3, 4, 2))],
    )


@pytest.mark.oracle
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_is_that_of_pytorch(accumulate):
    rows, columns = (np.array([0, 2, 0]), np.array([1, 1, 1] if accumulate else [1, 1, 3]))
    compare(
        lambda x, v: ops.index_put(x, (rows, columns), v, accumulate),
        lambda torch, t, v: t.index_put((torch.tensor(rows), torch.tensor(columns)), v, accumulate),
        [X, RNG.normal(size=(3, 2))],
    )


@pytest.mark.oracle
@pytest.mark.parametrize("accumulate", [False, True])
def test_put_is_that_of_pytorch(accumulate):
    index = np.array([3, 0, 3] if accumulate else [3, 0, 5])
    compare(
        lambda x, v: ops.put(x, index, v, accumulate),
        lambda torch, t, v: t.put(torch.tensor(index), v, accumulate),
        [X, RNG.normal(size=3)],
    )
