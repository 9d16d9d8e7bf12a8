"""Inverses, determinants and decompositions: values, gradients, and errors where there are none."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, NodeError, ShapeError
from actorgraph.machines import LispMachine
from actorgraph.op import REGISTRY, Sample
from actorgraph.testing._cases import Case, check_first_order, check_second_order
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._matrices import hermitian, input_for, run_backward, square

DTYPES = ["float32", "float64", "complex64", "complex128"]


class Regular(Case):
    """Matrices far from singular ones, whose Hermitian parts are positive definite."""

    def draw(self, dtype):
        arrays = super().draw(dtype)
        return [array + 8 * np.eye(*array.shape[-2:]) for array in arrays]


def close(got, wanted, dtype):
    assert got.shape == np.shape(wanted)
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


# -- laws -------------------------------------------------------------------------------------


@each("dtype", ["float64", "complex128"])
@each(
    "name, shapes, attrs",
    [
        ("cholesky", [(3, 3)], {}),
        ("cholesky", [(2, 2, 2)], {}),
        ("inv", [(4, 4)], {}),
        ("det", [(3, 3)], {}),
        ("cofactor", [(3, 3)], {}),
        ("slogdet", [(3, 3)], {}),
        ("solve", [(3, 3), (2, 3, 2)], {}),
        ("pinv", [(4, 3)], {"rtol": None, "atol": 0.0}),
        ("qr", [(2, 4, 3)], {}),
        ("eigvalsh", [(3, 3)], {}),
        ("svdvals", [(3, 4)], {}),
    ],
)
def test_rules_hold_for_regular_matrices(name, shapes, attrs, dtype):
    sample = Sample(tuple(shapes), attrs)
    check_first_order(Regular(REGISTRY[name], sample, dtype))
    check_second_order(Regular(REGISTRY[name], sample, dtype))


# -- values -----------------------------------------------------------------------------------


@each("dtype", DTYPES)
@each("name", ["inv", "det", "slogdet", "pinv", "qr", "svdvals"])
def test_functions_of_matrices_equal_numpy_in_value_and_dtype(name, dtype):
    value = square(5, 3, 3, dtype=dtype, shift=3)
    x = input_for(value, "batch")
    nodes = getattr(ag.ops, name)(x)
    wanted = getattr(np.linalg, name)(value)
    nodes, wanted = ((nodes,), (wanted,)) if isinstance(nodes, ag.Node) else (nodes, wanted)
    for node, got, want in zip(nodes, evaluate(nodes, {x: value}), wanted, strict=True):
        assert node.dtype == got.dtype == want.dtype
        assert node.shape == ("batch", *want.shape[1:])
        close(got, want, dtype)


@each("dtype", DTYPES)
@each("name", ["cholesky", "eigh", "eigvalsh"])
def test_functions_of_hermitian_matrices_equal_numpy_in_value_and_dtype(name, dtype):
    value = hermitian(square(5, 3, 3, dtype=dtype, shift=6))
    x = input_for(value, "batch")
    nodes = getattr(ag.ops, name)(x)
    wanted = getattr(np.linalg, name)(value)
    nodes, wanted = ((nodes,), (wanted,)) if isinstance(nodes, ag.Node) else (nodes, wanted)
    for node, got, want in zip(nodes, evaluate(nodes, {x: value}), wanted, strict=True):
        assert node.dtype == got.dtype == want.dtype
        assert node.shape == ("batch", *want.shape[1:])
        close(got, want, dtype)


@each("dtype", DTYPES)
@each("shape", [(3, 3), (5, 3), (2, 3, 4), (0, 3), (2, 0, 0)])
def test_svd_gives_back_the_matrix(shape, dtype):
    value = square(*shape, dtype=dtype)
    x = input_for(value)
    u, s, vh = ag.ops.svd(x)
    parts = evaluate([u, s, vh, u @ (ag.ops.expand_dims(s.astype(x.dtype), -1) * vh)], {x: value})
    wanted = np.linalg.svd(value, full_matrices=False)
    assert [part.shape for part in parts[:3]] == [part.shape for part in wanted]
    assert [node.dtype for node in (u, s, vh)] == [part.dtype for part in wanted]
    close(parts[1], wanted[1], dtype)
    close(parts[3], value, dtype)


@pytest.mark.parametrize("shape", [(3, 5), (2, 2, 3), (5, 3), (3, 3)])
def test_qr_takes_wide_and_tall_matrices(shape):
    value = square(*shape, dtype="complex128")
    x = input_for(value)
    for got, want in zip(evaluate(ag.ops.qr(x), {x: value}), np.linalg.qr(value), strict=True):
        close(got, want, "float64")


def test_qr_of_a_symbolic_number_of_rows_takes_tall_matrices_only():
    x = ag.Graph().input("x", ("rows", 3), "float64")
    q, r = ag.ops.qr(x)
    assert (q.shape, r.shape) == (("rows", 3), (3, 3))
    with LispMachine([q, r], wrt=[x]) as machine:
        run = machine.run_sync({"x": square(5, 3)}, backward={r: np.ones((3, 3))})
        assert run[x].grad.shape == (5, 3)
        with pytest.raises(NodeError, match="only 2 rows; give both dims as ints"):
            machine.run_sync({"x": square(2, 3)})


@each("power", [-3, -1, 0, 1, 2, 5, 10])
def test_matrix_power_equals_numpy(power):
    value = square(4, 3, 3, shift=2)
    x = input_for(value, "batch")
    (got,) = evaluate(ag.ops.matrix_power(x, power), {x: value})
    np.testing.assert_allclose(got, np.linalg.matrix_power(value, power), rtol=1e-9, atol=1e-12)


def test_matrix_power_of_integers_stays_exact():
    value = np.array([[1, 1], [1, 0]])
    x = input_for(value)
    (got,) = evaluate(ag.ops.matrix_power(x, 80), {x: value})
    assert got.dtype == np.int64
    assert got[0, 1] == 23416728348467685


def test_matrix_power_takes_log_many_products():
    x = input_for(square(3, 3))
    ag.ops.matrix_power(x, 1024)
    assert sum(node.op.name == "matmul" for node in x.graph) == 10


@pytest.mark.parametrize("shapes", [((5, 3), (5,)), ((5, 3), (5, 2)), ((3, 5), (3, 1))])
def test_lstsq_is_the_solution_of_least_norm(shapes):
    a, b = square(*shapes[0]), np.random.default_rng(1).standard_normal(shapes[1])
    g = ag.Graph()
    x, y = g.input("x", a.shape, "float64"), g.input("y", b.shape, "float64")
    found = evaluate(np.linalg.lstsq(x, y), {x: a, y: b})
    for got, want in zip(found, np.linalg.lstsq(a, b), strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-10)


def test_lstsq_takes_batches_of_systems_and_one_right_side_for_all():
    a, b = square(4, 5, 3), square(5, 1)[:, 0]
    x = input_for(a, "batch")
    solution, residuals, rank, values = evaluate(ag.ops.lstsq(x, b), {x: a})
    assert (solution.shape, residuals.shape, values.shape) == ((4, 3), (4, 1), (4, 3))
    assert rank.tolist() == [3] * 4
    for got, left in zip(solution, a, strict=True):
        np.testing.assert_allclose(got, np.linalg.lstsq(left, b)[0], rtol=1e-10)


def test_rank_counts_what_is_not_zero_within_rounding():
    value = np.stack([np.diag([1.0, 1e-3, 1e-17]), np.zeros((3, 3)), np.eye(3)])
    x = input_for(value, None)
    got = evaluate([np.linalg.matrix_rank(x), ag.ops.matrix_rank(x, 0.1)], {x: value})
    assert [part.tolist() for part in got] == [[2, 0, 3], [1, 0, 3]]


# -- whole bases ------------------------------------------------------------------------------


@each("dtype", DTYPES)
@each("shape", [(3, 3), (5, 3), (2, 3, 5), (0, 3), (3, 0)])
def test_full_svd_has_whole_bases_and_gives_back_the_matrix(shape, dtype):
    value = square(*shape, dtype=dtype)
    x = input_for(value)
    k = min(shape[-2:])
    nodes = np.linalg.svd(x)
    u, s, vh = evaluate(nodes, {x: value})
    wanted = np.linalg.svd(value)
    assert [part.shape for part in (u, s, vh)] == [part.shape for part in wanted]
    assert [node.shape for node in nodes] == [part.shape for part in wanted]
    close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], value, dtype)
    for basis in (u, vh):
        gram = basis @ basis.conj().swapaxes(-1, -2)
        close(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), dtype)


@each("mode", ["reduced", "complete"])
@each("shape", [(3, 3), (5, 3), (2, 3, 5), (2, 5, 3)])
def test_qr_in_every_mode_has_numpys_shapes_and_gives_back_the_matrix(shape, mode):
    value = square(*shape, dtype="complex128")
    x = input_for(value)
    node, wanted = np.linalg.qr(x, mode=mode), np.linalg.qr(value, mode=mode)
    q, r = evaluate(node, {x: value})
    assert [part.shape for part in (q, r)] == [part.shape for part in wanted]
    close(r, wanted.R, "float64")
    close(q @ r, value, "float64")
    gram = q.conj().swapaxes(-1, -2) @ q
    close(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), "float64")


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 5)])
def test_qr_gives_the_triangle_alone(shape):
    value = square(*shape)
    x = input_for(value)
    (got,) = evaluate([np.linalg.qr(x, "r")], {x: value})
    close(got, np.linalg.qr(value, "r"), "float64")


def test_whole_bases_may_be_of_sizes_that_a_run_knows():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    q, r = ag.ops.qr(x, mode="complete")
    u, _, vh = ag.ops.svd(x, full_matrices=True)
    assert [node.shape for node in (q, r, u, vh)] == [
        ("rows", "rows"), ("rows", 2), ("rows", "rows"), (2, 2),
    ]  # fmt: skip
    found = evaluate([q, r, u, vh], {x: square(5, 2)})
    assert [value.shape for value in found] == [(5, 5), (5, 2), (5, 5), (2, 2)]


@pytest.mark.parametrize("machine", [ag.ActorMachine, LispMachine])
def test_gradient_that_depends_on_the_choice_of_a_basis_raises_in_the_run(machine):
    value = square(5, 2)
    x = input_for(value)
    for basis in (ag.ops.qr(x, mode="complete").Q, ag.ops.svd(x, full_matrices=True).U):
        with pytest.raises(NodeError, match="arbitrary within their space.*the reduced factors"):
            run_backward((basis[:, 2:] * np.arange(15.0).reshape(5, 3)).sum(), x, value, machine)
        # What the choice does not change has its gradient.
        rest = basis[:, 2:] @ ag.ops.transpose(basis[:, 2:])
        gradient = run_backward((rest * square(5, 5, seed=1)).sum(), x, value, machine)
        assert np.abs(gradient).max() > 0.01


@pytest.mark.parametrize("right", [(3,), (3, 2), (4, 3, 2), (2, 1, 3, 1)])
def test_solve_equals_numpy(right):
    a, b = square(4, 3, 3, shift=3), np.random.default_rng(1).standard_normal(right)
    x = input_for(a)
    (got,) = evaluate(ag.ops.solve(x, b), {x: a})
    np.testing.assert_allclose(got, np.linalg.solve(a, b), rtol=1e-10)


# -- refusals ---------------------------------------------------------------------------------

SQUARE = ["inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh"]
ANY = ["pinv", "qr", "svd", "svdvals"]


@each("name", [*SQUARE, *ANY])
@each(("dtype", "wanted"), [("float16", "float32"), ("int64", "float64")])
def test_dtypes_that_lapack_lacks_are_refused_with_the_way_out(name, dtype, wanted):
    x = ag.Graph().input("x", (3, 3), dtype)
    with pytest.raises(GraphTypeError, match=rf"{name} takes float32.*astype\('{wanted}'\)"):
        getattr(ag.ops, name)(x)


@each("name", SQUARE)
def test_matrices_that_are_not_square_are_refused(name):
    with pytest.raises(ShapeError, match=f"{name} takes square matrices"):
        getattr(ag.ops, name)(ag.Graph().input("x", (3, 4)))


@each("name", [*SQUARE, *ANY])
def test_vectors_are_refused(name):
    with pytest.raises(ShapeError, match=f"{name} takes matrices, of at least two dims"):
        getattr(ag.ops, name)(ag.Graph().input("x", (3,)))


@pytest.mark.parametrize("name", ["qr", "svd", "svdvals"])
def test_dims_that_only_the_run_knows_are_refused_where_results_are_cut(name):
    with pytest.raises(ShapeError, match="name it with a symbol"):
        getattr(ag.ops, name)(ag.Graph().input("x", (3, None)))


def test_other_misuses_say_what_to_do():
    x = ag.Graph().input("x", (3, 3), "float64")
    with pytest.raises(GraphTypeError, match="mode is 'reduced', 'complete' or 'r', got 'raw'"):
        ag.ops.qr(x, mode="raw")
    with pytest.raises(GraphTypeError, match="eigh: UPLO is 'L', 'U' or None, got 'l'"):
        ag.ops.eigh(x, UPLO="l")
    with pytest.raises(GraphTypeError, match=r"takes an int as the power, got 0\.5"):
        ag.ops.matrix_power(x, 0.5)
    with pytest.raises(ShapeError, match="right side of at least one dim"):
        ag.ops.solve(x, np.float64(1) * np.ones(()))
    with pytest.raises(ShapeError, match="solve.*do not fit: 3 and 4"):
        ag.ops.solve(x, np.ones(4))


@each("name", [*SQUARE, "pinv", "svd", "svdvals", "qr"])
def test_batches_whose_size_only_the_run_knows_differentiate(name):
    value = hermitian(square(4, 3, 3, shift=6))
    x = input_for(value, None)
    nodes = getattr(ag.ops, name)(x)
    nodes = [nodes] if isinstance(nodes, ag.Node) else list(nodes)
    y = sum((node * node).sum() for node in nodes)
    (gradient,) = evaluate(ag.gradients(y, [x]), {x: value})
    assert gradient.shape == value.shape


def test_functions_stand_behind_their_numpy_names():
    value = hermitian(square(3, 3, shift=6))
    x = input_for(value)
    calls = [
        np.linalg.inv, np.linalg.det, np.linalg.cholesky, np.linalg.eigvalsh, np.linalg.svdvals,
        np.linalg.pinv,
        lambda a: np.linalg.pinv(a, rtol=1e-8),
        lambda a: np.linalg.pinv(a, hermitian=True),
        lambda a: np.linalg.svd(a, hermitian=True).S,
        lambda a: np.linalg.matrix_rank(a, 1.0),
        lambda a: np.linalg.matrix_rank(a, hermitian=True, rtol=0.1),
        lambda a: np.linalg.solve(a, np.ones(3)),
        lambda a: np.linalg.matrix_power(a, 3),
        lambda a: np.linalg.eigh(a).eigenvalues,
        lambda a: np.linalg.qr(a).R,
        lambda a: np.linalg.svd(a, full_matrices=False).S,
        lambda a: np.linalg.svd(a, compute_uv=False),
        lambda a: np.linalg.cholesky(a, upper=True),
        lambda a: np.linalg.eigh(a + np.tri(3, k=-1), UPLO="L").eigenvalues,
        lambda a: np.linalg.eigvalsh(a + np.tri(3, k=-1), UPLO="U"),
        lambda a: np.linalg.slogdet(a).logabsdet,
    ]  # fmt: skip
    for call in calls:
        (got,) = evaluate([call(x)], {x: value})
        np.testing.assert_allclose(got, call(value), rtol=1e-10, atol=1e-14)
