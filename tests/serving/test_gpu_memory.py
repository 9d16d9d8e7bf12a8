"""A GPU that has no memory for a run, as the stand-in for CuPy tells it."""

import anyio
import numpy as np
import pytest

import actorgraph as ag
from tests.devices.conftest import world
from tests.serving._http import post, tensor
from tests.serving._models import Asked, rows

__all__ = ["world"]
pytestmark = pytest.mark.anyio


async def test_a_gpu_without_memory_fails_one_request_and_neither_companions_nor_the_next(world):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    with ag.ActorMachine({"y": ag.ops.exp(x) + 1.0}, device="cuda:0") as machine:
        async with ag.serving.Server() as server:
            model = server.add("net", machine, max_batch_size=2, batch_wait_s=5.0)
            app = ag.serving.asgi(server)

            async def both():
                async with anyio.create_task_group() as tasks:
                    asked = [Asked(tasks, lambda k=k: model.infer(rows(k))) for k in (1, 2)]
                for k, one in zip((1, 2), asked, strict=True):
                    np.testing.assert_array_equal(await one.answer(), np.exp(rows(k)["x"]) + 1)

            await both()
            world.fails_at = world.allocations + 1
            runs = model.counts["executions"]
            await both()  # each is run again, alone
            assert model.counts["executions"] == runs + 3
            world.fails_at = world.allocations + 1
            two = {"inputs": [tensor(1, 2)]}  # a batch by itself
            failed = await post(two, path="/v2/models/net/infer").asked(app)
            assert (failed.status, failed.json["code"]) == (500, "NODE_ERROR")
            assert "Out of memory allocating" in failed.json["error"]
            await both()
            assert model.counts["error"] == 1
