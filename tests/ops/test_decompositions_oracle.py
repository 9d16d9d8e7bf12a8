"""Matrix functions against PyTorch: values, gradients and gradients of gradients, complex too.

Vectors are compared through functions that their signs and phases do not change.
"""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._matrix_oracle import DTYPES, matrices, square_of
from tests.ops._oracle import compare_call as compare

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def transposed(x):
    return ag.ops.conj(ag.ops.swapaxes(x, -1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_pinv_agrees_with_pytorch_for_any_shape(shape, dtype):
    compare(ag.ops.pinv, torch.linalg.pinv, [matrices(*shape, dtype=dtype)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 2)), ((2, 3, 3), (3, 2)), ((3, 3), (3,))],
)
def test_solve_agrees_with_pytorch(left, right, dtype):
    values = [matrices(*left, dtype=dtype, shift=3), matrices(*right, dtype=dtype, seed=1)]
    compare(ag.ops.solve, torch.linalg.solve, values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_lstsq_agrees_with_pytorch(shape, dtype):
    values = [matrices(*shape, dtype=dtype), matrices(shape[0], 2, dtype=dtype, seed=1)]
    compare(lambda a, b: ag.ops.lstsq(a, b)[0], lambda a, b: torch.linalg.pinv(a) @ b, values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_residuals_of_lstsq_agree_with_pytorch(dtype):
    values = [matrices(5, 3, dtype=dtype), matrices(5, 2, dtype=dtype, seed=1)]
    compare(
        lambda a, b: ag.ops.lstsq(a, b).residuals,
        lambda a, b: ((b - a @ (torch.linalg.pinv(a) @ b)).abs() ** 2).sum(-2),
        values,
    )
    a, b = map(torch.tensor, values)
    ours = evaluate(ag.ops.lstsq(*map(ag.Graph().constant, values)), {})
    for mine, other in zip(ours, torch.linalg.lstsq(a, b, driver="gelsd"), strict=True):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [-2, 3])
def test_matrix_power_agrees_with_pytorch(power, dtype):
    value = matrices(2, 3, 3, dtype=dtype, shift=3)
    compare(
        lambda x: ag.ops.matrix_power(x, power),
        lambda t: torch.linalg.matrix_power(t, power),
        [value],
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_upper_cholesky_agrees_with_pytorch(dtype):
    value = matrices(2, 3, 3, dtype=dtype)
    compare(
        lambda x: ag.ops.cholesky(x @ transposed(x) + np.eye(3).astype(dtype), upper=True),
        lambda t: torch.linalg.cholesky(t @ t.mH + torch.eye(3, dtype=t.dtype), upper=True),
        [value],
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvalues_of_one_triangle_agree_with_pytorch(triangle, dtype):
    """PyTorch's gradient is Hermitian, so there the triangle is taken by hand."""

    def theirs(t):
        half = t.tril(-1) if triangle == "L" else t.triu(1)
        return torch.linalg.eigvalsh(half + half.mH + torch.diag_embed(t.diagonal(0, -2, -1).real))

    compare(
        lambda x: ag.ops.eigvalsh(x, UPLO=triangle) ** 3,
        lambda t: theirs(t) ** 3,
        [matrices(2, 4, 4, dtype=dtype)],
    )
    compare(
        lambda x: ag.ops.eigh(x, UPLO=triangle).eigenvalues ** 3,
        lambda t: theirs(t) ** 3,
        [matrices(2, 4, 4, dtype=dtype)],
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3), (2, 5, 2)])
def test_complete_qr_agrees_with_pytorch(shape, dtype):
    """Of a tall matrix through a function that does not depend on the arbitrary columns."""

    def theirs(t):
        q, r = torch.linalg.qr(t)
        if t.shape[-2] <= t.shape[-1]:
            return q.abs() ** 2 @ r.abs() ** 2
        rest = torch.eye(t.shape[-2], dtype=t.dtype) - q @ q.mH
        return (rest.abs() ** 2)[..., : t.shape[-1]] @ r.abs() ** 2

    def ours(x):
        q, r = ag.ops.qr(x, mode="complete")
        if x.shape[-2] <= x.shape[-1]:
            return square_of(q) @ square_of(r)
        k = x.shape[-1]
        rest = q[..., k:] @ transposed(q[..., k:])
        return square_of(rest)[..., :k] @ square_of(r[..., :k, :])

    compare(ours, theirs, [matrices(*shape, dtype=dtype)[..., :3, :] if shape == (2, 3)
                           else matrices(*shape, dtype=dtype)])  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 2), (2, 3, 5), (3, 3)])
def test_full_svd_agrees_with_pytorch(shape, dtype):
    """Through functions that are the same for every basis of what has no singular value."""

    def ours(x):
        u, s, vh = ag.ops.svd(x, full_matrices=True)
        k = min(x.shape[-2:])
        left, right = u[..., k:] @ transposed(u[..., k:]), transposed(vh[..., k:, :])
        right = right @ transposed(right)
        if not (left.shape[-1] > k or right.shape[-1] > k):
            return square_of(u) @ ag.ops.expand_dims(s, -1)
        return square_of(left) if left.shape[-1] > k else square_of(right)

    def theirs(t):
        u, s, vh = torch.linalg.svd(t, full_matrices=False)
        if t.shape[-1] == t.shape[-2]:
            return u.abs() ** 2 @ s[..., :, None]
        part = u if t.shape[-2] > t.shape[-1] else vh.mH
        return (torch.eye(part.shape[-2], dtype=t.dtype) - part @ part.mH).abs() ** 2

    compare(ours, theirs, [matrices(*shape, dtype=dtype)], rtol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 3)])
@pytest.mark.parametrize("part", ["Q", "R"])
def test_qr_agrees_with_pytorch(shape, part, dtype):
    if part == "Q" and shape == (2, 3):
        shape = (3, 3)  # of a wide matrix Q is that of its first columns
    compare(
        lambda x: getattr(ag.ops.qr(x), part),
        lambda t: getattr(torch.linalg.qr(t), part),
        [matrices(*shape, dtype=dtype)],
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)])
def test_eigh_agrees_with_pytorch(shape, dtype):
    def ours(x):
        values, vectors = ag.ops.eigh(x)
        return square_of(vectors) + ag.ops.expand_dims(values, -1)

    def theirs(t):
        values, vectors = torch.linalg.eigh((t + t.mH) / 2)
        return (vectors * vectors.conj()).real + values[..., :, None]

    compare(ours, theirs, [matrices(*shape, dtype=dtype)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 5)])
def test_svd_agrees_with_pytorch(shape, dtype):
    def ours(x):
        u, s, vh = ag.ops.svd(x)
        return square_of(u) @ (square_of(vh) + ag.ops.expand_dims(s, -1)) + ag.ops.real(u @ vh)

    def theirs(t):
        u, s, vh = torch.linalg.svd(t, full_matrices=False)
        return u.abs() ** 2 @ (vh.abs() ** 2 + s[..., :, None]) + (u @ vh).real

    compare(ours, theirs, [matrices(*shape, dtype=dtype)], rtol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 5)])
def test_svdvals_agrees_with_pytorch(shape, dtype):
    compare(
        lambda x: ag.ops.svdvals(x) ** 3,
        lambda t: torch.linalg.svdvals(t) ** 3,
        [matrices(*shape, dtype=dtype)],
    )


@pytest.mark.parametrize("name", ["tril", "triu", "diag", "diagonal"])
@pytest.mark.parametrize("offset", [0, 1, -2])
def test_parts_of_matrices_agree_with_pytorch(name, offset):
    value = matrices(3, 4, dtype="float64")
    compare(
        lambda x: getattr(ag.ops, name)(x * x, offset),
        lambda t: getattr(torch, name)(t * t, offset),
        [value],
    )
