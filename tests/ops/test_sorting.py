"""Order: sort, argsort, topk, searchsorted, unique."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.machines import LispMachine
from tests._each import each
from tests._evaluate import evaluate

ops = ag.ops
X = np.random.default_rng(4).normal(size=(3, 5, 2))
TIES = np.array([2.0, 1, 2, np.nan, 1, 3])


@each("shape", [X.shape, ("a", "b", "c"), (None, None, None)])
@each("axis", [0, 1, -1, None])
@each("descending", [False, True])
def test_sort_is_that_of_numpy_and_its_gradient_goes_back(axis, descending, shape):
    x = ag.Graph().input("x", shape, "float64")
    y, order = ops.sort(x, axis, descending), ops.argsort(x, axis, descending)
    weights = np.sin(np.arange(X.size))
    weights = weights if axis is None else weights.reshape(X.shape)
    (dx,) = ag.gradients((y * weights).sum(), [x])
    value, positions, gradient = evaluate([y, order, dx], {x: X})
    along = 0 if axis is None else axis
    flat = X.ravel() if axis is None else X
    wanted = np.sort(flat, along)
    np.testing.assert_array_equal(value, np.flip(wanted, along) if descending else wanted)
    np.testing.assert_array_equal(np.take_along_axis(flat, positions, along), value)
    back = np.zeros_like(flat)
    np.put_along_axis(back, positions, weights, along)
    np.testing.assert_array_equal(gradient, back.reshape(X.shape))
    assert positions.dtype == np.int64


def test_equal_values_keep_their_order_and_nan_is_the_largest():
    x = ag.Graph().input("x", (6,), "float64")
    got = evaluate([ops.argsort(x), ops.argsort(x, descending=True)], {x: TIES})
    np.testing.assert_array_equal(got[0], [1, 4, 0, 2, 5, 3])
    np.testing.assert_array_equal(got[1], [3, 5, 0, 2, 1, 4])


@each("dtype", ["float64", "float32", "int8"])
@each("axis", [0, 1, 2])
def test_rows_with_and_without_ties_are_sorted_stably(axis, dtype):
    value = np.random.default_rng(6).integers(0, 40, (7, 8, 9)).astype(dtype)
    if dtype != "int8":
        value[2, 3] = np.nan
        value[0, 1] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, 1, 2, 3]
    x = ag.Graph().input("x", value.shape, dtype)
    up, down = evaluate([ops.argsort(x, axis), ops.argsort(x, axis, descending=True)], {x: value})
    np.testing.assert_array_equal(up, np.argsort(value, axis, kind="stable"))
    ahead = np.argsort(np.flip(value, axis), axis, kind="stable")
    np.testing.assert_array_equal(down, value.shape[axis] - 1 - np.flip(ahead, axis))


def test_topk_takes_the_first_of_equal_values():
    x = ag.Graph().input("x", (6,), "float64")
    values, indices = ops.topk(x, 3)
    least, where = ops.topk(x, 3, largest=False)
    got = evaluate([values, indices, least, where], {x: TIES})
    np.testing.assert_array_equal(got[0], [np.nan, 3, 2])
    np.testing.assert_array_equal(got[1], [3, 5, 0])
    np.testing.assert_array_equal(got[2], [1, 1, 2])
    np.testing.assert_array_equal(got[3], [1, 4, 0])


def test_topk_of_a_symbol_is_checked_in_the_run():
    x = ag.Graph().input("x", ("n", 4), "float64")
    values, indices = ops.topk(x, 3, axis=0)
    assert values.shape == indices.shape == (3, 4)
    assert ops.topk(x, x.shape[0], axis=0)[0].shape == ("n", 4)
    with LispMachine([values]) as machine:
        assert machine.run_sync({"x": np.zeros((5, 4))})[values].value.shape == (3, 4)
        with pytest.raises(ag.NodeError, match="k 3 exceeds dim 2 at axis 0"):
            machine.run_sync({"x": np.zeros((2, 4))})


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_is_that_of_numpy(side):
    g = ag.Graph()
    edges, x = g.input("edges", ("n",), "float64"), g.input("x", (2, None), "float64")
    y = ops.searchsorted(edges, x, side)
    values = [np.array([-1.0, 0, 0, 2]), np.array([[0.0, 1, 2], [-2, 3, np.nan]])]
    (got,) = evaluate(y, {edges: values[0], x: values[1]})
    assert y.shape == (2, None)
    np.testing.assert_array_equal(got, np.searchsorted(*values, side))
    (scalar,) = evaluate(ops.searchsorted(edges, 1.0), {edges: values[0]})
    assert scalar == 3


def test_unique_is_that_of_numpy():
    value = np.array([[3.0, 1, 3], [2, 1, 3]])
    x = ag.Graph().input("x", ("n", 3), "float64")
    nodes = ops.unique(x, return_index=True, return_inverse=True, return_counts=True)
    assert [node.shape for node in nodes] == [(None,), (None,), ("n", 3), (None,)]
    got = evaluate(nodes, {x: value})
    wanted = np.unique(value, return_index=True, return_inverse=True, return_counts=True)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs.reshape(mine.shape))
    np.testing.assert_array_equal(evaluate(ops.unique(x), {x: value})[0], wanted[0])


def test_unique_has_no_gradient_and_says_so():
    x = ag.Graph().input("x", (3,), "float64")
    with pytest.raises(GraphTypeError, match="op 'unique' .* has no gradient rule"):
        ag.gradients(ops.unique(x).sum(), [x])
    _, index = ops.unique(x, return_index=True)
    (dx,) = ag.gradients(x[index].sum(), [x])
    np.testing.assert_array_equal(evaluate(dx, {x: np.array([1.0, 1, 2])})[0], [1, 0, 1])


@each(
    "call, error, text",
    [
        (lambda x: ops.sort(x, 3), ShapeError, "sort: axis 3"),
        (lambda x: ops.argsort(x > 0), GraphTypeError, "bool is not a real number"),
        (lambda x: ops.topk(x, 6, 1), ShapeError, "k 6 exceeds dim 5 at axis 1"),
        (lambda x: ops.topk(x, -1), ShapeError, "got -1"),
        (lambda x: ops.topk(x, 1.5), GraphTypeError, "k is an int or a dim, got 1.5"),
        (lambda x: ops.searchsorted(x, x), GraphTypeError, "rank 3"),
        (lambda x: ops.searchsorted(x[0, 0], x, "mid"), GraphTypeError, "'left' or 'right'"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_built(call, error, text):
    with pytest.raises(error, match=text):
        call(ag.Graph().input("x", X.shape, "float64"))


@pytest.mark.oracle
@each("descending", [False, True])
@each("axis", [0, 1, 2])
def test_sort_argsort_and_topk_are_those_of_pytorch(axis, descending):
    torch = pytest.importorskip("torch")
    x = ag.Graph().input("x", X.shape, "float64")
    nodes = [ops.sort(x, axis, descending), *ops.topk(x, 2, axis, descending)]
    order = ops.argsort(x, axis, descending)
    total = (nodes[0] * np.arange(1.0 * X.size).reshape(X.shape)).sum() + (nodes[1] ** 3).sum()
    (dx,) = ag.gradients(total, [x])
    t = torch.tensor(X, requires_grad=True)
    theirs, places = t.sort(axis, descending)
    top, where = t.topk(2, axis, descending)
    weights = torch.arange(float(X.size), dtype=torch.float64).reshape(X.shape)
    ((theirs * weights).sum() + (top**3).sum()).backward()
    got = evaluate([*nodes, order, dx], {x: X})
    for mine, other in zip(got, [theirs, top, where, places, t.grad], strict=True):
        np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_and_unique_are_those_of_pytorch(right):
    torch = pytest.importorskip("torch")
    edges, values = np.array([0.0, 1, 1, 4]), np.array([[1.0, 5, -1], [0, 4, 2]])
    x = ag.Graph().input("x", values.shape, "float64")
    found = ops.searchsorted(edges, x, "right" if right else "left")
    parts = ops.unique(x, return_inverse=True, return_counts=True)
    wanted = torch.unique(torch.tensor(values), return_inverse=True, return_counts=True)
    got = evaluate([found, *parts], {x: values})
    places = torch.searchsorted(torch.tensor(edges), torch.tensor(values), right=right)
    for mine, other in zip(got, [places, *wanted], strict=True):
        np.testing.assert_array_equal(mine, other.numpy())
