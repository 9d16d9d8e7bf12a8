"""Many requests at once: bodies that nobody expects, and clients that leave in every state."""

import json
import os
import random
from collections import Counter
from copy import deepcopy

import anyio
import pytest

import actorgraph as ag
from tests._until import until
from tests.serving._http import Client, post, tensor
from tests.serving._models import entered, outputs, rows

SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"
pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(600 if SOAK else 60)]
FUZZED = 20_000 if SOAK else 400
STORMS, CLIENTS = (40, 50) if SOAK else (3, 20)

STRANGE = (
    None, True, -1, 0, 1 << 70, 1e308, 1e999, float("nan"), "", "FP64", "\ud800", [], [[]], {},
    [None], [1, [2]], [0] * 50, {"name": "x"}, "x" * 500, [True, 1.5], ["a", 1],
)  # fmt: skip


def places(value, path=()):
    """Yield the path of each part of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, part in items:
        yield from places(part, (*path, key))


def mutated(draw):
    """Return a body, and headers, of a request that is right but for some parts."""
    content = {
        "id": "r", "inputs": [tensor(1, 2)], "outputs": [{"name": "y", "parameters": {}}],
        "parameters": {"timeout": 10**7, "priority": 0, "binary_data_output": False},
    }  # fmt: skip
    for _ in range(draw.randint(0, 3)):
        *path, last = draw.choice([one for one in places(content) if one])
        part = content
        for key in path:
            part = part[key]
        if draw.random() < 0.2 and isinstance(part, dict):
            del part[last]
        else:
            part[last] = deepcopy(draw.choice(STRANGE))
    body = json.dumps(content).encode()
    headers = {}
    if draw.random() < 0.3:
        headers["inference-header-content-length"] = draw.choice(
            [len(body), len(body) - 8, 0, 10**6, -1, "9" * 30, "1e3", " "]
        )
    if draw.random() < 0.2:
        headers |= {f"x-{number}": "y" * 100 for number in range(2000)}
    if draw.random() < 0.3:  # bytes that were never JSON, or are cut off
        noise = bytearray(body)
        for _ in range(draw.randint(1, 4)):
            noise[draw.randrange(len(noise))] = draw.randrange(256)
        body = bytes(noise[: draw.randint(0, len(noise))])
    return body, headers


async def test_whatever_is_sent_is_answered_within_bounds_and_nobody_else_notices():
    draw = random.Random(7)
    x = ag.Graph().input("x", ("rows", 2), "float64")
    async with ag.serving.Server() as server:
        model = server.add("double", {"y": -x}, max_batch_size=4, max_request_bytes=10_000)
        app = ag.serving.asgi(server)
        statuses = Counter()
        for _ in range(FUZZED):
            body, headers = mutated(draw)
            word = draw.choice(["infer", "infer", "infer_stream"])
            asked = await post(body, path=f"/v2/models/double/{word}", headers=headers).asked(app)
            assert asked.status in (200, 400, 413, 501), (body, headers, asked.json)
            statuses[asked.status] += 1
            if asked.status != 200:
                assert asked.json["error"]
        assert set(statuses) >= {200, 400}
        assert model.counts == {
            "ok": statuses[200], "executions": statuses[200], "inferences": statuses[200],
            "error": FUZZED - statuses[200],
        }  # fmt: skip
        assert (model.inflight, model.queued) == (0, 0)
        assert (await model.infer(rows(3)))["y"][0, 0] == -3


async def test_clients_that_leave_in_every_state_leave_nothing_behind(gate):
    draw = random.Random(11)
    async with ag.serving.Server() as server:
        model = server.add(
            "double", outputs(), max_batch_size=4, max_queued=CLIENTS, request_timeout_s=600.0
        )
        app = ag.serving.asgi(server)
        for _ in range(STORMS):
            clients = [post({"inputs": [tensor(one)]}) for one in range(CLIENTS)]
            leaving = draw.sample(clients, CLIENTS // 2)
            async with anyio.create_task_group() as tasks:
                for client in clients:
                    tasks.start_soon(client.asked, app)
                await entered(gate)  # one batch runs, the others wait
                await until(lambda: model.queued + model.inflight == CLIENTS)
                for client in leaving:
                    client.leave()
                    if draw.random() < 0.3:
                        gate.open()
                gate.open(CLIENTS)
            for one, client in enumerate(clients):
                if client.sent:
                    assert client.json["outputs"][0]["data"][0] == 2 * one + 1
                else:
                    assert client in leaving
            await until(lambda: (model.inflight, model.queued) == (0, 0))
            while gate.leave.acquire(blocking=False):  # what nobody took
                pass
            while gate.entered.acquire(blocking=False):
                pass
        gate.open()
        assert (await model.infer(rows(3)))["y"][0, 0] == 7
        assert (await Client("GET", "/readyz").asked(app)).status == 200
