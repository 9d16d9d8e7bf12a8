"""What every machine must do: the laws of `actorgraph.testing`.  A new machine needs a row here."""

from functools import partial

import pytest

import actorgraph as ag
from actorgraph.testing import MACHINE_LAWS

MACHINES = {
    "lisp": ag.LispMachine,
    "tape": ag.TapeMachine,
    "actor": ag.ActorMachine,
    "one worker": partial(ag.ActorMachine, workers=1, fuse="none"),
    "three workers": partial(ag.ActorMachine, workers=3, fuse="none", seed=5, capacity=1),
    "fused": partial(ag.ActorMachine, workers=2, fuse="all"),
}


@pytest.mark.parametrize("law", MACHINE_LAWS)
@pytest.mark.parametrize("make", MACHINES.values(), ids=MACHINES.keys())
def test_every_machine_obeys_the_laws_of_machines(make, law):
    law(make)
