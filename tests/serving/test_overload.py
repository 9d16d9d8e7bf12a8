"""More requests than a model can serve, clients that leave a model of brief runs, and forks."""

import os
import random
import sys
from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.serving import Overloaded
from tests._soak import SOAK
from tests._until import until
from tests.serving._models import Asked, entered, outputs, rows

on_both_loops = pytest.mark.anyio
pytestmark = pytest.mark.timeout(600 if SOAK else 60)
ROUNDS, CLIENTS = (200, 500) if SOAK else (4, 60)


def doubled():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    return {"y": x * 2.0}


@on_both_loops
@pytest.mark.parametrize("config", [{}, {"max_batch_size": 2}])
async def test_three_times_too_many_are_refused_at_once_and_the_rest_is_served(gate, config):
    rows_a_run = config.get("max_batch_size", 1)
    async with ag.serving.Server() as server:
        model = server.add("double", outputs(), max_concurrent_batches=1, max_queued=4, **config)
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                asked = [Asked(tasks, partial(model.infer, rows(0)))]
                await entered(gate)
                asked += [Asked(tasks, partial(model.infer, rows(k))) for k in range(1, 15)]
                refused = 0
                while refused < 10:  # nobody has opened the gate: they wait for nothing
                    refused = sum(isinstance(one.error, Overloaded) for one in asked)
                    await anyio.lowlevel.checkpoint()
                assert (model.inflight, model.queued) == (1, 4)
                gate.open(1 + 4 // rows_a_run)
            for k, one in enumerate(asked):
                if one.error is None:
                    np.testing.assert_array_equal(one.result["y"], rows(2 * k + 1)["x"])
            await until(lambda: (model.inflight, model.queued) == (0, 0))
            while gate.entered.acquire(blocking=False):
                pass
    assert (model.counts["rejected"], model.counts["ok"]) == (30, 15)


@on_both_loops
async def test_a_burst_in_one_turn_of_the_loop_is_bounded_too():
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), max_concurrent_batches=1, max_queued=3)
        asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(50)]
        for one in asked:
            await one.done.wait()
    assert model.counts["ok"] + model.counts["rejected"] == 50
    assert model.counts["ok"] >= 4


@on_both_loops
@pytest.mark.parametrize("config", [{}, {"max_batch_size": 8}, {"in_place_s": 0.0}])
async def test_clients_of_brief_runs_that_leave_at_any_moment_harm_nobody(config):
    draw = random.Random(7)
    async with ag.serving.Server() as server:
        model = server.add("double", doubled(), max_queued=CLIENTS, **config)
        for _ in range(ROUNDS):
            async with anyio.create_task_group() as tasks:
                asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(CLIENTS)]
                for one in draw.sample(asked, CLIENTS // 2):
                    for _ in range(draw.randrange(3)):
                        await anyio.lowlevel.checkpoint()
                    one.scope.cancel()
            for k, one in enumerate(asked):
                assert one.error is None
                if one.result is not None:
                    np.testing.assert_array_equal(one.result["y"], rows(2 * k)["x"])
                else:
                    assert one.scope.cancel_called
            await until(lambda: (model.inflight, model.queued) == (0, 0))
        np.testing.assert_array_equal((await model.infer(rows(3)))["y"], rows(6)["x"])


@on_both_loops
async def test_several_servers_of_a_process_end_one_by_one():
    async with ag.serving.Server() as first:
        one = first.add("double", doubled())
        async with ag.serving.Server() as second:
            other = second.add("double", doubled(), in_place_s=0.0)
            for model in (one, other):
                np.testing.assert_array_equal((await model.infer(rows(1)))["y"], rows(2)["x"])
        np.testing.assert_array_equal((await one.infer(rows(2)))["y"], rows(4)["x"])
        with pytest.raises(ag.serving.NotReady):
            await other.infer(rows(1))


def test_a_model_goes_from_loop_to_loop_and_forgets_those_that_ended():
    with ag.serving.Server() as server:
        model = server.add("double", doubled())
        for k in range(5):
            for backend in ("asyncio", "trio"):
                answer = anyio.run(model.infer, rows(k), backend=backend)
                np.testing.assert_array_equal(answer["y"], rows(2 * k)["x"])
        assert len(model._loops._known) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("config", [{}, {"in_place_s": 0.0}])
def test_a_forked_process_serves_by_itself(config):
    with ag.serving.Server() as server:
        model = server.add("double", doubled(), **config)
        model.infer_sync(rows(1))
        sys.stdout.flush()
        child = os.fork()
        if not child:
            status = 1
            try:
                answer = anyio.run(model.infer, rows(2))
                status = int(not np.array_equal(answer["y"], rows(4)["x"]))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        np.testing.assert_array_equal(model.infer_sync(rows(3))["y"], rows(6)["x"])
