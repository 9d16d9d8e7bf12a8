"""NVIDIA's `tritonclient`, unmodified, against `actorgraph serve`: over HTTP and over gRPC."""

import asyncio
import json
import queue
import signal
import warnings
from urllib.request import urlopen

import numpy as np
import pytest

from tests.serving._http import check
from tests.serving.test_command import Process

reason = "compares with tritonclient, which is not installed"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of gevent, which its client of HTTP imports
    triton_http = pytest.importorskip("tritonclient.http", reason=reason, exc_type=ImportError)
    triton_grpc = pytest.importorskip("tritonclient.grpc", reason=reason, exc_type=ImportError)
    import tritonclient.grpc.aio as triton_grpc_aio
    import tritonclient.http.aio as triton_http_aio

pytestmark = pytest.mark.oracle
MODELS = """
import numpy as np
import actorgraph as ag

def build():
    server = ag.serving.Server()
    x = ag.Graph().input("x", ("rows", 2), "float32")
    n = ag.Graph().input("n", ("rows",), "int64")
    server.add("double", lambda: {"y": x * 2.0}, max_batch_size=4, priority_levels=2)
    server.add("counts", {"n": n + 1}, feedback={"n": "n"}, max_steps=3)
    server.add("slow", {"y": waits(ag.Graph().input("x", ("rows", 2), "float32"))})
    return server

async def forever(xp, x):
    import anyio
    await anyio.sleep_forever()

waits = ag.ops.define("triton_waits", scheme="f[*s] -> f[*s]", forward=forever)
"""
DATA = np.array([[1.0, 2.0], [3.0, 4.0]], "float32")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    file = tmp_path_factory.mktemp("triton") / "models.py"
    file.write_text(MODELS)
    with Process(f"{file}:build", "--grpc-port", "0", token="secret") as process:
        ports = {"grpc": int(process.logs(r"gRPC at 127.0.0.1:(\d+)")[1])}
        ports["http"] = process.serving().port
        yield ports
        process.signal(signal.SIGTERM)
        assert process.ended() == 0


@pytest.fixture(params=["http", "grpc"])
def triton(request, served):
    """Give the module of a protocol, and a client."""
    module = {"http": triton_http, "grpc": triton_grpc}[request.param]
    client = module.InferenceServerClient(f"127.0.0.1:{served[request.param]}")
    yield module, client
    client.close()


def inputs(module, data=DATA, name="x", datatype="FP32", **options):
    tensor = module.InferInput(name, list(data.shape), datatype)
    tensor.set_data_from_numpy(data, **options)
    return [tensor]


def test_it_infers_in_binary_and_gives_the_id_back(triton):
    module, client = triton
    answer = client.infer("double", inputs(module), request_id="seven", model_version="1")
    assert (answer.as_numpy("y") == DATA * 2).all()
    told = answer.get_response()
    assert (told["id"] if module is triton_http else told.id) == "seven"


def test_it_infers_in_json(served):
    client = triton_http.InferenceServerClient(f"127.0.0.1:{served['http']}")
    outputs = [triton_http.InferRequestedOutput("y", binary_data=False)]
    answer = client.infer("double", inputs(triton_http, binary_data=False), outputs=outputs)
    assert (answer.as_numpy("y") == DATA * 2).all()
    assert "data" in answer.get_output("y")
    client.close()


def test_it_infers_in_the_background(triton):
    module, client = triton
    if module is triton_http:
        answers = [client.async_infer("double", inputs(module)) for _ in range(3)]
        found = [one.get_result() for one in answers]
    else:
        told = queue.SimpleQueue()
        for _ in range(3):
            client.async_infer(
                "double", inputs(module), lambda result, error: told.put(result or error)
            )
        found = [told.get(timeout=20) for _ in range(3)]
    assert all((one.as_numpy("y") == DATA * 2).all() for one in found)


@pytest.mark.parametrize("module", [triton_http_aio, triton_grpc_aio])
def test_it_infers_in_asyncio(served, module):
    async def main():
        port = served["http" if module is triton_http_aio else "grpc"]
        kind = triton_http if module is triton_http_aio else triton_grpc
        async with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            return await asyncio.gather(*(client.infer("double", inputs(kind)) for _ in range(8)))

    found = asyncio.run(main())
    assert all((one.as_numpy("y") == DATA * 2).all() for one in found)


def test_a_stream_has_the_steps_of_the_model(served):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{served['grpc']}") as client:
        told = queue.SimpleQueue()
        client.start_stream(lambda result, error: told.put(result or error))
        data = np.array([5], "int64")
        client.async_stream_infer(
            "counts", inputs(triton_grpc, data, "n", "INT64"), enable_empty_final_response=True
        )
        steps = [told.get(timeout=20) for _ in range(4)]
        client.stop_stream()
    assert [one.as_numpy("n").item() for one in steps[:3]] == [6, 7, 8]
    assert steps[3].get_response().parameters["triton_final_response"].bool_param


def test_it_asks_for_health_metadata_config_and_statistics(triton):
    module, client = triton
    as_json = {} if module is triton_http else {"as_json": True}
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double", "1")
    assert "statistics" in client.get_server_metadata(**as_json)["extensions"]
    metadata = client.get_model_metadata("double", **as_json)
    assert metadata["inputs"][0]["datatype"] == "FP32"
    assert [int(size) for size in metadata["inputs"][0]["shape"]] == [-1, 2]
    config = client.get_model_config("double", **as_json)
    config = config if module is triton_http else config["config"]
    assert (config["max_batch_size"], config["input"][0]["data_type"]) == (4, "TYPE_FP32")
    client.infer("double", inputs(module))
    (told,) = client.get_inference_statistics("double", **as_json)["model_stats"]
    assert int(told["inference_stats"]["success"]["count"]) >= 1
    assert len(client.get_inference_statistics(**as_json)["model_stats"]) == 3


def test_the_openapi_document_is_true_of_what_it_is_told(served):
    client = triton_http.InferenceServerClient(f"127.0.0.1:{served['http']}")
    with urlopen(f"http://127.0.0.1:{served['http']}/openapi.json") as answer:
        document = json.load(answer)
    of_model = "/v2/models/double/versions/1"
    answers = {
        "/v2": client.get_server_metadata(),
        of_model: client.get_model_metadata("double"),
        f"{of_model}/config": client.get_model_config("double"),
        f"{of_model}/stats": client.get_inference_statistics("double"),
        "/v2/models/stats": client.get_inference_statistics(),
    }
    for path, content in answers.items():
        check(document, path, "get", 200, content)
    infer = client.infer("double", inputs(triton_http)).get_response()
    check(document, f"{of_model}/infer", "post", 200, infer)
    index = client.get_model_repository_index({"authorization": "Bearer secret"})
    check(document, "/v2/repository/index", "post", 200, index)
    client.close()


def test_models_are_listed_and_loaded_anew_with_the_token(triton):
    module, client = triton
    headers = {"authorization": "Bearer secret"}
    as_json = {} if module is triton_http else {"as_json": True}
    client.load_model("double", headers=headers)
    index = client.get_model_repository_index(headers=headers, **as_json)
    models = index if module is triton_http else index["models"]
    assert {one["name"]: one["state"] for one in models}["double"] == "READY"
    with pytest.raises(module.InferenceServerException, match="needs the token"):
        client.unload_model("double")


def test_a_timeout_and_a_priority_are_kept(triton):
    module, client = triton
    with pytest.raises(module.InferenceServerException, match="the deadline is over") as caught:
        client.infer("slow", inputs(module), timeout=1000)
    wanted = "504" if module is triton_http else "StatusCode.DEADLINE_EXCEEDED"
    assert caught.value.status() == wanted
    assert client.infer("double", inputs(module), priority=2)
    with pytest.raises(module.InferenceServerException, match="has the levels 1 to 2"):
        client.infer("double", inputs(module), priority=3)


def test_the_timeout_of_the_call_itself_is_the_requests(served):
    with (
        triton_grpc.InferenceServerClient(f"127.0.0.1:{served['grpc']}") as client,
        pytest.raises(triton_grpc.InferenceServerException, match="(?i)deadline") as caught,
    ):
        client.infer("slow", inputs(triton_grpc), client_timeout=0.05)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [("none", (1, 2), "no model 'none'"), ("double", (1, 3), "should be float32")],
)
def test_errors_are_raised_with_their_text(triton, name, shape, says):
    module, client = triton
    with pytest.raises(module.InferenceServerException, match=says):
        client.infer(name, inputs(module, np.zeros(shape, "float32")))
