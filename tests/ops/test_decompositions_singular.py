"""Where decompositions have no derivative, and what of them has one all the same."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import NodeError
from actorgraph.machines import LispMachine
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._matrices import hermitian, input_for, run_backward, square

# -- where a derivative does not exist --------------------------------------------------------


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


@each("dtype", ["float64", "complex128"])
@each("name, shape", [("eigh", (3, 3)), ("svd", (3, 3)), ("svd", (4, 2)), ("svd", (2, 3))])
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
