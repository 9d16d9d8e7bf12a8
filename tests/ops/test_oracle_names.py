"""Functions under NumPy's names that no other file compares with PyTorch."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

HOLES = np.array([[1.5, np.nan, -2.0, 0.5], [np.nan, 3.0, 0.25, -1.0]])


def without(value):
    """Return a function that puts a value in the place of NaN."""
    return lambda x: torch.where(x.isnan(), torch.full_like(x, value), x)


def numbers(function):
    """Return a function of the values of each row that are not NaN, stacked."""
    return lambda x: torch.stack([function(row[~row.isnan()]) for row in x])


OF_NUMBERS = {
    "nancumprod": lambda x: torch.cumprod(without(1)(x), 1),
    "nancumsum": lambda x: torch.cumsum(without(0)(x), 1),
    "nanmax": lambda x: torch.amax(without(-np.inf)(x), 1),
    "nanmin": lambda x: torch.amin(without(np.inf)(x), 1),
    "nanprod": lambda x: torch.prod(without(1)(x), 1),
    "nanstd": numbers(lambda row: torch.std(row, correction=0)),
    "nanvar": numbers(lambda row: torch.var(row, correction=0)),
}
CALLS = {
    "fftshift": (ag.ops.fftshift, torch.fft.fftshift, (3, 4)),
    "gather_nd": (lambda x: ag.ops.gather_nd(x, [[0, 1], [2, 3]]), lambda x: x[[0, 2], [1, 3]],
                  (3, 4)),
    "hinge_loss": (lambda x: ag.ops.hinge_loss(x, np.array([1, -1, 1], x.dtype)),
                   lambda x: torch.relu(1 - torch.tensor([1, -1, 1]) * x).mean(), (3,)),
    "ifftshift": (ag.ops.ifftshift, torch.fft.ifftshift, (3, 5)),
    "interp": (lambda x, y: ag.ops.interp(x, [-3.0, 0.5, 3], y),
               lambda x, y: torch.where(x < 0.5, y[0] + (x + 3) * (y[1] - y[0]) / 3.5,
                                        y[1] + (x - 0.5) * (y[2] - y[1]) / 2.5), (4,), (3,)),
    "matvec": (ag.ops.matvec, lambda x, y: (x @ y[..., None])[..., 0], (2, 3, 4), (2, 4)),
    "modf": (lambda x: ag.ops.modf(x)[0], torch.frac, (5,)),
    "nanpercentile": (lambda x: ag.ops.nanpercentile(x, 30), lambda x: torch.nanquantile(x, 0.3),
                      (3, 4)),
    "percentile": (lambda x: ag.ops.percentile(x, 30), lambda x: torch.quantile(x, 0.3), (3, 4)),
    "vecmat": (ag.ops.vecmat, lambda x, y: (x[..., None, :] @ y)[..., 0, :], (2, 3), (2, 3, 4)),
    "vector_norm": (lambda x: ag.ops.vector_norm(x, 3, 1),
                    lambda x: torch.linalg.vector_norm(x, 3, 1), (3, 4)),
}  # fmt: skip
TESTS = {
    "allclose": (lambda x: ag.ops.allclose(x, x + 1e-9), lambda x: torch.allclose(x, x + 1e-9)),
    "argwhere": (lambda x: ag.ops.argwhere(x > 0), lambda x: torch.argwhere(x > 0)),
    "array_equal": (lambda x: ag.ops.array_equal(x, x + 0), lambda x: torch.equal(x, x + 0)),
    "digitize": (
        lambda x: ag.ops.digitize(x, [-1.0, 0.5]),
        lambda x: torch.bucketize(x, torch.tensor([-1, 0.5], dtype=x.dtype), right=True),
    ),
    "flatnonzero": (lambda x: ag.ops.flatnonzero(x > 0), lambda x: (x > 0).ravel().nonzero()[:, 0]),
    "isclose": (lambda x: ag.ops.isclose(x, x[0]), lambda x: torch.isclose(x, x[0])),
    "isin": (lambda x: ag.ops.isin(x, x[0]), lambda x: torch.isin(x, x[0])),
    "j0": (ag.ops.j0, torch.special.bessel_j0),
    "j1": (ag.ops.j1, torch.special.bessel_j1),
    "nonzero": (
        lambda x: ag.ops.stack(ag.ops.nonzero(x > 0)),
        lambda x: torch.stack(torch.nonzero(x > 0, as_tuple=True)),
    ),
    "signbit": (ag.ops.signbit, torch.signbit),
    "spacing": (
        lambda x: ag.ops.spacing(abs(x)),
        lambda x: torch.nextafter(x.abs(), torch.full_like(x, np.inf)) - x.abs(),
    ),
    "y0": (lambda x: ag.ops.y0(abs(x)), lambda x: torch.special.bessel_y0(x.abs())),
    "y1": (lambda x: ag.ops.y1(abs(x)), lambda x: torch.special.bessel_y1(x.abs())),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_function_of_what_is_not_nan_agrees_with_pytorch(name):
    compare(
        lambda x: getattr(ag.ops, name)(x, axis=1), lambda t, x: OF_NUMBERS[name](x), [HOLES],
        second=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_position_of_what_is_not_nan_agrees_with_pytorch(name):
    x = ag.Graph().input("x", HOLES.shape, "float64")
    (got,) = evaluate([getattr(ag.ops, name)(x, axis=1)], {x: HOLES})
    filled = without(-np.inf if name == "nanargmax" else np.inf)(torch.tensor(HOLES))
    np.testing.assert_array_equal(got, getattr(torch, name.removeprefix("nan"))(filled, 1).numpy())


@pytest.mark.parametrize("name", CALLS)
def test_function_agrees_with_pytorch(name):
    ours, theirs, *shapes = CALLS[name]
    compare(ours, lambda t, *xs: theirs(*xs), draw(*shapes))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TESTS)
def test_function_without_gradient_agrees_with_pytorch(name, dtype):
    ours, theirs = TESTS[name]
    (value,) = draw((3, 4))
    x = ag.Graph().input("x", (3, 4), dtype)
    (got,) = evaluate([ours(x)], {x: value.astype(dtype)})
    wanted = theirs(torch.tensor(value.astype(dtype)))
    np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-5 if dtype == "float32" else 1e-12)
