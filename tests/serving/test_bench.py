"""`actorgraph bench`, against a server of HTTP that is made of the application alone."""

import json
from functools import partial

import anyio
import pytest

import actorgraph as ag
from actorgraph import cli
from actorgraph.errors import GraphError
from actorgraph.serving.bench import LoadReport, bench
from tests.serving._http import Client
from tests.serving._models import new_gate, outputs

pytestmark = pytest.mark.anyio


async def answer(app, stream):
    """Answer the requests of a connection, one after another."""
    buffered = b""
    async with stream:
        while True:
            while b"\r\n\r\n" not in buffered:
                try:
                    buffered += await stream.receive()
                except anyio.EndOfStream:
                    return
            head, _, buffered = buffered.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            while len(buffered) < int(headers["content-length"]):
                buffered += await stream.receive()
            length = int(headers["content-length"])
            body, buffered = buffered[:length], buffered[length:]
            method, path, _ = first.split()
            client = await Client(method, path, body, headers=headers).asked(app)
            told = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
            await stream.send(f"HTTP/1.1 {client.status} X\r\n{told}\r\n".encode() + client.body)


async def benched(server, *, name="double", **options):
    """Return what came of requests to a server that listens."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, partial(answer, ag.serving.asgi(server)))
        try:
            return await bench(f"http://127.0.0.1:{port}/v2/models/{name}", **options)
        finally:
            tasks.cancel_scope.cancel()


async def test_requests_are_asked_at_their_rate_and_counted(gate):
    gate.open(100)
    async with ag.serving.Server() as server:
        model = server.add("double", outputs(), max_batch_size=3)
        found = await benched(server, rate=200.0, duration_s=0.1, rows=3)
        assert model.counts["ok"] == 20
        assert model.statistics.sizes.total == 60
    assert found.statuses == {"200": 20}
    told = json.loads(json.dumps(found.as_json()))
    times = told["latency_ms"]
    assert 0 < times["p50"] <= times["p99"] <= times["max"]
    assert sum(count for _, count in told["histogram"]) == 20
    assert found.duration_s >= 0.095


async def test_the_time_counts_from_when_a_request_was_due():
    found = LoadReport("url", 1.0, 2.0, times_s=[0.001] * 98 + [0.5, 1.0])
    told = found.as_json()
    assert told["latency_ms"]["p50"] == pytest.approx(1.0)
    assert told["latency_ms"]["max"] == pytest.approx(1000.0)
    assert told["throughput"] == 50
    assert len(found.lines()) == 4 + 12


async def test_answers_that_are_not_200_are_counted_apart():
    new_gate(bad=2.0).open(100)  # requests are ones, and the model doubles them
    async with ag.serving.Server() as server:
        server.add("double", outputs())
        found = await benched(server, rate=100.0, duration_s=0.05)
    assert found.statuses == {"500": 5}
    assert found.as_json()["latency_ms"] == {}


async def test_a_model_that_is_not_there_is_told():
    async with ag.serving.Server() as server:
        with pytest.raises(BaseExceptionGroup) as failed:
            await benched(server, rate=1.0, duration_s=1.0)
    (error,) = failed.value.exceptions
    assert isinstance(error, GraphError)
    assert "answers with 404" in str(error)


@pytest.mark.parametrize("url", ["localhost:8000", "https://a/v2/models/b", "http://a:1/other"])
async def test_an_url_that_makes_no_sense_is_refused(url):
    with pytest.raises(GraphError, match=r"expected http://HOST:PORT/v2/models/NAME, got"):
        await bench(url, rate=1.0, duration_s=1.0)


@pytest.mark.parametrize("rate", ["0", "-1", "many"])
def test_a_rate_that_makes_no_sense_is_refused(rate, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "http://a/v2/models/b", "--rate", rate])
    assert "--rate" in capsys.readouterr().err
