"""LU, eigenvalues, norms, exponentials and equations against PyTorch and SciPy, complex too."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._matrix_oracle import DTYPES, matrices, square_of
from tests.ops._oracle import compare_call as compare

torch = pytest.importorskip("torch")
scipy_linalg = pytest.importorskip("scipy.linalg")
pytestmark = pytest.mark.oracle

both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


@both_dtypes
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3), (5, 3), (3, 5), (2, 4, 2)])
@pytest.mark.parametrize("part", ["L", "U"])
def test_lu_agrees_with_pytorch(shape, part, dtype):
    compare(
        lambda x: getattr(ag.ops.lu(x), part) ** 2,
        lambda t: getattr(torch.linalg.lu(t), part) ** 2,
        [matrices(*shape, dtype=dtype)],
        rtol=1e-8,
    )


@pytest.mark.parametrize("dtype", [*DTYPES, "float32"])
@pytest.mark.parametrize("shape", [(40, 40), (2, 70, 33), (33, 70)])
def test_rows_of_lu_are_in_the_order_of_lapack(shape, dtype):
    value = matrices(*shape, dtype=dtype).astype(dtype)
    x = ag.Graph().input("x", shape, dtype)
    for got, want in zip(evaluate(ag.ops.lu(x), {x: value}), scipy_linalg.lu(value), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 if dtype == "float32" else 1e-9)


@both_dtypes
@pytest.mark.parametrize("right", [(3, 2), (2, 3, 2), (3,)])
@pytest.mark.parametrize("adjoint", [False, True])
def test_lu_solve_agrees_with_pytorch(right, adjoint, dtype):
    def theirs(a, b):
        columns = b[:, None] if b.ndim == 1 else b
        a = a.mH if adjoint else a
        return torch.linalg.solve(a, columns)[..., 0] if b.ndim == 1 else torch.linalg.solve(a, b)

    values = [matrices(2, 3, 3, dtype=dtype, shift=3), matrices(*right, dtype=dtype, seed=1)]
    compare(lambda a, b: ag.ops.lu_solve(ag.ops.lu_factor(a), b, adjoint=adjoint), theirs, values)


@both_dtypes
@pytest.mark.parametrize("adjoint", [False, True])
def test_lu_solve_from_the_right_agrees_with_pytorch(adjoint, dtype):
    values = [matrices(3, 3, dtype=dtype, shift=3), matrices(2, 3, dtype=dtype, seed=1)]
    compare(
        lambda a, b: ag.ops.lu_solve(ag.ops.lu_factor(a), b, left=False, adjoint=adjoint),
        lambda a, b: torch.linalg.solve(a.mH if adjoint else a, b, left=False),
        values,
    )


@both_dtypes
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("size", [3, 40])
def test_solve_triangular_agrees_with_pytorch(upper, left, unit, size, dtype):
    """PyTorch takes the gradient of a whole matrix, of which only a triangle counts."""
    scale = 1 / size if unit else 1
    values = [
        scale * matrices(2, size, size, dtype=dtype, shift=0 if unit else 2 * size),
        matrices(2, size, 2, dtype=dtype, seed=1),
    ]
    if not left:
        values[1] = values[1].swapaxes(-1, -2)
    options = {"upper": upper, "left": left, "unitriangular": unit}
    compare(
        lambda a, b: ag.ops.solve_triangular(a, b, **options),
        lambda a, b: torch.linalg.solve_triangular(a.triu() if upper else a.tril(), b, **options),
        values,
    )


@both_dtypes
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_solve_agrees_with_pytorch(upper, dtype):
    values = [matrices(3, 2, dtype=dtype), matrices(3, 3, dtype=dtype, shift=4, seed=1)]
    compare(
        lambda b, f: ag.ops.cholesky_solve(b, f, upper),
        lambda b, f: torch.cholesky_solve(b, f.triu() if upper else f.tril(), upper),
        values,
    )


@both_dtypes
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
def test_eig_agrees_with_pytorch(shape, dtype):
    """Through a function that phases do not change: PyTorch has no gradient of the others."""

    def ours(x):
        values, vectors = ag.ops.eig(x)
        return square_of(vectors) * square_of(ag.ops.expand_dims(values, -2) + 0.5)

    def theirs(t):
        values, vectors = torch.linalg.eig(t)
        return vectors.abs() ** 2 * (values[..., None, :] + 0.5).abs() ** 2

    compare(ours, theirs, [matrices(*shape, dtype=dtype)], rtol=1e-7)


@both_dtypes
def test_eig_is_that_of_numpy(dtype):
    value = matrices(2, 4, 4, dtype=dtype)
    x = ag.Graph().input("x", value.shape, dtype)
    got = evaluate([*np.linalg.eig(x), np.linalg.eigvals(x)], {x: value})
    for mine, other in zip(got, [*np.linalg.eig(value), np.linalg.eigvals(value)], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


@both_dtypes
@pytest.mark.parametrize("scale", [0.1, 1, 4])
def test_matrix_exp_agrees_with_pytorch(scale, dtype):
    value = matrices(2, 4, 4, dtype=dtype) * np.array([1, scale])[:, None, None]
    compare(ag.ops.matrix_exp, torch.linalg.matrix_exp, [value], rtol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64"])
def test_matrix_exp_is_that_of_scipy(dtype):
    value = matrices(3, 5, 5, dtype="complex128") * np.array([1e-3, 1, 9])[:, None, None]
    value = (value if dtype == "complex64" else value.real).astype(dtype)
    x = ag.Graph().input("x", value.shape, dtype)
    (got,) = evaluate([ag.ops.matrix_exp(x)], {x: value})
    assert got.dtype == dtype
    for mine, one in zip(got, value, strict=True):
        wanted = scipy_linalg.expm(one.astype("complex128"))
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(
            mine / scale, wanted / scale, atol=1e-12 if dtype == "float64" else 1e-5
        )


NORMS = ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]


@both_dtypes
@pytest.mark.parametrize("order", NORMS)
@pytest.mark.parametrize("axis", [(-2, -1), (2, 0)])
def test_matrix_norm_agrees_with_pytorch(order, axis, dtype):
    value = matrices(3, 2, 4, dtype=dtype)
    compare(
        lambda x: ag.ops.matrix_norm(x, order, axis, keepdims=True) ** 2,
        lambda t: torch.linalg.matrix_norm(t, order, axis, keepdim=True) ** 2,
        [value],
        rtol=1e-8,
    )
    x = ag.Graph().input("x", value.shape, dtype)
    (got,) = evaluate([np.linalg.norm(x, order, axis)], {x: value})
    np.testing.assert_allclose(got, np.linalg.norm(value, order, axis))


@both_dtypes
@pytest.mark.parametrize("order", [None, *NORMS])
def test_cond_agrees_with_pytorch(order, dtype):
    """By norms, since PyTorch has no second derivative of most of its own condition numbers."""

    def theirs(t):
        if order in (None, 2, -2):
            return torch.linalg.cond(t, order)
        one, other = (torch.linalg.matrix_norm(part, order) for part in (t, torch.linalg.inv(t)))
        return one * other

    value = matrices(2, 3, 3, dtype=dtype, shift=2)
    compare(lambda x: ag.ops.cond(x, order), theirs, [value], rtol=1e-7)
    x = ag.Graph().input("x", value.shape, dtype)
    (got,) = evaluate([np.linalg.cond(x, order)], {x: value})
    np.testing.assert_allclose(got, np.linalg.cond(value, order))


@both_dtypes
@pytest.mark.parametrize("tolerances", [{"atol": 1.0}, {"atol": 0.1, "rtol": 0.4}, {"rtol": 0.4}])
def test_pinv_with_tolerances_agrees_with_pytorch(tolerances, dtype):
    value = matrices(4, 3, dtype=dtype)
    x = ag.Graph().input("x", value.shape, dtype)
    got = evaluate([ag.ops.pinv(x, **tolerances), ag.ops.matrix_rank(x, **tolerances)], {x: value})
    wanted = torch.linalg.pinv(torch.tensor(value), **tolerances)
    np.testing.assert_allclose(got[0], wanted.numpy(), rtol=1e-9, atol=1e-12)
    assert got[1] == torch.linalg.matrix_rank(torch.tensor(value), **tolerances)


@both_dtypes
def test_pinv_of_hermitian_matrices_agrees_with_pytorch(dtype):
    compare(
        lambda x: ag.ops.pinv(x, hermitian=True),
        lambda t: torch.linalg.pinv((t + t.mH) / 2, hermitian=True),
        [matrices(2, 3, 3, dtype=dtype)],
    )


@both_dtypes
@pytest.mark.parametrize(("shape", "count"), [((4, 3), 3), ((2, 3, 3), 2), ((5, 2), 0)])
def test_householder_product_agrees_with_pytorch(shape, count, dtype):
    values = [matrices(*shape, dtype=dtype), matrices(*shape[:-2], count, dtype=dtype, seed=1)]
    if count:
        compare(ag.ops.householder_product, torch.linalg.householder_product, values)
    else:
        x = ag.Graph().input("x", shape, dtype)
        (got,) = evaluate([ag.ops.householder_product(x, values[1])], {x: values[0]})
        np.testing.assert_array_equal(got, np.eye(*shape))


@both_dtypes
@pytest.mark.parametrize("axis", [0, -1])
def test_cross_agrees_with_pytorch(axis, dtype):
    values = [matrices(3, 3, dtype=dtype), matrices(3, 3, dtype=dtype, seed=1)]
    compare(
        lambda x, y: ag.ops.cross(x, y, axis),
        lambda x, y: torch.linalg.cross(x, y, dim=axis),
        values,
    )
    x = ag.Graph().input("x", (3, 3), dtype)
    got = evaluate([np.cross(x, values[1], axis=axis), np.linalg.cross(x, values[1], axis=axis)],
                   {x: values[0]})  # fmt: skip
    for mine in got:
        np.testing.assert_allclose(mine, np.cross(*values, axis=axis))


def test_a_chain_of_products_is_cut_where_it_is_cheapest():
    x = ag.Graph().input("x", (100, 1), "float64")
    y = ag.ops.multi_dot([x, x.T, x])
    assert [node.shape for node in y.inputs] == [(100, 1), (1, 1)]


@both_dtypes
def test_equations_of_arrays_agree_with_pytorch(dtype):
    a = matrices(6, 6, dtype=dtype, shift=3)
    b = matrices(2, 3, dtype=dtype, seed=1)
    compare(ag.ops.tensorsolve, torch.linalg.tensorsolve, [a.reshape(2, 3, 3, 2), b])
    compare(
        lambda a, b: ag.ops.tensorsolve(a, b, axes=(0,)),
        lambda a, b: torch.linalg.tensorsolve(a, b, dims=(0,)),
        [a.reshape(6, 6).T.reshape(6, 2, 3), b],
    )
    compare(
        lambda x: ag.ops.tensorinv(x, 1), lambda t: torch.linalg.tensorinv(t, 1),
        [a.reshape(6, 3, 2)],
    )  # fmt: skip


@both_dtypes
@pytest.mark.parametrize("increasing", [False, True])
def test_vander_agrees_with_pytorch(increasing, dtype):
    value = matrices(4, dtype=dtype).astype(dtype)
    compare(
        lambda x: ag.ops.vander(x, 3, increasing),
        lambda t: torch.stack([t**power for power in (range(3) if increasing else (2, 1, 0))], -1),
        [value],
    )
    x = ag.Graph().input("x", value.shape, dtype)
    (got,) = evaluate([np.vander(x, 3, increasing)], {x: value})
    np.testing.assert_allclose(got, np.vander(value, 3, increasing))


def test_the_gradient_of_eigenvectors_is_right_for_their_phases_too():
    value = matrices(4, 4, dtype="complex128")
    direction, weights = matrices(2, 4, 4, dtype="complex128", seed=1)
    x = ag.Graph().input("x", (4, 4), "complex128")
    vectors = ag.ops.eig(x).eigenvectors
    (gradient,) = evaluate(ag.gradients([vectors], [x], seeds=[weights]), {x: value})
    ahead, behind = (np.linalg.eig(value + step * direction)[1] for step in (1e-6, -1e-6))
    moved = (np.conj(weights) * (ahead - behind) / 2e-6).sum().real
    np.testing.assert_allclose((np.conj(gradient) * direction).sum().real, moved, rtol=1e-6)


def test_eigenvectors_of_equal_eigenvalues_have_no_gradient():
    x = ag.Graph().input("x", (2, 2), "float64")
    vectors = ag.ops.eig(x).eigenvectors
    (gradient,) = ag.gradients([vectors], [x], seeds=[np.ones((2, 2), complex)])
    with pytest.raises(np.linalg.LinAlgError, match="use eigvals where only"):
        evaluate([gradient], {x: np.eye(2)})
