"""Inverses, determinants and decompositions: values, gradients, and errors where there are none."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, NodeError, ShapeError
from actorgraph.machines import LispMachine
from actorgraph.op import REGISTRY, Sample
from tests._evaluate import evaluate
from tests.ops._laws import Case, check_first_order, check_second_order

DTYPES = ["float32", "float64", "complex64", "complex128"]


class Regular(Case):
    """Matrices far from singular ones, whose Hermitian parts are positive definite."""

    def draw(self, dtype):
        arrays = super().draw(dtype)
        return [array + 8 * np.eye(*array.shape[-2:]) for array in arrays]


def square(*shape, dtype="float64", shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        value = value + 1j * rng.standard_normal(shape)
    return (value + shift * np.eye(shape[-2], shape[-1])).astype(dtype)


def hermitian(value):
    return (value + value.conj().swapaxes(-1, -2)) / 2


def input_for(value, *lead):
    dims = (*lead, *value.shape[len(lead) :])
    return ag.Graph().input("x", dims, value.dtype)


def close(got, wanted, dtype):
    assert got.shape == np.shape(wanted)
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


# -- laws -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("cholesky", [(3, 3)], {}),
        ("cholesky", [(2, 2, 2)], {}),
        ("inv", [(4, 4)], {}),
        ("det", [(3, 3)], {}),
        ("cofactor", [(3, 3)], {}),
        ("slogdet", [(3, 3)], {}),
        ("solve", [(3, 3), (2, 3, 2)], {}),
        ("pinv", [(4, 3)], {"rtol": None}),
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "pinv", "qr", "svdvals"])
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigvalsh"])
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 4), (0, 3), (2, 0, 0)])
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


@pytest.mark.parametrize("power", [-3, -1, 0, 1, 2, 5, 10])
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 5), (0, 3), (3, 0)])
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


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 5), (2, 5, 3)])
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


# -- where a derivative does not exist --------------------------------------------------------


def run_backward(output, x, value, machine=ag.ActorMachine):
    with machine([output], wrt=[x]) as running:
        return running.run_sync({"x": value}, backward=True)[x].grad


@pytest.mark.parametrize("machine", [ag.ActorMachine, LispMachine])
def test_gradient_of_eigenvectors_of_equal_eigenvalues_raises_in_the_run(machine):
    value = np.diag([1.0, 1.0, 2.0])
    x = input_for(value)
    vectors = ag.ops.eigh(x).eigenvectors

    with pytest.raises(NodeError, match="eigenvalues coincide.*eigvalsh") as caught:
        run_backward((vectors[0, 0] * vectors[1, 1]).sum(), x, value, machine)
    assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)


def test_eigenvalues_equal_within_rounding_count_as_equal():
    turn = np.linalg.qr(square(4, 4))[0]
    value = turn @ np.diag([1.0, 1.0, 2.0, 3.0]) @ turn.T
    x = input_for(value)

    with pytest.raises(NodeError, match="eigenvalues coincide"):
        run_backward((ag.ops.eigh(x).eigenvectors ** 3).sum(), x, value)


def test_gradient_of_the_eigenvalues_alone_exists_where_they_are_equal():
    value = np.diag([1.0, 1.0, 2.0])
    x = input_for(value)

    for values in (ag.ops.eigh(x).eigenvalues, ag.ops.eigvalsh(x)):
        got = run_backward((values * values).sum(), x, value)
        np.testing.assert_allclose(got, 2 * value, rtol=1e-12, atol=1e-12)


def test_gradient_of_an_eigenvector_of_a_simple_eigenvalue_exists_beside_equal_ones():
    value = np.diag([1.0, 1.0, 2.0])
    x = input_for(value)
    top = ag.ops.eigh(x).eigenvectors[:, 2]
    weight = square(3, 3)

    got = run_backward((top * (weight @ top)).sum(), x, value)

    # The projector P of the eigenvalue 2 moves by P dA + dA P outside of itself.
    both = hermitian(weight)
    wanted = np.zeros((3, 3))
    wanted[2, :2] = wanted[:2, 2] = both[2, :2]
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_gradient_of_singular_vectors_of_equal_values_raises_in_the_run(shape):
    value = np.eye(*shape)
    x = input_for(value)

    with pytest.raises(NodeError, match="singular values coincide.*svdvals"):
        run_backward((ag.ops.svd(x).U ** 3 + 1).sum(), x, value)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_gradient_of_the_singular_values_alone_exists_where_they_are_equal(shape):
    value = np.eye(*shape)
    x = input_for(value)

    for values in (ag.ops.svd(x).S, ag.ops.svdvals(x)):
        got = run_backward((values * values).sum(), x, value)
        np.testing.assert_allclose(got, 2 * value, rtol=1e-12, atol=1e-12)


def test_gradient_of_vectors_of_the_singular_value_zero_raises_in_the_run():
    value = np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    x = input_for(value)

    with pytest.raises(NodeError, match="a singular value is zero"):
        run_backward((ag.ops.svd(x).U * square(3, 2)).sum(), x, value)


@pytest.mark.parametrize("name", ["inv", "solve"])
def test_singular_matrices_raise_in_the_run(name):
    value = np.ones((3, 3))
    x = input_for(value)
    y = ag.ops.inv(x) if name == "inv" else ag.ops.solve(x, np.ones(3))

    with ag.ActorMachine([y], wrt=[x]) as machine, pytest.raises(NodeError, match="Singular"):
        machine.run_sync({"x": value})


def test_matrix_that_is_not_positive_definite_raises_in_the_run():
    value = -np.eye(3)
    x = input_for(value)

    machine = ag.ActorMachine([ag.ops.cholesky(x)])
    with machine, pytest.raises(NodeError, match="not positive definite"):
        machine.run_sync({"x": value})


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_gradient_of_det_is_the_cofactors_of_singular_matrices_too(rank):
    value = (
        square(3, 3) @ np.diag([2.0, 1.0, 3.0][:rank] + [0.0] * (3 - rank)) @ square(3, 3, seed=1)
    )
    x = input_for(value)
    cofactors = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            minor = np.delete(np.delete(value, i, 0), j, 1)
            cofactors[i, j] = (-1) ** (i + j) * np.linalg.det(minor)

    got = run_backward(ag.ops.det(x), x, value)

    np.testing.assert_allclose(got, cofactors, rtol=1e-10, atol=1e-12)


def test_second_derivative_of_det_raises_for_a_singular_matrix():
    value = np.zeros((3, 3))
    x = input_for(value)
    (first,) = ag.gradients(ag.ops.det(x), [x])

    with pytest.raises(NodeError, match="Singular"):
        run_backward((first * first).sum(), x, value)


def test_slogdet_of_a_singular_matrix_is_minus_infinity_without_a_gradient():
    value = np.zeros((2, 2))
    x = input_for(value)
    sign, logabs = ag.ops.slogdet(x)

    assert evaluate([sign, logabs], {x: value}) == [0, -np.inf]
    with pytest.raises(NodeError, match="Singular"):
        run_backward(logabs, x, value)


def test_slogdet_does_not_overflow():
    value = 1e3 * np.eye(200)
    x = input_for(value)
    logabs = ag.ops.slogdet(x).logabsdet

    assert evaluate([logabs], {x: value})[0] == pytest.approx(200 * np.log(1e3))
    np.testing.assert_allclose(run_backward(logabs, x, value), np.eye(200) / 1e3, atol=1e-15)


def test_rank_deficient_least_squares_has_its_gradient():
    value = np.outer([1.0, 2.0, 3.0], [1.0, 1.0])
    x = input_for(value)
    p = ag.ops.pinv(x)
    # Along changes of rank one the rank stays.
    direction = np.outer([1.0, -1.0, 0.5], [1.0, 1.0]) + np.outer([1.0, 2.0, 3.0], [0.5, -0.5])
    (tangent,) = evaluate(tangents([p], {x: x.graph.constant(direction)}), {x: value})

    def moved(step):
        changed = np.outer(
            np.array([1.0, 2.0, 3.0]) + step * np.array([1.0, -1.0, 0.5]),
            np.array([1.0, 1.0]) + step * np.array([0.5, -0.5]),
        )
        return np.linalg.pinv(changed, rcond=1e-12)

    np.testing.assert_allclose(tangent, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-6, atol=1e-9)


# -- phases of complex vectors ----------------------------------------------------------------


def phase_free(x, name):
    """Functions of the vectors that no phase changes."""
    if name == "eigh":
        values, vectors = ag.ops.eigh(x)
        left = right = vectors
    else:
        left, values, rows = ag.ops.svd(x)
        right = ag.ops.conj(ag.ops.swapaxes(rows, -1, -2))
    scaled = left * ag.ops.expand_dims(ag.ops.tanh(values), -2).astype(x.dtype)
    return scaled @ ag.ops.conj(ag.ops.swapaxes(right, -1, -2))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("name", "shape"), [("eigh", (3, 3)), ("svd", (3, 3)), ("svd", (4, 2)), ("svd", (2, 3))]
)
def test_derivatives_of_functions_that_no_phase_changes_agree_with_differences(name, shape, dtype):
    value, direction = square(*shape, dtype=dtype), square(*shape, dtype=dtype, seed=1)
    x = input_for(value)
    y = phase_free(x, name)
    ct = square(*shape, dtype=dtype, seed=2)
    (gradient,) = ag.gradients([y], [x], seeds=[ct])
    (tangent,) = tangents([y], {x: x.graph.constant(direction)})
    (second,) = tangents([gradient], {x: x.graph.constant(direction)})

    def differences(node):
        ahead, behind = (
            evaluate([node], {x: value + step * direction})[0] for step in (1e-6, -1e-6)
        )
        return (ahead - behind) / 2e-6

    got = evaluate([tangent, gradient, second], {x: value})
    np.testing.assert_allclose(got[0], differences(y), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got[2], differences(gradient), rtol=1e-6, atol=1e-6)
    assert np.vdot(ct, got[0]).real == pytest.approx(np.vdot(got[1], direction).real, rel=1e-10)


# -- refusals ---------------------------------------------------------------------------------

SQUARE = ["inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh"]
ANY = ["pinv", "qr", "svd", "svdvals"]


@pytest.mark.parametrize("name", [*SQUARE, *ANY])
@pytest.mark.parametrize(("dtype", "wanted"), [("float16", "float32"), ("int64", "float64")])
def test_dtypes_that_lapack_lacks_are_refused_with_the_way_out(name, dtype, wanted):
    x = ag.Graph().input("x", (3, 3), dtype)

    with pytest.raises(GraphTypeError, match=rf"{name} takes float32.*astype\('{wanted}'\)"):
        getattr(ag.ops, name)(x)


@pytest.mark.parametrize("name", SQUARE)
def test_matrices_that_are_not_square_are_refused(name):
    with pytest.raises(ShapeError, match=f"{name} takes square matrices"):
        getattr(ag.ops, name)(ag.Graph().input("x", (3, 4)))


@pytest.mark.parametrize("name", [*SQUARE, *ANY])
def test_vectors_are_refused(name):
    with pytest.raises(ShapeError, match=f"{name} takes matrices, of at least two dims"):
        getattr(ag.ops, name)(ag.Graph().input("x", (3,)))


@pytest.mark.parametrize("name", ["qr", "svd", "svdvals"])
def test_dims_that_only_the_run_knows_are_refused_where_results_are_cut(name):
    with pytest.raises(ShapeError, match="name it with a symbol"):
        getattr(ag.ops, name)(ag.Graph().input("x", (3, None)))


def test_other_misuses_say_what_to_do():
    g = ag.Graph()
    x = g.input("x", (3, 3), "float64")
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


@pytest.mark.parametrize("name", [*SQUARE, "pinv", "svd", "svdvals", "qr"])
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
    with pytest.raises(
        GraphTypeError, match=r"np\.linalg\.eig has no op; the nearest is ag\.ops\."
    ):
        np.linalg.eig(x)
    with pytest.raises(GraphTypeError, match="takes no hermitian="):
        np.linalg.pinv(x, hermitian=True)
