"""Buffers: leaves that runs read at their start and replace at their end."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import actorgraph as ag

MACHINES = [ag.LispMachine, ag.TapeMachine, ag.ActorMachine]


def counter():
    """x -> y = x + count;  count <- count + 1 in every run that computes y"""
    g = ag.Graph()
    x = g.input("x", shape=(), dtype="float64")
    count = g.buffer("count", np.array(0.0))
    y = x + count
    g.assign(count, count + 1.0, on=y)
    return g, x, count, y


def test_backward_runs_commit_too_and_buffers_are_no_parameters():
    g, x, count, y = counter()
    assert g.parameters == ()
    assert g.buffers == (count,)
    with ag.ActorMachine(y, wrt=[x]) as machine:
        assert machine.run_sync({"x": 1.0}, backward=True)[x].grad == 1.0
    assert count.value == 1.0


def test_overlapping_runs_commit_in_the_order_of_their_numbers():
    g = ag.Graph()
    x = g.input("x", shape=(), dtype="float64")
    gate = threading.Event()
    entered = threading.Event()

    def first_waits(xp, value):
        if value == 0:
            entered.set()
            assert gate.wait(20)
        return value + 0

    waits = ag.ops.define("buffers_wait", scheme="f[] -> f[]", forward=first_waits)
    quick = x + 0.0
    last = g.buffer("last", np.array(-1.0))
    y = waits(x)
    g.assign(last, quick, on=y)
    with ag.ActorMachine(y, fuse="none", workers=2, max_in_flight=4) as machine:
        slow = machine.start({"x": 0.0})
        assert entered.wait(20)
        later = machine.start({"x": 1.0})
        assert last.value == -1.0
        gate.set()
        later.result()
        slow.result()
    assert last.value == 1.0


def test_only_runs_that_assign_something_are_kept_until_it_is_their_turn():
    gate = threading.Event()

    def wait(xp, value):
        assert gate.wait(20)
        return value + 0

    waits = ag.ops.define("buffers_wait_alone", scheme="f[] -> f[]", forward=wait)
    x = ag.Graph().input("x", shape=(), dtype="float64")
    g = x.graph
    count = g.buffer("count", np.array(0.0))
    y, z = waits(x + count), waits(x * 2.0)
    g.assign(count, count + 1.0, on=y)
    for output, kept in ((y, 1), (z, 0)):
        gate.clear()
        with ag.ActorMachine(output, fuse="none", workers=2) as machine:
            run = machine.start({"x": 0.0})
            assert len(machine._core.assigning) == kept
            gate.set()
            run.result()
            assert not machine._core.assigning


def test_a_clone_assigns_its_own_buffer():
    g, _, count, y = counter()
    copy = g.clone()
    with ag.TapeMachine(copy.node(y.name)) as machine:
        machine.run_sync({"x": 0.0})
    assert count.value == 0.0
    assert copy.buffers[0].value == 1.0


def test_assigning_what_does_not_fit_is_refused():
    g, x, count, y = counter()
    w = g.parameter("w", np.zeros(2))
    with pytest.raises(ag.GraphTypeError, match="only buffers and parameters are assigned"):
        g.assign(x, y, on=y)
    with pytest.raises(ag.GraphTypeError, match=r"'count' is float64.*astype\('float64'\)"):
        g.assign(count, x.astype("float32"), on=y)
    with pytest.raises(ag.ShapeError, match="cannot take the shape of"):
        g.assign(count, w * 1.0, on=y)
