"""Ops whose cost nobody could predict: they run in no event loop, and runs can end between them."""

import threading
import time

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag

SLEEP_S = 0.1
calls = []
begun = threading.Event()


def sleeping(xp, x):
    calls.append(None)
    begun.set()
    time.sleep(SLEEP_S)
    return x + 1


sleepy = ag.ops.define(
    "sleepy", scheme="f[*s] -> f[*s]", forward=sleeping, vjp=(lambda ct, y, x: ct * 1,)
)
FEEDS = {"x": np.ones(2, "float32")}


def model():
    x = ag.Graph().input("x", ("n",))
    return x, sleepy(sleepy(sleepy(x))).sum()


async def longest_wait(machine, feeds, **options):
    """Return for how long a run kept the event loop from another task."""
    waits = [0.0]

    async def tick():
        while True:
            before = time.perf_counter()
            await anyio.lowlevel.checkpoint()
            waits.append(time.perf_counter() - before)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await anyio.lowlevel.checkpoint()
        await machine.run(feeds, **options)
        group.cancel_scope.cancel()
    return max(waits)


@pytest.mark.anyio
@pytest.mark.parametrize("machine_type", [ag.ActorMachine, ag.LispMachine, ag.TapeMachine])
async def test_a_users_op_of_unknown_cost_does_not_block_the_event_loop(
    machine_type, anyio_backend
):
    x, loss = model()
    async with machine_type([loss], wrt=[x]) as machine:
        assert await longest_wait(machine, FEEDS, backward=True) < 2 * SLEEP_S


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
        calls.clear()
        begun.clear()
        run = machine.start(FEEDS)
        assert begun.wait(20)
        run.cancel()
        with pytest.raises(ag.RunCancelled):
            run.result()
    assert len(calls) == 1
