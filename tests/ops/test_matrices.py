"""Diagonals, traces and triangles: values against NumPy, dims known or not, refusals."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate


def numbers(*shape, dtype="float64"):
    return np.random.default_rng(0).integers(-9, 10, shape).astype(dtype)


@each("dtype", ["float32", "int16", "bool", "complex64"])
@each("shape", [(3, 3), (3, 5), (5, 3), (2, 3, 4), (0, 3)])
@each("offset", [0, 1, -2, 7])
def test_diagonals_and_triangles_equal_numpy_and_keep_the_dtype(shape, offset, dtype):
    value = numbers(*shape, dtype=dtype)
    x = ag.Graph().input("x", shape, dtype)
    nodes = [
        ag.ops.diagonal(x, offset, -1, 0),
        ag.ops.tril(x, offset),
        ag.ops.triu(x, offset),
    ]
    wanted = [np.diagonal(value, offset, -1, 0), np.tril(value, offset), np.triu(value, offset)]
    for node, got, want in zip(nodes, evaluate(nodes, {x: value}), wanted, strict=True):
        assert node.shape == got.shape == want.shape
        assert node.dtype == got.dtype == dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("k", [0, 2, -1])
def test_diag_goes_both_ways_as_in_numpy(k):
    vector, matrix = numbers(3), numbers(3, 4)
    g = ag.Graph()
    x, y = g.input("x", (3,), "float64"), g.input("y", (3, 4), "float64")
    nodes = [ag.ops.diag(x, k), ag.ops.diag(y, k), ag.ops.diagflat(y, k)]
    got = evaluate(nodes, {x: vector, y: matrix})
    for mine, wanted in zip(
        got, [np.diag(vector, k), np.diag(matrix, k), np.diagflat(matrix, k)], strict=True
    ):
        np.testing.assert_array_equal(mine, wanted)


def test_diag_embed_takes_batches():
    value = numbers(2, 3)
    x = ag.Graph().input("x", ("batch", 3), "float64")
    (got,) = evaluate(ag.ops.diag_embed(x, 1), {x: value})
    np.testing.assert_array_equal(got, [np.diag(row, 1) for row in value])


@pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
def test_trace_equals_numpy_and_keeps_the_dtype(dtype):
    value = numbers(3, 2, 3, dtype=dtype)
    x = ag.Graph().input("x", value.shape, dtype)
    (got,) = evaluate(ag.ops.trace(x, 1, 0, -1), {x: value})
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.trace(value, 1, 0, -1).astype(dtype))


def test_diagonal_is_a_view():
    value = numbers(3, 3)
    x = ag.Graph().input("x", (3, 3), "float64")
    (got,) = evaluate(ag.ops.diagonal(x), {x: value})
    assert np.shares_memory(got, value)


@each("dims", [("n", "m"), ("n", "n"), (None, None), ("n", 3), (3, None)])
def test_diagonals_of_dims_that_are_symbols_or_unknown_differentiate(dims):
    value = numbers(3, 3)
    x = ag.Graph().input("x", dims, "float64")
    y = ag.ops.trace(x, 1) * 2 + ag.ops.tril(x).sum()
    total, gradient = evaluate([y, *ag.gradients(y, [x])], {x: value})
    assert total == 2 * np.trace(value, 1) + np.tril(value).sum()
    np.testing.assert_array_equal(gradient, 2 * np.eye(3, k=1) + np.tril(np.ones((3, 3))))


def test_symbolic_diagonals_have_symbolic_lengths():
    x = ag.Graph().input("x", ("n", "n"), "float64")
    assert ag.ops.diagonal(x).shape == ("n",)
    assert ag.ops.diag(ag.ops.diagonal(x), -2).shape == ("n + 2", "n + 2")


def test_misuses_say_what_to_do():
    g = ag.Graph()
    vector, cube = g.input("v", (3,)), g.input("c", (2, 2, 2))
    with pytest.raises(ShapeError, match="diagonal takes arrays of at least two dims"):
        ag.ops.diagonal(vector)
    with pytest.raises(ShapeError, match="trace: axis1 and axis2 are both 1"):
        ag.ops.trace(cube, 0, 1, -2)
    with pytest.raises(ShapeError, match="for batches use diagonal or diag_embed"):
        ag.ops.diag(cube)
    with pytest.raises(GraphTypeError, match="tril: rank 1"):
        ag.ops.tril(vector)
    with pytest.raises(GraphTypeError, match="is not a number"):
        ag.ops.trace(g.input("b", (2, 2), "bool"))
