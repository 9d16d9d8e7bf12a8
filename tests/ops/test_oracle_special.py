"""Special functions, parts of floats and bits against PyTorch, SciPy and NumPy."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import compare as compare_to_second_order
from tests.ops._weighed import compare, draw

torch = pytest.importorskip("torch")
scipy_special = pytest.importorskip("scipy.special")
pytestmark = pytest.mark.oracle

TOLERANCE = {"float64": 1e-7, "float32": 2e-3}
BINARY = {
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((3, 4), (4,)), ((2, 1), (1, 3)), ((), (3,))])
def test_function_of_two_arguments_agrees_with_pytorch(name, shapes, dtype):
    values = [value.astype(dtype) for value in draw(*shapes)]
    compare(getattr(ag.ops, name), BINARY[name], values, TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["copysign", "fmod"])
@pytest.mark.parametrize("shapes", [((3, 4), (4,)), ((2, 1), (1, 3)), ((), (3,))])
def test_function_of_constant_slope_agrees_with_pytorch(name, shapes):
    def theirs(torch, x, y):
        return getattr(torch, name)(x, y) ** 2

    compare_to_second_order(
        lambda x, y: getattr(ag.ops, name)(x, y) ** 2, theirs, draw(*shapes, low=-3)
    )


@pytest.mark.parametrize("s", [1.5, 2.0, 4.0])
def test_zeta_agrees_with_pytorch(s):
    compare(lambda x: ag.ops.zeta(s, x), lambda t: torch.special.zeta(s, t), draw((5, 7)), 1e-7)


@pytest.mark.parametrize("p", [1, 3, 5])
def test_multigammaln_agrees_with_pytorch(p):
    compare(
        lambda x: ag.ops.multigammaln(x, p), lambda t: torch.special.multigammaln(t, p),
        draw((5, 7), low=2.5, high=9), 1e-7,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["ldexp", "float_power"])
def test_powers_agree_with_pytorch(name):
    theirs = getattr(torch, name)
    compare(getattr(ag.ops, name), theirs, draw((3, 4), (4,)), 1e-9)
    powers = np.array([[1], [2], [0]])  # PyTorch's gradient for negative ints is 0
    compare(
        lambda x: getattr(ag.ops, name)(x, powers),
        lambda t: theirs(t, torch.tensor(powers)),
        draw((3, 4)),
        1e-9,
    )


def test_logaddexp_of_complex_numbers_agrees_with_pytorch():
    parts = draw((4,), (4,), (4,), (4,), low=-1, high=1)
    values = [parts[0] + 1j * parts[1], parts[2] + 1j * parts[3]]
    compare(ag.ops.logaddexp, torch.logaddexp, values, 1e-9)


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
