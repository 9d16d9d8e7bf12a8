"""What a server tells of its models over HTTP."""

import json
from functools import partial
from itertools import pairwise

import anyio
import numpy as np
import pytest

import actorgraph as ag
from tests._until import until
from tests.serving._http import Client, check, post, tensor
from tests.serving._models import entered, new_gate, outputs, rows

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(gate):
    gate.open(100)
    async with ag.serving.Server() as server:
        model = server.add("double", outputs(), max_batch_size=8)
        await model.infer(rows(1, 2))
        await model.infer(rows(3))
        yield ag.serving.asgi(server)


async def test_statistics_are_counts_and_nanoseconds(app):
    for path in ("/v2/models/stats", "/v2/models/double/stats"):
        (told,) = (await Client("GET", path).asked(app)).json["model_stats"]
        assert (told["name"], told["version"]) == ("double", "1")
        assert (told["inference_count"], told["execution_count"]) == (2, 2)
        times = told["inference_stats"]
        assert times["success"]["count"] == times["queue"]["count"] == 2
        assert times["fail"] == {"count": 0, "ns": 0}
        parts = sum(times[f"compute_{part}"]["ns"] for part in ("input", "infer", "output"))
        assert 0 < parts < times["success"]["ns"]
        assert [one["batch_size"] for one in told["batch_stats"]] == [1, 2]
        assert told["last_inference"] > 1_600_000_000_000


async def test_a_request_that_fails_is_counted_as_such(app):
    new_gate(bad=2.0).open(2)
    await post({"inputs": [tensor(1)]}).asked(app)
    (told,) = (await Client("GET", "/v2/models/double/stats").asked(app)).json["model_stats"]
    assert told["inference_stats"]["fail"]["count"] == 1


async def test_the_config_is_told_after_defaults(app):
    told = (await Client("GET", "/v2/models/double/config").asked(app)).json
    assert told["max_batch_size"] == 8
    assert told["input"] == [{"name": "x", "data_type": "TYPE_FP64", "dims": [2]}]
    assert told["parameters"]["max_queued"] == {"string_value": "100"}


async def test_the_openapi_document_names_every_route_of_a_model(app):
    told = (await Client("GET", "/openapi.json", root_path="").asked(app)).json
    assert (await Client("GET", "/v2/docs").asked(app)).json == told
    assert told["openapi"] == "3.1.0"
    start = "/v2/models/double/versions/1"
    for word in ("", "/ready", "/stats", "/config"):
        assert (await Client("GET", start + word).asked(app)).status == 200
        assert "get" in told["paths"][start + word]
    asked = told["paths"][f"{start}/infer"]["post"]["requestBody"]["content"]["application/json"]
    (x,) = asked["schema"]["properties"]["inputs"]["prefixItems"]
    assert x["properties"]["datatype"] == {"const": "FP64"}
    assert x["properties"]["shape"]["prefixItems"] == [{"minimum": 0}, {"const": 2}]


async def test_the_openapi_document_is_true_of_every_answer(gate):
    gate.open()
    token = {"authorization": "Bearer secret"}
    async with ag.serving.Server() as server:
        server.add("double", outputs(), max_batch_size=8)
        app = ag.serving.asgi(server, repository_token="secret")
        told = (await Client("GET", "/openapi.json").asked(app)).json
        good, bad = {"id": "a", "inputs": [tensor(1)]}, {"inputs": []}
        checked = 0
        for content, status in ((good, 200), (bad, 400)):
            for path, operations in told["paths"].items():
                (method,) = operations
                if path.endswith(("/metrics", "/infer_stream")):  # not JSON
                    continue
                body = json.dumps(content).encode()
                asked = await Client(method.upper(), path, body, token).asked(app)
                assert asked.status == (status if path.endswith("/infer") else 200)
                check(told, path, method, asked.status, asked.json)
                checked += 1
        assert checked == 2 * 11
        with pytest.raises(Exception, match="is a required property"):
            check(told, "/v2", "get", 200, {"name": "actorgraph"})


def _has(*optional, **fields):
    """Return the schema of an object that has these fields, and maybe others."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required}


TEXT, SIZES = {"type": "string"}, {"type": "array", "items": {"type": "integer"}}
TENSORS = {"type": "array", "items": _has(name=TEXT, datatype=TEXT, shape=SIZES)}
OUTPUTS = _has(name=TEXT, datatype=TEXT, shape=SIZES, data={"type": "array"})
PROTOCOL = {  # what the protocol's own document requires of answers
    "/v2": _has(name=TEXT, version=TEXT, extensions={"type": "array", "items": TEXT}),
    "/v2/models/double": _has(
        "versions", "inputs", "outputs",
        name=TEXT, platform=TEXT, versions={"type": "array", "items": TEXT},
        inputs=TENSORS, outputs=TENSORS,
    ),
    "/v2/models/double/infer": _has(
        "id", "model_version",
        model_name=TEXT, model_version=TEXT, id=TEXT, outputs={"type": "array", "items": OUTPUTS},
    ),
}  # fmt: skip


async def test_answers_have_what_the_protocol_requires(app):
    jsonschema = pytest.importorskip("jsonschema")
    for path, schema in PROTOCOL.items():
        asks = path.endswith("infer")
        body = json.dumps({"id": "a", "inputs": [tensor(1)]}).encode() if asks else b""
        asked = await Client("POST" if asks else "GET", path, body).asked(app)
        assert asked.status == 200
        jsonschema.validate(asked.json, schema)
        missing = await Client("POST" if asks else "GET", f"{path}/none", body).asked(app)
        assert missing.status == 404
        jsonschema.validate(missing.json, _has(error=TEXT))


async def test_the_status_page_shows_models_and_asks_nobody_else(app):
    asked = await Client("GET", "/").asked(app)
    page = asked.body.decode()
    assert asked.headers["content-type"] == "text/html; charset=utf-8"
    assert "double 1" in page
    assert "serving_gate" in page
    assert '[data-node="multiply_' in page
    assert page.count("<svg") == 1
    for name in ('http-equiv="refresh"', 'xmlns="http://www.w3.org/2000/svg"'):
        page = page.replace(name, "")
    assert "http" not in page
    assert "<script" not in page


async def test_names_of_models_are_escaped_on_the_status_page(gate):
    async with ag.serving.Server() as server:
        server.add("<b>", outputs())
        asked = await Client("GET", "/").asked(ag.serving.asgi(server))
    assert b"&lt;b&gt;" in asked.body
    assert b"<b>" not in asked.body


METRICS = """
requests_total{outcome,protocol} request_duration_seconds{outcome} time_to_first_response_seconds
queue_duration_seconds{priority} requests_inflight requests_queued{priority} inflight_limit
queue_limit limit{limit} rejected_total{reason} inferences_total executions_total batch_size
batch_wait_seconds batch_dispatch_total{reason} node_duration_seconds{node,device}
node_queue_depth{node} worker_busy_seconds_total{worker} device_memory_bytes{device,kind}
model_state{state} model_load_seconds
""".split()


async def test_metrics_have_their_names_and_labels(gate):
    parser = pytest.importorskip("prometheus_client.parser")
    x = ag.Graph().input("x", ("rows", 2), "float64")
    async with ag.serving.Server({"metrics": "nodes"}) as server:
        machine = ag.ActorMachine({"y": (x + 1.0) @ np.ones((2, 2))}, fuse="none")
        model = server.add("net", machine, max_queued=1)
        app = ag.serving.asgi(server)
        await model.infer(rows(1))
        await server.drain()
        with pytest.raises(ag.serving.NotReady):
            await model.infer(rows(1))
        text = (await Client("GET", "/metrics").asked(app)).body.decode()
        await machine.aclose()
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            found.setdefault(name, set()).update(sample.labels)
    for wanted in METRICS:
        name, _, labels = wanted.rstrip("}").partition("{")
        wanted_labels = {"model", "version", *filter(None, labels.split(","))}
        assert found[f"actorgraph_{name}"] - {"le"} == wanted_labels, name
    assert set(found) - {f"actorgraph_{one.partition('{')[0]}" for one in METRICS} == {
        "actorgraph_build_info"
    }
    assert 'actorgraph_rejected_total{model="net",reason="draining",version="1"} 1.0' in text


async def test_metrics_may_be_switched_off(gate):
    pytest.importorskip("prometheus_client")
    async with ag.serving.Server() as server:
        server.add("net", outputs(), metrics="off")
        text = (await Client("GET", "/metrics").asked(ag.serving.asgi(server))).body.decode()
    assert "actorgraph_requests_inflight{" not in text


async def test_a_metric_tells_why_each_batch_was_sent(gate):
    gate.open(100)
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        found = []
        for config, deadline_s in (
            ({}, None), ({"batch_wait_s": 0.001}, None), ({"batch_wait_s": 9.0}, 1),
            ({"batch_wait_s": 9.0}, None),
        ):  # fmt: skip
            model = server.add(f"net{len(found)}", outputs(), max_batch_size=2, **config)
            for _ in range(1 if deadline_s or len(found) < 3 else 2):
                tasks.start_soon(partial(model.infer, rows(1), deadline_s=deadline_s))
            await until(lambda model=model: model.counts.total() >= 3)
            found += model.statistics.reasons
        assert found == ["idle", "window", "deadline", "full"]


async def test_each_request_is_a_line_of_the_log_with_its_ids_and_probes_are_none(app, caplog):
    caplog.set_level("INFO", "actorgraph.access")
    await post({"id": "seven", "inputs": [tensor(1)]}).asked(app)
    await post({"inputs": []}).asked(app)
    await Client("GET", "/readyz").asked(app)
    good, bad = caplog.records
    assert good.getMessage().startswith("http double 200 OK in 0.")
    assert (good.model, good.version, good.request_id) == ("double", "1", "seven")
    assert (bad.status, bad.outcome, bad.protocol) == (400, "INVALID_ARGUMENT", "http")
    assert bad.duration_s < 60


async def test_a_client_who_has_left_is_logged_as_499(gate, caplog):
    caplog.set_level("INFO", "actorgraph.access")
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        server.add("double", outputs())
        client = post({"inputs": [tensor(1)]})
        tasks.start_soon(client.asked, ag.serving.asgi(server))
        await entered(gate)
        client.leave()
        await until(lambda: caplog.records)
        gate.open()
    (gone,) = caplog.records
    assert (gone.status, gone.outcome) == (499, "CANCELLED")


@pytest.mark.parametrize(
    "config", [{"access_log": "off"}, {"models": {"net": {"access_log": "off"}}}]
)
async def test_the_log_of_requests_may_be_switched_off_for_all_or_a_model(config, caplog):
    caplog.set_level("INFO", "actorgraph.access")
    async with ag.serving.Server(config) as server:
        server.add("net", _brief())
        server.add("other", _brief(), access_log="on")
        for name in ("net", "other", "missing\n"):
            path = f"/v2/models/{name}/infer"
            await post({"inputs": [tensor(1)]}, path=path).asked(ag.serving.asgi(server))
    logged = [(one.model, one.status) for one in caplog.records]
    assert logged == [("other", 200)] + [("missing\\n", 404)] * ("models" in config)


def _brief():
    return {"y": ag.Graph().input("x", ("rows", 2), "float64") * 2.0}


async def test_all_settings_are_told_after_defaults_and_numbers_as_gauges(gate):
    async with ag.serving.Server({"max_queued": 7}, readiness="lenient") as server:
        model = server.add("net", outputs(), cost_fn=len, max_queued_cost=9, buckets=())
        app = ag.serving.asgi(server)
        found = (await Client("GET", "/config").asked(app)).json
        pytest.importorskip("prometheus_client")
        text = (await Client("GET", "/metrics").asked(app)).body.decode()
    assert found["server"]["readiness"] == "lenient"
    (told,) = found["models"]
    assert set(told) == {"name", "version", *vars(ag.serving.Config)["__dataclass_fields__"]}
    assert (told["max_queued"], told["overflow"], told["cost_fn"]) == (7, "reject", repr(len))
    for name in ("max_inflight", "max_queued", "max_queued_cost", "request_timeout_s"):
        line = f'actorgraph_limit{{limit="{name}",model="net",version="1"}} '
        assert line + str(float(getattr(model.config, name))) in text


async def test_metrics_may_be_told_elsewhere_alone(gate):
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    async with ag.serving.Server() as server:
        server.add("net", outputs())
        app = ag.serving.asgi(server, registry=registry, metrics=False)
        assert (await Client("GET", "/metrics").asked(app)).status == 404
        assert "/metrics" not in (await Client("GET", "/openapi.json").asked(app)).json["paths"]
        assert b"actorgraph_requests_inflight{" in prometheus.generate_latest(registry)


async def _families(server, **options):
    parser = pytest.importorskip("prometheus_client.parser")
    app = ag.serving.asgi(server, **options)
    text = (await Client("GET", "/metrics").asked(app)).body.decode()
    found = parser.text_string_to_metric_families(text)
    return {family.name.removeprefix("actorgraph_"): family for family in found}


async def test_turns_of_nodes_are_a_histogram_however_brief_the_runs(gate):
    async with ag.serving.Server({"metrics": "nodes"}) as server:
        model = server.add("net", _brief())
        for _ in range(5):
            await model.infer(rows(1))
        await anyio.to_thread.run_sync(model.infer_sync, rows(1))
        await until(lambda: sum(one.count for one in model.node_times.turns.values()) == 6)
        found = await _families(server)
    assert found["node_duration_seconds"].type == "histogram"
    (counted,) = [
        one for one in found["node_duration_seconds"].samples if one.name.endswith("_count")
    ]
    assert (counted.value, counted.labels["device"]) == (6, "cpu")
    assert counted.labels["node"].startswith("multiply")
    workers = {one.labels["worker"] for one in found["worker_busy_seconds"].samples}
    assert workers
    assert all(one.startswith("actorgraph-") for one in workers)


async def test_turns_on_a_device_are_timed_where_they_run(gate):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    async with ag.serving.Server({"metrics": "nodes"}) as server:
        with ag.ActorMachine({"y": x * 2.0}, device="virtual:0") as machine:
            model = server.add("net", machine)
            devices = {"virtual:0"}
            while not devices <= {device for _, device in model.node_times.turns}:
                await model.infer(rows(1))
            found = await _families(server)
    workers = {one.labels["worker"] for one in found["worker_busy_seconds"].samples}
    assert any(one.startswith("virtual:0") for one in workers)
    memory = found["device_memory_bytes"].samples
    assert {one.labels["device"] for one in memory} == devices
    kinds = {one.labels["kind"]: one.value for one in memory}
    assert set(kinds) == {"used", "pool", "total"}
    assert kinds["total"] > 1 << 28


async def test_buckets_are_seconds_up_to_a_minute_and_rows_up_to_a_batch(gate):
    async with ag.serving.Server() as server:
        server.add("net", outputs(), max_batch_size=6)
        found = await _families(server)

    def bounds(name):
        told = [one.labels.get("le") for one in found[name].samples]
        return [float(one) for one in dict.fromkeys(told) if one not in (None, "+Inf")]

    assert bounds("batch_size") == [1, 2, 4, 6]
    times = bounds("request_duration_seconds")
    assert times[-1] == 60
    assert 0.001 in times
    assert all(0.3 < low / high < 0.6 for low, high in pairwise(times))


async def test_metrics_are_in_the_registry_of_the_application_where_it_gives_one(gate):
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    prometheus.Counter("own", "The application's.", registry=registry).inc()
    async with ag.serving.Server() as server:
        server.add("net", outputs())
        found = await _families(server, registry=registry)
    assert {"own", "requests_inflight"} <= set(found)
    assert b"actorgraph_requests_inflight{" in prometheus.generate_latest(registry)
