"""Models that ask other models: what ends a request ends what it has asked for."""

from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import NodeError
from actorgraph.serving import DeadlineExceeded
from tests._until import until
from tests.serving._http import Client, post, tensor
from tests.serving._models import (
    Asked,
    asking,
    entered,
    expected,
    new_gate,
    outputs,
    rows,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def models(gate):
    """Give an inner model of one run at once, and the outer one that asks it."""
    async with ag.serving.Server() as server:
        inner = server.add("double", outputs(), max_concurrent_batches=1, max_queued=1)
        yield inner, server.add("outer", asking(inner)), server


async def test_the_answer_of_an_ensemble_is_that_of_its_models(models, gate):
    gate.open()
    answer = await models[1].infer(rows(1, 2))
    np.testing.assert_array_equal(answer["y"], expected(1, 2))


async def test_a_cancelled_request_takes_what_it_has_asked_out_of_the_queue(models, gate):
    inner, outer, _ = models
    async with anyio.create_task_group() as tasks:
        running = Asked(tasks, partial(inner.infer, rows(1)))
        await entered(gate)
        waiting = Asked(tasks, partial(outer.infer, rows(2)))
        await until(lambda: inner.queued == 1)
        waiting.scope.cancel()
        await until(lambda: inner.queued == 0)
        assert inner.counts["cancelled"] == 1
        gate.open()
        np.testing.assert_array_equal(await running.answer(), expected(1))
    assert gate.calls == 1  # what was cancelled has not run
    await until(lambda: outer.inflight == 0)


async def test_a_deadline_ends_what_was_asked_too(models, gate):
    inner, outer, _ = models
    async with anyio.create_task_group() as tasks:
        running = Asked(tasks, partial(inner.infer, rows(1)))
        await entered(gate)
        with pytest.raises(DeadlineExceeded, match="it was running"):
            await outer.infer(rows(2), deadline_s=0.05)
        await until(lambda: inner.queued == 0)
        assert inner.counts["cancelled"] == 1
        gate.open()
        await running.answer()
    assert gate.calls == 1


async def test_an_overload_within_is_503_outside(models, gate):
    inner, _, server = models
    app = ag.serving.asgi(server)
    async with anyio.create_task_group() as tasks:
        both = [Asked(tasks, partial(inner.infer, rows(one))) for one in (1, 2)]
        await entered(gate)
        await until(lambda: inner.queued == 1)
        refused = await post({"inputs": [tensor(3)]}, path="/v2/models/outer/infer").asked(app)
        gate.open(2)
        for one in both:
            await one.answer()
    assert refused.status == 503
    assert refused.json["code"] == "OVERLOADED"
    assert refused.headers["retry-after"] == "1"


async def test_a_failure_within_names_the_node_that_failed(models):
    new_gate(bad=2.0).open()
    with pytest.raises(NodeError, match="serving_asks") as failed:
        await models[1].infer(rows(1))
    assert "a bad row" in str(failed.value.__cause__)


async def test_a_client_that_leaves_ends_what_was_asked_within(models, gate):
    inner, _, server = models
    app = ag.serving.asgi(server)
    client = post({"inputs": [tensor(2)]}, path="/v2/models/outer/infer")
    async with anyio.create_task_group() as tasks:
        running = Asked(tasks, partial(inner.infer, rows(1)))
        await entered(gate)
        tasks.start_soon(client.asked, app)
        await until(lambda: inner.queued == 1)
        client.leave()
        await until(lambda: inner.queued == 0)
        gate.open()
        await running.answer()
    assert client.sent == []
    assert (await Client("GET", "/readyz").asked(app)).status == 200
