"""What every function transform takes: argnums, wrt, has_aux, seeds, exact, passes."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate

X = np.array([0.5, -1.0, 2.0])
Y = np.array([1.5, 0.7, -0.4])
V = np.array([1.0, 0.3, -2.0])


def f(x, y):
    """A scalar with gradients y * cos(x) + 2 x, sin(x), and mixed derivatives diag(cos(x))."""
    return (ag.ops.sin(x) * y + x * x).sum()


def with_aux(x, y):
    return f(x, y), {"sin": ag.ops.sin(x), "note": "seen"}


def close(got, wanted):
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


CALLS = {
    "grad": lambda f, *xs, **options: ag.grad(f, **options)(*xs),
    "value_and_grad": lambda f, *xs, **options: ag.value_and_grad(f, **options)(*xs),
    "vjp": lambda f, *xs, **options: ag.vjp(f, *xs, **options)[1](1.0),
    "jvp": lambda f, *xs, **options: ag.jvp(f, xs, V, **options),
    "hvp": lambda f, *xs, **options: ag.hvp(f, xs, V, **options),
    "jacobian": lambda f, *xs, **options: ag.jacobian(f, **options)(*xs),
    "hessian": lambda f, *xs, **options: ag.hessian(f, **options)(*xs),
}
every_transform = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


# -- argnums and wrt --------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["argnums", "wrt"])
def test_products_are_by_the_arguments_that_are_chosen(word):
    value, pull = ag.vjp(f, X, Y, **{word: 1})
    close(value, f_of(X, Y))
    close(pull(2.0), 2 * np.sin(X))
    close(ag.vjp(f, X, Y, **{word: (1, 0)})[1](1.0)[1], Y * np.cos(X) + 2 * X)
    assert ag.vjp(f, X, Y, **{word: ()})[1](1.0) == ()
    close(ag.jvp(f, (X, Y), V, **{word: -1})[1], np.sin(X) @ V)
    both = np.sin(X) @ V + (Y * np.cos(X) + 2 * X) @ Y
    close(ag.jvp(f, (X, Y), (V, Y), **{word: (1, 0)})[1], both)
    close(ag.hvp(f, (X, Y), V, **{word: 0}), (2 - Y * np.sin(X)) * V)
    y_part, x_part = ag.hvp(f, (X, Y), (V, X), **{word: (1, 0)})
    close(y_part, np.cos(X) * X)
    close(x_part, np.cos(X) * V + (2 - Y * np.sin(X)) * X)


def f_of(x, y):
    return (np.sin(x) * y + x * x).sum()


def test_a_chosen_argument_may_be_a_dict_a_list_or_a_tuple():
    def g(n, tree):
        return n * (tree["w"] * tree["parts"][0] * tree["parts"][1][0]).sum()

    tree = {"w": X, "parts": [Y, (V,)]}
    ones = {"w": X * 0 + 1, "parts": [Y * 0, (V * 0,)]}
    pulled = ag.vjp(g, 3, tree, argnums=1)[1](1.0)
    close(pulled["parts"][0], 3 * X * V)
    close(pulled["parts"][1][0], 3 * X * Y)
    close(ag.jvp(g, (3, tree), ones, argnums=1)[1], 3 * Y @ V)
    product = ag.hvp(g, (3, tree), ones, argnums=1)
    close(product["w"], 0 * X)
    close(product["parts"][1][0], 3 * Y)


def test_arguments_that_are_not_chosen_may_be_anything():
    def g(x, n, name):
        assert (n, name) == (2, "a")
        return (x**n).sum()

    close(ag.vjp(g, X, 2, "a", argnums=0)[1](1.0), 2 * X)
    close(ag.jvp(g, (X, 2, "a"), V, argnums=0)[1], 2 * X @ V)
    close(ag.hvp(g, (X, 2, "a"), V, argnums=0), 2 * V)


@every_transform
def test_the_same_words_say_what_is_wrong_with_argnums(call):
    with pytest.raises(FeedError, match="argnums=1 and wrt=0 mean the same; give only one"):
        call(f, X, Y, argnums=1, wrt=0)
    with pytest.raises(FeedError, match="argnums=2, but f was called with 2 positional arguments"):
        call(f, X, Y, argnums=2)
    with pytest.raises(FeedError, match="argnums has to be an int or a tuple of ints, got 'x'"):
        call(f, X, Y, wrt="x")
    with pytest.raises(GraphTypeError, match=r"argument 1 of f is int64\[3\] and has no gradient"):
        call(f, X, np.arange(3), argnums=1)
    with pytest.raises(GraphTypeError, match="argument 1 of f is the int 3, which has no gradient"):
        call(f, X, 3, argnums=1)


def test_tangents_of_chosen_arguments_have_their_structure():
    with pytest.raises(FeedError, match=r"tangents of f are \(\*,\), but the primals are \*"):
        ag.jvp(f, (X, Y), (V,), argnums=1)
    with pytest.raises(FeedError, match="primals and tangents are tuples"):
        ag.hvp(f, (X, Y), V)
    with pytest.raises(ShapeError, match=r"between an argument of f \(float64\[3\]\) and its tan"):
        ag.hvp(f, (X, Y), np.ones(2), argnums=1)


def test_nodes_are_chosen_by_wrt():
    g = ag.Graph()
    x, y = g.input("x", (3,), "float64"), g.input("y", (3,), "float64")
    z = f(x, y)
    found = [
        ag.vjp(z, 2.0, wrt=[y])[0],
        ag.jvp(z, tangents=V, wrt=y),
        ag.hvp(z, tangents={"x": V}, wrt={"x": x})["x"],
        ag.vjp(x * y, y, input_derivative="ones"),
        ag.vjp(z, wrt=y, input_derivative="one"),
    ]
    values = evaluate(found, {x: X, y: Y})
    wanted = [2 * np.sin(X), np.sin(X) @ V, (2 - Y * np.sin(X)) * V, X, np.sin(X)]
    for one, other in zip(values, wanted, strict=True):
        close(np.asarray(one), other)
    for product in (ag.jvp, ag.hvp):
        with pytest.raises(FeedError, match="for nodes write .vp.output, wrt, tangents"):
            product(z, x, V, wrt=y)
        with pytest.raises(FeedError, match="argnums=1 is for functions; for nodes pass wrt="):
            product(z, x, V, argnums=1)
    with pytest.raises(FeedError, match=r"or vjp\(outputs, seeds, wrt=wrt\); got 2 further"):
        ag.vjp(z, x, 1.0, wrt=y)


# -- aux --------------------------------------------------------------------------------------


@every_transform
def test_every_transform_hands_aux_through(call):
    plain, found = call(f, X, Y, argnums=0), call(with_aux, X, Y, argnums=0, has_aux=True)
    if call is CALLS["vjp"]:
        aux = ag.vjp(with_aux, X, Y, has_aux=True)[2]
    elif call is CALLS["value_and_grad"]:
        (value, aux), found = found
        found = (value, found)
    else:
        *found, aux = found
        found = tuple(found) if isinstance(plain, tuple) else found[0]
    close(aux["sin"], np.sin(X))
    assert aux["note"] == "seen"
    np.testing.assert_equal(found, plain)


@every_transform
def test_a_function_without_aux_is_named(call):
    with pytest.raises(
        GraphTypeError, match=r"with has_aux=True f has to return \(result, anything"
    ):
        call(f, X, Y, argnums=0, has_aux=True)


# -- seeds ------------------------------------------------------------------------------------


def test_input_derivative_seeds_a_pullback():
    def pair(x, y):
        return {"sum": f(x, y), "product": x * y}

    close(ag.vjp(f, X, Y, argnums=1, input_derivative="one")[1](), np.sin(X))
    pull = ag.vjp(pair, X, Y, argnums=1, input_derivative="ones")[1]
    close(pull(), np.sin(X) + X)
    close(pull({"sum": 0.0, "product": V}), X * V)


def test_a_pullback_without_its_seed_says_what_to_pass():
    def square(x):
        return x * x

    with pytest.raises(FeedError, match="gradient of square requires its seed; pass seed=, of its"):
        ag.vjp(square, X)[1]()
    with pytest.raises(ShapeError, match=r"what square returned is float64\[3\].*needs a scalar"):
        ag.vjp(square, X, input_derivative="one")[1]()
    with pytest.raises(
        ValueError, match="input_derivative has to be one of 'required', 'one', 'ones'"
    ):
        ag.vjp(square, X, input_derivative="two")
    with pytest.raises(ShapeError, match=r"what square returned \(float64\[3\]\) and its seed"):
        ag.vjp(square, X, input_derivative="ones")[1](np.ones((3, 1)))


# -- rewriting --------------------------------------------------------------------------------

FAR = np.array([1000.0, -1000.0, 0.0])
SLOPE = np.array([1.0, 0.0, 0.5])
CURVATURE = np.array([0.0, 0.0, 0.25])


def soft(x):
    """softplus, as one writes it."""
    return ag.ops.log(1 + ag.ops.exp(x)).sum()


STABLE = {
    "grad": SLOPE, "value_and_grad": (1000 + np.log(2), SLOPE), "vjp": SLOPE,
    "jvp": (1000 + np.log(2), SLOPE @ V), "hvp": CURVATURE * V, "jacobian": SLOPE,
    "hessian": np.diag(CURVATURE),
}  # fmt: skip


@each("name", CALLS)
def test_inexact_transforms_differentiate_the_stable_form(name):
    with np.errstate(all="ignore"):
        for options in ({"exact": False}, {"exact": False, "passes": ["log1p", "softplus"]}):
            found = CALLS[name](soft, FAR, argnums=0, **options)
            np.testing.assert_allclose(flat(found), flat(STABLE[name]), rtol=1e-12, atol=1e-300)
        for options in ({}, {"exact": False, "passes": ()}):
            found = CALLS[name](soft, FAR, argnums=0, **options)
            assert not np.isfinite(flat(found)).all()  # inf / inf, as written


def flat(found):
    parts = found if isinstance(found, tuple) else (found,)
    return np.concatenate([np.ravel(part) for part in parts])


@every_transform
def test_passes_that_change_bits_need_leave(call):
    with pytest.raises(GraphError, match="may change bits; ask for it with exact=False"):
        call(soft, FAR, argnums=0, passes=["softplus"])
    with pytest.raises(GraphError, match="no pass is named 'softpuls'.*softplus"):
        call(soft, FAR, argnums=0, exact=False, passes="softpuls")


def test_aux_is_rewritten_with_the_result():
    def g(x):
        y = ag.ops.log(1 + ag.ops.exp(x))
        return y.sum(), {"y": y, "name": "softplus"}

    with np.errstate(all="ignore"):
        found, aux = ag.grad(g, has_aux=True, exact=False)(FAR)
    close(found, SLOPE)
    close(aux["y"], [1000, 0, np.log(2)])


def test_a_transform_inside_another_goes_by_its_own_options():
    with np.errstate(all="ignore"):
        close(ag.jacobian(ag.grad(soft, exact=False))(FAR), np.diag(CURVATURE))
        assert np.isnan(ag.jacobian(ag.grad(soft), exact=False)(FAR)).any()


def test_options_of_functions_are_refused_on_nodes():
    x = ag.Graph().input("x", (), "float64")
    calls = [
        lambda **options: ag.grad(x, x, **options),
        lambda **options: ag.value_and_grad(x, x, **options),
        lambda **options: ag.vjp(x, x, 1.0, **options),
        lambda **options: ag.jvp(x, x, 1.0, **options),
        lambda **options: ag.hvp(x, x, 1.0, **options),
        lambda **options: ag.jacobian(x, x, **options),
        lambda **options: ag.hessian(x, x, **options),
    ]
    for call in calls:
        with pytest.raises(FeedError, match=r"rewrite nodes before.*ag\.rewrite\.rewrite\(node\)"):
            call(exact=False)
        with pytest.raises(FeedError, match="exact= and passes= are for functions"):
            call(passes=())
        with pytest.raises(FeedError, match="has_aux is for functions"):
            call(has_aux=True)


def test_what_is_neither_a_node_nor_a_function_is_refused():
    with pytest.raises(GraphTypeError, match="expected a function or one node, got list"):
        ag.grad([1.0])
    with pytest.raises(GraphTypeError, match="expected a function or one node, got float"):
        ag.hvp(1.0, (X,), (V,))


# -- gradient tools inside every transform ------------------------------------------------------


@ag.custom_vjp
def cubic_by_vjp(x):
    return ag.ops.sign(x)


@cubic_by_vjp.defvjp
def cubic_pulled(ct, y, x):
    return ct * 3 * x * x


@ag.custom_jvp
def cubic_by_jvp(x):
    return ag.ops.sign(x)


@cubic_by_jvp.defjvp
def cubic_pushed(tans, y, x):
    return tans[0] * 3 * x * x


def doubled(x):
    return ag.ops.exp(ag.hook_gradient(x, lambda ct: ct * 2))


def half_stopped(x):
    return ag.stop_gradient(ag.ops.exp(x)) * x


TOOLS = {  # function: reverse slope, forward slope (None where there is none), curvature
    "checkpoint": (ag.checkpoint(ag.ops.exp), np.exp(X), np.exp(X), np.exp(X)),
    "custom_vjp": (cubic_by_vjp, 3 * X**2, None, 6 * X),
    "custom_jvp": (cubic_by_jvp, 3 * X**2, 3 * X**2, 6 * X),
    "hook_gradient": (doubled, 2 * np.exp(X), np.exp(X), 2 * np.exp(X)),
    "stop_gradient": (half_stopped, np.exp(X), np.exp(X), 0 * X),
}


@each("exact", [True, False])
@each("name", TOOLS)
def test_gradient_tools_keep_their_meaning_in_every_transform(name, exact):
    tool, reverse, forward, curvature = TOOLS[name]
    options = {"wrt": 1, "has_aux": True, "exact": exact}

    def g(n, tree):
        y = tool(tree["x"])
        return n * y.sum(), y

    tree, along = {"x": X}, {"x": V}
    found, y = ag.grad(g, **options)(3, tree)
    close(found["x"], 3 * reverse)
    (value, _), again = ag.value_and_grad(g, **options)(3, tree)
    close(value, 3 * y.sum())
    close(again["x"], found["x"])
    close(ag.vjp(g, 3, tree, **options)[1](2.0)["x"], 6 * reverse)
    close(ag.jacobian(g, **options)(3, tree)[0]["x"], 3 * reverse)
    close(ag.hvp(g, (3, tree), along, **options)[0]["x"], 3 * curvature * V)
    close(ag.hessian(g, **options)(3, tree)[0]["x"]["x"], 3 * np.diag(curvature))
    if forward is None:
        with pytest.raises(GraphTypeError, match="op 'cubic_by_vjp'.*no forward-mode rule"):
            ag.jvp(g, (3, tree), along, **options)
    else:
        close(ag.jvp(g, (3, tree), along, **options)[1], 3 * forward @ V)
