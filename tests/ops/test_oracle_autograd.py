"""What autograd differentiates works on nodes under NumPy's own names, with its gradients.

The rows are the same calls in both: of `numpy` on nodes, and of `autograd.numpy` on arrays.
"""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import draw

anp = pytest.importorskip("autograd.numpy")
autograd = pytest.importorskip("autograd")
pytestmark = pytest.mark.oracle

OF_ONE = (
    "abs absolute amax amin arccos acos arcsin asin arcsinh asinh arctan atan arctanh atanh "
    "atleast_1d atleast_2d atleast_3d conj conjugate cos cosh cumsum deg2rad degrees diag "
    "diff exp exp2 expm1 fabs fliplr flipud imag angle log log10 log1p log2 max "
    "mean min nan_to_num negative permute_dims prod rad2deg radians ravel real real_if_close "
    "reciprocal rot90 sin sinc sinh sqrt square squeeze std sum tan tanh trace "
    "transpose tril triu var linalg.inv linalg.det linalg.norm linalg.pinv "
    "fft.fftshift fft.ifftshift"
)
OF_TWO = (
    "add arctan2 atan2 cross divide dot fmax fmin hypot inner kron logaddexp logaddexp2 matmul "
    "maximum minimum mod multiply  pow power remainder subtract tensordot true_divide "
    "linalg.solve"
)
CALLS = {
    "arccosh": lambda n, x: n.arccosh(x + 2),
    "acosh": lambda n, x: n.acosh(x + 2),
    "array": lambda n, x: n.array([x[0], x[1]], **_like(n, x)),
    "array_split": lambda n, x: n.array_split(x, 2)[0],
    "astype": lambda n, x: n.astype(n.astype(x, "float32"), "float64"),
    "broadcast_to": lambda n, x: n.broadcast_to(x[:1], (4, 3)),
    "diagonal": lambda n, x: n.diagonal(x, 0, -1, -2),
    "outer": lambda n, x, y: n.outer(x[0], y[1]),
    "sort": lambda n, x: n.sort(n.ravel(x)),
    "clip": lambda n, x: n.clip(x, 0.4, 0.6),
    "concatenate": lambda n, x, y: n.concatenate([x, y], 1),
    "dsplit": lambda n, x: n.dsplit(x[:, :, None] * x[0], 3)[1],
    "einsum": lambda n, x, y: n.einsum("ij,jk->ki", x, y),
    "expand_dims": lambda n, x: n.expand_dims(x, 1),
    "full": lambda n, x: n.full((2, 3), x[0, 0], **_like(n, x)),
    "gradient": lambda n, x: n.gradient(n.ravel(x)),
    "hsplit": lambda n, x: n.hsplit(x, 3)[1],
    "linspace": lambda n, x: n.linspace(x[0, 0], x[1, 1], 4),
    "moveaxis": lambda n, x: n.moveaxis(x, 0, 1),
    "pad": lambda n, x: n.pad(x, ((1, 0), (2, 1)), "constant"),
    "partition": lambda n, x: n.partition(x[0], 1)[:1],
    "repeat": lambda n, x: n.repeat(x, 2, axis=1),
    "reshape": lambda n, x: n.reshape(x, (9,)),
    "roll": lambda n, x: n.roll(x, 1, axis=1),
    "rollaxis": lambda n, x: n.rollaxis(x, 1),
    "split": lambda n, x: n.split(x, 3)[1],
    "stack": lambda n, x, y: n.stack([x, y]),
    "swapaxes": lambda n, x: n.swapaxes(x, 0, 1),
    "tile": lambda n, x: n.tile(x, (2, 1)),
    "vsplit": lambda n, x: n.vsplit(x, 3)[1],
    "where": lambda n, x, y: n.where(np.eye(3, dtype=bool), x, y),
    "linalg.cholesky": lambda n, x: n.linalg.cholesky(n.dot(x, x.T) + np.eye(3)),
    "linalg.eig": lambda n, x: n.real(n.linalg.eig(n.dot(x, x.T))[0].sum() ** 2),
    "linalg.eigh": lambda n, x: n.linalg.eigh(x + x.T)[0],
    "linalg.slogdet": lambda n, x: n.linalg.slogdet(x)[1],
    "linalg.svd": lambda n, x: n.linalg.svd(x, full_matrices=False)[1],
    **{f"fft.{name}": lambda n, x, name=name: _parts(n, getattr(n.fft, name)(x[:2, :2]))
       for name in ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "rfft", "rfft2", "rfftn")},
    **{f"fft.{name}": lambda n, x, name=name: getattr(n.fft, name)(x[:2, :2])
       for name in ("irfft", "irfft2", "irfftn")},
}  # fmt: skip
NO_FUNCTION_OF_NUMPY = (
    "_original_where array_from_args concatenate_args make_diagonal fft.truncate_pad "
    "linalg._primitive_norm"
)
"""Parts of autograd's own."""


def _like(n, x):
    return {"like": x} if n is np else {}


def _parts(n, x):
    return n.real(x) * n.real(x) + 3 * n.imag(x)


def find(module, name):
    for part in name.split("."):
        module = getattr(module, part)
    return module


def rows():
    for name in (*OF_ONE.split(), *OF_TWO.split()):
        yield name, lambda n, *xs, name=name: find(n, name)(*xs)
    yield from CALLS.items()


ROWS = dict(rows())


@pytest.mark.parametrize("name", ROWS)
def test_a_call_by_the_name_of_numpy_has_the_gradients_of_autograd(name):
    call = ROWS[name]
    count = 2 if name in OF_TWO.split() else call.__code__.co_varnames.count("y") + 1
    values = draw(*[(3, 3)] * count, low=0.2, high=0.9)
    weight = lambda y: (y * np.linspace(0.5, 2, y.size).reshape(y.shape)).sum()  # noqa: E731
    wanted = [np.asarray(call(anp, *values))]
    for k in range(count):
        of_one = lambda x, k=k: weight(call(anp, *values[:k], x, *values[k + 1 :]))  # noqa: E731
        wanted.append(autograd.grad(of_one)(values[k]))
    graph = ag.Graph()
    xs = [graph.input(f"x{k}", (3, 3), "float64") for k in range(count)]
    y = call(np, *xs)
    got = evaluate([y, *ag.gradients(weight(y), xs)], dict(zip(xs, values, strict=True)))
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


def test_every_function_that_autograd_differentiates_is_called():
    from autograd.core import primitive_vjps

    spaces = {"": anp, "linalg.": anp.linalg, "fft.": anp.fft}
    theirs = {
        f"{prefix}{name}"
        for prefix, space in spaces.items()
        for name, function in vars(space).items()
        if callable(function) and getattr(function, "__hash__", None) and function in primitive_vjps
    }
    assert theirs - {*NO_FUNCTION_OF_NUMPY.split()} <= ROWS.keys()
