"""Tables of several sizes: which are kept, and what is walked if a step has no row for a size."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.devices.background import BACKGROUND
from actorgraph.lower import table
from actorgraph.lower.program import CALLS_TILL_ROWS
from actorgraph.lower.spots import Unfit
from actorgraph.lower.walkable import has_loop
from tests.lower.test_table import layers

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


def test_rows_of_a_few_sizes_are_kept_and_shared():
    h, _, _ = layers("float32", "n")
    with ag.TapeMachine([h], native="wait") as machine:
        for size in (1, 5, 2, 5, 1):
            machine.run_sync({"x": np.ones((size, 8), "float32")})
        *_, plan = machine._plans.values()
        [part] = plan.inline.program.parts
        tables = dict(part.stretch._tables)
        assert [dict(key) for key in tables] == [{"n": 1}, {"n": 5}, {"n": 2}]
        assert part.stretch._table({"n": 5}) is tables[("n", 5),]
        for size in range(10, 20):
            machine.run_sync({"x": np.ones((size, 8), "float32")})
        assert len(part.stretch._tables) <= table._KEPT


@pytest.mark.parametrize("more", [0, -1])
def test_many_steps_are_walked_around_one_that_has_no_row_for_a_size(more, monkeypatch):
    count = table._MANY + more
    h = x = ag.Graph().input("x", (3,), "float64")
    for number in range(count):
        h = h * 0.5 if number % 2 else ops.tanh(h)
    feeds, laid = {x: np.linspace(-1, 1, 3)}, table.Stretch._laid

    def without_one(stretch, symbols):
        if len(stretch.steps) < count:
            return laid(stretch, symbols)
        unfit = Unfit()
        unfit.position = count // 2
        raise unfit

    monkeypatch.setattr(table.Stretch, "_laid", without_one)
    with ag.LispMachine([h]) as lisp, ag.TapeMachine([h], native="wait") as machine:
        wanted = lisp.run_sync(feeds)[h].value
        for _ in range(3):
            assert machine.run_sync(feeds)[h].value.tobytes() == wanted.tobytes()
        *_, plan = machine._plans.values()
        [part] = plan.inline.program.parts
        assert (part.stretch._table({}).made is None) == (more < 0)


@pytest.mark.parametrize("every", [2, 20])
def test_steps_whose_loop_is_not_proved_are_called_between_tables_where_that_pays(
    every, monkeypatch
):
    monkeypatch.setattr("actorgraph.lower.table._lacks_loop", lambda step: step.op.ufunc == "tanh")
    monkeypatch.setattr(
        "actorgraph.lower.row_writing.has_loop",
        lambda step: None if step.op.ufunc == "tanh" else has_loop(step),
    )
    h = x = ag.Graph().input("x", (3,), "float64")
    for number in range(120):
        h = h * 1.01 if number % every else ops.tanh(h)
    feeds = {x: np.linspace(-1, 1, 3)}
    with ag.LispMachine([h]) as lisp, ag.TapeMachine([h], native="wait") as machine:
        wanted = lisp.run_sync(feeds)[h].value
        for _ in range(3):
            assert machine.run_sync(feeds)[h].value.tobytes() == wanted.tobytes()
        *_, plan = machine._plans.values()
        [part] = plan.inline.program.parts
        around = part.stretch._around_it
    if every == 2:
        assert part.stretch._table({}).made is None
        assert around is None
    else:
        inner = [one.stretch for one in around.parts if one.stretch]
        assert [len(one.steps) for one in inner] == [19] * 6
        assert not any(one._around_it for one in inner)


def test_each_size_of_a_small_graph_has_rows_only_after_calls_of_its_own(monkeypatch):
    written, write = [], table.Stretch.write

    def noted(stretch, symbols):
        written.append(symbols["n"])
        return write(stretch, symbols)

    monkeypatch.setattr(table.Stretch, "write", noted)
    h = ag.Graph().input("x", ("n",), "float64")
    for _ in range(table.FEWEST_ROWS):
        h = ops.tanh(h) * 0.5
    with ag.TapeMachine([h], native=True) as machine:
        for size in [3] * (CALLS_TILL_ROWS + 2) + [4, 5, 6, 7]:
            machine.run_sync({"x": np.ones(size)})
        done = threading.Event()
        BACKGROUND.submit(done.set)
        assert done.wait(60)
    assert written == [3]
