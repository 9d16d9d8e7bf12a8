"""`actorgraph trace FILE.py:function` runs, prints and writes, or says what is wrong."""

import json
import sys

import pytest

from actorgraph import cli
from actorgraph.trace import command, recorder, using

MODEL = """
import numpy as np
import actorgraph as ag
from sibling import WIDTH

def build():
    g = ag.Graph("model")
    x = g.input("x", shape=("batch", WIDTH))
    W = g.parameter("W", np.ones((WIDTH, WIDTH), "float32"))
    loss = np.tanh(x @ W).named("h").mean().named("loss")
    return loss, {"x": np.ones((2, WIDTH), "float32")}

def build_async():
    async def forward(xp, value):
        return value + 1
    later = ag.ops.define("command_later", scheme="f[*s] -> f[*s]", forward=forward)
    loss, feeds = build()
    return {"later": later(loss)}, feeds

def only_outputs():
    return build()[0]

def three():
    return 1, 2, 3

def listed():
    return build()[0], [1]

def no_nodes():
    return 3, {}

def failing():
    raise ZeroDivisionError("in the model")

def wrong_graph():
    g = ag.Graph()
    return g.input("x", shape=(2,)) + g.input("y", shape=(3,)), {}

CONSTANT = 3

async def waiting():
    return build()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sibling.py").write_text("WIDTH = 4\n")
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    yield path
    sys.modules.pop("sibling", None)


def test_summary_is_printed_and_both_files_are_written(file, capsys):
    options = ["--fuse", "none", "--workers", "2", "--runs", "3", "--backward"]
    assert cli.main(["trace", "model.py:build", *options]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 runs in ")
    assert "critical path of run " in out
    assert out.splitlines()[-2:] == [
        "wrote build.json, to be opened in https://ui.perfetto.dev",
        "wrote build.html",
    ]
    events = json.loads(file.with_name("build.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("h") == names.count("h (backward)") == 3
    assert "<title>model.py:build</title>" in file.with_name("build.html").read_text()


def test_the_start_of_the_event_loop_is_not_recorded(file, monkeypatch):
    def slow_run(function):
        clock[0] += 1000.0
        return run(function)

    run, clock = command.anyio.run, [0.0]
    monkeypatch.setattr(command.anyio, "run", slow_run)
    for module in (recorder, using):
        monkeypatch.setattr(module, "perf_counter", lambda: clock[0])
    assert command.trace("model.py:build", runs=2).duration_s == 0.0


def test_a_recording_without_actors_comes_with_a_hint(file, capsys):
    hint = "--fuse none gives each node an actor"
    assert cli.main(["trace", "model.py:build"]) == 0
    assert hint in capsys.readouterr().out
    assert cli.main(["trace", "model.py:build", "--fuse", "none"]) == 0
    assert hint not in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_told_before_anything_runs(file, capsys):
    assert cli.main(["trace", "model.py:failing", "-o", "absent/files"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no folder 'absent' for the files of --output 'absent/files'" in err


@pytest.mark.parametrize("machine", ["actor", "tape", "lisp"])
def test_every_machine_can_be_traced(machine, file, capsys):
    assert cli.main(["trace", f"{file}:build", "--machine", machine, "-o", machine]) == 0
    assert capsys.readouterr().out.startswith("1 run in ")
    assert json.loads(file.with_name(f"{machine}.json").read_text())["traceEvents"]


def test_asynchronous_ops_can_be_traced(file, capsys):
    assert cli.main(["trace", "model.py:build_async", "--runs", "2"]) == 0
    events = json.loads(file.with_name("build_async.json").read_text())["traceEvents"]
    assert sum(event.get("cat") == "call" and event["ph"] == "b" for event in events) == 2


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("model.py", "expected FILE.py:function, such as model.py:build, got 'model.py'"),
        ("model.py:a b", "expected FILE.py:function"),
        ("absent.py:build", "there is no file 'absent.py'"),
        ("model.txt:build", "'model.txt' is no Python file"),
        ("model.py:biuld", "has no function 'biuld'; did you mean 'build'"),
        ("model.py:CONSTANT", "has no function 'CONSTANT'"),
        ("model.py:xyz", "has no function 'xyz'; it has build"),
        ("ufuncs.py:build", "has no function 'build'"),
        ("syntax.py:build", "syntax.py:2 raised SyntaxError"),
        ("raising.py:build", "raising.py:1 raised ImportError"),
        ("model.py:failing", "model.py:33 raised ZeroDivisionError: in the model"),
        ("model.py:only_outputs", "should return (outputs, feeds), a node or several and a dict"),
        ("model.py:three", "got a tuple of 3"),
        ("model.py:listed", "got list [1] for feeds"),
        ("model.py:wrong_graph", "x"),
        ("model.py:waiting", "model.py:waiting is an async function; write it with def alone"),
    ],
)
def test_what_is_wrong_with_a_target_is_told_in_one_message(target, text, file, capsys):
    file.with_name("model.txt").write_text("")
    file.with_name("ufuncs.py").write_text("from numpy import exp\n")
    file.with_name("syntax.py").write_text("x = 1\nx = = 2\n")
    file.with_name("raising.py").write_text("from math import nothing\n")
    assert cli.main(["trace", target]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("actorgraph: error: ")
    assert text in err
    assert "Traceback" not in err


def test_outputs_that_are_no_nodes_are_refused(file, capsys):
    assert cli.main(["trace", "model.py:no_nodes"]) == 1
    assert "actorgraph: error: " in capsys.readouterr().err


def test_bad_options_exit_with_2(file, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["trace", "model.py:build", "--runs", "0"])
    assert "'0' is not a whole number of at least 1" in capsys.readouterr().err
