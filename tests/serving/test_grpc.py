"""gRPC: calls, messages, status codes, and clients who leave."""

import asyncio
import random
import sys
from collections import Counter
from contextlib import asynccontextmanager

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from actorgraph.serving import RateLimited, protocol, rpc
from actorgraph.serving.messages import message, methods
from actorgraph.serving.rpc import _CONTENTS
from docs import generate
from tests._soak import SOAK
from tests._until import until
from tests.serving._models import _gates, entered, expected, gated, new_gate, outputs, rows

grpc = pytest.importorskip("grpc", reason="gRPC needs grpcio")
FUZZED = 20_000 if SOAK else 200
WRONG = [
    (None, "model_name", "\ud7ff"), (None, "model_version", "9"), (None, "id", "x" * 500),
    (None, "parameters", {"timeout": {"int64_param": -1}}),
    (None, "parameters", {"priority": {"string_param": "1"}}),
    (None, "raw_input_contents", [b"", b"1"]), (None, "raw_input_contents", [b"1" * 20_000]),
    (None, "inputs", []), (None, "outputs", [{"name": "z"}]),
    ("inputs", "name", ""), ("inputs", "datatype", "BYTES"), ("inputs", "datatype", "INT8"),
    ("inputs", "shape", [-1, 2]), ("inputs", "shape", [1 << 62, 2]), ("inputs", "shape", [1] * 99),
    ("inputs", "contents", {"fp64_contents": [float("nan")] * 2}),
    ("inputs", "contents", {"int_contents": [1, 2]}),
]  # fmt: skip
ANSWERS = {
    "OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "INTERNAL",
    "DEADLINE_EXCEEDED",
}  # fmt: skip
TOKEN = (("authorization", "Bearer secret"),)


class Client:
    """Calls by their names, with messages as keywords."""

    def __init__(self, channel):
        self.channel = channel
        self._calls = {}
        for service in ("inference.GRPCInferenceService", "grpc.health.v1.Health"):
            for one in methods(service):
                kind = ("unary", "stream")
                made = getattr(
                    channel, f"{kind[one.client_streaming]}_{kind[one.server_streaming]}"
                )
                asked, answer = (
                    message(part.full_name) for part in (one.input_type, one.output_type)
                )
                call = made(
                    f"/{service}/{one.name}",
                    request_serializer=asked.SerializeToString,
                    response_deserializer=answer.FromString,
                )
                self._calls[one.name] = call, asked

    def __call__(self, call, /, metadata=(), timeout=20, **fields):
        ask, asked = self._calls[call]
        return ask(asked(**fields), metadata=metadata, timeout=timeout)

    def stream(self, *requests):
        ask, asked = self._calls["ModelStreamInfer"]
        return ask(iter([asked(**fields) for fields in requests]))


@asynccontextmanager
async def serving(server, **options):
    """Serve, and give a client; the server's models are warm, and drained at the end."""
    rpc = ag.serving.grpc(server, **options)
    port = rpc.add_insecure_port("127.0.0.1:0")
    async with server:
        await rpc.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Client(channel)
        finally:
            await rpc.stop(None)


@pytest.fixture
def server(gate):
    gate.open(10)
    made = ag.serving.Server()
    made.add("double", outputs(), max_batch_size=8, priority_levels=2)
    return made


def asking(*values, name="x", raw=True, **more):
    """Return the fields of a request for the model "double"."""
    array = rows(*values)["x"]
    tensor = {"name": name, "datatype": "FP64", "shape": array.shape}
    if raw:
        more["raw_input_contents"] = [array.tobytes()]
    else:
        tensor["contents"] = {"fp64_contents": array.ravel().tolist()}
    return {"model_name": "double", "inputs": [tensor], **more}


def array_of(answer):
    (told,) = answer.outputs
    assert (told.name, told.datatype) == ("y", "FP64")
    data = answer.raw_output_contents
    found = np.frombuffer(data[0]) if data else np.array(told.contents.fp64_contents)
    return found.reshape(tuple(told.shape))


async def refused(call):
    """Return the status code of a call that fails, its text, and its metadata."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details(), dict(caught.value.trailing_metadata())


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.asyncio
async def test_an_answer_has_the_form_of_the_request_and_its_id(server, raw):
    async with serving(server) as client:
        answer = await client("ModelInfer", **asking(1, 2, raw=raw, id="seven"))
    assert (array_of(answer) == expected(1, 2)).all()
    assert bool(answer.raw_output_contents) is raw
    assert (answer.model_name, answer.model_version, answer.id) == ("double", "1", "seven")


@pytest.mark.asyncio
async def test_each_datatype_is_read_and_told_in_both_forms():
    server = ag.serving.Server()
    for datatype in _CONTENTS:
        x = ag.Graph().input("x", (3,), protocol._DTYPES[datatype])
        server.add(datatype, {"x": ag.ops.where(x == x, x, x)})
    async with serving(server) as client:
        for datatype, field in _CONTENTS.items():
            values = np.array([0, 1, 1], protocol._DTYPES[datatype])
            told = (await client("ModelMetadata", name=datatype)).inputs[0]
            assert (told.datatype, [*told.shape]) == (datatype, [3])
            tensor = {"name": "x", "datatype": datatype, "shape": [3]}
            asked = {"model_name": datatype, "inputs": [tensor]}
            data = values.tobytes()
            answer = await client("ModelInfer", **asked, raw_input_contents=[data])
            assert [*answer.raw_output_contents] == [data]
            tensor["contents"] = {field: values.tolist()}
            answer = await client("ModelInfer", **asked)
            assert [*getattr(answer.outputs[0].contents, field)] == values.tolist()


@pytest.mark.asyncio
async def test_a_datatype_of_two_bytes_is_raw_only():
    x = ag.Graph().input("x", (1,), "float16")
    server = ag.serving.Server()
    server.add("half", {"y": x * 2})
    tensor = {"name": "x", "datatype": "FP16", "shape": [1]}
    async with serving(server) as client:
        ask = {"model_name": "half", "inputs": [tensor]}
        answer = await client("ModelInfer", **ask, raw_input_contents=[b"\x00\x3c"])
        assert answer.raw_output_contents[0] == b"\x00\x40"
        code, says, _ = await refused(client("ModelInfer", **ask))
    assert (code, says) == (
        "INVALID_ARGUMENT", "input 'x' is FP16, which comes in raw_input_contents only"
    )  # fmt: skip


# -- what is refused ----------------------------------------------------------------------------


def wrong(**changes):
    asked = asking(1)
    asked["inputs"][0] |= changes
    return asked


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        (asking(1) | {"model_name": "doubel"}, "NOT_FOUND", "did you mean 'double'"),
        (asking(1) | {"model_version": "2"}, "NOT_FOUND", "has no version '2'"),
        (wrong(name="z"), "INVALID_ARGUMENT", "'z'"),
        (wrong(datatype="FP31"), "INVALID_ARGUMENT", "has the datatype 'FP31'"),
        (wrong(shape=[1, 3]), "INVALID_ARGUMENT", "which takes 24 bytes, but it has 16"),
        (wrong(shape=[-1, 2]), "INVALID_ARGUMENT", "is a list of sizes"),
        (wrong(shape=[0, 1 << 61]), "INVALID_ARGUMENT", "is too large"),
        (
            asking(1) | {"raw_input_contents": [b""] * 2},
            "INVALID_ARGUMENT",
            "got 2 of them",
        ),
        (asking(1, outputs=[{"name": "z"}]), "INVALID_ARGUMENT", "no output 'z'"),
        (asking(1, parameters={"priority": {"int64_param": 3}}), "INVALID_ARGUMENT", "levels 1 to"),
        (asking(1, parameters={"sequence_id": {"int64_param": 1}}), "UNIMPLEMENTED", "sequences"),
        (asking(*range(99)), "RESOURCE_EXHAUSTED", "max_request_bytes"),
        (asking(*range(9000)), "RESOURCE_EXHAUSTED", "larger than max"),
        (asking(-1), "INTERNAL", "a bad row"),
    ],
)
@pytest.mark.asyncio
async def test_a_bad_request_gets_its_status_and_nobody_else_notices(gate, asked, status, says):
    server, gate = ag.serving.Server(), new_gate(bad=-2.0)
    gate.open(10)
    server.add("double", outputs(), max_batch_size=8, max_request_bytes=1000)
    async with serving(server) as client:
        code, text, more = await refused(client("ModelInfer", **asked))
        assert code == status
        assert says in text
        assert ("actorgraph-node-bin" in more) == (status == "INTERNAL")
        # Without a model nobody is there to count it, and gRPC itself refuses what is too large.
        counted = status != "NOT_FOUND" and "larger than max" not in says
        assert server.model("double").counts["error"] == counted
        assert (array_of(await client("ModelInfer", **asking(1))) == expected(1)).all()


@pytest.mark.asyncio
async def test_one_too_many_is_told_when_to_ask_again(gate):
    server = ag.serving.Server()
    server.add("double", outputs(), max_queued=0, max_concurrent_batches=1)
    async with serving(server) as client:
        first = client("ModelInfer", **asking(1))
        await entered(gate)
        status, says, more = await refused(client("ModelInfer", **asking(2)))
        assert (status, more["grpc-retry-pushback-ms"]) == ("RESOURCE_EXHAUSTED", "1000")
        assert more["actorgraph-code"] == "OVERLOADED"
        assert "max_queued" in says
        gate.open()
        assert (array_of(await first) == expected(1)).all()


@pytest.mark.asyncio
async def test_a_hook_may_refuse_by_what_it_sees_of_the_call(server):
    def admit(context):
        if dict(context.invocation_metadata()).get("user") != "known":
            raise RateLimited("100 a minute")

    async with serving(server, admit=admit) as client:
        status, says, _ = await refused(client("ModelInfer", **asking(1)))
        assert (status, says) == ("RESOURCE_EXHAUSTED", "100 a minute")
        assert await client("ModelInfer", metadata=(("user", "known"),), **asking(1))


@pytest.mark.asyncio
async def test_a_fault_of_ours_is_internal_and_stands_in_the_log(server, caplog):
    def admit(context):
        raise KeyError("secret")

    async with serving(server, admit=admit) as client:
        status, says, _ = await refused(client("ModelInfer", **asking(1)))
    assert (status, says) == ("INTERNAL", "internal error")
    assert "KeyError: 'secret'" in caplog.text


@pytest.mark.asyncio
async def test_a_server_that_drains_answers_what_it_took_and_takes_no_more(server, gate):
    new_gate()
    async with serving(server) as client, anyio.create_task_group() as tasks:
        first = client("ModelInfer", **asking(1))
        await until(lambda: server.models[0].inflight)
        tasks.start_soon(server.drain)
        await until(lambda: not server.ready)
        assert (await client("ServerReady")).ready is False
        assert (await client("ServerLive")).live is True
        status, says, _ = await refused(client("ModelInfer", **asking(2)))
        assert (status, says) == (
            "UNAVAILABLE", "the server takes no requests: it is starting or stopping"
        )  # fmt: skip
        _gates[0].open()
        assert (array_of(await first) == expected(1)).all()


@pytest.mark.asyncio
async def test_outside_of_asyncio_or_without_grpcio_it_says_so(monkeypatch):
    with pytest.raises(GraphError, match="inside a running asyncio loop"):
        await asyncio.to_thread(ag.serving.grpc, ag.serving.Server())
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(GraphError, match=r"actorgraph\[grpc\]"):
        ag.serving.grpc(ag.serving.Server())


# -- deadlines, and clients who leave ----------------------------------------------------------


@pytest.mark.asyncio
async def test_the_deadline_of_the_call_is_the_requests(gate):
    server = ag.serving.Server()
    model = server.add("double", outputs())
    async with serving(server) as client:
        status, *_ = await refused(client("ModelInfer", timeout=0.05, **asking(1)))
        assert status == "DEADLINE_EXCEEDED"
        gate.open()
        await until(lambda: not model.inflight)
        assert model.counts["ok"] == 0


@pytest.mark.asyncio
async def test_the_parameter_timeout_is_in_microseconds(gate):
    server = ag.serving.Server()
    server.add("double", outputs())
    async with serving(server) as client:
        asked = asking(1, parameters={"timeout": {"int64_param": 1000}})
        status, says, _ = await refused(client("ModelInfer", **asked))
        gate.open()
    assert (status, says) == ("DEADLINE_EXCEEDED", "the deadline is over: it was running")


@pytest.mark.asyncio
async def test_a_call_that_is_cancelled_takes_its_request_out_and_no_other(gate):
    server = ag.serving.Server()
    model = server.add("double", outputs(), max_concurrent_batches=1)
    async with serving(server) as client:
        running = client("ModelInfer", **asking(0))
        await entered(gate)
        waiting = client("ModelInfer", **asking(1))
        await until(lambda: model.queued == 1)
        stays = client("ModelInfer", **asking(2))
        await until(lambda: model.queued == 2)
        waiting.cancel()
        await until(lambda: model.queued == 1)
        running.cancel()
        await until(lambda: model.counts["cancelled"] == 2)
        gate.open(2)
        assert (array_of(await stays) == expected(2)).all()
    assert model.counts == {"cancelled": 2, "ok": 1, "executions": 2, "inferences": 2}


@pytest.mark.asyncio
async def test_a_request_may_go_on_when_its_call_is_cancelled(gate):
    server = ag.serving.Server()
    model = server.add("double", outputs(), on_disconnect="ignore")
    async with serving(server) as client:
        call = client("ModelInfer", **asking(1))
        await entered(gate)
        call.cancel()
        gate.open()
        await until(lambda: model.counts["ok"])


@pytest.mark.asyncio
async def test_after_a_storm_of_calls_of_which_half_are_cancelled_all_places_are_free():
    random, calls = np.random.default_rng(0), 40 * (50 if SOAK else 1)
    server = ag.serving.Server()
    x = ag.Graph().input("x", ("rows", 2), "float64")
    options = {"max_queued": calls, "max_concurrent_batches": 2}
    model = server.add("double", {"y": x * 2.0 + 1.0}, max_batch_size=4, **options)
    async with serving(server) as client:
        asked = [client("ModelInfer", **asking(value)) for value in range(calls)]
        left = {*random.permutation(calls)[: calls // 2].tolist()}
        for value in left:
            await asyncio.sleep(0)
            asked[value].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        for value, answer in enumerate(found):
            if value not in left:
                assert (array_of(answer) == expected(value)).all()
        await until(lambda: not (model.inflight or model.queued))
        assert (array_of(await client("ModelInfer", **asking(1))) == expected(1)).all()


# -- streams ------------------------------------------------------------------------------------


@pytest.mark.timeout(300 if SOAK else 60)
@pytest.mark.asyncio
async def test_whatever_is_sent_over_grpc_is_answered_and_nobody_else_notices():
    draw = random.Random(5)
    x = ag.Graph().input("x", ("rows", 2), "float64")
    server = ag.serving.Server()
    model = server.add("double", {"y": x * 2.0 + 1.0}, max_batch_size=4, max_request_bytes=10_000)
    statuses = Counter()
    async with serving(server) as client:
        _, asked = client._calls["ModelInfer"]
        # As bytes: a message of the wrong form never reaches a handler.
        raw = client.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(FUZZED):
            tensor = asking(1, raw=draw.random() < 0.5)
            for _ in range(draw.randint(0, 2)):
                part, key, value = draw.choice(WRONG)
                (tensor if part is None else (tensor[part] or [{}])[0])[key] = value
            body = bytearray(asked(**tensor).SerializeToString())
            for _ in range(draw.choice((0, 0, 1, 4))):
                body[draw.randrange(len(body))] = draw.randrange(256)
            sent = body[: draw.choice((None, None, None, len(body) // 2))]
            try:
                await raw(bytes(sent), timeout=20)
                statuses["OK"] += 1
            except grpc.aio.AioRpcError as error:
                statuses[error.code().name] += 1
        assert set(statuses) <= ANSWERS
        assert set(statuses) >= {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
        assert model.counts["ok"] == model.counts["inferences"] == statuses["OK"]
        assert 0 < model.counts["error"] <= FUZZED - statuses["OK"]
        assert (model.inflight, model.queued) == (0, 0)
        stream = client.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        (told,) = [answer async for answer in stream(iter([b"\xff"]))]
        assert b"the message cannot be read" in told
        answer = await client("ModelInfer", **asking(3))
        np.testing.assert_array_equal(array_of(answer), expected(3))


def counting(server, **options):
    x = ag.Graph("counts").input("x", ("rows", 2), "float64")
    y = gated(x)
    return server.add("double", {"y": y}, feedback={"y": "x"}, max_steps=3, **options)


@pytest.mark.asyncio
async def test_a_stream_gives_the_steps_of_each_request_and_tells_their_end_where_asked():
    new_gate().open(10)
    server = ag.serving.Server()
    counting(server)
    final = {"triton_enable_empty_final_response": {"bool_param": True}}
    steps = {"max_steps": {"int64_param": 2}}
    async with serving(server) as client:
        bad = asking(1, name="z", id="b")
        answers = client.stream(asking(0, id="a"), bad, asking(5, id="c", parameters=final | steps))
        found = [one async for one in answers]
    told = [one.infer_response for one in found if not one.error_message]
    assert [array_of(one)[0, 0] for one in told[:-1]] == [1, 2, 3, 6, 7]
    assert [one.id for one in told] == [*"aaaccc"]
    assert told[-1].parameters["triton_final_response"].bool_param
    (failed,) = [one for one in found if one.error_message]
    assert "'z'" in failed.error_message
    assert failed.infer_response.id == "b"


@pytest.mark.asyncio
async def test_a_stream_that_is_cancelled_frees_its_place_within_a_step(gate):
    server = ag.serving.Server()
    model = counting(server, max_inflight=1)
    async with serving(server) as client:
        answers = client.stream(asking(0))
        gate.open()
        assert array_of((await answers.read()).infer_response)[0, 0] == 1
        answers.cancel()
        gate.open(9)
        await until(lambda: not model._dispatcher.streams)
        assert len([one async for one in client.stream(asking(0))]) == 3


# -- what it tells ------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_it_tells_its_extensions_config_and_statistics(server):
    async with serving(server) as client:
        await client("ModelInfer", **asking(1, 2))
        assert "statistics" in (await client("ServerMetadata")).extensions
        assert (await client("ModelReady", name="double")).ready
        told = await client("ModelMetadata", name="double", version="1")
        assert (told.versions, told.platform) == (["1"], "actorgraph_graph")
        config = (await client("ModelConfig", name="double")).config
        assert (config.max_batch_size, [*config.input[0].dims]) == (8, [2])
        assert config.parameters["priority_levels"].string_value == "2"
        for name in ("double", ""):
            (stats,) = (await client("ModelStatistics", name=name)).model_stats
            assert (stats.inference_count, stats.batch_stats[0].batch_size) == (1, 2)
            assert stats.inference_stats.success.ns > 0
        assert (await refused(client("ModelConfig", name="none")))[0] == "NOT_FOUND"


@pytest.mark.asyncio
async def test_models_come_and_go_for_who_shows_the_token(server):
    async with serving(server) as client:
        assert (await refused(client("RepositoryIndex", metadata=TOKEN)))[0] == "UNIMPLEMENTED"
    server = ag.serving.Server()
    server.add("double", outputs)
    async with serving(server, repository_token="secret") as client:
        asked = {"config": {"string_param": "{}"}}
        call = client("RepositoryModelLoad", TOKEN, model_name="double", parameters=asked)
        assert (await refused(call))[0] == "UNIMPLEMENTED"
        for given in ((), (("authorization", "Bearer guessed"),)):
            call = client("RepositoryModelUnload", given, model_name="double")
            assert (await refused(call))[0] == "UNAUTHENTICATED"
        await client("RepositoryModelUnload", TOKEN, model_name="double")
        assert (await refused(client("ModelReady", name="double")))[0] == "NOT_FOUND"
        (told,) = (await client("RepositoryIndex", TOKEN)).models
        assert (told.state, told.reason) == ("UNAVAILABLE", "unloaded")
        assert not (await client("RepositoryIndex", TOKEN, ready=True)).models
        await client("RepositoryModelLoad", TOKEN, model_name="double")
        assert (await client("ModelReady", name="double")).ready


@pytest.mark.asyncio
async def test_health_of_the_server_and_of_each_model_is_checked_and_watched(server, monkeypatch):
    monkeypatch.setattr(rpc, "_WATCH_S", 0.0)
    serves, not_serving, unknown = 1, 2, 3
    async with serving(server) as client:
        for service in ("", "inference.GRPCInferenceService", "double"):
            assert (await client("Check", service=service)).status == serves
        assert (await refused(client("Check", service="none")))[0] == "NOT_FOUND"
        watched = client("Watch", service="double")
        assert (await watched.read()).status == serves
        assert (await client("Watch", service="none").read()).status == unknown
        await server.drain()
        assert (await watched.read()).status == not_serving


def test_the_shipped_messages_are_those_of_the_proto_files():
    pytest.importorskip("grpc_tools", reason="the compiler of messages is in grpcio-tools")
    assert generate.messages() == (generate.MESSAGES / "messages.pb").read_bytes()
