"""What a server tells of its models over HTTP."""

import json

import pytest

import actorgraph as ag
from tests.serving._http import Client, check, post, tensor
from tests.serving._models import new_gate, outputs, rows

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
        assert checked == 2 * 10
        with pytest.raises(Exception, match="is a required property"):
            check(told, "/v2", "get", 200, {"name": "actorgraph"})


async def test_the_status_page_shows_models_and_asks_nobody_else(app):
    asked = await Client("GET", "/").asked(app)
    page = asked.body.decode()
    assert asked.headers["content-type"] == "text/html; charset=utf-8"
    assert "double 1" in page
    assert "serving_gate" in page
    assert "http" not in page.replace('http-equiv="refresh"', "")
    assert "<script" not in page


async def test_names_of_models_are_escaped_on_the_status_page(gate):
    async with ag.serving.Server() as server:
        server.add("<b>", outputs())
        asked = await Client("GET", "/").asked(ag.serving.asgi(server))
    assert b"&lt;b&gt;" in asked.body
    assert b"<b>" not in asked.body


async def test_metrics_have_histograms(app):
    pytest.importorskip("prometheus_client")
    lines = (await Client("GET", "/metrics").asked(app)).body.decode().splitlines()
    labels = 'model="double",version="1"'
    assert f'actorgraph_batch_size_bucket{{le="1",{labels}}} 1.0' in lines
    assert f'actorgraph_batch_size_bucket{{le="+Inf",{labels}}} 2.0' in lines
    assert f"actorgraph_queue_duration_seconds_count{{{labels}}} 2.0" in lines
    assert any(line.startswith("actorgraph_build_info") for line in lines)


async def test_each_request_is_a_line_of_the_log_with_its_ids_and_probes_are_none(app, caplog):
    caplog.set_level("INFO", "actorgraph.access")
    await post({"id": "seven", "inputs": [tensor(1)]}).asked(app)
    await post({"inputs": []}).asked(app)
    await Client("GET", "/readyz").asked(app)
    good, bad = caplog.records
    assert good.getMessage().startswith("http double OK in 0.")
    assert (good.model, good.version, good.request_id) == ("double", "1", "seven")
    assert (bad.outcome, bad.protocol) == ("INVALID_ARGUMENT", "http")
    assert bad.duration_s < 60
