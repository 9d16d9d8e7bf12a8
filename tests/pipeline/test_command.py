"""The command `actorgraph pipeline`."""

import json
import sys

import pytest

from actorgraph import cli
from actorgraph.pipeline import load


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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--schedule", "zb"], "there is no schedule 'zb'"),
        (["--memory", "1"], "no schedule fits memory=1;"),
        (["--load", "missing.csv"], "No such file"),
    ],
)
def test_errors_are_one_line(options, text, capsys):
    error = printed(capsys, *options, code=1).err
    assert error.startswith("actorgraph: error: ")
    assert text in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--costs", "1,2"], "'1,2' is not 3 numbers with commas between"),
        (["--costs", "1,2,x"], "'x' is not a number of at least 0"),
        (["--latency", "-1"], "'-1' is not a number of at least 0"),
        (["--stages", "0"], "'0' is not a whole number of at least 1"),
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
