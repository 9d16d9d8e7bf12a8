"""`actorgraph serve`: what it serves, and how it ends."""

import http.client
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from urllib.request import urlopen

import pytest

import actorgraph as ag
from actorgraph import cli
from actorgraph.errors import GraphError
from actorgraph.serving.command import Endpoint, bound, serve, server_of
from actorgraph.serving.workers import supervise

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

@ag.serving.configured(max_queued=5)
def declared():
    return build()

@ag.serving.configured(max_queued=5)
def declared_server():
    return several()

made = ag.serving.Server()

def wrong():
    return build()[0], {}

def broken():
    x = ag.Graph().input("x", (2,), "float64")
    fails = ag.ops.define("command_fails", scheme="f[*s] -> f[*s]", forward=lambda xp, x: 1 / 0)
    return {"y": fails(x)}, {"x": np.ones(2)}
"""
FIND_PROCESS = """
import os

def process():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    return {"y": x * 0.0 + os.getpid()}, {"x": np.ones((1, 2))}
"""
INFER_PROCESS = "/v2/models/process/infer"
REQUEST = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}


@pytest.fixture(autouse=True)
def logger():
    """Leave the library's logger as it was: a command configures it."""
    found = logging.getLogger("actorgraph")
    handlers, level = [*found.handlers], found.level
    yield
    found.handlers[:] = handlers
    found.setLevel(level)


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


def test_the_function_says_the_config_of_what_it_returns_and_a_file_goes_before(file):
    with server_of(f"{file}:declared") as server:
        assert server.model("declared").config.max_queued == 5
    with server_of(f"{file}:declared", {"max_queued": 7}) as server:
        assert server.model("declared").config.max_queued == 7
    with pytest.raises(GraphError, match="returns a Server, which has its own config"):
        server_of(f"{file}:declared_server")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("{}:wrong", "missing feed 'x'"),
        ("{}:nothing", "has no function"),
        ("{}:made", "has no function 'made', only a Server; a function that returns it is wanted"),
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
        serve(server_of(f"{file}:build"), Endpoint(port=0))


def test_a_port_in_use_is_told_before_anything_starts(file):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint(port=taken.getsockname()[1])
        with server_of(f"{file}:build") as server, pytest.raises(GraphError, match="in use"):
            serve(server, endpoint)


def test_a_metrics_port_in_use_is_told_before_anything_starts(file):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint(port=0, metrics_port=taken.getsockname()[1])
        with (
            server_of(f"{file}:build") as server,
            pytest.raises(GraphError, match="cannot serve metrics"),
        ):
            serve(server, endpoint)


@pytest.mark.parametrize(
    ("given", "config", "kubernetes", "wanted"),
    [(None, {}, False, 0), (None, {}, True, 5), (None, {"drain_delay_s": 0}, True, 0),
     (None, {"drain_delay_s": 2}, True, 2), (0, {"drain_delay_s": 2}, True, 0)],
)  # fmt: skip
def test_the_delay_is_the_command_s_the_config_s_or_what_kubernetes_needs(
    given, config, kubernetes, wanted, monkeypatch
):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if kubernetes:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "kubernetes")
    assert Endpoint(drain_delay_s=given).delay_s(ag.serving.Server(config)) == wanted


def test_ports_are_told_to_be_of_tcp_so_that_loops_send_at_once():
    with bound("127.0.0.1", 0, shared=False) as port:
        assert port.proto == socket.IPPROTO_TCP


# -- processes ----------------------------------------------------------------------------------


class Process:
    """`actorgraph serve`, what it has logged, and what it answers."""

    def __init__(self, target, *options, token=None):
        pytest.importorskip("uvicorn")
        command = [sys.executable, "-m", "actorgraph", "serve", target, "--port", "0", *options]
        known = os.environ if token is None else os.environ | {"ACTORGRAPH_REPOSITORY_TOKEN": token}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=known)
        self.log = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()

    def logs(self, pattern):
        """Wait until it logs something, and return what was found."""
        for line in self._process.stderr:
            self.log.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it has ended without {pattern!r}: {''.join(self.log)}")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def serving(self):
        self.port = int(self.logs(r"HTTP at http://127.0.0.1:(\d+)")[1])
        return self

    def ask(self, method="POST", path="/v2/models/build/infer", content=REQUEST):
        """Return the status and the object of an answer."""
        with closing(self.connect()) as connection:
            connection.request(method, path, json.dumps(content))
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    def signal(self, number=signal.SIGTERM):
        self._process.send_signal(number)

    def ended(self):
        """Wait for the end, and return the exit code."""
        self.log += self._process.stderr.readlines()
        return self._process.wait(timeout=20)


ORDER = """not ready any more; requests are taken for 0 s
no request is taken any more; 2 are to be answered
all admitted requests are answered
model 'build' is closed
model 'counts' is closed
ended"""
GATED = """
import os
import numpy as np
import actorgraph as ag

entered, gate = os.open({entered!r}, os.O_RDWR), os.open({gate!r}, os.O_RDWR)

def through(xp, x):
    os.write(entered, b".")
    os.read(gate, 1)
    return x + 1.0

gated = ag.ops.define("command_gate", scheme="f[*s] -> f[*s]", forward=through)

def build():
    server = ag.serving.Server()
    y = gated(ag.Graph().input("x", ("rows", 2), "float64"))
    server.add("counts", {{"y": y}}, feedback={{"y": "x"}}, max_steps=3)
    server.add("build", {{"y": gated(ag.Graph().input("x", ("rows", 2), "float64"))}})
    return server
"""


@pytest.fixture
def gated(tmp_path):
    """Give the target of two models whose runs write to a pipe and read from another."""
    names = {name: str(tmp_path / name) for name in ("entered", "gate")}
    for name in names.values():
        os.mkfifo(name)
    path = tmp_path / "gated.py"
    path.write_text(GATED.format(**names))
    ends = {name: os.open(path, os.O_RDWR) for name, path in names.items()}
    yield f"{path}:build", ends["entered"], ends["gate"]
    for end in ends.values():
        os.close(end)


def test_sigterm_under_load_loses_no_request_and_no_stream_and_ends_in_order(gated):
    target, entered, gate = gated
    with Process(target).serving() as process, ThreadPoolExecutor(2) as clients:
        stream = process.connect()
        stream.request("POST", "/v2/models/counts/infer_stream", json.dumps(REQUEST))
        os.read(entered, 1)
        os.write(gate, b".")
        events = stream.getresponse()
        assert b"data" in events.readline()
        asked = clients.submit(process.ask)
        for _ in range(2):  # the next step of the stream, and the request
            os.read(entered, 1)
        process.signal()
        process.logs("no request is taken any more")
        status, told = process.ask()
        assert (status, told["code"]) == (503, "UNAVAILABLE")
        assert process.ask("GET", "/readyz")[0] == 503
        assert process.ask("GET", "/livez")[0] == 200
        os.write(gate, b"...")
        assert asked.result()[1]["outputs"][0]["data"] == [2, 3]
        assert events.read().count(b"event: end") == 1
        stream.close()
        assert process.ended() == 0
    told = [line.partition(":")[2].strip() for line in process.log[1:]]
    assert [line for line in told if not line.startswith("http ")] == ORDER.splitlines()
    asked = sorted(line.rpartition(" in ")[0] for line in told if line.startswith("http "))
    assert asked == ["http build 200 OK", "http build 503 UNAVAILABLE", "http counts 200 OK"]


def test_the_second_signal_refuses_what_runs_and_ends_at_once(gated):
    target, entered, _ = gated
    with Process(target).serving() as process, ThreadPoolExecutor(1) as clients:
        asked = clients.submit(process.ask)
        os.read(entered, 1)
        process.signal()
        process.logs("no request is taken any more")
        process.signal(signal.SIGINT)
        assert process.ended() == 128 + signal.SIGINT
        status, told = asked.result()
        assert (status, told["code"]) == (503, "UNAVAILABLE")
        assert "was stopped before the request had ended" in told["error"]


def test_workers_share_a_port_and_are_started_again_with_their_files_or_their_death(file):
    file.write_text(FILE + FIND_PROCESS)
    with Process(f"{file}:process", "--workers", "2", "--reload") as parent:
        ports = {parent.serving().port, parent.serving().port}
        assert len(ports) == 1

        def answering():
            return {int(parent.ask("POST", INFER_PROCESS)[1]["outputs"][0]["data"][0])
                    for _ in range(40)}  # fmt: skip

        first = answering()
        os.kill(min(first), signal.SIGKILL)
        parent.logs("ended with -9 and is started again")
        parent.serving()
        second = answering()
        assert len(second) == 2
        assert len(first & second) == 1
        file.write_text(file.read_text() + "\n")
        parent.logs("has changed: all workers are started anew")
        parent.serving()
        parent.serving()
        assert not answering() & second
        parent.signal(signal.SIGINT)
        assert parent.ended() == 0


METRICS = r"metrics at http://127.0.0.1:(\d+)/metrics"


@pytest.mark.parametrize("alone", [False, True])
def test_metrics_are_told_at_the_port_of_http_or_at_one_of_their_own_alone(file, alone):
    with Process(f"{file}:build", *["--metrics-port", "0"] * alone) as process:
        port = int(process.logs(METRICS)[1]) if alone else None
        process.serving()
        assert process.ask()[0] == 200
        with urlopen(f"http://127.0.0.1:{port or process.port}/metrics") as answer:
            told = answer.read().decode()
        assert 'actorgraph_requests_total{model="build",outcome="ok",protocol="http"' in told
        assert "python_info" in told  # of the process
        if alone:
            assert process.ask("GET", "/metrics")[0] == 404
        process.signal()
        assert process.ended() == 0


def test_each_worker_tells_its_metrics_at_a_port_of_its_own(file):
    first = None
    while first is None:
        with socket.create_server(("127.0.0.1", 0)) as found, suppress(OSError, OverflowError):
            port = found.getsockname()[1]
            with socket.create_server(("127.0.0.1", port + 1)):
                first = port
    options = ["--workers", "2", "--metrics-port", str(first)]
    with Process(f"{file}:build", *options) as parent:
        ports = {int(parent.logs(METRICS)[1]) for _ in range(2)}
        assert ports == {first, first + 1}


def test_ports_of_workers_for_metrics_that_are_not_free_are_told_before_any_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        endpoint = Endpoint(port=0, metrics_port=port - 1)
        with pytest.raises(GraphError, match=f"({port - 1}|{port}): Address already in use"):
            supervise(["nothing.py:build"], endpoint, workers=2)


def test_workers_that_cannot_start_end_the_parent_with_their_code(file, capfd):
    assert supervise([f"{file}:nothing"], Endpoint(port=0), workers=1) == 2
    assert "has no function 'nothing'" in capfd.readouterr().err
