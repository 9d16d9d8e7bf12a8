"""What happens when an op fails in a body, or when nobody waits for a loop any more."""

import threading
from itertools import count

import numpy as np
import pytest

import actorgraph as ag
from tests.control._runs import MACHINES

NUMBERS = count()
"""Ops are declared by name once a process."""

on_machines = pytest.mark.parametrize("machine", MACHINES)


def refusing(xp, x, *, above):
    if float(x) > above:
        raise ValueError(f"too large: {float(x)}")
    return x + 1.0


REFUSING = ag.ops.define(
    "refusing_in_a_body",
    scheme="f[*s] -> f[*s]",
    forward=refusing,
    vjp=(lambda ct, y, x, above: REFUSING(ct * x, above=above),),
)


@on_machines
def test_an_error_names_the_iteration_and_the_node_in_the_body(g, machine):
    xs = g.input("xs", ("n",), "float64")
    _, ys = ag.scan(lambda c, x: (c, REFUSING(x * 1.0, above=5)), np.zeros(()), xs)
    with machine([ys]) as made, pytest.raises(ag.NodeError, match="in iteration 2 of") as caught:
        made.run_sync({"xs": np.array([1.0, 2.0, 7.0, 3.0])})
    error = caught.value
    assert error.iteration == (2,)
    assert error.op == "refusing_in_a_body"
    assert error.inputs == ("float64[]",)
    assert error.phase == "forward"
    assert __file__ in error.line
    assert isinstance(error.__cause__, ValueError)


@on_machines
def test_iterations_of_nested_loops_are_named_from_the_outermost(g, machine):
    xs = g.input("xs", (3, 4), "float64")
    p = g.input("p", (), "bool")

    def element(x):
        return ag.cond(p, lambda: REFUSING(x, above=5), lambda: x)

    ys = ag.map(lambda row: ag.map(element, row), xs)
    feed = np.arange(12.0).reshape(3, 4)
    with machine([ys]) as made:
        with pytest.raises(ag.NodeError) as caught:
            made.run_sync({"xs": feed, "p": True})
        assert made.run_sync({"xs": feed, "p": False})[ys].value[2, 3] == 11.0
    assert caught.value.iteration == (1, 2)
    assert "in iteration 1 of" in str(caught.value)
    assert "in iteration 2 of" in str(caught.value)


@on_machines
@pytest.mark.parametrize("save", ["all", "carry", 2])
def test_an_error_in_a_reversal_names_the_forward_iteration_and_node(g, machine, save):
    xs = g.input("xs", ("n",), "float64")
    last, _ = ag.scan(lambda c, x: (c * REFUSING(x, above=9), None), np.ones(()), xs, save=save)
    with machine([last], wrt=[xs]) as made, pytest.raises(ag.NodeError) as caught:
        # The cotangent is the product of the others times x: 2*3*4... exceeds 9 at the last first.
        made.run_sync({"xs": np.array([1.0, 2.0, 3.0, 4.0])}, backward=True)
    error = caught.value
    assert error.iteration == (3,)
    assert error.phase == "backward"
    assert error.op == "refusing_in_a_body"
    assert "derivative" in str(error)


def endless(g, seen):
    """Return a node that never ends by itself, and tells of its iterations."""

    def forward(xp, x):
        seen.set()
        return x + 0.0

    seen_op = ag.ops.define(
        f"seen_in_a_body_{next(NUMBERS)}", scheme="f[*s] -> f[*s]", forward=forward
    )
    x = g.input("x", (), "float64")
    return ag.while_loop(lambda c: c >= 0.0, lambda c: seen_op(c), x)


@on_machines
def test_a_loop_is_cancelled_between_iterations(g, machine):
    seen = threading.Event()
    y = endless(g, seen)
    with machine([y], wrt=[]) as made:
        run = made.start({"x": 1.0})
        assert seen.wait(20)
        run.cancel()
        with pytest.raises(ag.RunCancelled):
            run.result()
        assert made.run_sync({"x": -1.0})[y].value == -1.0


@on_machines
def test_a_deadline_ends_a_loop_between_iterations(g, machine):
    y = endless(g, threading.Event())
    with machine([y], wrt=[]) as made:
        with pytest.raises(TimeoutError):
            made.run_sync({"x": 1.0}, timeout_s=0.05)
        assert made.run_sync({"x": -1.0})[y].value == -1.0


@on_machines
def test_what_is_watched_is_watched_in_bodies(g, machine):
    x = g.input("x", (), "float64")
    y = ag.fori_loop(0, 4, lambda i, c: ag.ops.log(c), x)
    failing = pytest.raises(ag.NodeError, match="NaN")
    with machine([y], watch=("nan",)) as made, np.errstate(all="ignore"), failing as caught:
        made.run_sync({"x": 2.0})
    assert caught.value.iteration == (2,)


def meeting(parties):
    """Return an op that waits until so many of its calls are in flight, and notes the most."""
    barrier, inside, most = threading.Barrier(parties), [], []

    def forward(xp, x):
        inside.append(None)
        barrier.wait(20)
        most.append(len(inside))
        barrier.wait(20)
        inside.pop()
        if float(x) > 5:
            raise ValueError("too large")
        return x * 2

    name = f"meeting_in_a_body_{next(NUMBERS)}"
    return ag.ops.define(name, scheme="f[*s] -> f[*s]", forward=forward, cost=lambda *_: 1e9), most


def test_a_map_runs_on_all_workers_with_no_more_iterations_in_flight(g):
    op, most = meeting(3)
    xs = g.input("xs", (6,), "float64")
    ys = ag.map(lambda x: op(x), xs)
    with ag.ActorMachine([ys], wrt=[], workers=3) as machine:
        np.testing.assert_array_equal(
            machine.run_sync({"xs": np.ones(6)})[ys].value, np.full(6, 2.0)
        )
        assert set(most) == {3}
        with pytest.raises(ag.NodeError, match="in iteration 1 of") as caught:
            machine.run_sync({"xs": np.array([1.0, 7.0, 1.0, 1.0, 8.0, 9.0])})
    assert caught.value.iteration == (1,)
