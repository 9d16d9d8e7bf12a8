"""One suite for all devices, and the laws of machines on a device under the checker."""

from functools import partial

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.testing import DEVICE_LAWS, MACHINE_LAWS
from tests._soak import SOAK
from tests.pipeline._model import Model

MAKERS = {
    "cpu": lambda: "cpu",
    "virtual": lambda: "virtual:0",
    "checker": lambda: ag.devices.check("virtual:0"),
    "checker around the CPU": lambda: ag.devices.check("cpu"),
    "adversary": lambda: ag.devices.adversary("virtual:0", seed=3),
    "checker around an adversary": lambda: ag.devices.check(ag.devices.adversary("cpu", seed=5)),
    "cuda on the stand-in": lambda: "cuda:0",
}


@pytest.fixture
def world(world):
    yield world
    assert world.races == []
    assert world.on_null == 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("law", DEVICE_LAWS, ids=lambda law: law.__name__)
def test_law_of_devices(law, make, world):
    law(make)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_pipeline_with_a_stage_there_and_one_on_the_cpu_trains_as_on_the_cpu(make, world):
    found = []
    for placed in ([make(), "cpu"], ["cpu"]):
        model = Model()
        with model.pipeline(devices=placed, microbatches=3) as pipeline:
            step = pipeline.compile_step(ag.solvers.SGD(0.1, momentum=0.9))
            losses = [step(model.feeds)[model.loss].value for _ in range(2)]
            losses += [run[model.loss].value for run in pipeline.stream([model.feeds] * 3)]
        found.append([*losses, *[one.value for one in model.wrt]])
    for got, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, 1e-12)


KINDS = {"an actor a node": partial(ag.ActorMachine, lanes=3, fuse="none", workers=2)}
if SOAK:
    KINDS |= {
        "LispMachine": ag.LispMachine,
        "TapeMachine": ag.TapeMachine,
        "ActorMachine": partial(ag.ActorMachine, lanes=2),
    }
# What has been launched is done, also where its run is cancelled then.
NOT_AHEAD = {"neighbours_of_a_run_that_is_cancelled_have_the_right_bits"}
ON_DEVICES = [law for law in MACHINE_LAWS if law.__name__ not in NOT_AHEAD]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("law", ON_DEVICES, ids=lambda law: law.__name__)
def test_law_of_machines_on_a_device_under_the_checker(law, kind):
    checked = ag.devices.check("virtual:2")
    law(partial(kind, device=checked))
    assert checked.report() == []
