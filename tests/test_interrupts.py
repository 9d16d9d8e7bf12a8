"""Ctrl-C at any moment leaves all of a step or nothing, and everything else working."""

from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from tests._strikes import strikes

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1, "fuse": "none"}, id="actor per node"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
FEEDS = {"x": np.random.default_rng(0).normal(size=(3, 4))}


def model():
    graph = ag.Graph()
    x = graph.input("x", (3, 4), "float64")
    w = graph.parameter("w", np.linspace(-1, 1, 8).reshape(4, 2))
    b = graph.parameter("b", np.zeros(2))
    return (np.tanh(x @ w + b) ** 2).sum(), [w, b]


class Training:
    """A model, its solver, a weight of the user's own, and what a step of all of it is."""

    def __init__(self, machine_type, options, how):
        self.loss, self.weights = model()
        self.machine = machine_type([self.loss], **options)
        self.solver = ag.solvers.Adam(lr=0.1)
        self.own = SimpleNamespace(value=np.ones(3), grad=np.arange(3.0))
        if how == "compiled":
            step = self.machine.compile_step(self.solver)
            self.step = lambda: step(FEEDS)
        else:
            run = self.machine.run_sync(FEEDS, backward=True)
            self.step = lambda: self.solver.step([*map(run.__getitem__, self.weights), self.own])

    def everything(self):
        found = [node.value for node in self.weights] + [self.own.value]
        for slot in self.solver._slots.values():
            found += [slot.state.step, slot.state.mean, slot.state.variance]
        return [np.copy(one) for one in found]


def same(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@machines
@pytest.mark.parametrize("how", ["compiled", "by a solver"])
def test_a_step_is_made_for_everything_or_not_at_all(machine_type, options, how):
    struck, twin = (Training(machine_type, options, how) for _ in range(2))
    before = after = None

    def ready():
        nonlocal before, after
        struck.step()
        twin.step()
        before = twin.everything()
        assert same(struck.everything(), before)
        twin.step()
        after = twin.everything()

    halves = []
    for moment in strikes(struck.step, ready):
        now = struck.everything()
        if same(now, before):
            struck.step()
        elif not same(now, after):
            halves.append(moment)
            break
    assert not halves
    struck.machine.close()
    twin.machine.close()
