"""Function transforms of nodes give nodes of the same graph."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from tests._evaluate import evaluate
from tests.transforms._functions import M, V, X, close, hessian_of_scalar, scalar


def test_grad_of_a_node_gives_nodes_in_the_structure_of_wrt(g, x):
    w = g.parameter("w", X)
    y = (x * w * w).sum()
    assert ag.grad(y, x).graph is g
    assert isinstance(ag.grad(y, wrt=[x, w]), list)
    found = ag.grad(y, wrt={"x": x, "rest": (w,)})
    assert found["x"] is ag.grad(y, x)
    assert found["rest"][0] is ag.gradients(y, w)[0]
    assert ag.grad(y) == [found["rest"][0]]  # default: all parameters
    value, gradient = ag.value_and_grad(y, x)
    assert value is y
    close(evaluate(gradient, {x: X})[0], X * X)


def test_products_of_nodes_give_nodes(g, x):
    y, v = scalar(x), g.input("v", (3,), "float64")
    h = hessian_of_scalar(X)
    pulled = ag.vjp([x * x, y], [x], [v, 2.0])[0]
    pushed = ag.jvp({"square": x * x}, x, v)
    product = ag.hvp(y, [x], [v])[0]
    feeds = {x: X, v: V}
    values = evaluate([pulled, pushed["square"], product, ag.hvp(y, x, v)], feeds)
    e = np.exp(X)
    close(values[0], 2 * X * V + 2 * (e * X.sum() + e.sum()))
    close(values[1], 2 * X * V)
    close(values[2], h @ V)
    close(values[3], h @ V)


def test_jacobian_and_hessian_of_nodes_are_nodes(g, x):
    y = ag.ops.tanh(ag.ops.matmul(g.constant(M), x))
    tall, wide = ag.jacobian(y, wrt=x), ag.jacobian(ag.ops.stack([y.sum()]), wrt=[x])[0]
    second = ag.hessian(scalar(x), wrt={"x": x})["x"]["x"]
    values = evaluate([tall, wide, second], {x: X})
    exact = (1 - np.tanh(M @ X) ** 2)[:, None] * M
    close(values[0], exact)
    close(values[1], exact.sum(0, keepdims=True))
    close(values[2], hessian_of_scalar(X))
    assert (tall.shape, wide.shape, second.shape) == ((3, 3), (1, 3), (3, 3))


def test_a_jacobian_of_nodes_needs_one_side_of_known_size(g):
    v = g.input("v", ("n",), "float64")
    w = g.parameter("w", np.ones(2))
    with pytest.raises(ShapeError, match="a Jacobian needs dims that are ints on one side"):
        ag.jacobian(v * v, wrt=v)
    found = ag.jacobian(v * w.sum(), wrt=w)
    assert found.shape == ("n", 2)
    close(evaluate(found, {v: V})[0], np.stack([V, V], axis=1))


def test_node_forms_say_what_is_wrong(g, x):
    i = g.input("i", (3,), "int64")
    y = scalar(x)
    with pytest.raises(GraphTypeError, match=r"wrt is int64\[3\] and has no gradient"):
        ag.grad(y, i)
    with pytest.raises(GraphTypeError, match="wrt is the float 3.0, which has no gradient"):
        ag.grad(y, wrt=[3.0])
    with pytest.raises(ShapeError, match=r"node x is float64\[3\], but a gradient needs a scalar"):
        ag.grad(x, x)
    with pytest.raises(ShapeError, match="shape mismatch between node x .*seed derivative"):
        ag.grad(x, x, seed=np.ones(4))
    with pytest.raises(FeedError, match=r"gradient of x requires its seed; pass seed="):
        ag.grad(x, x, input_derivative="required")
    with pytest.raises(
        ValueError, match="input_derivative has to be one of 'required', 'one', 'ones'"
    ):
        ag.grad(y, x, input_derivative="two")
    with pytest.raises(FeedError, match=r"for nodes write vjp\(outputs, wrt, seeds\)"):
        ag.vjp(y, x)
    with pytest.raises(FeedError, match=r"seed derivatives are \[\*\], but the outputs is \*"):
        ag.vjp(y, x, [1.0])
