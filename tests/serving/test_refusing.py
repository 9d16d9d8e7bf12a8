"""Requests too many that the protocol of HTTP refuses: as the application would, and counted."""

import asyncio
import logging
import random
import re

import pytest

import actorgraph as ag
from tests._soak import SOAK
from tests._until import until
from tests.serving._models import entered, outputs, rows
from tests.serving.test_storms import mutated

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: E402
from uvicorn.server import ServerState  # noqa: E402

from actorgraph.serving.refusing import refusing, usual_head  # noqa: E402

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600 if SOAK else 60)]
SEEDS, DRAWN = (20, 400) if SOAK else (1, 60)  # some 20,000 requests; a gate waits for 20 s
FULL, FREE = "/v2/models/full/infer", "/v2/models/free/infer"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Wire(asyncio.Transport):
    """What a connection has written, and whether it was closed."""

    def __init__(self):
        self.written, self.closed = b"", False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name, default=None):
        return default

    def pause_reading(self):
        pass

    resume_reading = pause_reading


class Listening:
    """Protocols of an application, ours or uvicorn's own, without a network."""

    def __init__(self, server):
        self.server, self.state, self._ours = server, ServerState(), refusing(server)
        app = ag.serving.asgi(server)
        self._config = uvicorn.Config(app, access_log=False, log_level="critical")
        self._config.load()

    def connection(self, *, ours=True):
        kind = self._ours if ours else HttpToolsProtocol
        made = kind(self._config, self.state, {}, asyncio.get_running_loop())
        made.connection_made(Wire())
        return made

    async def answers(self, *chunks, ours=True):
        """Return status, headers and body of each answer to what one connection has sent."""
        return answers_in(await self.written(*chunks, ours=ours))

    async def written(self, *chunks, ours=True):
        """Return what one connection is sent for what it has sent."""
        connection = self.connection(ours=ours)
        for chunk in chunks:
            if not connection.transport.closed:
                connection.data_received(chunk)
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
        connection.connection_lost(None)
        return connection.transport.written


def answers_in(written):
    found = []
    while written:
        head, _, rest = written.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        if headers.get(b"transfer-encoding") == b"chunked":  # a stream of events
            body, _, written = rest.partition(b"0\r\n\r\n")
        else:
            size = int(headers[b"content-length"])
            body, written = rest[:size], rest[size:]
        found.append((int(first.split()[1]), headers, body))
    return found


def request(path=FULL, body=b"{}", method="POST", **headers):
    lines = [f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
async def listening(gate):
    """Give a server of a model that has all it takes, and of one that answers."""
    async with ag.serving.Server() as server, asyncio.TaskGroup() as tasks:
        full = server.add("full", outputs(), max_inflight=1, max_queued=0, request_timeout_s=600.0)
        x = ag.Graph().input("x", ("rows", 2), "float64")
        server.add("free", {"y": -x})
        tasks.create_task(full.infer(rows(1)))
        await entered(gate)
        yield Listening(server)
        gate.open()


async def test_the_answer_is_the_applications_and_nothing_else_is_made(listening):
    asked = request(x_request_id="seven")
    (theirs,) = await listening.answers(asked, ours=False)
    (ours,) = await listening.answers(asked)
    assert ours == theirs
    status, headers, body = ours
    assert (status, headers[b"retry-after"], headers[b"x-request-id"]) == (503, b"1", b"seven")
    assert b"OVERLOADED" in body
    connection = listening.connection()
    connection.data_received(asked)
    assert connection.transport.written  # at once: no task had its turn
    assert connection.cycle is connection.scope is None  # nor has uvicorn parsed it
    assert listening.state.total_requests == 3


INPUT = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 1]}]}'
NARROW = request("/v2/models/narrow/infer", INPUT)


@pytest.fixture
async def narrow(gate):
    """Give a server of a model that has room for one request more."""
    async with ag.serving.Server() as server, asyncio.TaskGroup() as tasks:
        model = server.add(
            "narrow", outputs(), max_inflight=1, max_queued=1, request_timeout_s=600.0
        )
        tasks.create_task(model.infer(rows(1)))
        await entered(gate)
        yield Listening(server)


async def status(listening, connection):
    while listening.state.tasks:
        await asyncio.wait(listening.state.tasks)
    connection.connection_lost(None)
    ((found, _, _),) = answers_in(connection.transport.written)
    return found


async def test_of_requests_that_come_in_one_turn_those_without_room_get_no_task(narrow, gate):
    connections = [narrow.connection() for _ in range(4)]
    for connection in connections:
        connection.data_received(NARROW)
    assert [bool(one.transport.written) for one in connections] == [False, True, True, True]
    await until(lambda: narrow.server.model("narrow").queued == 1)
    gate.open(2)
    assert [await status(narrow, one) for one in connections] == [200, 503, 503, 503]


async def test_a_request_whose_body_is_to_come_takes_no_room(narrow, gate):
    slow, quick = narrow.connection(), narrow.connection()
    slow.data_received(NARROW[:-5])
    for _ in range(3):
        await asyncio.sleep(0)
    quick.data_received(NARROW)
    await until(lambda: narrow.server.model("narrow").queued == 1)
    slow.data_received(NARROW[-5:])
    await until(lambda: slow.transport.written)
    gate.open(2)
    assert [await status(narrow, one) for one in (slow, quick)] == [503, 200]


async def test_it_is_counted_and_logged_as_if_the_application_had_refused_it(listening, caplog):
    model = listening.server.model("full")
    told = []
    for ours in (False, True):
        with caplog.at_level(logging.INFO, "actorgraph.access"):
            await listening.answers(request(), request("/v2/models/full/infer_stream"), ours=ours)
        found = model.statistics
        told.append((dict(found.requests), dict(found.refusals), found.durations["rejected"].count))
        told[-1] += ([re.sub(r" in .* s", "", line) for line in caplog.messages],)
        found.requests.clear()
        found.refusals.clear()
        found.durations["rejected"].__init__()
        caplog.clear()
    assert told[0] == told[1]
    assert told[0][0] == {("rejected", "http"): 2}
    assert told[0][3] == ["http full 503 OVERLOADED"] * 2


async def test_however_bytes_come_the_answers_are_the_same(listening):
    sent = request() + request(FREE) + request(body=b"x" * 30) + request("/livez", b"", "GET")
    whole = [status for status, _, _ in await listening.answers(sent)]
    assert whole == [503, 400, 503, 200]
    for place in range(1, len(sent)):
        parts = await listening.answers(sent[:place], sent[place:])
        assert [status for status, _, _ in parts] == whole
    single = [sent[place : place + 1] for place in range(len(sent))]
    assert [status for status, _, _ in await listening.answers(*single)] == whole


UNUSUAL = [
    request(connection="close"),
    request(expect="100-continue"),
    request(upgrade="h2c", connection="upgrade"),
    request(transfer_encoding="chunked").replace(b"content-length: 2\r\n", b"")[:-2]
    + b"2\r\n{}\r\n0\r\n\r\n",
    request(path=FULL + "?a=b"),
    request(path=FULL.replace("full", "f%75ll")),
    request(path="http://x" + FULL),
    request(path="/v2/models/full/versions/1/infer"),
    request(path="/v2/models/full/versions/2/infer"),
    request(path="/v2/models/none/infer"),
    request(path="/v2/models/full"),
    request(method="GET"),
    request(method="HEAD"),
    request().replace(b"HTTP/1.1", b"HTTP/1.0"),
    request().replace(b"content-length: 2", b"content-length: two"),
    b"nothing of HTTP\r\n\r\n",
]
READABLE = UNUSUAL[:-2]
UNREADABLE = b"Invalid HTTP request received."


@pytest.mark.parametrize("sent", UNUSUAL)
async def test_a_request_of_another_form_is_answered_as_by_uvicorn(listening, sent):
    orders = [[sent], [sent, request()]]
    if sent in READABLE:  # else uvicorn answers it before the request that came earlier
        orders.append([request(), sent])
    for chunks in orders:
        assert await listening.written(*chunks) == await listening.written(*chunks, ours=False)


async def test_the_body_of_a_request_is_never_taken_for_the_next_request(listening):
    free = request(FREE, body=request())
    place = len(free) - len(request())
    (answer,) = await listening.answers(free[:place], free[place:])
    assert answer[0] == 400
    full = request(body=request(FREE))
    place = len(full) - len(request(FREE))
    (answer,) = await listening.answers(full[:place], full[place:])
    assert answer[0] == 503


@pytest.mark.parametrize(
    "text",
    [
        request()[:-4],  # the end of the head is to come
        request().replace(b"host: x\r\n", b"host: x\n\n"),
        request().replace(b"content-length: 2", b"content-length: 2\r\ncontent-length: 2"),
        request().replace(b"content-length: 2", b"content-length: +2"),
        b"\r\n\r\n",
        b"\r\n",
        b"",
    ],
)
async def test_bytes_that_are_no_head_or_an_ambiguous_one_are_left_to_uvicorn(text):
    assert usual_head(text) is None


async def test_what_heads_say_is_remembered_but_not_long_ones(listening):
    usual_head.cache_clear()
    for _ in range(3):
        await listening.answers(request())
    assert usual_head.cache_info().misses == 1
    for length in range(5000, 5003):
        await listening.answers(request(padding="x" * length))
    assert usual_head.cache_info().misses == 2


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_comes_on_a_connection_is_answered_as_by_uvicorn_and_in_order(
    listening, seed
):
    draw = random.Random(seed)
    several = 0
    for _ in range(DRAWN):
        sent = []
        for _ in range(draw.randint(1, 4)):
            body, headers = mutated(draw)
            path = draw.choice(
                [FULL, FULL, FREE, FREE + "_stream", FULL + "_stream", "/v2/nothing"]
            )
            sent.append(request(path, body, draw.choice(["POST"] * 4 + ["GET"]), **headers))
            if draw.random() < 0.1:
                sent.append(draw.choice(READABLE))
        sent = b"".join(sent)
        cuts = sorted(draw.randrange(len(sent)) for _ in range(draw.randint(0, 3)))
        chunks = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
        found = await listening.written(*chunks)
        theirs = await listening.written(*chunks, ours=False)
        if UNREADABLE in theirs:  # which it writes before the answers to earlier requests
            assert UNREADABLE in found, chunks
            continue
        assert found == theirs, chunks
        several += found.count(b"HTTP/1.1 ") > 1
    assert several > DRAWN / 2


async def test_a_body_that_is_dropped_takes_no_memory_and_the_connection_goes_on(listening):
    connection = listening.connection()
    head, _, _ = request(body=b"x" * (1 << 20)).partition(b"x" * 9)
    connection.data_received(head)
    for _ in range(16):
        connection.data_received(b"x" * (1 << 16))
        assert connection.cycle is None
    connection.data_received(request("/livez", b"", "GET"))
    while listening.state.tasks:
        await asyncio.wait(listening.state.tasks)
    statuses = [status for status, _, _ in answers_in(connection.transport.written)]
    assert statuses == [503, 200]


async def test_a_connection_that_falls_silent_after_its_answer_is_closed(listening):
    connection = listening.connection()
    sent = request(body=b"x" * 100)
    connection.data_received(sent[:-50])  # the timer begins anew with each of its bytes
    connection.data_received(sent[-50:-20])
    assert not connection.timeout_keep_alive_task.cancelled()
    connection.timeout_keep_alive_handler()
    assert connection.transport.closed


async def test_who_does_not_read_answers_is_not_sent_more_of_them(listening):
    connection = listening.connection()
    connection.pause_writing()
    for _ in range(50):
        connection.data_received(request())
    assert not connection.transport.written
    connection.resume_writing()
    while listening.state.tasks:
        await asyncio.wait(listening.state.tasks)
    assert [status for status, _, _ in answers_in(connection.transport.written)] == [503] * 50


async def test_while_the_server_drains_the_application_says_so(listening):
    listening.server.draining = True
    (answer,) = await listening.answers(request())
    assert answer[1][b"connection"] == b"close"
    assert b"UNAVAILABLE" in answer[2]
    assert listening.server.model("full").statistics.refusals == {"draining": 1}


async def test_a_request_is_taken_again_when_there_is_room(listening, gate):
    assert [status for status, _, _ in await listening.answers(request())] == [503]
    gate.open(2)
    model = listening.server.model("full")
    await until(lambda: not model.inflight)
    content = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}'
    assert [status for status, _, _ in await listening.answers(request(body=content))] == [200]


def test_without_httptools_uvicorn_chooses(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "uvicorn.protocols.http.httptools_impl", None)
    with ag.serving.Server() as server:
        assert refusing(server) == "auto"
