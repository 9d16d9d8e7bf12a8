"""Predictions order what has to be ordered, and follow the rates of the machine."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower import cost
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.rates import Rates
from actorgraph.op import REGISTRY
from tests._each import each

SYMBOLS = {"n": 4096}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Return a function that sets the rates; by default those of a middling core."""

    def set_rates(**changed):
        monkeypatch.setattr(cost, "rates", lambda: Rates(**changed))

    set_rates()
    return set_rates


def vector(dtype="float32", dim="n"):
    return ag.Graph().input("x", (dim,), dtype)


def us(node):
    return predicted_us(node, SYMBOLS)


def test_transcendental_functions_cost_more_than_sums():
    x = vector()
    assert us(x + x) < us(np.tanh(x)) < us(np.sin(x)) < us(ag.ops.erf(x))


def test_the_more_elements_and_bytes_the_dearer():
    assert us(np.tanh(vector(dim=10))) < us(np.tanh(vector())) < us(np.tanh(vector("float64")))


def test_a_call_on_next_to_nothing_costs_the_call(machine):
    machine(call_us=3.0)
    assert us(np.tanh(vector(dim=1))) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(
    ("rate", "build"),
    [
        ("additions_per_us", lambda x: x + x),
        ("transcendental_flops_per_us", np.tanh),
        ("bytes_per_us", lambda x: x + x),
    ],
)
def test_a_slow_machine_takes_longer(rate, build, machine):
    x = vector()
    before = us(build(x))
    machine(**{rate: 1.0})
    assert us(build(x)) > 100 * before


def test_products_follow_the_provider_that_computes_them(machine):
    machine(products={"numpy": [(1e6, 100.0)], "mkl": [(1e6, 100.0)]})
    graph = ag.Graph()
    x, y = graph.input("x", (128, 512), "float32"), graph.input("y", (512, 512), "float32")
    assert us(x @ y) == pytest.approx(2 * 128 * 512 * 512 / 100, rel=0.01)
    assert us(np.sin(x)) < 1000  # many flops an element make no product


def test_every_op_that_computes_in_blas_states_its_flops():
    products = [op for op in REGISTRY.values() if op.in_blas]
    assert REGISTRY["matmul"] in products
    assert all(op.cost is not None for op in products)


def test_a_users_op_that_states_no_cost_is_taken_for_a_long_one():
    op = ag.ops.define("cost_unknown", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x)
    assert us(op(vector(dim=1))) == 100.0


def refuses(shapes, result, attrs):
    raise KeyError("no such shape")


BAD_COSTS = {
    "tuple": (
        lambda shapes, result, attrs: (1, 2),
        r"cost of op .* is \(1, 2\) for shapes \(\(3,\)",
    ),
    "None": (lambda shapes, result, attrs: None, "is None for shapes"),
    "NaN": (lambda shapes, result, attrs: float("nan"), "is nan for shapes"),
    "inf": (lambda shapes, result, attrs: float("inf"), "is inf for shapes"),
    "negative": (lambda shapes, result, attrs: -1, "is -1 for shapes .* has to be the number"),
    "raises": (refuses, "KeyError: 'no such shape'"),
    "other arguments": (lambda shapes: 1, "TypeError: .*takes 1 positional argument"),
}


@each("kind", [ag.TapeMachine, ag.ActorMachine, ag.LispMachine])
@each("name", BAD_COSTS)
def test_a_wrong_cost_of_an_op_is_told_with_op_and_node_before_anything_starts(name, kind):
    rule, match = BAD_COSTS[name]
    calls = []
    op = ag.ops.define(
        f"badly_priced_{name.replace(' ', '_')}_{kind.__name__}",
        scheme="f[*s] -> f[*s]",
        forward=lambda xp, x: calls.append(x),
        cost=rule,
    )
    y = op(vector(dim=3)).named("priced")
    where = rf"(?s)node 'priced' \({op.__name__}, built at .*test_cost.py.*{match}"
    with kind(y) as machine:
        for _ in range(2):
            with pytest.raises(ag.GraphTypeError, match=where):
                machine.run_sync({"x": np.ones(3, "float32")})
    assert not calls


def test_a_step_that_is_walked_costs_its_arithmetic_alone(machine):
    x = vector()
    machine(call_us=100.0, bytes_per_us=1e-3)
    assert predicted_us(x + x, SYMBOLS, walked=True) == 4096 / Rates().additions_per_us
    assert predicted_us(x + x, SYMBOLS) > 1e6
