import json
import os
import signal
import subprocess
import sys
from importlib import metadata

import pytest

from actorgraph import cli
from actorgraph.errors import GraphError

COMMAND = [sys.executable, "-m", "actorgraph"]


def run(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=50,
        check=False,
        **options,
    )


def failing(error):
    def command(arguments):
        raise error

    return command


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"actorgraph {metadata.version('actorgraph')}\n"


def test_a_checkout_that_is_not_installed_has_the_command_too(capsys, monkeypatch):
    expected = metadata.version("actorgraph")

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"actorgraph {expected}\n"


@pytest.mark.parametrize("arguments", [["-h"], ["demo", "-h"], ["doctor", "--help"]])
def test_help_is_shown(arguments, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(arguments)
    assert "usage: actorgraph" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "arguments are required: COMMAND"),
        (["dance"], "invalid choice: 'dance'"),
        (["demo", "--wrkers", "2"], "unrecognized arguments: --wrkers"),
        (["demo", "--workers", "0"], "'0' is not a whole number of at least 1"),
        (["demo", "--epochs", "two"], "'two' is not a whole number of at least 1"),
        (["demo", "--seed", "-1"], "'-1' is not a whole number of at least 0"),
    ],
)
def test_bad_usage_exits_with_2(arguments, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (GraphError("no such node"), "actorgraph: error: no such node"),
        (OSError("disk gone"), "actorgraph: error: disk gone"),
        (MemoryError(), "actorgraph: error: MemoryError"),
    ],
)
def test_errors_are_told_in_one_line_without_traceback(error, line, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_doctor", failing(error))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err.splitlines() == [line]


def test_fault_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli, "_doctor", failing(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main(["doctor"])


def test_ctrl_c_exits_with_130_and_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_doctor", failing(KeyboardInterrupt()))
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "actorgraph: interrupted\n"


def test_doctor_prints_lines_or_one_json_object(capsys):
    assert cli.main(["doctor"]) == 0
    assert f"numpy          {metadata.version('numpy')}" in capsys.readouterr().out
    assert cli.main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"]["numpy"] == metadata.version("numpy")


def test_closed_pipe_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [*COMMAND, "doctor"], stdout=closed, stderr=subprocess.PIPE, timeout=50, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_import_is_cheap():
    code = "import sys, actorgraph.cli; print({'rich', 'actorgraph._demo'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "set()\n"


def test_demo_learns_the_digits(capsys):
    assert cli.main(["demo", "--json"]) == 0
    out, err = capsys.readouterr()
    outcome = json.loads(out)
    assert err == ""
    assert outcome["test_accuracy"] >= 0.97
    assert outcome["gradient_max_difference"] == 0.0
    assert outcome["steps"] == 20 * 45
    assert outcome["workers"] == 2
    assert outcome["images_per_s"] * outcome["seconds"] == pytest.approx(20 * 1438)


def test_demo_shows_epochs_accuracy_speed_and_busiest_nodes(capsys):
    assert cli.main(["demo", "--epochs", "2", "--workers", "1", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gradients      bitwise those of LispMachine"
    assert lines[1].startswith("epoch   1/2  loss ")
    assert lines[2].startswith("epoch   2/2  loss ")
    assert lines[3].startswith("test accuracy  0.")
    assert lines[5].endswith("per second")
    assert lines[6] == "busiest nodes"
    assert len(lines) == 7 + 5
    assert all("firings" in line for line in lines[7:])


def test_demo_with_the_same_seed_gives_the_same_accuracy(capsys):
    accuracies = set()
    for workers in ("1", "2"):
        assert cli.main(["demo", "--json", "--epochs", "2", "--workers", workers]) == 0
        accuracies.add(json.loads(capsys.readouterr().out)["test_accuracy"])
    assert len(accuracies) == 1


def test_demo_in_a_process_of_its_own_prints_exactly_one_json_object():
    done = run("demo", "--json", "--epochs", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert {"test_accuracy", "steps", "seconds", "images_per_s", "workers"} <= set(
        json.loads(done.stdout)
    )


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_in_mid_training_stops_cleanly():
    # A shell may start background jobs with SIGINT ignored, which a child inherits.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from actorgraph.cli import main; sys.exit(main(['demo', '--epochs', '100000']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout:
            if line.startswith("epoch"):  # training has begun
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "actorgraph: interrupted\n")
