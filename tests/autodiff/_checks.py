"""A point, machines, and what tests of differentiation compare."""

import numpy as np
import pytest

import actorgraph as ag

X = np.array([0.5, -1.0, 2.0])

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none"}, id="actor per node"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all"}, id="one actor"),
    pytest.param(ag.ActorMachine, {"workers": 2, "capacity": 1, "seed": 3}, id="capacity 1"),
]
every_machine = pytest.mark.parametrize(("machine", "settings"), MACHINES)


def same_bits(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert got.tobytes() == wanted.tobytes()


def op_names(nodes):
    return [node.op.name for node in nodes]
