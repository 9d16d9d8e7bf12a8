"""Which network a run gets, what networks share, and which ones a machine drops."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.program import CALLS_TILL_ROWS
from actorgraph.machines.compiled import Compiled
from actorgraph.machines.network import Networks
from actorgraph.memory import packing


def run(network, plan=None):
    return SimpleNamespace(network=network, plan=plan)


def networks_of(*plans):
    """Return networks of three workers' machine, one for each of these plans."""
    found = Networks(SimpleNamespace(workers=3))
    found.update(enumerate(SimpleNamespace(plan=plan, replica=0) for plan in plans))
    return found


def test_what_a_run_uses_is_not_dropped_and_all_others_are():
    networks = networks_of("a", "b", "a", "c")
    networks.drop_idle([run(networks[2]), run(networks[3])])
    assert [*networks] == [2, 3]


def test_networks_of_a_plan_that_was_replaced_are_dropped_and_no_others():
    networks = networks_of("old", "new", "old")
    networks.drop_idle([run(networks[0])], plan="old")
    assert [*networks] == [0, 1]


def test_runs_of_a_sequence_go_to_the_replica_that_fewest_of_them_use():
    first, second, third = [SimpleNamespace(replica=number) for number in range(3)]
    networks, runs = networks_of(), []
    for expected, network in ((0, first), (1, second), (2, third), (0, first), (1, third)):
        assert networks._least_used("plan", runs) == expected
        runs += [run(network, "plan"), run(second, "another")]
    assert networks._least_used("plan", runs) == 1


def test_steps_share_a_kernel_where_op_types_and_attributes_have_equal_bits(monkeypatch):
    made, own = [], Compiled.kernel

    def noted(self, node, *how):
        made.append(node.op.name)
        return own(self, node, *how)

    monkeypatch.setattr(Compiled, "kernel", noted)
    g = ag.Graph()
    inputs = [g.input(f"x{i}", (2, 3), "float64") for i in range(8)]
    ends = [ag.ops.leaky_relu(x, (0.0, -0.0)[i % 2]).transpose() for i, x in enumerate(inputs)]
    with ag.ActorMachine(ends, fuse="none", workers=2) as machine:
        # With a deadline a run goes through the network, however short it is.
        run = machine.run_sync(dict.fromkeys(inputs, np.full((2, 3), -1.0)), timeout_s=60)
    assert [np.signbit(run[end].value).all() for end in ends] == [True, False] * 4
    assert sorted(made) == ["leaky_relu", "leaky_relu", "transpose"]


@pytest.fixture
def machine():
    y = ag.Graph().input("x", (4, 4))
    for _ in range(300):
        y = ag.ops.tanh(y)
    with ag.ActorMachine([y], workers=2, native=True) as made:
        yield made


def taken(machine, *others):
    """Return a run, not started, with the network that it gets beside others."""
    found = machine._prepare({"x": np.ones((4, 4), "float32")}, False, None, 0, None, host=None)
    found.network = found.core.networks.of(found, others)
    return found


def programs(network):
    return [task.program for task in network.tasks]


def test_networks_of_one_plan_share_their_programs_and_so_their_tables(machine):
    first = taken(machine)
    second = taken(machine, first)
    assert second.network is not first.network
    assert programs(second.network) == programs(first.network)


def test_a_network_with_tables_shares_programs_with_others_that_have_tables_only(machine):
    first = taken(machine)
    second = taken(machine, first)
    plain = first.network
    plain.runs = second.network.runs = CALLS_TILL_ROWS
    first = taken(machine)
    assert first.network is not plain
    assert programs(first.network)[0] is not programs(plain)[0]
    replaced = second.network
    second = taken(machine, first)
    assert second.network is not replaced
    assert programs(second.network) == programs(first.network)
    assert not second.network.is_plain


def test_a_network_begins_with_tables_where_others_of_its_plan_have_them(machine):
    plain = taken(machine)
    plain.network.runs = CALLS_TILL_ROWS
    first = taken(machine)
    second = taken(machine, first)
    assert not second.network.is_plain
    assert programs(second.network) == programs(first.network)


def test_networks_under_different_errstates_share_nothing(machine):
    first = taken(machine)
    second = machine._prepare({"x": np.ones((4, 4), "float32")}, False, None, 0, None, host=None)
    second.errors = {"over": "raise"}
    second.network = second.core.networks.of(second, [])
    assert programs(second.network)[0] is not programs(first.network)[0]


def test_a_program_does_not_keep_the_network_that_it_was_made_for(machine):
    first = taken(machine)
    second = taken(machine, first)
    gone = weakref.ref(first.network)
    second.core.networks.drop_idle([second])
    first.network.close()
    del first
    gc.collect()
    assert gone() is None


def test_where_steps_write_is_planned_once_for_all_networks_of_a_plan(machine, monkeypatch):
    first = taken(machine)
    first.network._adopt(first.binding, True)
    asked = []
    monkeypatch.setattr(packing, "assign", lambda *given: asked.append(given))
    second = taken(machine, first)
    second.network._adopt(second.binding, True)
    assert asked == []
