"""What machines tell of how they run: tables, strands, parts that are interpreted, loops."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.lower import asking, stepping, table_rows
from benchmarks._work import irregular
from tests.conftest import await_threads
from tests.lower.test_stepping import feeds

tabled = pytest.mark.skipif(native.expected() is not None, reason=f"no tables: {native.expected()}")


def chain(x, steps=8):
    for _ in range(steps):
        x = ops.tanh(x) + 0.5
    return x


def ones(*shape):
    return np.ones(shape, "float32")


@tabled
def test_a_machine_tells_how_many_steps_are_walked_as_tables():
    x = ag.Graph().input("x", (4, 4), "float32")
    y = chain(ops.argsort(chain(x), axis=0).astype("float32"))
    with ag.TapeMachine([y], native="wait") as machine:
        machine.run_sync({"x": ones(4, 4)})
        assert "tables: 33 of 34 steps in 2 stretches; rows of 33 are written" in machine.explain()
        assert "# the 16 steps of f0 in the calling thread\n" in machine.source
    with ag.TapeMachine([y], native=False) as machine:
        machine.run_sync({"x": ones(4, 4)})
        assert "tables" not in machine.explain()


@tabled
def test_a_machine_names_the_step_without_a_row_around_which_a_table_is_walked():
    x = ag.Graph().input("x", (4, 1, 5), "float32")
    wide = ops.broadcast_to(chain(x), (4, 6, 5))
    total = wide.sum(1)  # NumPy adds one number in an order of its own
    with ag.TapeMachine([chain(total)], native="wait") as machine:
        machine.run_sync({"x": ones(4, 1, 5)})
        line = f"33 of 34 steps are walked around {total.name!r}, which has no row"
        assert f"; rows of 33 are written\n{line}" in machine.explain()
        assert f"# {line}" in machine.source
    short = ops.broadcast_to(chain(x, 2), (4, 6, 5)).sum(1)
    with ag.TapeMachine([chain(short, 2)], native="wait") as machine:
        machine.run_sync({"x": ones(4, 1, 5)})
        line = f"no table of 10 steps: {short.name!r} has no row for these layouts"
        assert line in machine.explain()
        assert f"# {line}" in machine.source


def test_a_machine_tells_of_parts_that_are_interpreted_and_for_how_long():
    stepping.stepping_code.cache_clear()
    loss = irregular(600)
    with ag.TapeMachine([loss], native=False) as machine:
        machine.start(feeds()).result()
        parts = machine.source.count("# interpreted step by step; compiled after ")
        assert parts > 2
        text = f"parts: {parts} are interpreted step by step, until calls pay for compiling them"
        assert text in machine.explain()
        for _ in range(stepping._FEWEST + stepping._SPREAD):
            machine.start(feeds()).result()
        assert "interpreted" not in machine.explain() + machine.source


@tabled
def test_parts_that_a_table_walks_are_not_said_to_be_interpreted():
    stepping.stepping_code.cache_clear()
    loss = irregular(600)
    with ag.TapeMachine([loss], native="wait") as machine:
        machine.start(feeds()).result()
        assert "rows of NumPy's loops stand for it" in machine.source
        assert "interpreted" not in machine.explain() + machine.source


@tabled
def test_a_machine_tells_whether_a_table_walks_a_loop():
    x = ag.Graph().input("x", (30, 4), "float32")
    last, _ = ag.scan(lambda c, e: (ops.tanh(c + e), None), ops.zeros(x.graph, (4,), "float32"), x)
    with ag.TapeMachine([last], native=True) as machine:
        machine.run_sync({"x": ones(30, 4)})
        assert "computed by Python; a table is written after " in machine.explain()
    with ag.TapeMachine([last], native="wait") as machine:
        machine.run_sync({"x": ones(30, 4)})
        assert "rows, walked by one thread" in machine.explain()
    with ag.TapeMachine([last], native=False) as machine:
        machine.run_sync({"x": ones(30, 4)})
        assert "table" not in machine.explain()


@tabled
def test_a_machine_tells_why_no_table_walks_a_loop():
    x = ag.Graph().input("x", (30, 4), "float32")

    def body(carry, entry):
        return carry + entry, ops.sort(carry).named("in_order")

    last, every = ag.scan(body, ops.zeros(x.graph, (4,), "float32"), x)
    with ag.TapeMachine([last, every], native="wait") as machine:
        machine.run_sync({"x": ones(30, 4)})
        assert "no table: 'in_order' has no row" in machine.explain()
    last, _ = ag.scan(lambda c, e: (ops.sort(c) + e, None), last, x)
    with ag.TapeMachine([last], native="wait") as machine:
        machine.run_sync({"x": ones(30, 4)})
        assert "reads a carry whose memory layout may change" in machine.explain()


@tabled
def test_an_error_of_writing_rows_is_told_and_logged_once(faults, monkeypatch, caplog):
    def broken(*_):
        raise KeyError("stride")

    monkeypatch.setattr(asking, "_has_told", False)
    monkeypatch.setattr(table_rows.Written, "_lay", broken)
    x = ag.Graph().input("x", (30, 4))
    last, _ = ag.scan(lambda c, e: (chain(c + e), None), x[0], x)
    for output, steps in ((chain(x), "no table of 16 steps"), (last, "no table")):
        with ag.TapeMachine([output], native="wait") as machine:
            assert machine.run_sync({"x": ones(30, 4)})[output].value.shape == output.shape
            assert f"{steps}: writing it raised KeyError: 'stride'" in machine.explain()
    assert [type(one) for one in faults] == [KeyError, KeyError]
    await_threads("actorgraph compiler")
    [record] = caplog.records
    assert "could not be written, and Python computes them" in record.message
    assert record.exc_info[1] is faults[0]
    faults.clear()
