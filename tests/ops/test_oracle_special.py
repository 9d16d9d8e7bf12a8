"""Special functions, parts of floats and bits against PyTorch, SciPy and NumPy."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._oracle import compare_call as compare

torch = pytest.importorskip("torch")
pytest.importorskip("scipy.special")
pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_products_with_logarithms_have_the_limits_of_pytorch_at_zero(name):
    shift = {"xlogy": 0.0, "xlog1py": -1.0}[name]
    x = np.array([0.0, 0.0, 0.0, 0.0, 2.0])
    y = np.array([0.0, -1.0, 3.0, np.nan, 1.0]) + shift
    compare(getattr(ag.ops, name), getattr(torch.special, name), [x[2:3], y[2:3]], 1e-9)
    nodes = [ag.Graph().input("x", (5,), "float64")]
    nodes.append(nodes[0].graph.input("y", (5,), "float64"))
    z = getattr(ag.ops, name)(*nodes)
    tensors = [torch.tensor(value, requires_grad=True) for value in (x, y)]
    wanted = getattr(torch.special, name)(*tensors)
    (by_x,) = torch.autograd.grad(wanted.sum(), tensors[:1])
    got = evaluate([z, *ag.gradients(z.sum(), nodes[:1])], dict(zip(nodes, (x, y), strict=True)))
    np.testing.assert_array_equal(got[0], wanted.detach())
    np.testing.assert_allclose(got[1], by_x)


BITS = {
    "bitwise_and": (np.bitwise_and, torch.bitwise_and),
    "bitwise_or": (np.bitwise_or, torch.bitwise_or),
    "bitwise_xor": (np.bitwise_xor, torch.bitwise_xor),
    "gcd": (np.gcd, torch.gcd),
    "lcm": (np.lcm, torch.lcm),
    "left_shift": (np.left_shift, torch.bitwise_left_shift),
    "right_shift": (np.right_shift, torch.bitwise_right_shift),
}


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", BITS)
def test_bits_are_those_of_numpy_and_pytorch(name, dtype):
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 100, (4, 5)).astype(dtype), rng.integers(0, 5, 5).astype(dtype)
    ours, theirs = BITS[name]
    x = ag.Graph().input("x", (4, 5), dtype)
    got = evaluate([getattr(ag.ops, name)(x, right), ours(x, right)], {x: left})
    for value in got:
        assert value.dtype == dtype
        np.testing.assert_array_equal(value, ours(left, right))
        np.testing.assert_array_equal(value, theirs(torch.tensor(left), torch.tensor(right)))
