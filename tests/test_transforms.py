"""Function transforms on nodes and on functions of arrays."""

import asyncio
import gc
import threading
from collections import namedtuple
from itertools import pairwise

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff.trees import flatten, map_leaves, unflatten
from actorgraph.errors import FeedError, GraphError, GraphTypeError, NodeError, ShapeError
from tests._evaluate import evaluate

X = np.array([0.5, -1.0, 2.0])
V = np.array([1.0, 0.3, -2.0])
M = np.random.default_rng(0).normal(size=(3, 3))


def scalar(x):
    return (ag.ops.exp(x) * x.sum()).sum()


def hessian_of_scalar(x):
    e = np.exp(x)
    return np.diag(e * x.sum()) + e[:, None] + e[None, :]


def close(got, wanted, rtol=1e-12):
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-12)


@pytest.fixture
def g():
    return ag.Graph("net")


@pytest.fixture
def x(g):
    return g.input("x", (3,), "float64")


# -- trees ------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("tree", "leaves", "text"),
    [
        (1.0, [1.0], "*"),
        ((), [], "()"),
        ((1,), [1], "(*,)"),
        ([1, (2, None)], [1, 2], "[*, (*, None)]"),
        ({"b": 1, "a": [2]}, [2, 1], "{'a': [*], 'b': *}"),
        (Pair(1, {"x": 2}), [1, 2], "Pair(*, {'x': *})"),
        (None, [], "None"),
    ],
)
def test_a_tree_comes_apart_and_together(tree, leaves, text):
    found, structure = flatten(tree)

    assert found == leaves
    assert str(structure) == text
    assert unflatten(structure, found) == tree
    assert type(unflatten(structure, found)) is type(tree)
    assert structure == flatten(map_leaves(str, tree))[1]


def test_equal_dicts_have_equal_structures():
    assert flatten({"a": 1, "b": 2})[1] == flatten({"b": 1, "a": 2})[1]
    assert hash(flatten([1, {}])[1]) == hash(flatten([2, {}])[1])
    assert flatten([1])[1] != flatten((1,))[1]


# -- on nodes ---------------------------------------------------------------------------------


def test_grad_of_a_node_gives_nodes_in_the_structure_of_wrt(g, x):
    w = g.parameter("w", X)
    y = (x * w * w).sum()

    assert ag.grad(y, x).graph is g
    assert isinstance(ag.grad(y, wrt=[x, w]), list)
    found = ag.grad(y, wrt={"x": x, "rest": (w,)})
    assert found["x"] is ag.grad(y, x)
    assert found["rest"][0] is ag.gradients(y, w)[0]
    assert ag.grad(y) == [found["rest"][0]]  # default: all parameters
    value, gradient = ag.value_and_grad(y, x)
    assert value is y
    close(evaluate(gradient, {x: X})[0], X * X)


def test_products_of_nodes_give_nodes(g, x):
    y, v = scalar(x), g.input("v", (3,), "float64")
    h = hessian_of_scalar(X)

    pulled = ag.vjp([x * x, y], [x], [v, 2.0])[0]
    pushed = ag.jvp({"square": x * x}, x, v)
    product = ag.hvp(y, [x], [v])[0]
    feeds = {x: X, v: V}

    values = evaluate([pulled, pushed["square"], product, ag.hvp(y, x, v)], feeds)
    e = np.exp(X)
    close(values[0], 2 * X * V + 2 * (e * X.sum() + e.sum()))
    close(values[1], 2 * X * V)
    close(values[2], h @ V)
    close(values[3], h @ V)


def test_jacobian_and_hessian_of_nodes_are_nodes(g, x):
    y = ag.ops.tanh(ag.ops.matmul(g.constant(M), x))

    tall, wide = ag.jacobian(y, wrt=x), ag.jacobian(ag.ops.stack([y.sum()]), wrt=[x])[0]
    second = ag.hessian(scalar(x), wrt={"x": x})["x"]["x"]

    values = evaluate([tall, wide, second], {x: X})
    exact = (1 - np.tanh(M @ X) ** 2)[:, None] * M
    close(values[0], exact)
    close(values[1], exact.sum(0, keepdims=True))
    close(values[2], hessian_of_scalar(X))
    assert (tall.shape, wide.shape, second.shape) == ((3, 3), (1, 3), (3, 3))


def test_a_jacobian_of_nodes_needs_one_side_of_known_size(g):
    v = g.input("v", ("n",), "float64")
    w = g.parameter("w", np.ones(2))

    with pytest.raises(ShapeError, match="a Jacobian needs dims that are ints on one side"):
        ag.jacobian(v * v, wrt=v)
    found = ag.jacobian(v * w.sum(), wrt=w)
    assert found.shape == ("n", 2)
    close(evaluate(found, {v: V})[0], np.stack([V, V], axis=1))


def test_node_forms_say_what_is_wrong(g, x):
    i = g.input("i", (3,), "int64")
    y = scalar(x)

    with pytest.raises(GraphTypeError, match=r"wrt is int64\[3\] and has no gradient"):
        ag.grad(y, i)
    with pytest.raises(GraphTypeError, match="wrt is the float 3.0, which has no gradient"):
        ag.grad(y, wrt=[3.0])
    with pytest.raises(ShapeError, match=r"node x is float64\[3\], and a gradient is of a scalar"):
        ag.grad(x, x)
    with pytest.raises(ShapeError, match="shape mismatch between node x .*seed derivative"):
        ag.grad(x, x, seed=np.ones(4))
    with pytest.raises(FeedError, match=r"gradient of x requires its seed; pass seed="):
        ag.grad(x, x, input_derivative="required")
    with pytest.raises(ValueError, match="input_derivative is one of 'required', 'one', 'ones'"):
        ag.grad(y, x, input_derivative="two")
    with pytest.raises(FeedError, match=r"for nodes write vjp\(outputs, wrt, seeds\)"):
        ag.vjp(y, x)
    with pytest.raises(FeedError, match=r"seed derivatives are \[\*\], but the outputs is \*"):
        ag.vjp(y, x, [1.0])


# -- gradients of functions -------------------------------------------------------------------


def test_grad_of_a_function_is_a_function_of_arrays():
    found = ag.grad(scalar)(X)

    close(found, np.exp(X) * X.sum() + np.exp(X).sum())
    assert ag.grad(scalar).__name__ == "grad of scalar"
    assert ag.grad(scalar).__wrapped__ is scalar


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_keep_dtype_and_shape(dtype):
    for shape in ((), (0, 2), (2, 1)):
        value, found = ag.value_and_grad(lambda x: (x * x).sum())(np.ones(shape, dtype))
        assert (found.dtype, found.shape) == (dtype, shape)
        assert (value.dtype, value.shape) == (dtype, ())


def test_python_floats_are_float64_and_numpy_scalars_keep_their_dtype():
    assert ag.grad(lambda x: x * x)(3.0).dtype == np.float64
    assert ag.grad(lambda x: x * x)(np.float32(3)).dtype == np.float32
    assert ag.grad(lambda x: x * x)(3.0) == 6


def test_argnums_choose_arguments():
    def f(x, y, z):
        return (x * y * z).sum()

    y, z = X + 1, X + 2
    close(ag.grad(f, 1)(X, y, z), X * z)
    close(ag.grad(f, -1)(X, y, z), X * y)
    one, two = ag.grad(f, (2, 0))(X, y, z)
    close(one, X * y)
    close(two, y * z)
    assert ag.grad(f, ())(X, y, z) == ()


def test_wrt_of_a_function_is_another_name_of_argnums():
    def f(x, y):
        return x * y * y

    assert ag.grad(f, wrt=1)(2.0, 3.0) == 12
    assert ag.grad(f, wrt=(0, 1))(2.0, 3.0) == (9, 12)
    assert ag.value_and_grad(f, wrt=1)(2.0, 3.0) == (18, 12)
    assert ag.jacobian(f, wrt=1)(2.0, 3.0) == 12
    assert ag.hessian(f, wrt=1)(2.0, 3.0) == 4
    for transform in (ag.grad, ag.value_and_grad, ag.jacobian, ag.hessian):
        with pytest.raises(FeedError, match="argnums=1 and wrt=0 say the same of a function"):
            transform(f, 1, wrt=0)
    with pytest.raises(FeedError, match="is given when it is called, as seed="):
        ag.grad(f, seed=1.0)


def test_arguments_and_results_are_trees():
    def f(parameters, batch, *, scale):
        x, t = batch
        y = x @ parameters["w"] + parameters["layers"][0].bias
        return ((y - t) ** 2).mean() * scale["s"]

    Layer = namedtuple("Layer", "bias")
    parameters = {"w": M, "layers": [Layer(V)]}
    value, found = ag.value_and_grad(f)(parameters, (X, V), scale={"s": 2.0})

    error = X @ M + V - V
    close(value, 2 * (error**2).mean())
    close(found["w"], 4 / 3 * np.outer(X, error))
    assert isinstance(found["layers"][0], Layer)
    close(found["layers"][0].bias, 4 / 3 * error)


def test_static_arguments_are_seen_as_they_are():
    seen = []

    def f(x, power, name, flag=True, function=None):
        seen.append((power, name, flag, function))
        return function((x**power).sum()) if flag else x.sum()

    df = ag.grad(f)
    close(df(X, 3, "a", function=np.tanh), 3 * X**2 * (1 - np.tanh((X**3).sum()) ** 2))
    close(df(X, 2, "a", flag=False), np.ones(3))
    assert seen == [(3, "a", True, np.tanh), (2, "a", False, None)]


def test_integer_arrays_may_be_arguments():
    def f(x, index):
        return x[index].sum()

    close(ag.grad(f)(X, np.array([0, 0, 2])), [2, 0, 1])


def test_has_aux_returns_what_is_not_differentiated():
    def f(x):
        y = x * x
        return y.sum(), {"y": y, "note": "squares", "count": 3}

    found, aux = ag.grad(f, has_aux=True)(X)
    (value, again), other = ag.value_and_grad(f, has_aux=True)(X)

    close(found, 2 * X)
    close(other, 2 * X)
    close(value, (X * X).sum())
    close(aux["y"], X * X)
    assert (aux["note"], aux["count"]) == ("squares", 3)
    assert again["note"] == "squares"


def test_numpy_functions_and_operators_work_on_the_arguments():
    def f(x):
        return np.sum(np.tanh(x) * np.exp(-x)) / np.sqrt(2.0)

    t, e = np.tanh(X), np.exp(-X)
    close(ag.grad(f)(X), ((1 - t * t) * e - t * e) / np.sqrt(2))


def test_a_function_may_return_its_argument_or_a_constant():
    assert ag.grad(lambda x: x)(3.0) == 1
    value, found = ag.value_and_grad(lambda x: 2.5)(X)
    assert value == 2.5
    close(found, [0, 0, 0])


def test_results_belong_to_the_caller():
    df = ag.value_and_grad(lambda x: (x, (x, x)), has_aux=True, input_derivative="ones")
    (value, aux), found = df(X)

    for array in (value, *aux, found):
        assert not np.shares_memory(array, X)
        array += 1
    close(df(X)[0][0], X)


# -- seeds ------------------------------------------------------------------------------------


def test_input_derivative_says_which_seed_is_the_default():
    def f(x):
        return x * x

    close(ag.grad(f, input_derivative="ones")(X), 2 * X)
    close(ag.grad(f, input_derivative="ones")(X, seed=V), 2 * X * V)
    close(ag.grad(f, input_derivative="required")(X, seed=V), 2 * X * V)
    close(ag.grad(f)(X, seed=V), 2 * X * V)
    close(ag.grad(f)(3.0, seed=10), 60)


def test_a_missing_or_wrong_seed_says_what_to_pass():
    def f(x):
        return x * x

    with pytest.raises(FeedError, match="gradient of f requires its seed"):
        ag.grad(f, input_derivative="required")(X)
    with pytest.raises(
        ShapeError,
        match=r"what f returned is float64\[3\], and a gradient is of a scalar.*'ones'",
    ):
        ag.grad(f)(X)
    with pytest.raises(
        ShapeError,
        match=r"shape mismatch between what f returned \(float64\[3\]\) and its seed derivative "
        r"\(float64\[4\]\)",
    ):
        ag.grad(f)(X, seed=np.ones(4))
    with pytest.raises(GraphTypeError, match="seed derivative is complex128"):
        ag.grad(f)(X, seed=1j)


def test_a_seed_is_converted_to_the_dtype_of_the_result():
    found = ag.grad(lambda x: x * x)(X.astype("float32"), seed=V)

    assert found.dtype == np.float32


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
    with pytest.raises(ShapeError, match="what f returned is .* gradient is of a scalar"):
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
    g = ag.Graph()
    z = g.input("z", (2,), "complex128")
    with pytest.raises(GraphTypeError, match="Jacobian of complex arrays"):
        ag.jacobian(z, wrt=z)


# -- nesting ----------------------------------------------------------------------------------


def test_transforms_nest_to_any_order():
    f = derivative = lambda x: ag.ops.sin(x) * x
    values = [f]
    for _ in range(4):
        derivative = ag.grad(derivative)
        values.append(derivative)

    at = 0.7
    s, c = np.sin(at), np.cos(at)
    for function, wanted in zip(
        values[1:],
        [c * at + s, 2 * c - s * at, -3 * s - c * at, -4 * c + s * at],
        strict=True,
    ):
        close(function(at), wanted)


def test_every_mode_nests_in_every_other():
    h = hessian_of_scalar(X)

    def along(x):
        return ag.jvp(scalar, (x,), (V,))[1]

    def pulled(x):
        return ag.vjp(scalar, x)[1](1.0)[0]

    close(ag.grad(along)(X), h @ V)
    close(ag.jvp(ag.grad(scalar), (X,), (V,))[1], h @ V)
    close(ag.jvp(pulled, (X,), (V,))[1], h @ V)
    close(ag.jvp(along, (X,), (V,))[1], V @ h @ V)
    close(ag.jacobian(pulled)(X), h)
    close(ag.grad(lambda x: ag.hvp(scalar, (x,), (V,))[0].sum())(X), third_order(X) @ V)
    close(ag.grad(lambda x: (ag.jacobian(ag.ops.sin)(x) * M).sum())(X), -np.sin(X) * np.diag(M))
    close(ag.grad(lambda x: ag.hessian(scalar)(x).sum())(X), third_order(X).sum(1))


def third_order(x):
    """The sum over the first index of the third derivatives of `scalar`."""
    e = np.exp(x)
    return np.diag(e * x.sum() + e * 3) + e[:, None] + e[None, :]


def test_inner_derivatives_do_not_see_outer_uses_of_the_same_argument():
    """No confusion of perturbations: d/dx (x * d/dy (x + y)) at y = x is 1."""
    assert ag.grad(lambda x: x * ag.grad(lambda y: x + y)(x))(1.0) == 1
    assert ag.grad(lambda x: x * ag.grad(lambda y: x + y)(2.0))(1.0) == 1
    assert ag.grad(lambda x: x * ag.jvp(lambda y: x + y, (x,), (1.0,))[1])(1.0) == 1
    assert ag.jvp(lambda x: x * ag.jvp(lambda y: x * y, (x,), (1.0,))[1], (3.0,), (1.0,))[1] == 6


def test_transformed_functions_take_nodes(g, x):
    found = ag.grad(scalar)(x)

    assert found.graph is g
    close(evaluate(found, {x: X})[0], np.exp(X) * X.sum() + np.exp(X).sum())
    value, gradient = ag.value_and_grad(lambda a, b: (a * b).sum(), argnums=1)(x, V)
    close(evaluate(gradient, {x: X})[0], X)
    assert value.ndim == 0


def test_gradient_tools_work_inside_functions():
    def f(x):
        clipped = ag.hook_gradient(x, lambda ct: ag.ops.clip(ct, -1.0, 1.0))
        return (ag.checkpoint(ag.ops.exp)(clipped) + ag.stop_gradient(x) * x).sum()

    close(ag.grad(f)(X), np.minimum(np.exp(X), 1) + X)


# -- traces -----------------------------------------------------------------------------------


def test_a_function_is_traced_once_per_kind_of_arguments():
    calls = []

    def f(x, power=2):
        calls.append(power)
        return (x**power).sum()

    df = ag.grad(f)
    for _ in range(3):
        df(X)
        df(X + 1)
    assert calls == [2]
    df(X[:2])
    df(X.astype("float32"))
    df(X, 3)
    df(X, power=3)
    assert calls == [2, 2, 2, 3, 3]
    df(X[:2])
    assert len(calls) == 5


def test_values_of_static_arguments_have_traces_of_their_own():
    df = ag.grad(lambda x, n: x * (2.5 if n is True else n))

    assert df(1.0, 1) == 1
    assert df(1.0, True) == 2.5
    assert df(1.0, 0) == 0


def test_a_name_from_outside_that_is_bound_anew_is_seen():
    scale = 2.0

    def f(x):
        return x * scale

    df = ag.grad(f)
    assert df(1.0) == 2
    scale = 3.0
    assert df(1.0) == 3
    assert ag.grad(df)(1.0) == 0


def test_old_traces_are_forgotten(monkeypatch):
    from actorgraph.transforms import staging

    monkeypatch.setattr(staging, "_TRACES_KEPT", 2)
    calls = []

    def f(x, n):
        calls.append(n)
        return x * n

    df = ag.grad(f)
    for n in (1, 2, 1, 3, 1, 2):
        df(1.0, n)
    assert calls == [1, 2, 3, 2]


def test_a_dropped_function_leaves_nothing_behind():
    import weakref

    def f(x):
        return x * x

    df = ag.grad(f)
    df(1.0)
    seen = weakref.ref(f)
    del f, df
    gc.collect()
    assert seen() is None


def test_threads_share_traces():
    df = ag.grad(scalar)
    found = []

    def work():
        found.extend(df(X * k) for k in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    close(found[1], ag.grad(scalar)(X))


def test_inside_an_event_loop_the_error_says_what_to_do():
    async def main():
        ag.grad(scalar)(X)

    with pytest.raises(GraphError, match=r"block the running event loop.*anyio\.to_thread"):
        asyncio.run(main())


# -- errors -----------------------------------------------------------------------------------


def test_argnums_that_name_no_argument_are_refused():
    with pytest.raises(FeedError, match="argnums=1, but scalar was called with 1 positional"):
        ag.grad(scalar, 1)(X)
    with pytest.raises(FeedError, match="argnums is an int or a tuple of ints, got 'x'"):
        ag.grad(scalar, "x")(X)


def test_arguments_without_a_gradient_are_refused():
    with pytest.raises(GraphTypeError, match=r"argument 0 of scalar is the int 3.*pass a float"):
        ag.grad(scalar)(3)
    with pytest.raises(GraphTypeError, match=r"argument 0 of scalar is int64\[3\]"):
        ag.jacobian(scalar)(np.arange(3))
    with pytest.raises(GraphTypeError, match="an argument is a set.*cannot be hashed"):
        ag.grad(scalar)(X, {1})
    with pytest.raises(GraphTypeError, match="dtype object is not supported"):
        ag.grad(scalar)(np.array([None]))
    with pytest.raises(FeedError, match="an argument is a masked array"):
        ag.grad(scalar)(np.ma.masked_array(X))


def test_results_without_a_gradient_are_refused():
    with pytest.raises(GraphTypeError, match=r"returned \(\*, \*\); a gradient is of one array"):
        ag.grad(lambda x: (x, x))(1.0)
    with pytest.raises(GraphTypeError, match="returned the str 'a', which has no derivative"):
        ag.grad(lambda x: "a")(1.0)
    with pytest.raises(GraphTypeError, match=r"returned int64\[\], which has no derivative"):
        ag.grad(lambda x: x.astype("int64"))(1.0)
    with pytest.raises(GraphTypeError, match=r"with has_aux=True .* returns \(result, anything"):
        ag.grad(lambda x: x, has_aux=True)(1.0)
    with pytest.raises(GraphTypeError, match="returned None; a gradient is of one array"):
        ag.grad(lambda x: None)(1.0)


def test_errors_of_the_function_and_of_ops_reach_the_caller():
    def broken(x):
        raise KeyError("mine")

    def fails(x):
        raise ZeroDivisionError("in the run")

    failing = ag.ops.opaque(fails, vjp=(lambda ct, y, x: ct,), name="failing")
    with pytest.raises(KeyError, match="mine"):
        ag.grad(broken)(X)
    with pytest.raises(NodeError, match="failing"):
        ag.value_and_grad(lambda x: failing(x))(1.0)
    close(ag.grad(scalar)(X), ag.grad(scalar)(X))


# -- against finite differences and JAX ---------------------------------------------------------


def model(parameters, x):
    for w, b in parameters["layers"]:
        x = np.tanh(x @ w + b)
    return (x * x).sum() * parameters["scale"]


def random_model():
    rng = np.random.default_rng(5)
    sizes = [4, 5, 3]
    layers = [(rng.normal(size=(m, n)), rng.normal(size=n)) for m, n in pairwise(sizes)]
    return {"layers": layers, "scale": 0.7}, rng.normal(size=(6, 4))


def test_gradients_of_a_model_agree_with_differences():
    parameters, x = random_model()
    found, structure = flatten(ag.grad(model)(parameters, x))
    leaves = flatten(parameters)[0]
    rng, step = np.random.default_rng(6), 1e-6
    directions = [rng.normal(size=np.shape(leaf)) for leaf in leaves]

    def value(by):
        moved = [leaf + by * d for leaf, d in zip(leaves, directions, strict=True)]
        return float(model(unflatten(structure, moved), x))

    slope = (value(step) - value(-step)) / (2 * step)
    assert slope == pytest.approx(
        sum(float((f * d).sum()) for f, d in zip(found, directions, strict=True)), rel=1e-8
    )


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


def same_tree(got, wanted, rtol=1e-10):
    leaves, structure = flatten(got)
    others, other = flatten(wanted)
    assert structure == other
    for one, two in zip(leaves, others, strict=True):
        close(one, np.asarray(two), rtol)
        assert one.dtype == two.dtype


@pytest.mark.oracle
def test_transforms_agree_with_jax_on_a_model(jax):
    parameters, x = random_model()
    tangents = map_leaves(lambda leaf: np.cos(leaf) * 1.0, (parameters, x))

    def jax_model(parameters, x):
        for w, b in parameters["layers"]:
            x = jax.numpy.tanh(x @ w + b)
        return (x * x).sum() * parameters["scale"]

    same_tree(ag.grad(model)(parameters, x), jax.grad(jax_model)(parameters, x))
    same_tree(
        ag.value_and_grad(model, (0, 1))(parameters, x),
        jax.value_and_grad(jax_model, (0, 1))(parameters, x),
    )
    same_tree(
        ag.jvp(model, (parameters, x), tangents), jax.jvp(jax_model, (parameters, x), tangents)
    )
    same_tree(
        ag.vjp(model, parameters, x)[1](2.0), jax.vjp(jax_model, parameters, x)[1](np.float64(2))
    )
    same_tree(
        ag.hvp(model, (parameters, x), tangents),
        jax.jvp(jax.grad(jax_model, (0, 1)), (parameters, x), tangents)[1],
    )


@pytest.mark.oracle
def test_jacobians_and_nesting_agree_with_jax(jax):
    def f(xp, x):
        return {"a": xp.sin(x["u"]) * x["v"], "b": [xp.exp(x["v"]).sum() * x["u"][:1]]}

    def ours(x):
        return f(np, x)

    def theirs(x):
        return f(jax.numpy, x)

    x = {"u": X, "v": V}
    same_tree(ag.jacobian(ours)(x), jax.jacrev(theirs)(x))
    same_tree(ag.jacobian(ag.jacobian(ours))(x), jax.jacfwd(jax.jacrev(theirs))(x))

    def meta(grad, xp, f, x):
        def inner(x):
            step = grad(lambda y: f(xp, y)["a"].sum())(x)
            moved = {name: x[name] - 0.1 * step[name] for name in x}
            return f(xp, moved)["b"][0].sum()

        return grad(inner)(x)

    same_tree(meta(ag.grad, np, f, x), meta(jax.grad, jax.numpy, f, x))


@pytest.mark.oracle
def test_custom_rules_and_checkpoints_agree_with_jax(jax):
    def chain(xp, wrap, x):
        def stage(x):
            return xp.sin(x) * xp.exp(0.1 * x)

        for _ in range(3):
            x = wrap(stage)(x)
        return x.sum()

    def ours(x):
        return chain(np, ag.checkpoint, x)

    def theirs(x):
        return chain(jax.numpy, jax.checkpoint, x)

    close(ag.grad(ours)(X), np.asarray(jax.grad(theirs)(X)), 1e-12)
    close(ag.hessian(ours)(X), np.asarray(jax.hessian(theirs)(X)), 1e-12)
