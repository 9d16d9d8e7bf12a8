"""An op that blocks in the middle of a run until a law lets it go on."""

from __future__ import annotations

import threading
from typing import Any, final

import numpy as np

from actorgraph import ops
from actorgraph.graph import Graph
from actorgraph.node import Node
from actorgraph.op import Op
from actorgraph.testing._laws import claim

_PATIENCE_S = 20.0


@final
class OpGate:
    """The forward of an op, which signals that it was entered, and waits to be let on."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.inside = self.most_inside = self.calls = 0

    def __call__(self, xp: Any, x: Any) -> Any:
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        self.entered.release()
        claim(self.leave.acquire(timeout=_PATIENCE_S), "nobody opened the gate")
        with self.lock:
            self.inside -= 1
        return x + 1

    def wait_entered(self) -> None:
        """Wait until one more call is inside."""
        claim(self.entered.acquire(timeout=_PATIENCE_S), "nobody came to the gate")

    def open(self, times: int = 1) -> None:
        """Let so many calls go on."""
        self.leave.release(times)


def gated(gate: OpGate) -> Node:
    """Return the node of ``gate(tanh(x)) * 2``."""
    graph = Graph()
    x = graph.input("x", (2,), "float64")
    op = Op("testing_gate", "f[*s] -> f[*s]", gate, checked=True)
    return graph.apply(op, [ops.tanh(x)], {}) * 2.0


def beyond(value: float) -> Any:
    """Return the result of `gated` for two entries of a value."""
    return (np.tanh(np.full(2, value)) + 1) * 2
