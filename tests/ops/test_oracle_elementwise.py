"""Elementwise ops, activations and reductions against PyTorch, to second order, off their kinks."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._oracle import compare_call as compare
from tests.ops._weighed import draw

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")
pytestmark = pytest.mark.oracle

F = torch.nn.functional


@pytest.mark.parametrize(
    "shapes", [((4, 3), (3,)), ((2, 3, 4), (3,)), ((2, 3), (1,)), ((5,), (1,))]
)
def test_prelu_agrees_with_pytorch(shapes):
    compare(ag.ops.prelu, F.prelu, draw(*shapes, low=-2, high=2))


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


@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_of_complex_numbers_is_that_of_numpy(name):
    real, imaginary = draw((4, 3), (4, 3), low=-1, high=1)
    value = real + 1j * imaginary
    x = ag.Graph().input("x", (4, 3), "complex128")
    (got,) = evaluate([getattr(ag.ops, name)(x, axis=0, ddof=1)], {x: value})
    np.testing.assert_allclose(got, getattr(np, name)(value, axis=0, ddof=1), rtol=1e-14)
    assert got.dtype == np.float64


def test_powers_of_scalars_agree_with_pytorch():
    for exponent in (-3, -1, -0.5, 0.5, 1, 1.7, 2, 3, 4, 6):
        compare(lambda x, k=exponent: x**k, lambda t, k=exponent: t**k, draw((5, 7)))
    for base in (0.5, 2, 3.7):
        compare(lambda x, k=base: k**x, lambda t, k=base: k**t, draw((5, 7), low=-3))


def test_ties_and_zeros_agree_with_pytorch():
    rows, one = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), np.array([1.0, 2.0, 3.0])
    compare(lambda x: ag.ops.max(x, 1), lambda t: torch.amax(t, 1), [rows])
    compare(lambda x: ag.ops.min(x, 1), lambda t: torch.amin(t, 1), [rows])
    for name in ("maximum", "minimum"):
        compare(getattr(ag.ops, name), getattr(torch, name), [one, one[::-1].copy()])
    for name in ("abs", "relu", "sign"):
        compare(getattr(ag.ops, name), getattr(torch, name), [np.array([0.0, 1.0])])
