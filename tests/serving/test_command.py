"""`actorgraph serve`: what it serves, and how it ends."""

import http.client
import json
import re
import signal
import subprocess
import sys

import pytest

import actorgraph as ag
from actorgraph import cli
from actorgraph.errors import GraphError
from actorgraph.serving.command import serve, server_of

FILE = """
import numpy as np
import actorgraph as ag

def build():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    return {"y": x * 2.0}, {"x": np.ones((1, 2))}

def several():
    server = ag.serving.Server()
    server.add("one", build()[0])
    server.add("two", build()[0])
    return server

def wrong():
    return build()[0], {}

def broken():
    x = ag.Graph().input("x", (2,), "float64")
    fails = ag.ops.define("command_fails", scheme="f[*s] -> f[*s]", forward=lambda xp, x: 1 / 0)
    return {"y": fails(x)}, {"x": np.ones(2)}
"""
REQUEST = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "served.py"
    path.write_text(FILE)
    return path


def test_a_function_returns_a_server_or_what_is_served_under_its_name(file):
    with server_of(f"{file}:build") as server:
        assert server.model("build").config.max_queued == 100
    with server_of(f"{file}:build", {"max_queued": 7}) as server:
        assert server.model("build").config.max_queued == 7
    with server_of(f"{file}:several") as server:
        assert [model.name for model in server.models] == ["one", "two"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("{}:wrong", "missing feed 'x'"),
        ("{}:nothing", "has no function"),
        ("nowhere.py:f", "file"),
    ],
)
def test_a_bad_target_exits_with_2_in_one_line_and_a_note(file, capsys, target, says):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["serve", target.format(file)])
    told, note = capsys.readouterr().err.splitlines()
    assert says in told
    assert note.startswith("more: actorgraph explain AG1")


def test_what_does_not_run_its_feeds_is_not_served(file):
    with pytest.raises(ag.NodeError, match="division by zero"):
        server_of(f"{file}:broken")


def test_a_config_is_for_outputs_and_not_for_a_server_that_has_its_own(file):
    with pytest.raises(GraphError, match="returns a Server, which has its own config"):
        server_of(f"{file}:several", {"max_queued": 7})


def test_without_uvicorn_the_extra_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(GraphError, match="actorgraph\\[serve\\]"):
        serve(server_of(f"{file}:build"), host="127.0.0.1", port=0)


@pytest.fixture
def process(file):
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "actorgraph", "serve", f"{file}:build", "--port", "0"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.wait()
    started.stderr.close()


def test_it_answers_over_http_and_sigterm_ends_it_with_0(process):
    port = next(found[1] for line in process.stderr if (found := re.search(r":(\d+) ", line)))
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
    connection.request("POST", "/v2/models/build/infer", json.dumps(REQUEST))
    answer = connection.getresponse()
    assert answer.status == 200
    assert json.load(answer)["outputs"][0]["data"] == [2, 4]
    connection.close()
    process.send_signal(signal.SIGTERM)
    told = process.stderr.read()
    assert process.wait(timeout=20) == 0
    assert "Traceback" not in told
