"""Steps that are fused and compiled: what they compute."""

import ctypes

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.jit import compiler as compiling
from actorgraph.jit import groups as forming
from actorgraph.jit import lowering as jit
from actorgraph.ops.activations import where_positive
from tests._soak import SOAK
from tests.jit._jit import near, sample, steps_of
from tests.machines._graphs import graphs

pytest.importorskip("llvmlite", reason="the extra jit is not installed")
pytestmark = pytest.mark.usefixtures("machine_code")


def layer_norm(x, w, b):
    centred = x - x.mean(-1, keepdims=True)
    spread = ops.square(centred).mean(-1, keepdims=True)
    return centred / ops.sqrt(spread + 1e-5) * w + b


def squared_mean(x, w, b):
    return ops.square(x * w - b).mean()


FORMS = {
    "columns and numbers": lambda x, w, b: ops.relu(x * w + b) * 0.5 - ops.abs(x),
    "numbers first": lambda x, w, b: 1.5 - x * w,
    "where": lambda x, w, b: ops.where((x > 0) & (x < w), x * b, ops.clip(x, -0.5, 0.5)),
    "maximum and minimum": lambda x, w, b: ops.maximum(x, w) * ops.minimum(x, b) + ops.sign(x),
    "roots": lambda x, w, b: ops.sqrt(ops.square(x) + 1) + ops.rsqrt(ops.square(w * x) + 1),
    "rounding": lambda x, w, b: ops.floor(x * 3) + ops.ceil(x) * w - ops.trunc(x * b),
    "tests": lambda x, w, b: ops.where(ops.isfinite(x / w) | ops.isnan(x), x * 2, b),
    "casts": lambda x, w, b: (x > w).astype(x.dtype) * x + b,
    "sums of rows": lambda x, w, b: (x * w + b).sum(-1),
    "means of rows": lambda x, w, b: ops.mean(ops.square(x) - w, -1, keepdims=True),
    "sums of columns": lambda x, w, b: (x * w + b).sum(0),
    "means of columns": lambda x, w, b: ops.mean(x * w + b, 0, keepdims=True),
    "a sum of all": lambda x, w, b: (x * w + b).sum(),
    "a mean of all": squared_mean,
    "a mean of all, flat": lambda x, w, b: ops.square(x * x - 1).mean(),
    "layer norm": layer_norm,
    "layer norm, then a mean": lambda x, w, b: ops.square(layer_norm(x, w, b)).mean(),
    "numbers a row": lambda x, w, b: x * ops.expand_dims((x * w).sum(-1), 1) + b,
}
ALL = [(form, dtype, True) for form in FORMS for dtype in ("float32", "float64")]
# A compilation takes a quarter of a second.
SOME = [(form, "float32", form in ("where", "layer norm, then a mean")) for form in FORMS]
SOME.append(("layer norm", "float64", False))


@pytest.mark.parametrize(("form", "dtype", "derived"), ALL if SOAK else SOME)
def test_loops_agree_with_the_reference_within_the_tolerance(form, dtype, derived, eager):
    graph = ag.Graph()
    x = graph.input("x", ("n", 24), dtype)
    w = graph.parameter("w", np.linspace(-1, 1.5, 24).astype(dtype))
    b = graph.parameter("b", np.linspace(1, 2, 24).astype(dtype))
    y = FORMS[form](x, w, b)
    outputs = [ops.tanh(y).mean() if y.ndim else y, y] if derived else [y]
    feeds = {"x": sample(40, 24, dtype)}
    with (
        ag.LispMachine(outputs, exact=False) as lisp,
        ag.TapeMachine(outputs, exact=False, jit="wait") as tape,
    ):
        modes = [{}, {"backward": True}, {"tangents": {"x": feeds["x"][::-1].copy()}}]
        for mode in modes if derived else modes[:1]:
            wanted, got = lisp.run_sync(feeds, **mode), tape.run_sync(feeds, **mode)
            for node in outputs:
                assert type(got[node].value) is np.ndarray
                assert got[node].value.dtype == dtype
                near(got[node].value, wanted[node].value)
                if "tangents" in mode:
                    near(got[node].tangent, wanted[node].tangent, 10)
            if "backward" in mode:
                near(got[w].grad, wanted[w].grad, 10)
        assert "fused" in steps_of(tape)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"] if SOAK else ["float32"])
def test_special_values_are_those_of_numpy(dtype, eager):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 1e38, -2.5]
    x_values, y_values = np.meshgrid(special, special)
    graph = ag.Graph()
    x, y = graph.input("x", ("n", 10), dtype), graph.input("y", ("n", 10), dtype)
    formulas = [
        ops.maximum(x, y) + 0.0, ops.minimum(x, y) + 0.0, ops.relu(x) * 1.5, ops.sign(x) * 1.5,
        ops.clip(x * 1.5, y, 1), x / y * 1.5, ops.sqrt(x * 1.5), ops.reciprocal(x * 1.5),
        where_positive(x, y) * 1.5, (x == y).astype(dtype) * 1.5, ops.floor(x * 1.5),
        ops.isinf(x * y).astype(dtype) + ops.isnan(x * y).astype(dtype), (x * y).sum(-1),
    ]  # fmt: skip
    feeds = {"x": x_values.astype(dtype), "y": y_values.astype(dtype)}
    with ag.LispMachine(formulas) as lisp, ag.TapeMachine(
        formulas, exact=False, passes=(), jit="wait"
    ) as tape:  # fmt: skip
        wanted, got = lisp.run_sync(feeds), tape.run_sync(feeds)
        for node in formulas[:-1]:
            np.testing.assert_array_equal(got[node].value, wanted[node].value, err_msg=node.name)
        near(got[formulas[-1]].value, wanted[formulas[-1]].value)
        assert steps_of(tape).count("fused") >= 1


@settings(
    max_examples=200 if SOAK else 4, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(example=graphs())
def test_drawn_graphs_agree_with_the_reference(example, eager):
    options = {"exact": False, "wrt": example.wrt}
    with (
        ag.LispMachine(example.outputs, **options) as lisp,
        ag.TapeMachine(example.outputs, jit="wait", **options) as tape,
        ag.ActorMachine(example.outputs, jit="wait", workers=2, **options) as actors,
    ):
        for number, feeds in enumerate(example.feeds):
            for mode in example.modes(number):
                wanted = lisp.run_sync(feeds, **mode)
                for machine in (tape, actors):
                    got = machine.run_sync(feeds, **mode)
                    for node in (*lisp.outputs.values(), *lisp.wrt):
                        for part in ("value", "grad", "tangent"):
                            one, two = getattr(got[node], part), getattr(wanted[node], part)
                            assert (one is None) == (two is None)
                            if two is not None:
                                assert one.shape == two.shape
                                # Drawn graphs amplify: a kink may lie between two last bits.
                                near(one, two, 1e3)


@settings(
    max_examples=1000 if SOAK else 15, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(example=graphs(), fewest=st.integers(1, 40))
def test_whichever_steps_are_grouped_ordinary_kernels_have_the_bits_of_the_reference(
    example, fewest, monkeypatch
):
    def broken(one):
        raise RuntimeError("nothing is compiled here")

    monkeypatch.setattr(jit, "COMPILER", compiling.Compiler(broken))
    monkeypatch.setattr(forming, "FEWEST", fewest)
    options = {"exact": False, "wrt": example.wrt}
    with (
        ag.LispMachine(example.outputs, **options) as lisp,
        ag.TapeMachine(example.outputs, jit=True, **options) as tape,
    ):
        for number, feeds in enumerate(example.feeds):
            for mode in example.modes(number):
                wanted, got = lisp.run_sync(feeds, **mode), tape.run_sync(feeds, **mode)
                for node in (*lisp.outputs.values(), *lisp.wrt):
                    for part in ("value", "grad", "tangent"):
                        one, two = getattr(got[node], part), getattr(wanted[node], part)
                        assert (one is None) == (two is None)
                        assert one is None or one.tobytes() == two.tobytes()


def test_a_sum_of_many_float32_is_as_exact_as_one_in_float64(eager):
    x = ag.Graph().input("x", ("n",))
    value = np.random.default_rng(1).random(1_000_001, "f")
    with ag.TapeMachine({"total": (x * 0.5).sum()}, exact=False, jit="wait") as machine:
        got = machine.run_sync({"x": value})["total"].value
    assert abs(got / (value.astype("d") * 0.5).sum() - 1) < 1e-7


ACCURATE = {
    "erf": 4, "erfc": 8, "exp": 4, "expm1": 5, "log": 4, "log1p": 4, "logsigmoid": 4, "sigmoid": 4,
    "softplus": 4, "tanh": 5,
}  # fmt: skip
"""Functions of float32, and how many last digits of 24 bits they may be off."""
ENDS = [
    0, -np.inf, -1e30, -104.5, -104, -87.3, -10, -1, -0.34, 1e-42, 1e-30, 1, 9, 10, 88.7, 89, 1e30,
    np.inf, np.nan,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ACCURATE)
def test_functions_of_float32_are_accurate_to_the_last_digits(name, eager):
    pytest.importorskip("scipy")
    x, y = [ag.Graph().input("x", ("n",), dtype) for dtype in ("float32", "float64")]
    function = getattr(ops, name)
    value = np.concatenate([ENDS, np.linspace(-110, 110, 20_001), np.linspace(-3, 3, 20_001)])
    value = value.astype("f")
    with (
        ag.LispMachine([function(y)]) as exact,
        ag.TapeMachine([function(x) * 1], exact=False, passes=(), jit="wait") as machine,
    ):
        (got,) = [machine.run_sync({"x": value})[node].value for node in machine.outputs.values()]
        assert steps_of(machine) == ["fused"]
        wide = {"x": value.astype("d")}
        (wanted,) = [exact.run_sync(wide)[node].value for node in exact.outputs.values()]
    tiny = np.abs(wanted) < 2e-38
    np.testing.assert_allclose(got[~tiny], wanted[~tiny].astype("f"), rtol=ACCURATE[name] * 6e-8)
    np.testing.assert_allclose(got[tiny], wanted[tiny], rtol=0, atol=4e-39)


@pytest.mark.parametrize(
    "function",
    [
        ops.celu, ops.elu, ops.gelu, ops.hardshrink, ops.hardsigmoid, ops.hardswish, ops.hardtanh,
        ops.leaky_relu, ops.mish, ops.selu, ops.silu, ops.softshrink, ops.softsign, ops.tanhshrink,
        lambda x: ops.gelu(x, "tanh"), lambda x: ops.threshold(x, 0.25, -3.0),
        lambda x: ops.prelu(x, x.graph.parameter("slope", np.float32(0.3))),
    ],
)  # fmt: skip
def test_activations_are_part_of_groups_with_their_gradients(function, eager):
    if function is ops.gelu:
        pytest.importorskip("scipy")
    x = ag.Graph().input("x", ("n", 37))
    y = function(x * 2)
    value = np.array([*np.linspace(-30, 30, 36), np.nan], "f") * np.linspace(0.1, 3, 20)[:, None]
    feeds = {"x": value.astype("f")}
    outputs = [y * 1, *ag.gradients(y.sum(), [x])]
    with (
        ag.LispMachine(outputs, exact=False) as lisp,
        ag.TapeMachine(outputs, exact=False, jit="wait") as tape,
    ):
        wanted, got = lisp.run_sync(feeds), tape.run_sync(feeds)
        for node in outputs:
            near(got[node].value, wanted[node].value)
        assert set(steps_of(tape)) <= {"fused", "room"}


@pytest.mark.skipif(native.expected() is not None, reason=f"no flags: {native.expected()}")
@pytest.mark.parametrize("function", [ops.exp, ops.tanh])
def test_exponentials_meet_no_denormal_numbers_on_their_way(function, eager):
    x = ag.Graph().input("x", ("n",))
    library = ctypes.CDLL("libm.so.6")
    value = np.array([-1e30, -105, 0, 3, 30], "f")
    with ag.TapeMachine([function(x) * 1], exact=False, jit="wait", native=False) as machine:
        machine.run_sync({"x": value})
        library.feclearexcept(native.ALL_ERRORS)
        machine.run_sync({"x": value})
        assert steps_of(machine) == ["fused"]
        assert not library.fetestexcept(native.ERRORS["under"])
