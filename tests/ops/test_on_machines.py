"""Every op on every machine: the bits of a sequential evaluation, forward and backward."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.machines import ActorMachine, LispMachine, TapeMachine
from tests._evaluate import evaluate
from tests.ops._laws import Case
from tests.ops.test_laws import LIBRARY

MACHINES = [
    pytest.param(LispMachine, {}, id="lisp"),
    pytest.param(TapeMachine, {}, id="tape"),
    pytest.param(ActorMachine, {"workers": 2, "fuse": "none"}, id="actor per node"),
    pytest.param(ActorMachine, {"workers": 1}, id="actor"),
]


def same_bits(got, wanted):
    wanted = np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
@pytest.mark.parametrize(("machine", "settings"), MACHINES)
def test_op_gives_the_same_bits_on_every_machine(op, machine, settings):
    for sample in op.samples:
        case = Case(op, sample)
        wrt, y = case.wrt, case.y
        ct, directions = case.random_like(y), {x: case.random_like(x) for x in wrt}
        wanted = evaluate(
            [
                y,
                *(ag.gradients([y], wrt, seeds=[ct]) if wrt else []),
                *(tangents([y], {x: case.graph.constant(v) for x, v in directions.items()})),
            ],
            case.feeds,
        )
        with machine([y], wrt=wrt, **settings) as running:
            plain = running.run_sync(case.feeds)
            same_bits(plain[y].value, wanted[0])
            if wrt:
                back = running.run_sync(case.feeds, backward={y: ct})
                for x, gradient in zip(wrt, wanted[1:], strict=False):
                    same_bits(back[x].grad, gradient)
                pushed = running.run_sync(case.feeds, tangents=directions)
                same_bits(pushed[y].tangent, wanted[-1])
