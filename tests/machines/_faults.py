"""Ops that do on command what ops must not do, and a graph to inject them into."""

import numpy as np

import actorgraph as ag
from actorgraph.testing._gate import OpGate

COSTLY = 1e9
"""Flops that make the scheduler offer an op to idle workers."""


class Trap:
    """What the ops of this module raise, and where."""

    def __init__(self):
        self.forward = None
        self.backward = None

    def spring(self, where):
        raised = getattr(self, where)
        if raised is not None:
            raise raised()


TRAP = Trap()


def _forward(xp, x):
    TRAP.spring("forward")
    return x


def _backward(xp, ct):
    TRAP.spring("backward")
    return ct


trap_backward = ag.ops.define("machines_trap_backward", scheme="f[*s] -> f[*s]", forward=_backward)
trap = ag.ops.define(
    "machines_trap",
    scheme="f[*s] -> f[*s]",
    forward=_forward,
    vjp=(lambda ct, y, x: trap_backward(ct),),
)


def traced_model(place=None):
    """Return a small network with fan-out; the node of number `place` has a trap behind it.

    x -> h = tanh(x @ W + b) -> h * sigmoid(h) -> sum -> loss, and h.sum(0) as second output.
    """
    count = 0

    def tap(node):
        nonlocal count
        count += 1
        return trap(node) if count - 1 == place else node

    rng = np.random.default_rng(0)
    graph = ag.Graph("model")
    x = tap(graph.input("x", ("n", 3), "float64"))
    w = tap(graph.parameter("W", rng.normal(size=(3, 4))))
    b = tap(graph.parameter("b", rng.normal(size=4)))
    product = tap(x @ w)
    h = tap(ag.ops.tanh(product + b))
    gate = tap(ag.ops.sigmoid(h))
    gated = tap(h * gate)
    loss = tap(gated.sum())
    side = tap(h.sum(axis=0))
    return graph, [loss, side]


PLACES = range(9)


def feeds(size=2):
    return {"x": np.random.default_rng(size).normal(size=(size, 3))}


def nobody_reads(variable):
    """Return whether no run, nor what one has returned, shows the array of a variable."""
    array = id(variable.held.array)
    variable.value  # noqa: B018 - switches to a copy where somebody does
    return id(variable.held.array) == array


_gates = [OpGate()]


def new_gate():
    """Return a fresh gate, which the op `gate` goes through from now on."""
    _gates[0] = OpGate()
    return _gates[0]


gate = ag.ops.define(
    "machines_gate",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: _gates[0](xp, x),
    vjp=(lambda ct, y, x: ct,),
    cost=lambda shapes, result, attrs: COSTLY,
)
