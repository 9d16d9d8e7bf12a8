"""What the tests of control flow share: one question to all machines."""

from functools import partial
from unittest import mock

import numpy as np

import actorgraph as ag
from actorgraph.devices import native
from actorgraph.lower import loop_table

MACHINES = (ag.LispMachine, ag.TapeMachine, ag.ActorMachine)
WALKING = (partial(ag.TapeMachine, native="wait"),) if native.expected() is None else ()
"""Machines that walk the bodies of loops as tables."""
ON_DEVICES = (
    partial(ag.ActorMachine, device="virtual:0", lanes=2),
    partial(ag.TapeMachine, devices=["virtual:0", "virtual:1"]),
)
"""Machines that compute on devices what is no branch and no loop."""


def on_every_machine(outputs, feeds, times=1, **how):
    """Return what the last run gives, after all machines have given the bits of `LispMachine`."""
    run_options = {key: how.pop(key) for key in ("backward", "tangents") if key in how}
    found = []
    for machine in (*MACHINES, *WALKING, *ON_DEVICES):
        with machine(outputs, **how) as made, mock.patch.object(loop_table, "FEWEST", 1):
            for _ in range(times):
                run = made.run_sync(feeds, **run_options)
            nodes = [*made.outputs.values(), *made.wrt]
            duals = [run[node] for node in nodes]
            values = [
                array
                for dual in duals
                for array in (dual.value, dual.grad, dual.tangent)
                if array is not None
            ]
        found.append([np.asarray(value) for value in values])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert one.dtype == two.dtype
            assert one.shape == two.shape
            assert one.tobytes() == two.tobytes()
    return found[0]


def values(outputs, feeds):
    """Return the values of the outputs, equal on all machines."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return on_every_machine(outputs, feeds, wrt=[])


def derivatives(outputs, feeds, wrt, tangents):
    """Return values, gradients of the first output, and tangents, equal on all machines."""
    count = len(outputs)
    back = on_every_machine(outputs, feeds, wrt=wrt, backward={outputs[0]: 1.0})
    ahead = on_every_machine(outputs, feeds, wrt=wrt, tangents=tangents)
    return back[:count], back[count + 1 :: 2], ahead[1 : 2 * count : 2]
