"""Products in two-byte floats inside a float32 graph, and losses scaled through the seed."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError
from tests._each import each
from tests._evaluate import evaluate
from tests.rewrite._draw import draw

ops = ag.ops


def half(name):
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return name


every_half = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def perceptron():
    graph = ag.Graph("perceptron")
    rng = np.random.default_rng(2)
    x = graph.input("x", ("batch", 8), "float32")
    targets = graph.input("t", ("batch",), "int64")
    weights = [
        graph.parameter(f"w{i}", rng.normal(size=shape).astype("float32") / 3)
        for i, shape in enumerate([(8, 16), (16, 16), (16, 4)])
    ]
    hidden = ops.tanh(x @ weights[0])
    logits = (hidden @ weights[1]) @ weights[2]
    loss = ops.cross_entropy(logits, targets)
    feeds = {"x": rng.normal(size=(6, 8)).astype("float32"), "t": rng.integers(0, 4, 6)}
    return loss, weights, feeds


def test_operands_of_products_are_cast_and_results_cast_back():
    """
    ::

        x, w -> matmul -> tanh     becomes     x, w -> astype -> matmul -> astype -> tanh
    """
    graph = ag.Graph()
    x, w = graph.input("x", ("n", 3), "float32"), graph.input("w", (3, 2), "float32")
    node = ops.tanh(x @ w)
    new = ag.autocast(node)
    assert draw(node) == "tanh(matmul(x, w))"
    assert draw(new) == "tanh(astype(matmul(astype(x), astype(w))))"
    assert new.inputs[0].inputs[0].dtype == np.float16
    assert new.dtype == np.float32
    assert new.shape == ("n", 2)


def test_casts_between_products_are_left_out():
    graph = ag.Graph()
    x, w = graph.input("x", (2, 2), "float32"), graph.input("w", (2, 2), "float32")
    assert draw(ag.autocast((x @ w) @ w)) == (
        "astype(matmul(matmul(astype(x), astype(w)), astype(w)))"
    )


def test_sums_softmax_and_losses_stay():
    loss, _, _ = perceptron()
    order = loss.graph.topological_order(ag.autocast(loss))
    halves = {node.op.name for node in order if node.dtype == np.float16}
    assert halves == {"astype", "matmul"}
    (entropy,) = [node for node in order if node.op.name == "cross_entropy"]
    assert [part.dtype.name for part in entropy.inputs] == ["float32", "int64"]


@every_half
@each(
    "build, shapes",
    [
        (lambda x, w: ops.conv2d(x, w, padding=1), [(2, 3, 5, 5), (4, 3, 3, 3)]),
        (lambda x, w: ops.conv_transpose1d(x, w), [(2, 3, 5), (3, 4, 2)]),
        (lambda x, w: ops.tensordot(x, w, 1), [(2, 3, 4), (4, 5)]),
        (lambda x, w: ops.vecdot(x, w), [(2, 64), (2, 64)]),
        (lambda x, w: ops.outer(x, w), [(5,), (6,)]),
        (lambda x, w: ops.scaled_dot_product_attention(x, w, w), [(2, 5, 8), (2, 6, 8)]),
    ],
)
def test_products_agree_within_the_precision_of_the_smaller_float(build, shapes, dtype):
    graph, rng = ag.Graph(), np.random.default_rng(4)
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    leaves = [graph.input(f"x{i}", shape, "float32") for i, shape in enumerate(shapes)]
    node = build(*leaves)
    new = ag.autocast(node, half(dtype))
    assert new is not node
    seed = rng.normal(size=node.shape).astype("float32")
    results = []
    for one in (node, new):
        gradients = ag.gradients([one], leaves, seeds=[seed])
        results.append(evaluate([one, *gradients], dict(zip(leaves, arrays, strict=True))))
    precision = {"float16": 1e-3, "bfloat16": 1e-2}[dtype]
    for want, got in zip(*results, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=0, atol=3 * precision * np.abs(want).max())
        assert not np.array_equal(got, want)


@every_half
@pytest.mark.parametrize("kind", [ag.LispMachine, ag.ActorMachine])
def test_gradients_of_parameters_are_float32(kind, dtype):
    loss, weights, feeds = perceptron()
    cast = ag.autocast(loss, half(dtype))
    with kind([cast], workers=2) as low, kind([loss], workers=2) as full:
        one, other = (machine.run_sync(feeds, backward=True) for machine in (low, full))
    for weight in weights:
        assert one[weight].grad.dtype == np.float32
        scale = np.abs(other[weight].grad).max()
        np.testing.assert_allclose(one[weight].grad, other[weight].grad, rtol=0, atol=0.02 * scale)
        assert weight.value.dtype == np.float32


def test_small_gradients_survive_by_the_scale_of_the_seed():
    graph = ag.Graph()
    x = graph.input("x", (1, 2), "float32")
    w = graph.parameter("w", np.ones((2, 2), "float32"))
    loss = ag.autocast(x @ w).sum() * 1e-9
    feeds = {"x": np.ones((1, 2), "float32")}
    with ag.ActorMachine([loss]) as machine:
        plain = machine.run_sync(feeds, backward={loss: 1.0})[w].grad
        scaled = machine.run_sync(feeds, backward={loss: 2.0**20})[w].grad
    np.testing.assert_array_equal(plain, np.zeros((2, 2)))
    np.testing.assert_allclose(scaled / 2**20, np.full((2, 2), 1e-9), rtol=1e-3)


def test_second_order_goes_through_the_casts():
    graph = ag.Graph()
    x = graph.input("x", (3,), "float32")
    w = graph.parameter("w", np.eye(3, dtype="float32") * 2)
    y = ag.autocast(w @ x)
    (first,) = ag.gradients((y * y).sum(), [x])
    (second,) = ag.gradients(first.sum(), [x])
    (got,) = evaluate([second], {x: np.ones(3, "float32")})
    np.testing.assert_allclose(got, np.full(3, 8))


def test_kept_nodes_and_ops_stay_in_float32():
    x = ag.Graph().input("x", (2, 2), "float32")
    one, two = x @ x, ops.tensordot(x, x, 1)
    node = one + two
    assert draw(ag.autocast(node, keep=one)) == (
        "add(matmul(x, x), astype(tensordot(astype(x), astype(x))))"
    )
    assert draw(ag.autocast(node, keep=["tensordot"])) == (
        "add(astype(matmul(astype(x), astype(x))), tensordot(x, x))"
    )
    assert ag.autocast(node, keep=["matmul", two]) is node


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex64"])
def test_products_of_other_dtypes_stay(dtype):
    x = ag.Graph().input("x", (2, 2), dtype)
    node = x @ x
    assert ag.autocast(node) is node


def test_form_of_the_outputs_is_kept():
    loss, _, _ = perceptron()
    assert set(ag.autocast({"loss": loss})) == {"loss"}
    assert isinstance(ag.autocast([loss]), list)
    assert ag.autocast([]) == []


def test_bits_of_kept_results_do_not_change():
    """Two casts of one value meet: widening and narrowing again changes no bit."""
    x = ag.Graph().input("x", (4, 4), "float32")
    first = ag.autocast(x @ x)
    again = ag.autocast(first @ x)
    by_hand = (x.astype("float16") @ x.astype("float16")).astype("float32")
    by_hand = (by_hand.astype("float16") @ x.astype("float16")).astype("float32")
    feeds = {x: np.random.default_rng(0).normal(size=(4, 4)).astype("float32")}
    one, other = evaluate([again, by_hand], feeds)
    np.testing.assert_array_equal(one, other)


def test_statistics_are_assigned_where_the_cast_output_runs():
    graph = ag.Graph()
    x = graph.input("x", (2, 2), "float32")
    total = graph.buffer("total", np.zeros((), "float32"))
    loss = (x @ x).sum()
    graph.assign(total, total + loss, loss)
    with ag.LispMachine([ag.autocast(loss)]) as machine:
        machine.run_sync({"x": np.ones((2, 2), "float32")})
    assert total.value == 8


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64"])
def test_dtype_that_is_no_small_float_raises(dtype):
    loss, _, _ = perceptron()
    with pytest.raises(GraphTypeError, match=f"casts to float16 or bfloat16, got {dtype}"):
        ag.autocast(loss, dtype)


def test_keeping_an_op_that_is_never_cast_raises():
    loss, _, _ = perceptron()
    with pytest.raises(GraphError, match="never casts an op 'matmull'.*'matmul'"):
        ag.autocast(loss, keep=["matmull"])
