"""`LispMachine`, the reference: what it watches and what it logs."""

import inspect

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each

MACHINES = [ag.LispMachine, ag.TapeMachine, ag.ActorMachine]
machines = pytest.mark.parametrize("machine_type", MACHINES)


def model():
    graph = ag.Graph()
    x = graph.input("x", (3,), "float64")
    w = graph.parameter("w", np.ones(3))
    logs = ag.ops.log(x * w).named("logs")
    return graph, x, logs, (logs * 2.0).sum().named("loss")


@machines
@each(
    "value, watch, found",
    [(-1.0, ("nan",), "NaN"), (0.0, ("inf",), "Inf"), (0.0, ("nan", "inf"), "Inf")],
)
def test_the_first_bad_node_is_named(machine_type, value, watch, found):
    _, _, _, loss = model()
    with machine_type([loss], watch=watch) as machine, np.errstate(all="ignore"):
        with pytest.raises(ag.NodeError, match=f"node 'logs' .*the result has {found}") as caught:
            machine.run_sync({"x": np.array([1.0, value, 2.0])})
        assert isinstance(caught.value.__cause__, FloatingPointError)
        assert caught.value.node == "logs"
        assert np.isfinite(machine.run_sync({"x": np.ones(3)})[loss].value)


@machines
def test_what_is_not_watched_passes(machine_type):
    _, _, _, loss = model()
    with machine_type([loss], watch=("nan",)) as machine, np.errstate(all="ignore"):
        assert machine.run_sync({"x": np.zeros(3)})[loss].value == -np.inf
    with machine_type([loss], watch="inf") as machine, np.errstate(all="ignore"):
        assert np.isnan(machine.run_sync({"x": -np.ones(3)})[loss].value)


@machines
def test_a_bad_gradient_is_named_after_the_forward_node(machine_type):
    x = ag.Graph().parameter("x", np.zeros(2))
    root = ag.ops.sqrt(x).named("root")
    with machine_type([root.sum()], watch=("nan", "inf")) as machine, np.errstate(all="ignore"):
        machine.run_sync()
        with pytest.raises(ag.NodeError, match="backward of node 'root'.*the result has") as caught:
            machine.run_sync(backward=True)
        assert (caught.value.node, caught.value.phase) == ("root", "backward")


def test_the_log_gets_every_node_in_order():
    graph, _, logs, loss = model()
    seen = []
    with ag.LispMachine([loss], log=lambda node, value: seen.append((node, value))) as machine:
        machine.run_sync({"x": np.ones(3)})
        computed = [node for node in graph.nodes if not node.is_leaf]
        assert [node.name for node, _ in seen] == [node.name for node in computed]
        assert all(node is other for (node, _), other in zip(seen, computed, strict=True))
        np.testing.assert_array_equal(dict(seen)[logs], 0)
        forward = len(seen)
        del seen[:]
        machine.run_sync({"x": np.ones(3)}, backward=True)
        assert len(seen) > forward
        owners = [node.owner.name for node, _ in seen[forward:]]
        assert set(owners) <= {node.name for node in graph.nodes}


def test_a_log_that_fails_is_a_node_error():
    _, _, _, loss = model()

    def log(node, value):
        raise ValueError("the disk is full")

    expectation = pytest.raises(ag.NodeError, match="the disk is full")
    with ag.LispMachine([loss], log=log) as machine, expectation:
        machine.run_sync({"x": np.ones(3)})


@pytest.mark.parametrize("machine_type", [ag.ActorMachine, ag.TapeMachine, ag.LispMachine])
def test_all_machines_tell_the_same_constructor(machine_type):
    own = dict(inspect.signature(machine_type).parameters)
    assert own.pop("log", None) is None or machine_type is ag.LispMachine
    assert own == dict(inspect.signature(ag.Machine).parameters)


@pytest.mark.parametrize("backward", [False, True])
def test_a_run_takes_one_turn_of_its_task_whatever_it_brings(backward):
    graph = ag.Graph()
    x, y = [graph.input(name, (3,), "float64") for name in "xy"]
    w = graph.parameter("w", np.ones(3))
    feeds = {"x": np.ones(3), "y": np.ones(3)}
    with ag.LispMachine([(x * w + y).sum()]) as machine:
        machine.run_sync(feeds, backward=backward)
        [network] = machine._core.networks.values()
        [task] = network.tasks
        send, turns = task.send, []
        task.send = lambda push: turns.append(push) or send(push)
        machine.run_sync(feeds, backward=backward)
        assert len(turns) == 1
        assert not machine._core.scheduler.any_ready()
