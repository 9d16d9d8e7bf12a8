"""Gradients of functions of arrays: arguments, results, seeds, errors."""

from collections import namedtuple

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphTypeError, NodeError, ShapeError
from tests.transforms._functions import M, V, X, close, scalar

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
        with pytest.raises(FeedError, match="argnums=1 and wrt=0 mean the same"):
            transform(f, 1, wrt=0)
    with pytest.raises(
        FeedError, match="pass the seed when you call the gradient function, as seed="
    ):
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
        match=r"what f returned is float64\[3\], but a gradient needs a scalar.*'ones'",
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


# -- errors -----------------------------------------------------------------------------------


def test_argnums_that_name_no_argument_are_refused():
    with pytest.raises(FeedError, match="argnums=1, but scalar was called with 1 positional"):
        ag.grad(scalar, 1)(X)
    with pytest.raises(FeedError, match="argnums has to be an int or a tuple of ints, got 'x'"):
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
    with pytest.raises(
        GraphTypeError, match=r"returned \(\*, \*\), but a gradient needs one array"
    ):
        ag.grad(lambda x: (x, x))(1.0)
    with pytest.raises(GraphTypeError, match="returned the str 'a', which has no derivative"):
        ag.grad(lambda x: "a")(1.0)
    with pytest.raises(GraphTypeError, match=r"returned int64\[\], which has no derivative"):
        ag.grad(lambda x: x.astype("int64"))(1.0)
    with pytest.raises(
        GraphTypeError, match=r"with has_aux=True .* has to return \(result, anything"
    ):
        ag.grad(lambda x: x, has_aux=True)(1.0)
    with pytest.raises(GraphTypeError, match="returned None, but a gradient needs one array"):
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
