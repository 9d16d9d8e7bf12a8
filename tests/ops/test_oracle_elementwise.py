"""Elementwise ops, activations and reductions against PyTorch, to second order, off their kinks."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._weighed import EXACT, compare, draw

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")
pytestmark = pytest.mark.oracle

F = torch.nn.functional
SPECIAL = 1e-6
UNARY = {
    "arccos": (torch.arccos, -0.95, 0.95),
    "arccosh": (torch.arccosh, 1.1, 6),
    "arcsin": (torch.arcsin, -0.95, 0.95),
    "arcsinh": (torch.arcsinh, -5, 5),
    "arctan": (torch.arctan, -5, 5),
    "arctanh": (torch.arctanh, -0.95, 0.95),
    "cbrt": (lambda t: t.abs() ** (1 / 3) * t.sign(), 0.1, 5),
    "ceil": (torch.ceil, -5, 5),
    "cosh": (torch.cosh, -4, 4),
    "cube": (lambda t: t**3, -4, 4),
    "deg2rad": (torch.deg2rad, -400, 400),
    "exp2": (torch.exp2, -5, 5),
    "floor": (torch.floor, -5, 5),
    "log10": (torch.log10, 0.01, 9),
    "log2": (torch.log2, 0.01, 9),
    "rad2deg": (torch.rad2deg, -9, 9),
    "round": (torch.round, -5, 5),
    "rsqrt": (torch.rsqrt, 0.05, 9),
    "sinh": (torch.sinh, -4, 4),
    "tan": (torch.tan, -1.4, 1.4),
    "trunc": (torch.trunc, -5, 5),
}
SPECIALS = {
    "digamma": (torch.digamma, 0.2, 9),
    "erf": (torch.erf, -3, 3),
    "erfc": (torch.erfc, -3, 3),
    "lgamma": (torch.lgamma, 0.2, 9),
}
BINARY = {
    "arctan2": torch.arctan2,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
}
ACTIVATIONS = {
    "celu": (lambda x: ag.ops.celu(x, 0.5), lambda t: F.celu(t, 0.5)),
    "elu": (lambda x: ag.ops.elu(x, 1.3), lambda t: F.elu(t, 1.3)),
    "gelu": (ag.ops.gelu, F.gelu),
    "gelu tanh": (
        lambda x: ag.ops.gelu(x, approximate="tanh"),
        lambda t: F.gelu(t, approximate="tanh"),
    ),
    "hardshrink": (lambda x: ag.ops.hardshrink(x, 0.4), lambda t: F.hardshrink(t, 0.4)),
    "hardsigmoid": (ag.ops.hardsigmoid, lambda t: F.relu6(t + 3) / 6),
    "hardswish": (ag.ops.hardswish, F.hardswish),
    "hardtanh": (lambda x: ag.ops.hardtanh(x, -0.7, 1.2), lambda t: F.hardtanh(t, -0.7, 1.2)),
    "leaky_relu": (lambda x: ag.ops.leaky_relu(x, 0.2), lambda t: F.leaky_relu(t, 0.2)),
    "logsigmoid": (ag.ops.logsigmoid, F.logsigmoid),
    "mish": (ag.ops.mish, F.mish),
    "relu6": (ag.ops.relu6, F.relu6),
    "selu": (ag.ops.selu, F.selu),
    "silu": (ag.ops.silu, F.silu),
    "softshrink": (lambda x: ag.ops.softshrink(x, 0.4), lambda t: F.softshrink(t, 0.4)),
    "softsign": (ag.ops.softsign, F.softsign),
    "tanhshrink": (ag.ops.tanhshrink, F.tanhshrink),
    "threshold": (lambda x: ag.ops.threshold(x, 0.3, -2), lambda t: F.threshold(t, 0.3, -2)),
}
REDUCTIONS = {
    "prod": (lambda x, a, k: ag.ops.prod(x, a, k), None),
    "std": (
        lambda x, a, k: ag.ops.std(x, a, k, ddof=1),
        lambda t, a, k: torch.std(t, dim=a, correction=1, keepdim=k),
    ),
    "var": (
        lambda x, a, k: ag.ops.var(x, a, k),
        lambda t, a, k: torch.var(t, dim=a, correction=0, keepdim=k),
    ),
}


@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_argument_agrees_with_pytorch(name):
    theirs, low, high = UNARY[name]
    compare(getattr(ag.ops, name), theirs, draw((5, 7), low=low, high=high))


@pytest.mark.parametrize("name", SPECIALS)
def test_special_function_agrees_with_pytorch(name):
    theirs, low, high = SPECIALS[name]
    compare(getattr(ag.ops, name), theirs, draw((5, 7), low=low, high=high), SPECIAL)


@pytest.mark.parametrize("order", [1, 2])
def test_polygamma_agrees_with_pytorch(order):
    compare(
        lambda x: ag.ops.polygamma(order, x),
        lambda t: torch.polygamma(order, t),
        draw((5, 7), high=9),
        SPECIAL,
    )


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1), (1, 3)), ((), (3,))])
def test_function_of_two_arguments_agrees_with_pytorch(name, shapes):
    compare(getattr(ag.ops, name), BINARY[name], draw(*shapes, low=-3))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_agrees_with_pytorch(name):
    ours, theirs = ACTIVATIONS[name]
    compare(ours, theirs, draw((9, 11), low=-6, high=6), SPECIAL if "gelu" in name else EXACT)


@pytest.mark.parametrize(
    "shapes", [((4, 3), (3,)), ((2, 3, 4), (3,)), ((2, 3), (1,)), ((5,), (1,))]
)
def test_prelu_agrees_with_pytorch(shapes):
    compare(ag.ops.prelu, F.prelu, draw(*shapes, low=-2, high=2))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [(0,), (-1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduction_agrees_with_pytorch(name, axis, keepdims):
    ours, theirs = REDUCTIONS[name]

    def theirs_prod(t):
        for one in sorted((a % 3 for a in axis), reverse=True):
            t = torch.prod(t, dim=one, keepdim=keepdims)
        return t

    compare(
        lambda x: ours(x, axis, keepdims),
        theirs_prod if theirs is None else lambda t: theirs(t, axis, keepdims),
        draw((3, 4, 2), low=-2, high=2),
    )


@pytest.mark.parametrize("p", [-1.5, 0.5, 1, 1.5, 2, 3, 4.2, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_norm_agrees_with_pytorch(p, axis):
    compare(
        lambda x: ag.ops.norm(x, p, axis),
        lambda t: torch.linalg.vector_norm(t, p, axis),
        draw((3, 4, 2), low=-2, high=2),
    )


@pytest.mark.parametrize("zeros", [[], [1], [0, 3], [2, 3, 4]])
@pytest.mark.parametrize("name", ["prod", "cumprod", "cumsum"])
def test_products_with_zeros_agree_with_pytorch(name, zeros):
    (x,) = draw((5, 2), low=-2, high=2)
    x[zeros, 0] = 0
    theirs = getattr(torch, name)
    compare(lambda node: getattr(ag.ops, name)(node, 0), lambda t: theirs(t, 0), [x])


@pytest.mark.parametrize("name", ["argmax", "argmin", "any", "all", "count_nonzero"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_reduction_without_gradient_agrees_with_pytorch(name, axis):
    x = np.random.default_rng(5).integers(-1, 2, (4, 6)).astype(float)
    node = ag.Graph().input("x", x.shape, "float64")
    (got,) = evaluate([getattr(ag.ops, name)(node, axis)], {node: x})
    theirs = getattr(torch, name)
    wanted = theirs(torch.tensor(x)) if axis is None else theirs(torch.tensor(x), dim=axis)
    if name in ("argmax", "argmin"):
        # PyTorch does not say which of equal elements it takes; NumPy takes the first.
        flat = x.ravel() if axis is None else np.moveaxis(x, axis, 0)
        best = flat.max(0) if name == "argmax" else flat.min(0)
        np.testing.assert_array_equal(np.take_along_axis(flat, got[None], 0)[0], best)
        np.testing.assert_array_equal(got, getattr(np, name)(x, axis))
    else:
        np.testing.assert_array_equal(got, wanted.numpy())


COMPLEX = {
    "abs": torch.abs,
    "angle": torch.angle,
    "arcsin": torch.arcsin,
    "arctan": torch.arctan,
    "arccosh": torch.arccosh,
    "conj": lambda t: torch.conj(t).resolve_conj(),
    "cos": torch.cos,
    "cube": lambda t: t**3,
    "exp": torch.exp,
    "imag": torch.imag,
    "log": torch.log,
    "log10": torch.log10,
    "log2": torch.log2,
    "mean": torch.mean,
    "prod": torch.prod,
    "real": torch.real,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sign": torch.sgn,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "sum": torch.sum,
    "tan": torch.tan,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_function_of_complex_numbers_agrees_with_pytorch(name):
    real, imaginary = draw((4,), (4,), low=-1, high=1)
    compare(getattr(ag.ops, name), COMPLEX[name], [real + 1j * imaginary])


@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_of_complex_numbers_is_that_of_numpy(name):
    real, imaginary = draw((4, 3), (4, 3), low=-1, high=1)
    value = real + 1j * imaginary
    x = ag.Graph().input("x", (4, 3), "complex128")
    (got,) = evaluate([getattr(ag.ops, name)(x, axis=0, ddof=1)], {x: value})
    np.testing.assert_allclose(got, getattr(np, name)(value, axis=0, ddof=1), rtol=1e-14)
    assert got.dtype == np.float64


def test_norm_of_complex_numbers_agrees_with_pytorch():
    real, imaginary = draw((4, 3), (4, 3), low=-1, high=1)
    compare(
        lambda x: ag.ops.norm(x, 3, 1),
        lambda t: torch.linalg.vector_norm(t, 3, 1),
        [real + 1j * imaginary],
    )
