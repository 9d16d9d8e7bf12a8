"""bfloat16, which ml_dtypes declares to NumPy under kind V, goes through graphs like any float."""

import sys

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError
from actorgraph.machines import ActorMachine, LispMachine, TapeMachine
from tests._each import each
from tests._evaluate import evaluate

ml_dtypes = pytest.importorskip("ml_dtypes")
B16 = np.dtype(ml_dtypes.bfloat16)
LIMITED = ["arccos", "arcsin", "arctanh"]
ABOVE = [
    "arccosh",
    "log",
    "log10",
    "log1p",
    "log2",
    "lgamma",
    "digamma",
    "rsqrt",
    "sqrt",
    "reciprocal",
]
UNARY = [
    "abs", "arctan", "arcsinh", "cbrt", "celu", "ceil", "cos", "cosh", "cube", "deg2rad", "elu",
    "erf", "erfc", "exp", "exp2", "expm1", "floor", "gelu", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "logsumexp", "max", "mean",
    "min", "mish", "neg", "norm", "prod", "rad2deg", "relu", "relu6", "round", "selu", "sigmoid",
    "sign", "silu", "sin", "sinh", "softplus", "softshrink", "softsign", "square", "std", "sum",
    "tan", "tanh", "tanhshrink", "trunc", "var", *LIMITED, *ABOVE,
]  # fmt: skip
BINARY = [
    "add", "arctan2", "divide", "fmax", "fmin", "hypot", "logaddexp", "maximum", "minimum", "mod",
    "multiply", "power", "prelu", "subtract",
]  # fmt: skip


def both(build, *arrays):
    """Evaluate a function and the gradients of its sum in bfloat16, and in float64 beside."""
    results = []
    for dtype in (B16, np.dtype("float64")):
        graph = ag.Graph()
        feeds = {
            graph.input(f"x{i}", array.shape, dtype): array.astype(B16).astype(dtype)
            for i, array in enumerate(arrays)
        }
        y = build(*feeds)
        got = evaluate([y, *ag.gradients(y.sum(), list(feeds))], feeds)
        assert {value.dtype for value in got} == {dtype}
        results.append([value.astype("float64") for value in got])
    return results


def close(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.05 * np.abs(other).max())


@each("name", UNARY)
def test_function_of_one_argument_keeps_bfloat16(name):
    pytest.importorskip("scipy")
    low, high = (-0.8, 0.8) if name in LIMITED else (1.3, 3) if name in ABOVE else (-2, 2)
    x = np.random.default_rng(1).uniform(low, high, 12)
    if name in ("softshrink", "hardshrink"):
        x += 0.2 * np.sign(x)
    close(*both(getattr(ag.ops, name), x))


@each("name", BINARY)
def test_function_of_two_arguments_keeps_bfloat16(name):
    rng = np.random.default_rng(2)
    close(*both(getattr(ag.ops, name), rng.uniform(0.5, 3, (4, 3)), rng.uniform(0.5, 3, 3)))


@pytest.mark.parametrize("machine", [LispMachine, TapeMachine, ActorMachine])
def test_a_layer_of_bfloat16_runs_and_learns_on_every_machine(machine):
    rng = np.random.default_rng(3)
    g = ag.Graph()
    x = g.input("x", ("batch", 4), "bfloat16")
    w = g.parameter("w", rng.normal(size=(4, 3)).astype(B16))
    loss = (ag.ops.relu(x @ w * 0.5) ** 2).mean()
    xs = rng.normal(size=(6, 4)).astype(B16)
    with machine([loss], wrt=[w]) as running:
        run = running.run_sync({"x": xs}, backward=True)
    (wanted,) = evaluate(ag.gradients(loss, [w]), {x: xs})
    assert run[loss].value.dtype == run[w].grad.dtype == B16
    assert run[w].grad.tobytes() == np.asarray(wanted).tobytes()
    before = w.value.copy()
    ag.solvers.SGD(lr=0.5).step([run[w]])
    assert w.value.dtype == B16
    assert not np.array_equal(w.value, before)


def test_casts_inside_a_graph_change_the_precision_and_bring_the_gradient_back():
    x = ag.Graph().input("x", (3,), "float32")
    y = (x.astype("bfloat16") * 3).astype("float32").sum()
    value, gradient = evaluate([y, *ag.gradients(y, [x])], {x: np.ones(3, "float32")})
    assert value.dtype == gradient.dtype == np.float32
    np.testing.assert_array_equal(gradient, [3, 3, 3])


def test_mixing_bfloat16_with_float32_names_both():
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match="'x' is bfloat16 but 'y' is float32"):
        g.input("x", (2,), "bfloat16") + g.input("y", (2,), "float32")


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(GraphTypeError, match=r'pip install "actorgraph\[bfloat16\]"'):
        ag.Graph().input("x", (2,), "bfloat16")


def test_products_along_an_axis_keep_bfloat16():
    x = ag.Graph().input("x", (2, 3), "bfloat16")
    fed = np.ones((2, 3), x.dtype)
    (value,) = evaluate([ag.ops.vecdot(x, x)], {x: fed})
    assert value.dtype == x.dtype
    np.testing.assert_array_equal(value.astype("float32"), [3, 3])
