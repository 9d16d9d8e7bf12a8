"""Ops whose cost nobody could predict: they run in no event loop, and runs can end between them."""

import threading

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from tests._until import until

calls = []
begun = threading.Event()
allowed = threading.Event()


def held(xp, x):
    calls.append(None)
    begun.set()
    assert allowed.wait(20), "nobody let the op go on"
    return x + 1


hold = ag.ops.define("hold", scheme="f[*s] -> f[*s]", forward=held, vjp=(lambda ct, y, x: ct * 1,))
FEEDS = {"x": np.ones(2, "float32")}


@pytest.fixture(autouse=True)
def _nobody_has_called_the_op():
    calls.clear()
    begun.clear()
    allowed.clear()


def model():
    x = ag.Graph().input("x", ("n",))
    return x, hold(hold(hold(x))).sum()


async def let_go_when_begun():
    await until(begun.is_set)
    allowed.set()


@pytest.mark.anyio
@pytest.mark.parametrize("machine_type", [ag.ActorMachine, ag.LispMachine, ag.TapeMachine])
async def test_a_users_op_of_unknown_cost_does_not_block_the_event_loop(
    machine_type, anyio_backend
):
    x, loss = model()
    async with machine_type([loss], wrt=[x]) as machine, anyio.create_task_group() as group:
        group.start_soon(let_go_when_begun)  # another task of the loop, while the op waits for it
        run = await machine.run(FEEDS, backward=True)
    assert run[loss].value == 8


@pytest.mark.anyio
async def test_dims_of_none_do_not_hide_how_much_was_fed(anyio_backend):
    x = ag.Graph().input("x", (None, 64))
    async with ag.ActorMachine([np.sin(x).sum()]) as machine:
        for rows, inside in ((4, True), (400, False)):
            run = machine._prepare(
                {"x": np.ones((rows, 64), "float32")}, False, None, 0, None, None
            )
            assert machine._small(run) is inside
            run = await machine.run({"x": np.ones((rows, 64), "float32")})


@pytest.mark.parametrize("machine_type", [ag.ActorMachine, ag.LispMachine])
def test_a_cancelled_run_starts_no_further_op_of_unknown_cost(machine_type):
    x, loss = model()
    with machine_type([loss], wrt=[x]) as machine:
        run = machine.start(FEEDS)
        assert begun.wait(20)
        run.cancel()
        allowed.set()
        with pytest.raises(ag.RunCancelled, match="run 0 was cancelled"):
            run.result()
    assert len(calls) == 1
