"""Comparison within tolerances, and vectors cut to a length."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare

HARD = np.array([1.0, 1.0 + 1e-6, 0.0, 1e-9, np.inf, -np.inf, np.nan, 1e308])


@each("dtype", ["float32", "float64", "complex128", "int64"])
@each("equal_nan", [False, True])
def test_isclose_is_numpys_at_infinities_nan_and_zero(dtype, equal_nan):
    with np.errstate(all="ignore"):
        value = HARD.astype(dtype)
    x = ag.Graph().input("x", value.shape, dtype)
    nodes = [
        ag.ops.isclose(ag.ops.expand_dims(x, 1), x, equal_nan=equal_nan),
        ag.ops.allclose(x, x, equal_nan=equal_nan),
        ag.ops.array_equal(x, x, equal_nan=equal_nan),
    ]
    close, every, equal = evaluate(nodes, {x: value})
    with np.errstate(all="ignore"):
        wanted = np.isclose(value[:, None], value, equal_nan=equal_nan)
    np.testing.assert_array_equal(close, wanted)
    assert bool(every) == np.allclose(value, value, equal_nan=equal_nan)
    assert bool(equal) == np.array_equal(value, value, equal_nan=equal_nan)
    assert [node.dtype for node in nodes] == [bool] * 3


def test_comparison_of_different_dtypes_is_refused():
    x = ag.Graph().input("x", (3,), "float32")
    for function in (ag.ops.isclose, ag.ops.allclose, ag.ops.array_equal):
        with pytest.raises(ag.GraphTypeError, match="float64"):
            function(x, np.ones(3))


def test_shapes_that_only_the_run_knows_may_differ_in_array_equal():
    g = ag.Graph()
    x, y = g.input("x", ("n",), "float64"), g.input("y", ("m",), "float64")
    node = ag.ops.array_equal(x, y)
    with ag.LispMachine(node) as machine:
        same = machine.run_sync({"x": np.ones(3), "y": np.ones(3)})[node].value
        other = machine.run_sync({"x": np.ones(3), "y": np.ones(2)})[node].value
    assert (bool(same), bool(other)) == (True, False)


# -- clipping ---------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
@pytest.mark.parametrize("axis", [None, 1])
def test_clip_by_norm_agrees_with_pytorch(max_norm, axis):
    value = np.random.default_rng(0).normal(size=(3, 4))

    def theirs(torch, t):
        axes = (0, 1) if axis is None else axis
        length = torch.linalg.vector_norm(t, dim=axes, keepdim=True)
        return t * (max_norm / length).clamp(max=1.0)

    compare(lambda x: ag.ops.clip_by_norm(x, max_norm, axis), theirs, [value])


@pytest.mark.oracle
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_by_global_norm_agrees_with_pytorch_to_its_millionth(max_norm):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(3, 4)), rng.normal(size=(5,))]
    g = ag.Graph()
    xs = [g.input(f"x{i}", value.shape, "float64") for i, value in enumerate(values)]
    clipped, total = ag.ops.clip_by_global_norm(xs, max_norm)
    tensors = [torch.zeros(value.shape, dtype=torch.float64) for value in values]
    for tensor, value in zip(tensors, values, strict=True):
        tensor.grad = torch.tensor(value)
    wanted = torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    *got, length = evaluate([*clipped, total], dict(zip(xs, values, strict=True)))
    np.testing.assert_allclose(length, wanted, rtol=1e-12)
    for mine, tensor in zip(got, tensors, strict=True):
        np.testing.assert_allclose(mine, tensor.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_what_is_short_enough_is_kept_to_the_bit_and_zero_stays_zero(dtype):
    value = np.array([[0.3, -0.4], [0.0, 0.0], [3.0, 4.0]], dtype)
    x = ag.Graph().input("x", value.shape, dtype)
    y = ag.ops.clip_by_norm(x, 1.0, axis=1)
    (dx,) = ag.gradients([y], [x], seeds=[np.ones((3, 2), dtype)])
    got, gradient = evaluate([y, dx], {x: value})
    assert got.dtype == dtype
    np.testing.assert_array_equal(got[:2], value[:2])
    np.testing.assert_allclose(got[2], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(gradient[:2], np.ones((2, 2)))


def test_a_length_may_be_a_node_and_gets_its_gradient():
    g = ag.Graph()
    x, length = g.input("x", (2,), "float64"), g.input("length", (), "float64")
    y = ag.ops.clip_by_norm(x, length)
    (dlength,) = ag.gradients(y.sum(), [length])
    (got,) = evaluate([dlength], {x: np.array([3.0, 4.0]), length: np.array(1.0)})
    np.testing.assert_allclose(got, 1.4)


def test_lengths_of_zero_and_no_nodes_are_refused():
    x = ag.Graph().input("x", (2,))
    for bad in (0, -1.0, np.nan):
        with pytest.raises(ag.GraphError, match=r"clip_by_norm: max_norm has to be above 0, got"):
            ag.ops.clip_by_norm(x, bad)
        with pytest.raises(ag.GraphError, match=r"global_norm: max_norm has to be above 0, got"):
            ag.ops.clip_by_global_norm([x], bad)
    with pytest.raises(ag.GraphError, match="needs at least one node"):
        ag.ops.clip_by_global_norm([], 1.0)
