"""Products with Jacobians and Hessians, and Jacobians and Hessians in full."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from tests.transforms._functions import V, X, close, hessian_of_scalar, scalar

# -- products ---------------------------------------------------------------------------------


def test_vjp_returns_the_value_and_the_pullback():
    def f(x, y):
        return {"product": x * y, "sum": x.sum()}

    value, pull = ag.vjp(f, X, V)
    one, two = pull({"product": X, "sum": 2.0})
    close(value["product"], X * V)
    close(one, X * V + 2)
    close(two, X * X)


def test_jvp_and_vjp_with_aux_return_it_third():
    def f(x):
        return x * x, "aux"

    value, pull, aux = ag.vjp(f, X, has_aux=True)
    again, tangent, other = ag.jvp(f, (X,), (V,), has_aux=True)
    close(value, again)
    close(pull(V)[0], tangent)
    assert aux == other == "aux"


def test_jvp_pushes_tangents_of_trees_and_skips_what_is_no_float():
    def f(pair, n):
        return [pair["a"] * n, pair["b"]]

    value, tangent = ag.jvp(f, ({"a": X, "b": 2.0}, 3), ({"a": V, "b": 0.5}, 0))
    close(value[0], 3 * X)
    close(tangent[0], 3 * V)
    close(tangent[1], 0.5)


def test_hvp_is_the_product_with_the_hessian():
    close(ag.hvp(scalar, (X,), (V,))[0], hessian_of_scalar(X) @ V)


def test_products_refuse_what_does_not_fit():
    def f(x, n=2):
        return x**n

    with pytest.raises(FeedError, match=r"tangents of f are \(\*, \*\), but the primals are \(\*,"):
        ag.jvp(f, (X,), (V, V))
    with pytest.raises(FeedError, match=r"primals and tangents are tuples.*write \(3\.0,\)"):
        ag.jvp(f, 3.0, 1.0)
    with pytest.raises(ShapeError, match="shape mismatch between an argument of f.*tangent"):
        ag.jvp(f, (X,), (np.ones(2),))
    with pytest.raises(FeedError, match="the primal 2 of f is no float and cannot move"):
        ag.jvp(f, (X, 2), (V, 1))
    with pytest.raises(ShapeError, match="shape mismatch between what f returned"):
        ag.vjp(f, X)[1](np.ones(2))
    with pytest.raises(FeedError, match=r"seed derivatives are \[\*\], but what f returned is \*"):
        ag.vjp(f, X)[1]([V])
    with pytest.raises(GraphTypeError, match="an argument of f is the int 2"):
        ag.vjp(f, X, 2)[1](V)
    with pytest.raises(ShapeError, match="what f returned is .* gradient needs a scalar"):
        ag.hvp(f, (X,), (V,))


# -- Jacobians --------------------------------------------------------------------------------


def counting(f, calls):
    """Return `f` with an op that notes every evaluation."""

    def note(x):
        calls.append(1)
        return x

    identity = ag.ops.opaque(
        note, vjp=(lambda ct, y, x: ct,), jvp=lambda tans, y, x: tans[0], name="note"
    )
    return lambda x: f(identity(x))


@pytest.mark.parametrize(("rows", "passes"), [(1, 1), (2, 2), (3, 3), (50, 3)])
def test_the_jacobian_takes_the_mode_with_fewer_passes(rows, passes):
    calls = []
    matrix = np.random.default_rng(1).normal(size=(rows, 3))
    f = counting(lambda x: matrix @ ag.ops.sin(x), calls)
    found = ag.jacobian(f)(X)
    close(found, matrix * np.cos(X))
    assert len(calls) == 1 + passes  # one for the shapes


def test_the_jacobian_of_trees_is_a_tree_of_trees():
    def f(x, y):
        return {"outer": ag.ops.outer(x, y["a"]), "norm": (x * x).sum()}

    found = ag.jacobian(f, argnums=(0, 1))(X, {"a": V[:2]})
    eye = np.eye(3)
    close(found["outer"][0], np.einsum("ik,j->ijk", eye, V[:2]))
    close(found["outer"][1]["a"], np.einsum("i,jk->ijk", X, np.eye(2)))
    close(found["norm"][0], 2 * X)
    close(found["norm"][1]["a"], [0, 0])


def test_the_jacobian_has_the_dtype_of_the_result_and_takes_aux():
    found, aux = ag.jacobian(lambda x: (x.astype("float32") * 2, "aux"), has_aux=True)(X)
    assert found.dtype == np.float32
    assert aux == "aux"
    close(found, 2 * np.eye(3, dtype="float32"))


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
def test_the_jacobian_of_nothing_is_empty(shape):
    assert ag.jacobian(lambda x: x * 2)(np.ones(shape)).shape == shape + shape


def test_hessians_agree_with_the_formula_and_with_reverse_over_reverse():
    close(ag.hessian(scalar)(X), hessian_of_scalar(X))
    close(ag.jacobian(ag.jacobian(scalar))(X), hessian_of_scalar(X))
    assert ag.hessian(scalar).__name__ == "hessian of scalar"


def test_the_hessian_of_several_arguments_has_all_blocks():
    def f(x, y):
        return (x * x * y).sum()

    (xx, xy), (yx, yy) = ag.hessian(f, (0, 1))(X, V)
    close(xx, np.diag(2 * V))
    close(xy, np.diag(2 * X))
    close(yx, np.diag(2 * X))
    close(yy, np.zeros((3, 3)))


def test_jacobians_of_complex_functions_are_refused():
    with pytest.raises(GraphTypeError, match=r"Jacobian of complex arrays.*use ag\.jvp"):
        ag.jacobian(lambda x: x * 1j)(X + 0j)
    z = ag.Graph().input("z", (2,), "complex128")
    with pytest.raises(GraphTypeError, match="Jacobian of complex arrays"):
        ag.jacobian(z, wrt=z)
