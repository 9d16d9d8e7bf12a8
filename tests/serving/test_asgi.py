"""The application of ASGI, driven by scope, receive and send alone."""

import importlib.util
import inspect
import json

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.serving import NotReady, RateLimited
from tests._until import until
from tests.serving._http import Client, post, tensor
from tests.serving._models import entered, expected, gated, new_gate, outputs, rows

pytestmark = pytest.mark.anyio
INFER = "/v2/models/double/infer"


@pytest.fixture
async def server(gate):
    async with ag.serving.Server() as made:
        yield made


@pytest.fixture
async def app(server, gate):
    server.add("double", outputs(), max_request_bytes=1000, max_concurrent_batches=1, max_queued=0)
    return ag.serving.asgi(server)


async def test_an_answer_in_json(app, gate):
    gate.open()
    asked = await post(
        {"id": "r7", "inputs": [tensor(1, 2)]}, headers={"x-request-id": "abc"}
    ).asked(app)
    assert asked.status == 200
    assert asked.json == {
        "id": "r7", "model_name": "double", "model_version": "1",
        "outputs": [{"name": "y", "datatype": "FP64", "shape": [2, 2],
                     "data": expected(1, 2).ravel().tolist()}],
    }  # fmt: skip
    assert asked.headers["x-request-id"] == "abc"
    assert asked.headers["content-length"] == str(len(asked.body))


async def test_a_request_too_many_is_refused_before_its_body_is_read(gate):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", outputs(), max_concurrent_batches=1, max_queued=0)
        tasks.start_soon(model.infer, rows(1))
        await entered(gate)
        asked = post(b"no JSON, and nobody looks")

        async def receive():
            raise AssertionError("the body was read")

        await ag.serving.asgi(server)(asked.scope, receive, asked.send)
        assert (asked.status, asked.json["code"]) == (503, "OVERLOADED")
        assert model.counts["rejected"] == 1
        gate.open()


async def test_an_answer_in_binary(app, gate):
    gate.open()
    data = rows(1, 2)["x"].tobytes()
    given = {
        "inputs": [tensor(1, 2, parameters={"binary_data_size": len(data)}) | {"data": None}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    header = json.dumps(given).encode()
    asked = await post(
        header + data, headers={"Inference-Header-Content-Length": len(header)}
    ).asked(app)
    assert asked.status == 200
    end = int(asked.headers["inference-header-content-length"])
    (told,) = json.loads(asked.body[:end])["outputs"]
    assert told["parameters"] == {"binary_data_size": 32}
    found = np.frombuffer(asked.body[end:], "<f8").reshape(told["shape"])
    np.testing.assert_array_equal(found, expected(1, 2))


async def test_what_is_served_is_told(app):
    about = await Client("GET", "/v2").asked(app)
    assert about.json["name"] == "actorgraph"
    model = await Client("GET", "/v2/models/double").asked(app)
    assert model.json == {
        "name": "double", "versions": ["1"], "platform": "actorgraph_graph",
        "inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1, 2]}],
    }  # fmt: skip
    for path in ("/v2/health/live", "/v2/health/ready", "/livez", "/readyz",
                 "/v2/models/double/ready", "/v2/models/double/versions/1/ready"):  # fmt: skip
        assert (await Client("GET", path).asked(app)).status == 200
    assert (await Client("HEAD", "/v2").asked(app)).body == b""


async def test_hosts_see_an_application_of_the_third_version(app):
    assert inspect.iscoroutinefunction(app)


async def test_mounted_below_a_path_it_answers_the_same(app):
    mounted = Client("GET", "/ml/v2/models/double", root_path="/ml")
    assert (await mounted.asked(app)).status == 200


BAD = {
    "no JSON": b"{",
    "no object": [1],
    "too deep": b'{"inputs":' + b"[" * 400 + b"]" * 400 + b"}",
    "NaN": b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [NaN, 1]}]}',
    "beyond floats": b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","data":[1e999,1]}]}',
    "inputs no list": {"inputs": 3},
    "no name": {"inputs": [{}]},
    "twice": {"inputs": [tensor(1), tensor(1)]},
    "missing": {"inputs": []},
    "wrong name": {"inputs": [tensor(1, name="z")]},
    "wrong datatype": {"inputs": [tensor(1, datatype="FP32")]},
    "unknown datatype": {"inputs": [tensor(1, datatype=["FP64"])]},
    "wrong shape": {"inputs": [tensor(1, shape=[2, 1])]},
    "shape that lies": {"inputs": [tensor(1, shape=[1 << 40, 2])]},
    "negative shape": {"inputs": [tensor(1, shape=[-1, -2])]},
    "text": {"inputs": [tensor(1, data=["1", "2"])]},
    "ragged": {"inputs": [tensor(1, data=[[1], [2, 3]])]},
    "shape": {"inputs": [tensor(1, data=[], shape=[0, 1 << 62])]},
    "binary that is not there": {"inputs": [tensor(1, parameters={"binary_data_size": 16})]},
    "size that lies": {"inputs": [tensor(1, parameters={"binary_data_size": -16})]},
    "unknown output": {"inputs": [tensor(1)], "outputs": [{"name": "z"}]},
    "timeout": {"inputs": [tensor(1)], "parameters": {"timeout": "soon"}},
    "priority": {"inputs": [tensor(1)], "parameters": {"priority": 9}},
    "id": {"id": 3, "inputs": [tensor(1)]},
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
async def test_a_body_that_cannot_be_served_is_400_and_starts_nothing(app, server, gate, content):
    asked = await post(content).asked(app)
    assert asked.status == 400
    assert asked.json["code"] == "INVALID_ARGUMENT"
    assert asked.json["error"]
    assert gate.calls == 0
    assert server.model("double").counts == {"error": 1}


async def test_integers_beyond_their_datatype_are_refused(server):
    x = ag.Graph().input("x", ("rows",), "int8")
    server.add("small", {"y": x * 1})
    given = {"name": "x", "shape": [1], "datatype": "INT8", "data": [300]}
    asked = await post({"inputs": [given]}, path="/v2/models/small/infer").asked(
        ag.serving.asgi(server)
    )
    assert asked.status == 400
    assert "beyond int8" in asked.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/v2/models/nothing/infer", {}, 404),
        ("POST", "/v2/models/double/versions/9/infer", {}, 404),
        ("GET", "/v2/models/double/other", {}, 404),
        ("GET", "/other", {}, 404),
        ("GET", INFER, {}, 405),
        ("POST", "/v2", {}, 405),
        ("POST", INFER, {"content-length": 1001}, 413),
        ("POST", INFER, {"content-length": "many"}, 400),
        ("POST", INFER, {"content-encoding": "gzip"}, 400),
        ("POST", INFER, {"inference-header-content-length": 10**9}, 400),
    ],
)
async def test_other_mistakes_have_their_codes(app, method, path, headers, status):
    asked = await Client(method, path, headers={**headers, "x-request-id": "r1"}).asked(app)
    assert asked.status == status
    assert asked.json["error"]
    assert asked.headers["x-request-id"] == "r1"


async def test_a_body_longer_than_it_says_is_413(app, server):
    assert (await post(b" " * 1001).asked(app)).status == 413
    assert server.model("double").counts == {"error": 1}


async def test_what_is_not_finite_cannot_be_said_in_json(server):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    server.add("double", {"y": x * np.inf})
    app = ag.serving.asgi(server)
    asked = await post({"inputs": [tensor(1)]}).asked(app)
    assert asked.status == 501
    assert "ask for it in binary" in asked.json["error"]


async def test_a_datatype_of_two_bytes_is_binary_only(server):
    x = ag.Graph().input("x", (1,), "float16")
    server.add("half", {"y": x * 2})
    app, path = ag.serving.asgi(server), "/v2/models/half/infer"
    one = {"name": "x", "datatype": "FP16", "shape": [1]}
    asked = await post({"inputs": [{**one, "data": [1.0]}]}, path=path).asked(app)
    assert (asked.status, asked.json["error"]) == (
        400, "input 'x' is FP16, which comes in binary only"
    )  # fmt: skip
    given = {"inputs": [{**one, "parameters": {"binary_data_size": 2}}]}
    for asks, status in (({}, 501), ({"parameters": {"binary_data_output": True}}, 200)):
        header = json.dumps(given | asks).encode()
        size = {"inference-header-content-length": len(header)}
        asked = await post(header + b"\x00\x3c", path=path, headers=size).asked(app)
        assert asked.status == status
    assert asked.body.endswith(b"\x00\x40")


async def test_what_no_datatype_says_is_refused_before_it_runs(server, gate):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    server.add("wave", {"y": (y := gated(x)), "wave": y.astype("complex64")})
    app, path = ag.serving.asgi(server), "/v2/models/wave/infer"
    asked = await post({"inputs": [tensor(1)]}, path=path).asked(app)
    assert (asked.status, asked.json["error"]) == (
        400, "output 'wave' is complex64, for which the protocol has no datatype; ask for others"
    )  # fmt: skip
    assert not gate.calls
    gate.open()
    one = {"inputs": [tensor(1)], "outputs": [{"name": "y"}]}
    asked = await post(one, path=path).asked(app)
    assert asked.json["outputs"][0]["data"] == [2, 2]


async def test_too_many_requests_are_503_and_say_when_to_come_again(app, gate):
    async with anyio.create_task_group() as tasks:
        first = post({"inputs": [tensor(1)]})
        tasks.start_soon(first.asked, app)
        await entered(gate)
        refused = await post({"inputs": [tensor(2)]}).asked(app)
        gate.open()
    assert first.status == 200
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json["code"] == "OVERLOADED"


@pytest.mark.parametrize("by", ["parameter", "header"])
async def test_a_deadline_is_504(app, gate, by):
    content = {"inputs": [tensor(1)]}
    headers = {"x-request-timeout-ms": 10} if by == "header" else {}
    if by == "parameter":
        content["parameters"] = {"timeout": 10_000}
    asked = await post(content, headers=headers).asked(app)
    gate.open()
    assert asked.status == 504
    assert asked.json["code"] == "DEADLINE_EXCEEDED"


async def test_an_op_that_fails_is_500_and_named(app):
    new_gate(bad=2.0).open()
    asked = await post({"inputs": [tensor(1)]}).asked(app)
    assert asked.status == 500
    assert "op 'serving_gate'" in asked.json["error"]
    assert asked.json["code"] == "NODE_ERROR"
    assert asked.json["node"]


async def test_a_client_that_leaves_takes_its_request_along(app, server, gate):
    model = server.model("double")
    async with anyio.create_task_group() as tasks:
        gone = post({"inputs": [tensor(1)]})
        tasks.start_soon(gone.asked, app)
        await entered(gate)
        gone.leave()
        await until(lambda: model.counts["cancelled"] == 1)
        gate.open(2)
    assert gone.sent == []
    await until(lambda: model.inflight == 0)
    assert (await post({"inputs": [tensor(1)]}).asked(app)).status == 200


async def test_a_body_that_does_not_come_is_not_waited_for_longer_than_a_request(gate):
    async with ag.serving.Server() as server:
        server.add("double", outputs(), request_timeout_s=0.02)
        client = post({"inputs": [tensor(1)]})
        client._chunks[1:] = []

        async def receive():
            if not client._chunks:
                await anyio.sleep_forever()
            return {"type": "http.request", "body": client._chunks.pop(), "more_body": True}

        client.receive = receive
        asked = await client.asked(ag.serving.asgi(server))
        assert (asked.status, asked.json["code"]) == (408, "DEADLINE_EXCEEDED")
        assert server.model("double").counts == {"deadline": 1}


async def test_a_client_that_leaves_before_its_body_is_there_is_counted_only(app, server, gate):
    gone = post({"inputs": [tensor(1)]})
    gone._chunks = []
    gone.leave()
    assert (await gone.asked(app)).sent == []
    assert gate.calls == 0
    assert server.model("double").counts == {"cancelled": 1}


async def test_a_server_that_stops_says_so_before_it_refuses(app, server, gate):
    async with anyio.create_task_group() as tasks:
        first = post({"inputs": [tensor(1)]})
        tasks.start_soon(first.asked, app)
        await entered(gate)
        tasks.start_soon(server.drain)
        await until(lambda: not server.ready)
        for path in ("/v2/health/ready", "/v2/models/double/ready"):
            asked = await Client("GET", path).asked(app)
            assert asked.status == 503
            assert asked.headers["retry-after"] == "1"
            assert asked.json["ready"] is False
        assert (await Client("GET", "/v2/health/live").asked(app)).status == 200
        refused = await post({"inputs": [tensor(2)]}).asked(app)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        gate.open()
    assert first.status == 200


async def test_the_hosts_lifespan_drains_the_server(app, server):
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(NotReady, match="it is stopping"):
        await server.model("double").infer(rows(1))


async def test_a_hook_of_the_users_limits_clients(server, app):
    def admit(scope):
        raise RateLimited("100 a minute")

    asked = await post({"inputs": [tensor(1)]}).asked(ag.serving.asgi(server, admit=admit))
    assert asked.status == 429
    assert asked.headers["retry-after"] == "1"


async def test_metrics_are_told_where_the_library_is_installed(app, gate):
    gate.open()
    await post({"inputs": [tensor(1)]}).asked(app)
    asked = await Client("GET", "/metrics").asked(app)
    if importlib.util.find_spec("prometheus_client") is None:
        assert asked.status == 501
        assert "pip install" in asked.json["error"]
    else:
        labels = 'model="double",outcome="ok",protocol="http",version="1"'
        line = f"actorgraph_requests_total{{{labels}}} 1.0"
        assert line in asked.body.decode().splitlines()
