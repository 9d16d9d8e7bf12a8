"""The command `actorgraph pipeline`: schedules simulated, and run."""

import json
import sys

import pytest

from actorgraph import cli
from actorgraph.pipeline import load

MODEL = """
import numpy as np
import actorgraph as ag

def graph(place, trained=True):
    g = ag.Graph("model")
    x = g.input("x", shape=("batch", 4))
    h = x
    for stage in range(2):
        make = g.parameter if trained else lambda name, value: g.constant(value)
        W = make(f"W{stage}", np.ones((4, 4), "float32"))
        if place:
            with g.stage(stage):
                h = np.tanh(h @ W)
        else:
            h = np.tanh(h @ W)
    return [h.mean().named("loss"), h], {"x": np.ones((8, 4), "float32")}

def placed():
    return graph(True)

def unplaced():
    return graph(False)

def untrained():
    return graph(True, trained=False)

def empty():
    return [], {}

def several():
    (loss, h), feeds = graph(True)
    return [h, loss], feeds

def fed_wrongly():
    outputs, feeds = graph(True)
    return outputs, {"y": feeds["x"]}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def printed(capsys, *arguments, code=0):
    assert cli.main(["pipeline", *arguments]) == code
    return capsys.readouterr()


def test_all_schedules_are_compared_and_the_fastest_is_drawn(capsys):
    lines = printed(capsys, "--stages", "2", "--microbatches", "4").out.splitlines()
    assert lines[0].split() == "schedule makespan bubble of makespan span bubble peak".split()
    names = [line.split()[0] for line in lines[1 : lines.index("")]]
    assert {"gpipe", "1f1b", "zb-h2", "dualpipe-v"} <= set(names)
    assert [line[:4] for line in lines[-2:]] == ["0 | ", "1 | "]


def test_memory_and_names_choose_what_is_compared(capsys):
    options = ["--memory", "4", "--schedule", "zb-h2", "--schedule", "zb-h1", "--json"]
    found = json.loads(printed(capsys, *options).out)
    assert {one["schedule"] for one in found} == {"zb-h1", "zb-h1 chunks=2"}
    assert all(max(one["peak_memory"]) <= 4 for one in found)


def test_costs_and_latency_may_be_fractions(capsys):
    options = ["--costs", "1/2,0.25,1", "--latency", "1e-1", "--schedule", "gpipe", "--json"]
    (found,) = json.loads(printed(capsys, *options).out)
    assert found["global_bubble"] == pytest.approx(3 * (1.75 + 0.2))


def test_a_schedule_is_saved_and_shown_again(capsys, tmp_path):
    path = tmp_path / "plan.csv"
    printed(capsys, "--schedule", "1f1b", "--save", str(path))
    assert load(path).devices == 4
    assert printed(capsys, "--load", str(path)).out.splitlines()[1].split()[:2] == ["plan", "33"]


def assert_one_line_and_a_note(error):
    """An error of the package says where there is more; one of the file system has nothing."""
    _, *notes = error.splitlines()
    own = "No such file" not in error
    assert [note.startswith("more: actorgraph explain AG1") for note in notes] == [True] * own


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--schedule", "zb"], "there is no schedule 'zb'"),
        (["--memory", "1"], "no schedule fits memory=1;"),
        (["--load", "missing.csv"], "No such file"),
    ],
)
def test_errors_are_one_line_and_a_note(options, text, capsys):
    error = printed(capsys, *options, code=1).err
    assert error.startswith("actorgraph: error: ")
    assert text in error
    assert_one_line_and_a_note(error)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--costs", "1,2"], "'1,2' is not 3 numbers with commas between"),
        (["--costs", "1,2,x"], "'x' is not a number from 0 to 1e100"),
        (["--latency", "-1"], "'-1' is not a number from 0 to 1e100"),
        (["--stages", "0"], "'0' is not a whole number of at least 1"),
        (["run", "model.py:placed", "--runs", "0"], "'0' is not a whole number of at least 1"),
        (["run"], "the following arguments are required: FILE.py:FUNCTION"),
        (["walk"], "invalid choice: 'walk'"),
    ],
)
def test_bad_usage_exits_with_2(options, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["pipeline", *options])
    assert text in capsys.readouterr().err


def test_a_terminal_gets_colours_where_rich_is_installed(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in printed(capsys, "--schedule", "1f1b").out
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "\x1b[" not in printed(capsys, "--schedule", "1f1b").out


# -- run --------------------------------------------------------------------------------------


def test_a_graph_is_run_by_schedules_and_drawn_as_measured_and_as_predicted(file, capsys):
    options = ["--schedule", "1f1b,zb-h1", "--schedule", "gpipe", "--microbatches", "3"]
    out = printed(capsys, "run", "model.py:placed", *options, "--runs", "2").out
    table, measured, predicted = [part.splitlines() for part in out.split("\n\n")]
    assert table[0].split()[:4] == ["schedule", "measured", "ms", "predicted"]
    assert {line.split()[0] for line in table[1:]} == {"1f1b", "zb-h1", "gpipe"}
    fastest = table[1].split()[0]
    assert measured[0].startswith(f"{fastest}, measured (F forward,")
    assert predicted[0] == f"{fastest}, predicted by its measured costs"
    for picture in (measured, predicted):
        assert [line[:4] for line in picture[1:]] == ["0 | ", "1 | "]


def test_a_graph_without_placement_is_cut_into_the_stages_asked_for(file, capsys):
    (found,) = json.loads(
        printed(capsys, "run", "model.py:unplaced", "--stages", "3", "--json").out
    )
    assert (found["devices"], found["microbatches"], found["schedule"]) == (3, 8, "1f1b")
    assert 0 < found["makespan_s"] < found["run_s"]
    assert found["predicted_s"] > 0
    assert [len(costs) for costs in found["costs_s"]] == [3, 3, 3]


def test_what_schedules_share_may_stand_before_the_word_run(file, capsys):
    before = ["--stages", "2", "--microbatches", "4", "--schedule", "dynamic", "--json"]
    (found,) = json.loads(printed(capsys, *before, "run", "model.py:unplaced").out)
    assert (found["devices"], found["microbatches"]) == (2, 4)
    assert found["schedule"] == "dynamic"


def test_a_schedule_of_a_file_is_run_beside_named_ones(file, capsys):
    printed(capsys, "--stages", "2", "--microbatches", "4", "--schedule", "gpipe",
            "--save", "plan.csv")  # fmt: skip
    options = ["--load", "plan.csv", "--schedule", "1f1b", "--microbatches", "4", "--json"]
    found = json.loads(printed(capsys, "run", "model.py:placed", *options).out)
    assert {one["schedule"] for one in found} == {"plan", "1f1b"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["model.py"], "expected FILE.py:function, such as model.py:build, got 'model.py'"),
        (["absent.py:build"], "there is no file 'absent.py'"),
        (["model.py:plced"], "has no function 'plced'; did you mean 'placed'"),
        (["model.py:empty"], "model.py:empty returns no outputs; the first is the loss"),
        (["model.py:untrained"], "builds a graph without parameters; a pipeline computes"),
        (["model.py:several"], "the loss has to be a float scalar"),
        (["model.py:fed_wrongly"], "unknown feed 'y'"),
        (["model.py:unplaced"], "how many stages?"),
        (["model.py:placed", "--stages", "3"], "nodes are placed in 2 stages, but"),
        (["model.py:placed", "--schedule", "zb"], "there is no schedule 'zb'"),
        (["model.py:placed", "--microbatches", "9"], "batch is 8: cannot be cut into 9"),
        (["model.py:placed", "--split", "rows"], "no input has the dim 'rows'"),
        (["model.py:placed", "--load", "missing.csv"], "No such file"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line_and_a_note(options, text, file, capsys):
    captured = printed(capsys, "run", *options, code=1)
    assert captured.out == ""
    assert captured.err.startswith("actorgraph: error: ")
    assert text in captured.err
    assert_one_line_and_a_note(captured.err)


@pytest.mark.parametrize("option", ["--costs=1,1,1", "--latency=1", "--memory=4"])
def test_a_run_takes_no_costs(option, file, capsys):
    error = printed(capsys, option, "run", "model.py:placed", code=1).err
    assert "is for simulations; `pipeline run` measures it" in error
