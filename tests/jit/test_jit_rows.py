"""Compiled steps as rows of tables: they are walked, and decline what they cannot compute."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.errors import NodeError
from actorgraph.jit import lowering
from actorgraph.lower import table, table_rows
from actorgraph.lower.spots import Spot, Unfit
from tests.jit._jit import near

pytestmark = [
    pytest.mark.usefixtures("machine_code", "eager"),
    pytest.mark.skipif(native.expected() is not None, reason=f"no tables: {native.expected()}"),
]


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """The steps of groups that rows were written for, and calls of their kernels from Python."""
    found = {"rows": [], "calls": 0}
    write, kernel = lowering.write_row, lowering.fused_kernel

    def write_row(written, step):
        write(written, step)
        found["rows"].append(step.op.name)

    def fused_kernel(node, symbols, *, wait):
        made = kernel(node, symbols, wait=wait)
        if node.op is not lowering.FUSED:
            return made

        def called(*given, **options):
            found["calls"] += 1
            return made(*given, **options)

        called.ordinary = made.ordinary
        return called

    monkeypatch.setattr(lowering, "ROWS", dict.fromkeys(lowering.OWN, write_row))
    monkeypatch.setattr(lowering, "fused_kernel", fused_kernel)
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    return found


def walked(rows, outputs, feeds, wrt=(), scale=1.0):
    """Insist that all groups are walked, and on what the reference computes."""
    with (
        ag.LispMachine(outputs, exact=False) as lisp,
        ag.TapeMachine(outputs, exact=False, jit="wait", native="wait") as tape,
    ):
        wanted = lisp.run_sync(feeds, backward=bool(wrt))
        tape.run_sync(feeds, backward=bool(wrt))
        assert "fused" in rows["rows"]
        rows["calls"] = 0
        got = tape.run_sync(feeds, backward=bool(wrt))
        assert rows["calls"] == 0
        for node in outputs:
            near(got[node].value, wanted[node].value, scale)
        for node in wrt:
            near(got[node].grad, wanted[node].grad, 10 * scale)


def given(dtype="float32", rows=24, columns=40):
    """Return a graph's input, two vectors of parameters, and feeds."""
    rng = np.random.default_rng(0)
    graph = ag.Graph()
    x = graph.input("x", ("n", columns), dtype)
    w, b = [graph.parameter(name, rng.normal(size=columns).astype(dtype)) for name in "wb"]
    return x, w, b, {"x": rng.normal(size=(rows, columns)).astype(dtype)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 3, 40])
def test_elements_and_vectors_are_walked(rows, dtype, columns):
    x, w, b, feeds = given(dtype, columns=columns)
    y = ops.relu(x * w + b) * x - ops.abs(x) * 0.1
    walked(rows, [y, ops.where(y > x, x * 2, y) + 1], feeds)


def test_constant_arrays_are_read_like_others(rows):
    x, w, _, feeds = given()
    vector, whole = np.linspace(-1, 1, 40, dtype="f"), np.ones((24, 40), "f")
    x = x.graph.input("fixed", (24, 40))
    feeds = {"fixed": feeds["x"]}
    walked(rows, [ops.relu(x * vector + whole) * 3 - w], feeds)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_rows_of_columns_and_of_all_are_walked_with_their_gradients(rows, dtype):
    x, w, b, feeds = given(dtype)
    centred = x * w - (x * w).mean(-1, True)
    y = centred / ops.sqrt((centred * centred).mean(-1, True) + 1e-3) + b
    walked(rows, [ops.square(y).mean(), y], feeds, [w, b], scale=10)


def test_exponentials_of_float32_are_in_groups(rows):
    x, w, b, feeds = given()
    y = x * 0.5 * (ops.tanh(x * w + b) + 1) - ops.exp(x * 0.1)
    walked(rows, [y], feeds, scale=3)
    assert rows["rows"] == ["fused"]


def test_a_class_that_is_none_is_an_error_of_its_step(rows):
    x, w, b, feeds = given()
    t = x.graph.input("t", ("n",), "int64")
    loss = ops.cross_entropy(x * w + b, t)
    feeds["t"] = np.arange(24)
    walked(rows, [loss], feeds, [w, b])
    with ag.TapeMachine([loss], exact=False, jit="wait", native="wait") as machine:
        machine.run_sync(feeds, backward=True)
        for wrong in (40, -1):
            bad = feeds | {"t": feeds["t"].copy()}
            bad["t"][7] = wrong
            with pytest.raises(NodeError, match="out of range for 40 classes") as caught:
                machine.run_sync(bad, backward=True)
            assert caught.value.node == loss.name
        machine.run_sync(feeds, backward=True)


def test_what_loops_divide_by_zero_is_not_told_as_without_tables(rows):
    x, w, b, feeds = given()
    y = 1 / (x - x) + w * b
    with ag.TapeMachine([y], exact=False, jit="wait", native="wait") as machine:
        for _ in range(2):
            assert np.isinf(machine.run_sync(feeds)[y].value).all()
        assert rows["rows"] == ["fused"]


def test_arrays_with_gaps_are_not_walked(rows):
    x, w, b, feeds = given()
    y = ops.relu(x * w + b)
    with ag.TapeMachine([y], exact=False, jit="wait", native="wait") as machine:
        wanted = machine.run_sync(feeds)[y].value
        turned = np.asfortranarray(feeds["x"])
        near(machine.run_sync({"x": turned})[y].value, wanted)


def test_loops_that_would_write_over_what_they_read_have_no_row():
    written = object.__new__(table_rows.Written)
    written.sizes = [64]
    one = Spot(0, 0, (4,), (4,), 4)
    with pytest.raises(Unfit):
        lowering.write_loops(written, 1, [one, one._replace(offset=4)], (1, 4), 1)


def test_a_sum_of_rows_that_is_added_to_columns_is_not_taken_for_one_of_rows(rows):
    x = ag.Graph().input("x", (40, 40))
    y = x * 2 + ops.square(x).sum(-1)
    feeds = {"x": np.random.default_rng(1).normal(size=(40, 40)).astype("f")}
    with ag.LispMachine([y]) as lisp, ag.TapeMachine([y], exact=False, jit="wait") as tape:
        near(tape.run_sync(feeds)[y].value, lisp.run_sync(feeds)[y].value)
