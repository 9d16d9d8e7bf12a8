"""Defects of the systems that this one grows out of, each of which must not come back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import actorgraph as ag

MACHINES = [ag.LispMachine, ag.TapeMachine, ag.ActorMachine]
every_machine = pytest.mark.parametrize("machine_type", MACHINES)


@every_machine
def test_known_defect_registers_overwrite_intermediates_that_a_user_still_reads(machine_type):
    """x -> a -> b -> c, all of them outputs; a later run must not change an earlier result"""
    g = ag.Graph()
    x = g.input("x", shape=(8,), dtype="float64")
    a = ag.ops.exp(x)
    b = -a
    c = b * 2.0
    value = np.linspace(0, 1, 8)
    with machine_type([a, b, c]) as machine:
        first = machine.run_sync({"x": value})
        machine.run_sync({"x": value + 1})
    np.testing.assert_array_equal(first[a].value, np.exp(value))
    np.testing.assert_array_equal(first[b].value, -np.exp(value))
    np.testing.assert_array_equal(first[c].value, -np.exp(value) * 2)


@every_machine
def test_known_defect_gradients_accumulate_from_run_to_run(machine_type):
    g = ag.Graph()
    w = g.parameter("w", np.array([1.0, 2.0]))
    loss = (w * w).sum()
    with machine_type(loss) as machine:
        grads = [machine.run_sync(backward=True)[w].grad for _ in range(3)]
    for grad in grads:
        np.testing.assert_array_equal(grad, [2.0, 4.0])


def test_known_defect_equality_of_nodes_trusts_a_hash_and_forgets_the_inputs():
    g = ag.Graph()
    nodes = [g.input(f"x{i}", shape=(), dtype="float64") for i in range(300)]
    sums = [one + other for one, other in pairwise(nodes)]
    assert len({node.id for node in sums}) == len(sums)
    assert sums[0] is nodes[0] + nodes[1]
