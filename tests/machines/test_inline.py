"""Functions of runs that their caller computes: for which sizes they are kept with their memory."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.machines.inline import _SMALL_BYTES, MEMORIES_KEPT

WIDTH = 1024
SMALL = _SMALL_BYTES // (WIDTH * 8)
"""Rows of the largest memory that is small."""


@pytest.fixture
def machine():
    x = ag.Graph().input("x", ("n", WIDTH), "float64")
    with ag.TapeMachine({"y": (np.tanh(x) * 2.0).sum()}, native=False) as machine:
        yield machine


def run(machine, rows):
    return machine.run_sync({"x": np.ones((rows, WIDTH))})["y"].value


def kept(machine):
    """Return how many functions are kept, by the number of rows."""
    [plan] = machine._plans.values()
    return {one.symbols["n"]: sum(map(len, one.direct.values())) for one in plan.bindings()}


@pytest.mark.usefixtures("values_share_memory")
def test_large_memory_is_kept_for_the_latest_sizes_and_small_memory_for_all(machine):
    sizes = [SMALL + more for more in range(MEMORIES_KEPT + 3)]
    for rows in sizes:
        run(machine, rows)
    small, first, second, *latest = sizes
    assert kept(machine) == {small: 1, first: 0, second: 0, **dict.fromkeys(latest, 1)}
    run(machine, first)
    assert kept(machine) == {small: 1, first: 1, second: 0, latest[0]: 0} | dict.fromkeys(
        latest[1:], 1
    )


@pytest.mark.usefixtures("values_share_memory")
def test_large_memory_is_given_up_where_there_is_none_and_made_again_for_the_next_run(machine):
    before = run(machine, SMALL + 1)
    run(machine, SMALL)
    [plan] = machine._plans.values()
    plan.inline.give_up_memory()
    assert kept(machine) == {SMALL + 1: 0, SMALL: 1}
    assert run(machine, SMALL + 1) == before
    assert kept(machine) == {SMALL + 1: 1, SMALL: 1}
