"""Streams: a model whose answers are steps, each of which takes from the one before."""

from contextlib import aclosing
from functools import partial

import anyio
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from actorgraph.serving import DeadlineExceeded, InvalidInput, NotReady, Overloaded
from tests._until import until
from tests.serving._http import post, tensor
from tests.serving._models import entered, gated, new_gate, rows

pytestmark = pytest.mark.anyio


def counting():
    """Return a model that counts up by the gate's 1, and says when 5 is reached."""
    x = ag.Graph("counts").input("x", ("rows", 2), "float64")
    y = gated(x)
    return {"y": y, "ended": y.min(axis=1) >= 5.0}


def added(server, **options):
    options = {"feedback": {"y": "x"}, "until": "ended", "max_queued": 0} | options
    return server.add("counts", counting(), **options)


async def values(stream):
    async with aclosing(stream) as parts:
        return [part["y"][0, 0] async for part in parts]


@pytest.fixture
async def server(gate):
    async with ag.serving.Server() as made:
        yield made


async def test_each_step_takes_from_the_one_before_until_the_output_says_so(server, gate):
    gate.open(10)
    assert await values(added(server).stream(rows(2))) == [3, 4, 5]


@pytest.mark.parametrize(("asked", "steps"), [(2, 2), (9, 3), (None, 3)])
async def test_a_stream_has_at_most_its_steps(server, gate, asked, steps):
    gate.open(10)
    model = added(server, until=None, max_steps=3)
    assert len(await values(model.stream(rows(0), max_steps=asked))) == steps


async def test_a_model_without_feedback_has_one_step(server, gate):
    gate.open(10)
    assert await values(added(server, feedback=None).stream(rows(0))) == [1]


async def test_a_step_begins_when_it_is_asked_for(server, gate):
    gate.open(10)
    async with aclosing(added(server).stream(rows(0))) as parts:
        await anext(parts)
        assert gate.calls == 1
        await anext(parts)
        assert gate.calls == 2


async def test_who_leaves_a_stream_frees_its_slot_within_one_step(server, gate):
    model = added(server, max_inflight=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(values, model.stream(rows(0)))
        await entered(gate)
        gate.open()
        await entered(gate)
        tasks.cancel_scope.cancel()
    gate.open(10)
    await until(lambda: model.inflight == 0)
    assert gate.calls == 2
    assert await values(model.stream(rows(4))) == [5]


async def test_a_stream_too_many_is_refused_and_those_that_were_taken_go_on(server, gate):
    model = added(server, max_inflight=1)
    gate.open(10)
    async with aclosing(model.stream(rows(0))) as parts:
        await anext(parts)
        with pytest.raises(Overloaded, match="1 streams open"):
            await values(model.stream(rows(0)))
        assert (await anext(parts))["y"][0, 0] == 2
    assert await values(model.stream(rows(4))) == [5]


async def test_a_step_of_a_stream_is_not_refused_by_a_full_queue(server, gate):
    model = added(server, max_concurrent_batches=1)
    found = []
    gate.open()
    async with aclosing(model.stream(rows(3))) as parts:
        found.append((await anext(parts))["y"][0, 0])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.infer, rows(0))
            await entered(gate)
            await entered(gate)

            async def step():
                found.append((await anext(parts))["y"][0, 0])

            tasks.start_soon(step)
            await until(lambda: model.queued == 1)
            gate.open(2)
    assert found == [4, 5]


async def test_steps_of_several_streams_make_batches(server, gate):
    gate.open(100)
    model = added(server, max_batch_size=4, batch_wait_s=5.0, max_queued=4)
    found = {}

    async def read(first):
        found[first] = await values(model.stream(rows(first), max_steps=3))

    async with anyio.create_task_group() as tasks:
        for first in (-10, -20, -30, -40):
            tasks.start_soon(read, first)
    assert found == {first: [first + 1, first + 2, first + 3] for first in (-10, -20, -30, -40)}
    assert gate.calls == 3


async def test_a_stream_has_one_deadline(server, gate):
    model = added(server)
    gate.open(1)
    with pytest.raises(DeadlineExceeded, match="the deadline is over"):
        await values(model.stream(rows(0), deadline_s=0.05))
    assert gate.calls == 2
    gate.open(10)


async def test_drain_waits_for_streams_and_refuses_new_ones(server, gate):
    model = added(server)
    gate.open(10)
    async with anyio.create_task_group() as tasks, aclosing(model.stream(rows(0))) as parts:
        await anext(parts)
        tasks.start_soon(server.drain)
        await until(lambda: not model.ready)
        with pytest.raises(NotReady, match="it is stopping"):
            await values(model.stream(rows(0)))
        assert [part["y"][0, 0] async for part in parts] == [2, 3, 4, 5]


async def test_after_its_grace_drain_does_not_wait_for_a_client_who_reads_no_more(server, gate):
    model = added(server)
    gate.open(10)
    async with aclosing(model.stream(rows(0))) as parts:
        await anext(parts)
        await server.drain(grace_s=0.0)
        with pytest.raises(NotReady, match="it is stopping"):
            await anext(parts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"feedback": {"z": "x"}}, "no output 'z'"),
        ({"feedback": {"y": "z"}}, "'z', which is no input"),
        ({"feedback": {"ended": "x"}}, "does not fit the input 'x'"),
        ({"until": "y"}, "an output of bools, got 'y'"),
    ],
)
async def test_a_stream_that_makes_no_sense_is_refused(server, options, says):
    with pytest.raises(GraphError, match=says):
        added(server, **options)


async def test_a_number_of_steps_that_makes_no_sense_is_refused(server):
    with pytest.raises(InvalidInput, match="max_steps must be an int of at least 1"):
        await values(added(server).stream(rows(0), max_steps=0))


# -- over HTTP ----------------------------------------------------------------------------------

STREAM = "/v2/models/counts/infer_stream"


def ask(value, **more):
    return post({"id": "s1", "inputs": [tensor(value)], **more}, path=STREAM)


async def test_parts_are_events_and_the_last_one_says_so(server, gate):
    gate.open(10)
    added(server)
    asked = await ask(3, outputs=[{"name": "y"}]).asked(ag.serving.asgi(server))
    assert asked.status == 200
    assert asked.headers["content-type"] == "text/event-stream"
    *parts, end = asked.events
    assert [(kind, part["outputs"][0]["data"]) for kind, part in parts] == [
        (None, [4, 4]), (None, [5, 5]),
    ]  # fmt: skip
    assert end == ("end", {"id": "s1"})
    assert asked.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_an_error_before_the_first_part_has_its_status(server, gate):
    added(server)
    app = ag.serving.asgi(server)
    assert (await ask(3, parameters={"max_steps": -1}).asked(app)).status == 400
    binary = {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    assert (await ask(3, **binary).asked(app)).status == 501
    assert gate.calls == 0


async def test_an_error_after_the_first_part_is_an_event(server):
    new_gate(bad=4.0).open(10)
    added(server)
    asked = await ask(3).asked(ag.serving.asgi(server))
    (_, first), (kind, error) = asked.events
    assert asked.status == 200
    assert first["outputs"][0]["data"] == [4, 4]
    assert kind == "error"
    assert error["code"] == "NODE_ERROR"
    assert asked.sent[-1]["more_body"] is False


async def test_a_client_that_reads_slowly_holds_the_stream_back(server, gate):
    gate.open(10)
    added(server)
    client, may_go = ask(0), anyio.Event()
    send = client.send

    async def slowly(message):
        await send(message)
        if len(client.sent) == 2:
            await may_go.wait()

    async with anyio.create_task_group() as tasks:
        app = ag.serving.asgi(server)
        tasks.start_soon(partial(app, client.scope, client.receive, slowly))
        await until(lambda: len(client.sent) == 2)
        assert gate.calls == 1
        may_go.set()
    assert len(client.events) == 6


async def test_a_client_that_leaves_its_stream_ends_it(server, gate):
    model = added(server)
    async with anyio.create_task_group() as tasks:
        client = ask(0)
        tasks.start_soon(client.asked, ag.serving.asgi(server))
        await entered(gate)
        gate.open()
        await entered(gate)
        client.leave()
        await until(lambda: model.counts["cancelled"] == 1)
        gate.open(10)
    await until(lambda: model.inflight == 0)
    assert gate.calls == 2
    assert [kind for kind, _ in client.events] == [None]
