"""Runs that are one for whoever waits: admitted together, ended together, joined in order."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import NodeError, RunCancelled
from actorgraph.machines.group import grouped

KINDS = [ag.ActorMachine, ag.TapeMachine, ag.LispMachine]
SIZE = 300
"""Long enough that machines use actors."""


def _fail_at_one(xp, a):
    if a[0] == 1:
        raise ValueError("one")
    return a


fails_at_one = ag.ops.define("fails_at_one", scheme="x[*s] -> x[*s]", forward=_fail_at_one)


def model(size=SIZE):
    g = ag.Graph()
    x = g.input("x", (size,), "float64")
    w = g.parameter("w", np.ones(size))
    y = ag.ops.tanh(x * w).named("y")
    return g, x, w, y


def group_of(machine, batches):
    """Return a group of runs whose results are those of the parts, one above the other."""
    parts = [machine._prepare({"x": x}, False, None, 0, None, None) for x in batches]
    nodes = list(machine.outputs.values())

    def join(parts):
        values = {node: np.stack([part.duals[node].value for part in parts]) for node in nodes}
        return {node: ag.Dual(value, node=node) for node, value in values.items()}, []

    return grouped(parts[0].number, parts, join)


def started(machine, group):
    machine._launch(group, None)
    return group


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 12])
def test_parts_are_joined_in_their_order(kind, count):
    _, _, w, y = model()
    batches = [np.full(SIZE, number / 10) for number in range(count)]
    with kind([y], wrt=[w], workers=2, max_in_flight=4) as machine:
        runs = [started(machine, group_of(machine, batches)) for _ in range(3)]
        for run in runs:
            np.testing.assert_array_equal(run.result()[y].value, np.tanh(batches))
        assert not machine._core.admission.in_flight


def test_small_parts_run_in_the_calling_thread():
    _, _, w, y = model(4)
    with ag.ActorMachine([y], wrt=[w], workers=2) as machine:
        group = group_of(machine, [np.zeros(4), np.ones(4)])
        assert machine._small(group)
        assert group.core.run_directly(group)
        np.testing.assert_array_equal(group[y].value, np.tanh([np.zeros(4), np.ones(4)]))


def test_parts_read_parameters_at_one_moment():
    g = ag.Graph()
    x = g.input("x", (2,), "float64")
    w = g.parameter("w", np.ones(2))

    def forward(xp, a):
        if a[0] == 0:
            w.value = np.full(2, 5.0)
        return a

    op = ag.ops.define("sets_the_parameter", scheme="x[*s] -> x[*s]", forward=forward)
    y = op(x) + w
    with ag.ActorMachine([y], workers=1, max_in_flight=1) as machine:
        run = started(machine, group_of(machine, [np.zeros(2), np.ones(2)])).result()
        np.testing.assert_array_equal(run[y].value, [[1.0, 1.0], [2.0, 2.0]])
        assert machine.run_sync({"x": np.ones(2)})[y].value[0] == 6.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_fails_ends_the_group_and_nothing_else(kind):
    g = ag.Graph()
    x = g.input("x", (2,), "float64")
    y = fails_at_one(x)
    with kind([y], workers=2) as machine:
        before = started(machine, group_of(machine, [np.zeros(2)] * 2))
        run = started(machine, group_of(machine, [np.zeros(2), np.ones(2), np.zeros(2)]))
        after = started(machine, group_of(machine, [np.zeros(2)] * 2))
        with pytest.raises(NodeError, match="ValueError: one") as raised:
            run.result()
        assert "in part 1 of 3 of the batch" in raised.value.__notes__
        assert before.result()[y].value.shape == after.result()[y].value.shape == (2, 2)
        small = group_of(machine, [np.zeros(2), np.ones(2)])
        if machine._small(small):
            assert small.core.run_directly(small)
            with pytest.raises(NodeError, match="ValueError: one"):
                small.result()


def test_a_group_in_the_queue_is_cancelled_as_one():
    _, _, w, y = model()
    with ag.ActorMachine([y], wrt=[w], workers=1, max_in_flight=2) as machine:
        first, second = (group_of(machine, [np.zeros(SIZE)] * 2) for _ in range(2))
        core = first.core
        slot = core.scheduler.acquire()  # nobody can work
        machine._launch(first, None, slot)
        machine._launch(second, None, slot)
        assert len(core.admission.in_flight) == 2
        assert second.cancel()
        assert second.done
        core.help(first, slot)
        assert first.result()[y].value.shape == (2, SIZE)
        with pytest.raises(RunCancelled, match="run 2 was cancelled"):
            second.result()


@pytest.mark.parametrize("how", ["close", "cancel", "timeout"])
def test_a_group_in_flight_ends_as_one(how):
    _, _, w, y = model()
    with ag.ActorMachine([y], wrt=[w], workers=1) as machine:
        group = group_of(machine, [np.zeros(SIZE)] * 3)
        core = group.core
        slot = core.scheduler.acquire()
        machine._launch(group, 0 if how == "timeout" else None, slot)
        if how == "cancel":
            group.cancel()
        core.scheduler.free.append(slot)
        if how == "close":
            machine.close()
        error, text = {
            "close": (ag.errors.MachineClosedError, "machine was closed during run 0"),
            "cancel": (RunCancelled, "run 0 was cancelled"),
            "timeout": (TimeoutError, "run 0 did not end in time"),
        }[how]
        with pytest.raises(error, match=text):
            group.result()
        assert not core.admission.in_flight
