"""Elementwise ops, activations and reductions against PyTorch, to second order, off their kinks."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._weighed import compare, draw

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")
pytestmark = pytest.mark.oracle

F = torch.nn.functional
BINARY = {
    "arctan2": torch.arctan2,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
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


@pytest.mark.parametrize("order", [1, 2])
def test_polygamma_agrees_with_pytorch(order):
    compare(
        lambda x: ag.ops.polygamma(order, x),
        lambda t: torch.polygamma(order, t),
        draw((5, 7), high=9),
        1e-6,
    )


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1), (1, 3)), ((), (3,))])
def test_function_of_two_arguments_agrees_with_pytorch(name, shapes):
    compare(getattr(ag.ops, name), BINARY[name], draw(*shapes, low=-3))


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
