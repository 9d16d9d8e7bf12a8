"""Graphs whose steps are compiled, and what is looked at."""

import numpy as np

import actorgraph as ag
from actorgraph import ops

RTOL = {np.dtype("float32"): 1e-6, np.dtype("float64"): 1e-13}


def near(got, wanted, scale=1.0):
    tolerance = RTOL[wanted.dtype] * scale
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * size)


def chain(dtype="float32", rows="n", columns=64):
    """Return a graph whose forward is one group: relu(x * w + b) - x / 4."""
    graph = ag.Graph()
    x = graph.input("x", (rows, columns), dtype)
    w = graph.parameter("w", np.linspace(-1, 1, columns).astype(dtype))
    b = graph.parameter("b", np.linspace(1, 2, columns).astype(dtype))
    return graph, x, ops.relu(x * w + b) - x * 0.25


def sample(rows=256, columns=64, dtype="float32"):
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(dtype)


def steps_of(machine):
    """Return the op names of all steps of the programs that have run."""
    found = []
    for plan in machine._plans.values():
        specs = [spec.steps for spec in plan.partition.tasks]
        specs = [plan.inline.steps] if plan.inline.program else specs
        found += [step.op.name for steps in specs for step in steps]
    return found
