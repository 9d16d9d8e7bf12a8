"""Cuts: where nodes run, and never what they compute."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import DeadlockError, GraphError
from actorgraph.lower.cuts import sequential
from actorgraph.lower.fusion import gains, may_gain
from actorgraph.lower.rates import Rates
from actorgraph.lower.regions import TaskSpec, by_region
from actorgraph.machines import partition
from actorgraph.machines.actor import CUTS
from actorgraph.testing._examples import results

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def contributed():
    """Return what the page on adding a machine defines."""
    section = CONTRIBUTING.read_text().partition("## Adding a machine")[2].partition("\n## ")[0]
    found = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], found)
    return found


@pytest.fixture
def net():
    g = ag.Graph()
    x = g.input("x", ("n", 4), "float64")
    rng = np.random.default_rng(0)
    h = x
    for number in range(4):
        h = np.tanh(h @ g.parameter(f"W{number}", rng.normal(size=(4, 4))))
    return (h * h).sum()


def run(machine):
    with machine:
        ended = machine.run_sync({"x": np.ones((3, 4))}, backward=True)
        return results(ended, [*machine.outputs.values(), *machine.wrt]), machine


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cut_of_ones_own_has_the_bits_of_every_other(net, workers):
    halves = contributed()["halves"]
    found, machine = run(ag.ActorMachine([net], fuse=halves, workers=workers, seed=1))
    assert found == run(ag.LispMachine([net]))[0]
    assert "Two regions of about the same cost" in machine.explain()
    [plan] = machine._plans.values()
    assert len({spec.region.index for spec in plan.partition.tasks}) == 2


def test_a_machine_of_ones_own_is_written_as_contributing_says(net):
    found, _ = run(contributed()["HalvesMachine"]([net], seed=1))
    assert found == run(ag.LispMachine([net]))[0]


def test_a_cut_may_be_an_object_that_has_no_hash(net):
    @dataclass
    class Limited:
        limit: int

        def __call__(self, joint, costs):
            owners = joint.owners
            parts = range(0, len(owners), self.limit)
            return by_region(joint, [[*owners[begin : begin + self.limit]] for begin in parts])

    found, _ = run(ag.ActorMachine([net], fuse=Limited(3), seed=1))
    assert found == run(ag.LispMachine([net]))[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda steps: steps[1:], "each of the .* nodes"),
        (lambda steps: [*steps, steps[0]], "each of the .* nodes"),
        (lambda steps: steps[::-1], "must keep joint.order"),
    ],
    ids=["a node lost", "a node twice", "the order turned"],
)
def test_a_machine_whose_tasks_are_not_the_graph_is_refused(net, change, why):
    class Faulty(ag.Machine):
        def _cut(self):
            def faulty(joint, costs):
                [spec, *others] = sequential(joint, costs)
                return [TaskSpec(0, spec.region, "forward", change(spec.steps)), *others]

            return faulty

    with Faulty([net]) as machine, pytest.raises(GraphError, match=f"the cut 'faulty' .*{why}"):
        machine.run_sync({"x": np.ones((3, 4))})


def test_views_are_no_work_for_another_worker():
    x = ag.Graph().input("x", (2000, 4), "float32")
    loss = ag.ops.stack([np.tanh(x[place]) for place in range(2000)]).sum()
    with ag.ActorMachine([loss], workers=2, native=True) as machine:
        machine.run_sync({"x": np.ones((2000, 4), "float32")})
        [plan] = machine._plans.values()
    assert "us and more make up only" in plan.sequential


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_of_the_library_is_the_same_by_its_name_and_as_it_is(net, name):
    """One actor a node stays so, though the run is short; what is cut by cost is weighed."""
    (found, one), (other, two) = [
        run(ag.ActorMachine([net], fuse=cut, workers=2)) for cut in (name, CUTS[name])
    ]
    assert found == other
    cuts = [[(plan.cut, plan.weighs) for plan in machine._plans.values()] for machine in (one, two)]
    assert cuts[0] == cuts[1] == [(CUTS[name], name == "auto")]
    assert one._actors_only == two._actors_only == (name == "none")


def test_a_sequence_is_computed_by_its_caller_whatever_fuse_says(net):
    _, machine = run(ag.TapeMachine([net], fuse="none"))
    assert "in the calling thread" in machine.explain()


def lost(joint, costs):
    return by_region(joint, [list(joint.owners)])[:1]


def incomplete(joint, costs):
    return by_region(joint, [list(joint.owners)[:-1]])


def doubled(joint, costs):
    [task, *others] = by_region(joint, [list(joint.owners)])
    task.steps = task.steps + task.steps[:1]
    return [task, *others]


def displaced(joint, costs):
    [task, *others] = by_region(joint, [list(joint.owners)])
    task.steps = task.steps[::-1]
    return [task, *others]


def failing(joint, costs):
    raise ValueError("no idea")


def of_another_kind(joint, costs):
    return "tasks"


@pytest.mark.parametrize(
    ("cut", "text"),
    [
        (failing, "the cut 'failing' failed: ValueError: no idea"),
        (of_another_kind, "the cut 'of_another_kind' must return a list of tasks, got 'tasks'"),
        (lost, "the cut 'lost' must put each of the .* nodes of joint.order into one task"),
        (
            incomplete,
            "'incomplete' failed: GraphError: the groups leave out <.*; put each node",
        ),
        (doubled, "the cut 'doubled' must put each of the"),
        (displaced, "in a task, the cut 'displaced' must keep joint.order"),
    ],
)
def test_a_cut_that_fails_or_loses_doubles_or_displaces_a_node_is_refused(net, cut, text):
    machine = ag.ActorMachine([net], fuse=cut, seed=1)
    with machine, pytest.raises(GraphError, match=text):
        machine.run_sync({"x": np.ones((3, 4))}, backward=True)


def odd_and_even(joint, costs):
    return by_region(joint, [list(joint.owners[::2]), list(joint.owners[1::2])])


def test_a_cut_whose_tasks_wait_for_each_other_is_refused_with_their_names(net):
    machine = ag.ActorMachine([net], fuse=odd_and_even, seed=1)
    with machine, pytest.raises(DeadlockError, match="tasks wait for each other: .* waits for "):
        machine.run_sync({"x": np.ones((3, 4))})


@pytest.mark.parametrize("fuse", ["some", 3, None, b"auto"])
def test_what_is_neither_a_known_word_nor_a_function_is_no_cut(net, fuse):
    with pytest.raises(ValueError, match="fuse must be one of 'none', 'auto', 'all'"):
        ag.ActorMachine([net], fuse=fuse)


def test_what_may_not_gain_by_its_turns_alone_does_not_gain():
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(200):
        count, workers = int(rng.integers(1, 40)), int(rng.integers(2, 5))
        before = [[j for j in range(i) if rng.random() < 0.1] for i in range(count)]
        costs = list(rng.exponential(rng.choice([0.1, 3.0, 30.0]), count))
        if not may_gain(count, workers, sum(costs)):
            refused += 1
            assert not gains(before, costs, workers, sum(costs))
    assert 20 < refused < 180


def test_steps_that_a_table_saves_the_calls_of_are_not_weighed_with_them(monkeypatch):
    """Branches of steps of 0.3 us and less: 6 us a branch are not worth a turn.

    Tasks that clearly gain nothing are not connected, which would take as long as differentiating.
    """
    pytest.importorskip("llvmlite")
    x = ag.Graph().input("x", (8,), dtype="float64")
    ends = []
    for branch in range(40):
        value = x * (1.0 + branch)
        for _ in range(20):
            value = ag.ops.tanh(value) + 1.0
        ends.append(value)
    loss = ag.ops.stack(ends).sum()
    rates = Rates(call_us=0.5, transcendental_flops_per_us=300.0)
    monkeypatch.setattr("actorgraph.machines.partition.rates", lambda: rates)
    monkeypatch.setattr("actorgraph.lower.cost.rates", lambda: rates)
    connect, connected = partition._connected, []
    monkeypatch.setattr(
        partition, "_connected", lambda *given: connected.append(given[1]) or connect(*given)
    )
    with ag.ActorMachine([loss], workers=2) as machine:
        machine.start({"x": np.ones(8)}).result()
        assert "2 workers would end hardly sooner than one" in machine.explain()
    assert len(connected) == 1
