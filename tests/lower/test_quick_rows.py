"""Loops with jit: what their own machine code computes, near to what NumPy does."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff.trees import flatten
from actorgraph.devices import dense, native, vectors
from actorgraph.lower import loop_table, quick_rows

ops = ag.ops
pytest.importorskip("llvmlite", reason="the extra jit is not installed")
pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
RNG = np.random.default_rng(0)
SHAPES = {"x": (5, 16), "w": (16, 16), "b": (16,), "xs": (7, 5, 16)}
NEAR = {"float32": 2e-5, "float64": 1e-13}


@pytest.fixture(autouse=True)
def written(monkeypatch):
    """The functions that were written, by what they begin with: a group, or a product."""
    monkeypatch.setattr(loop_table, "FEWEST", 1)
    found = []
    write, called = vectors.elements_text, quick_rows._called

    def elements_text(*args):
        found.append("a group")
        return write(*args)

    def called_row(rows, step, describe, *args):
        made = called(rows, step, describe, *args)
        found.extend(["a product"] * (made and describe is quick_rows._product))
        return made

    monkeypatch.setattr(vectors, "elements_text", elements_text)
    monkeypatch.setattr(quick_rows, "_called", called_row)
    return found


def near(outputs, feeds, wrt=(), **how):
    """Insist that jit is near to the interpreter, in values and gradients."""
    options = {"backward": {outputs[0]: 1.0}} if wrt else {}
    runs = []
    for machine, more in (
        (ag.LispMachine, {}), (ag.TapeMachine, {"jit": "wait", "native": "wait"}),
    ):  # fmt: skip
        with machine(outputs, wrt=list(wrt), exact=False, **more) as made:
            run = made.run_sync(feeds, **options)
            runs.append([*[run[n].value for n in outputs], *[run[n].grad for n in wrt]])
    for wanted, got in zip(*runs, strict=True):
        rtol = NEAR[wanted.dtype.name]
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * abs(wanted).max())


def given(g, dtype="float32"):
    feeds = {name: RNG.normal(size=shape).astype(dtype) / 2 for name, shape in SHAPES.items()}
    return [g.input(name, array.shape, dtype) for name, array in feeds.items()], feeds


BODIES = {
    "a product": lambda c, e, w, b: (ops.tanh(c @ w + e), c),
    "a product that is turned": lambda c, e, w, b: (c @ w.T + e * 0.5, c[0]),
    "a vector of each row": lambda c, e, w, b: (ops.tanh(c * 0.5 + b), ops.exp(c) * e),
    "a number of each row": lambda c, e, w, b: (c / (1 + c.sum(1, keepdims=True) ** 2) + e, c),
    "choices": lambda c, e, w, b: (ops.maximum(c, e) - ops.minimum(c * c, 0.5), ops.relu(c + e)),
    "roots and quotients": lambda c, e, w, b: (ops.square(c) / 9 - e, ops.reciprocal(c * c + 1)),
    "a view of a carry": lambda c, e, w, b: (ops.sigmoid(c) + e, c[1:]),
    "a carry as it was": lambda c, e, w, b: (e, c * 2),
    "columns that fill no vector": lambda c, e, w, b: (c * 0.5 + e, (c[:, :9] + e[:, :9]) @ w[:9]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("body", BODIES)
def test_loops_are_near_to_those_of_the_interpreter(g, body, dtype, written):
    (x, w, b, xs), feeds = given(g, dtype)
    found = ag.scan(lambda c, e: BODIES[body](c, e, w, b), x, xs)
    outputs, _ = flatten(found)
    near(outputs, feeds)
    assert "a group" in written


def test_gradients_add_products_where_their_sums_lie(g, written):
    (x, w, _, xs), feeds = given(g)
    last, _ = ag.scan(lambda c, e: (ops.tanh(c @ w + e), None), x, xs)
    near([(last * last).sum()], feeds, wrt=[w, x])
    assert written.count("a product") == 3


@pytest.mark.parametrize("reverse", [False, True])
def test_products_of_what_is_stacked_anyway_are_summed_behind_the_loop(g, written, reverse):
    (x, w, _, xs), feeds = given(g)
    last, states = ag.scan(lambda c, e: ((new := ops.tanh(c @ w + e)), new), x, xs, reverse=reverse)
    near([(last * last).sum() + (states * 0.1).sum()], feeds, wrt=[w, x, xs])
    assert written.count("a product") == 2  # of both passes, and none of the gradient of w


def test_sums_of_stacks_of_products_stay_in_the_loop(g):
    shapes = {"x": (3, 16, 16), "xs": (7, 3, 8, 16)}
    x, xs = [g.input(name, shape, "float32") for name, shape in shapes.items()]

    def body(total, e):
        one = ops.tanh(e)
        return total + ops.transpose(e, (0, 2, 1)) @ one, one

    feeds = {name: RNG.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    near([*ag.scan(body, x, xs)], feeds)


def parts(x, *places):
    return [x[:, 16 * place : 16 * place + 16] for place in places]


PARTED = {
    "what nobody sees": (lambda c, e: ops.multiply(*parts(ops.sigmoid(c @ e), 0, 2)), 16),
    "steps before that": (lambda c, e: ops.add(*parts(ops.exp((c @ e) * 0.1), 0, 1)), 16),
    "what a vector is added to": (lambda c, e: ops.add(*parts(c @ e + e[0], 1, 2)), 16),
    "parts that are seen twice": (
        lambda c, e: parts(t := ops.tanh(c @ e), 0)[0] * t[:, 2:18] * t[:, 4:20] * t[:, 20:36], 240,
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", PARTED)
def test_steps_that_others_see_parts_of_are_computed_in_parts(g, body, monkeypatch):
    write, columns = vectors.elements_text, []

    def elements_text(*args):
        columns.append(args[2][1])
        return write(*args)

    monkeypatch.setattr(vectors, "elements_text", elements_text)
    x, w = g.input("x", (5, 16)), g.input("w", (16, 48))
    feeds = {"x": RNG.normal(size=(5, 16)), "w": RNG.normal(size=(16, 48))}
    feeds = {name: one.astype("float32") / 2 for name, one in feeds.items()}
    compute, widest = PARTED[body]
    last, _ = ag.scan(lambda c, _: (compute(c, w), None), x, length=9)
    near([last], feeds)
    assert max(columns) == widest


def test_products_of_all_steps_are_machine_code(g, monkeypatch):
    write, sizes = dense.product_code, []

    def product_code(name, one):
        sizes.append(one.sizes)
        return write(name, one)

    monkeypatch.setitem(quick_rows._WRITERS, dense.Product, product_code)
    feeds = {
        name: RNG.normal(size=shape).astype("float32") / 9
        for name, shape in {"x": (40, 8, 48), "w": (192, 48), "u": (192, 48)}.items()
    }
    x, w, u = [g.input(name, array.shape) for name, array in feeds.items()]
    near([ag.ops.lstm(x, None, w, u)[0]], feeds)
    assert (320, 48, 192) in sizes


@pytest.mark.parametrize("layer", [ag.ops.rnn, ag.ops.gru, ag.ops.lstm])
def test_recurrent_layers_are_near_in_both_passes(g, layer, written):
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[layer.__name__]
    feeds = {
        "x": RNG.normal(size=(6, 3, 8)).astype("float32"),
        "w": RNG.normal(size=(gates * 16, 8)).astype("float32") / 3,
        "u": RNG.normal(size=(gates * 16, 16)).astype("float32") / 4,
    }
    x, w, u = [g.input(name, array.shape) for name, array in feeds.items()]
    y, _ = layer(x, None, w, u)
    near([(y * y).sum(), y], feeds, wrt=[x, w, u])
    assert "a product" in written


@pytest.mark.parametrize("width", [12, 16])
def test_exponentials_are_right_to_three_units_in_the_last_place(g, width):
    x = g.input("x", (64, width))
    found = ag.scan(lambda c, _: (c, (ops.exp(c), ops.tanh(c), ops.sigmoid(c))), x, length=2)[1]
    spread = 10.0 ** RNG.uniform(-6, 1.9, size=(64, width))
    values = (spread * RNG.choice([-1, 1], size=spread.shape)).astype("float32")
    with ag.TapeMachine([*found], wrt=[], exact=False, jit="wait", native="wait") as machine:
        run = machine.run_sync({"x": values})
    exact = values.astype("float64")
    for node, of in zip(found, (np.exp, np.tanh, lambda v: 1 / (1 + np.exp(-v))), strict=True):
        np.testing.assert_array_max_ulp(run[node].value[0], of(exact).astype("float32"), 3)
        np.testing.assert_array_equal(np.signbit(run[node].value[0]), np.signbit(of(exact)))


@pytest.mark.parametrize("width", [12, 16])
def test_infinite_and_missing_numbers_stay_what_they_are(g, width):
    x = g.input("x", (4, width))
    found = ag.scan(lambda c, _: (c, (ops.exp(c), ops.tanh(c), ops.sigmoid(c))), x, length=2)[1]
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 88.7, 89.5, -87.0, -103.0, -110.0, 0.6]
    values = np.resize(np.array(odd, "float32"), (4, width))
    with ag.TapeMachine([*found], wrt=[], exact=False, jit="wait", native="wait") as machine:
        run = machine.run_sync({"x": values})
    with np.errstate(all="ignore"):
        wanted = [np.exp(values), np.tanh(values), 1 / (1 + np.exp(-values))]
    for node, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(run[node].value[0], value, rtol=1e-6, atol=1e-44)


def test_under_an_error_state_that_raises_numpy_computes_the_loop(g, written):
    x = g.input("x", (4, 16))
    last, _ = ag.scan(lambda c, _: (ops.exp(c), None), x, length=9)
    with ag.TapeMachine([last], wrt=[], exact=False, jit="wait", native="wait") as machine:
        feeds = {"x": np.ones((4, 16), "float32")}
        assert np.isinf(machine.run_sync(feeds)[last].value).all()
        with np.errstate(over="raise"), pytest.raises(ag.errors.NodeError, match="overflow"):
            machine.run_sync(feeds)


def test_what_fits_no_vectors_keeps_the_rows_that_it_has_without(g, monkeypatch):
    def refuse(*args):
        raise quick_rows.Unfit

    monkeypatch.setattr(vectors, "elements_text", refuse)
    (x, w, _, xs), feeds = given(g)
    outputs, _ = flatten(ag.scan(lambda c, e: (ops.tanh(c @ w + e), c * e), x, xs))
    near(outputs, feeds)


def test_a_sum_that_keeps_its_axis_is_a_row_of_its_own_code(g):
    x = g.input("x", (16, 16), "float32")
    h = x
    for _ in range(6):
        h = (h @ x).mean(axis=1, keepdims=True) @ x[:1]
    near([h], {"x": RNG.normal(size=(16, 16)).astype("float32") / 4})
