"""First runs: what only many runs get back is neither imported nor made in them."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import native
from actorgraph.devices.background import BACKGROUND
from actorgraph.lower.parts import FEWEST
from actorgraph.lower.program import CALLS_TILL_ROWS, Subprogram
from actorgraph.lower.regions import by_region
from actorgraph.machines import network
from actorgraph.machines.plan import Plan
from tests._child import printed_by

tabled = pytest.mark.skipif(native.expected() is not None, reason=f"no tables: {native.expected()}")

GRAPHS = {
    "steps": "x = g.input('x', shape=(4, 4), dtype='float64'); y = (np.tanh(x) * 2.0).sum()",
    "convolutions": (
        "x = g.input('x', shape=(1, 3, 4, 4), dtype='float64');"
        "y = ag.ops.conv2d(x, np.ones((2, 3, 3, 3))).sum()"
    ),
    "worth two workers": (
        "x = g.input('x', shape=(200, 300), dtype='float64');"
        "y = sum(np.exp(x * k).sum() for k in range(1, 9))"
    ),
    "many steps": (
        "x = y = g.input('x', shape=(4,), dtype='float64')\n"
        "for k in range(800): y = np.tanh(y) + k\n"
        "y = y.sum()"
    ),
}  # fmt: skip


def imported(graph, kind):
    """Return the modules that are imported after a graph has run in a fresh process."""
    code = f"""import sys
import numpy as np
import actorgraph as ag
g = ag.Graph()
{graph}
with ag.{kind}([y]) as machine:
    machine.run_sync({{"x": np.ones(x.shape)}}, backward=True)
print(*sys.modules)
"""
    return set(printed_by(code))


@pytest.mark.parametrize("kind", ["TapeMachine", "ActorMachine"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_first_run_imports_neither_tables_nor_logging(graph, kind):
    found = imported(GRAPHS[graph], kind)
    unneeded = {"llvmlite", "logging", "actorgraph.devices.native", "actorgraph.devices.loops"}
    unneeded |= {"actorgraph.lower.table", "actorgraph.lower.table_rows"}
    unneeded.add("actorgraph.devices.structs")
    assert "actorgraph.lower.program" in found
    if kind == "ActorMachine" and graph == "worth two workers" and native.expected() is None:
        assert "actorgraph.lower.walkable" in found
    assert not unneeded & found


def halves(joint, costs):
    """Return two tasks a direction, whose messages keep a machine from computing runs directly."""
    middle = len(joint.owners) // 2
    return by_region(joint, [joint.owners[:middle], joint.owners[middle:]])


def chain(dim):
    """Return a long chain, with steps enough for tables in both halves."""
    y = ag.Graph("chain").input("x", shape=(dim, 64), dtype="float64")
    for _ in range(40):
        y = np.tanh(y)
    return y


def stretches(machine):
    """Return the stretches that the networks of a machine may walk."""
    tasks = [task for one in machine._networks() for task in one.tasks]
    return [part.stretch for task in tasks for part in task.program.parts if part.stretch]


@tabled
@pytest.mark.parametrize("dim", [64, "n"])
def test_actors_have_tables_after_some_runs_with_the_same_bits(dim):
    y = chain(dim)
    feeds = {"x": np.linspace(-1, 1, 4096).reshape(64, 64)}
    with ag.LispMachine([y]) as lisp:
        wanted = lisp.run_sync(feeds)[y].value.tobytes()
    found = []
    with ag.ActorMachine([y], fuse=halves, native=True) as machine:
        for _ in range(CALLS_TILL_ROWS + 2):
            assert machine.run_sync(feeds)[y].value.tobytes() == wanted
            found.append(len(stretches(machine)))
        written = threading.Event()
        BACKGROUND.submit(written.set)
        assert written.wait(60)
        assert [one.covered > 0 for one in stretches(machine)] == [True, True]
        assert len(machine._networks()) == 1
    assert found == [0] * CALLS_TILL_ROWS + [2, 2]


@tabled
def test_firings_are_counted_on_when_actors_get_tables():
    with ag.ActorMachine([chain(64)], fuse=halves, native=True) as machine:
        for _ in range(CALLS_TILL_ROWS + 5):
            machine.run_sync({"x": np.ones((64, 64))})
        [one] = machine._networks()
        assert stretches(machine)
        assert all(task.turns > CALLS_TILL_ROWS for task in one.tasks)


@tabled
def test_nothing_is_asked_of_tables_for_tasks_of_few_steps(monkeypatch):
    asked = []
    monkeypatch.setattr(Plan, "tabling", lambda *given: asked.append(given))
    with ag.ActorMachine([chain(64)], fuse="none", native="wait") as machine:
        machine.start({"x": np.ones((64, 64))}).result()
    assert not asked


@tabled
def test_functions_of_many_steps_have_tables_after_some_runs_with_the_same_bits():
    y = x = ag.Graph("many").input("x", shape=(4,), dtype="float64")
    for number in range(400):
        y = np.tanh(y) + x * number
    feeds, found = {"x": np.linspace(-1, 1, 4)}, []
    with ag.LispMachine([y]) as lisp, ag.TapeMachine([y], native=True) as machine:
        wanted = lisp.run_sync(feeds)[y].value.tobytes()
        for _ in range(CALLS_TILL_ROWS + 2):
            assert machine.run_sync(feeds)[y].value.tobytes() == wanted
            [plan] = machine._plans.values()
            program = plan.inline.program  # None between the one without tables and the one with
            found.append(program and [one.stretch is not None for one in program.parts])
        written = threading.Event()
        BACKGROUND.submit(written.set)
        assert written.wait(60)
        assert machine.run_sync(feeds)[y].value.tobytes() == wanted
        assert all(part.is_walked for part in program.parts)
    assert not any(any(one) for one in found[: CALLS_TILL_ROWS - 1])
    assert found[-3:] == [None, [True], [True]]


@tabled
def test_nothing_is_walked_where_structs_are_not_as_expected(monkeypatch):
    monkeypatch.setattr(native, "RUNTIME", native.Runtime())
    monkeypatch.setattr(native, "expected", lambda: native.DIFFERENT)
    y, feeds = chain(64), {"x": np.linspace(-1, 1, 4096).reshape(64, 64)}
    with ag.LispMachine([y]) as lisp, ag.TapeMachine([y], native="wait") as machine:
        wanted = lisp.run_sync(feeds)[y].value.tobytes()
        for _ in range(3):
            assert machine.run_sync(feeds)[y].value.tobytes() == wanted
        [plan] = machine._plans.values()
        assert [part.stretch.covered for part in plan.inline.program.parts] == [0]
    assert native.RUNTIME.reason == native.DIFFERENT


def test_large_networks_are_made_once(monkeypatch):
    monkeypatch.setattr(network, "_MOST_PLAIN", 39)
    with ag.ActorMachine([chain(64)], fuse=halves, native=True) as machine:
        machine.run_sync({"x": np.ones((64, 64))})
        assert len(stretches(machine)) == (2 if native.expected() is None else 0)


@pytest.mark.parametrize("native", [False, True])
def test_many_steps_of_a_direct_run_are_in_parts_beside_tables_too(native):
    y = ag.Graph("irregular").input("x", shape=(4,), dtype="float64")
    for number in range(600):
        y = np.tanh(y) if number % 12 else np.cumsum(y)  # which has no row
    with ag.TapeMachine([y], native=native) as machine, ag.LispMachine([y]) as lisp:
        for _ in range(3):
            feeds = {"x": np.linspace(-1, 1, 4)}
            got, wanted = machine.run_sync(feeds)[y].value, lisp.run_sync(feeds)[y].value
            assert got.tobytes() == wanted.tobytes()
        [plan] = machine._plans.values()
        program = plan.inline.program
        assert program.parts
        assert all(isinstance(one, Subprogram) for one in program.items)


def test_direct_runs_with_ops_of_users_are_in_one_piece_as_these_need_the_callers_context():
    double = ag.ops.define("doubled", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x * 2)
    y = ag.Graph("users").input("x", shape=(4,), dtype="float64")
    for _ in range(FEWEST):
        y = np.tanh(double(y))
    with ag.TapeMachine([y], native=False) as machine, ag.LispMachine([y]) as lisp:
        feeds = {"x": np.linspace(-1, 1, 4)}
        got, wanted = machine.run_sync(feeds)[y].value, lisp.run_sync(feeds)[y].value
        assert got.tobytes() == wanted.tobytes()
        [plan] = machine._plans.values()
        assert plan.inline.program is None or not plan.inline.program.parts
