import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib import metadata

import pytest

from actorgraph import _demo, cli
from actorgraph.errors import ShapeError
from tests._child import printed_by

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
    ("error", "lines"),
    [
        (ShapeError("3 and 2"), ["actorgraph: error: 3 and 2", "more: actorgraph explain AG102"]),
        (OSError("disk gone"), ["actorgraph: error: disk gone"]),
        (MemoryError(), ["actorgraph: error: MemoryError"]),
    ],
)
def test_errors_are_told_with_their_notes_and_without_traceback(error, lines, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_doctor", failing(error))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err.splitlines() == lines


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
    assert printed_by(code) == ["set()"]


EPOCHS = 4
STEPS = EPOCHS * 12


@pytest.fixture(scope="module")
def told():
    """What a demonstration with two workers prints where there is no terminal."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(["demo", "--epochs", f"{EPOCHS}", "--workers", "2"]) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def outcome():
    """What one with one worker writes as JSON, in a process of its own."""
    done = run("demo", "--json", "--epochs", f"{EPOCHS}", "--workers", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    return json.loads(done.stdout)


def test_demo_learns_the_digits(outcome):
    assert outcome["test_accuracy"] >= 0.95
    assert outcome["gradient_max_difference"] == 0.0
    assert outcome["steps"] == STEPS
    assert outcome["images_per_s"] * outcome["seconds"] == pytest.approx(EPOCHS * 1438)
    (one_worker,) = outcome["step_ms"].values()  # there is nothing to compare with
    assert one_worker > 0


def test_demo_gives_the_same_accuracy_for_every_number_of_workers(outcome, told):
    assert f"test accuracy  {outcome['test_accuracy']:.4f}" in told.splitlines()


def test_demo_says_which_thread_ran_how_many_turns_of_actors(outcome, told):
    ran = re.findall(r"^  (.+?) +([\d,]+) turns +([\d,]+) messages sent", told, re.MULTILINE)
    assert {thread for thread, _, _ in ran} <= {
        "main thread",
        *map("worker thread {}".format, "123"),
    }
    for column, key in enumerate(["turns", "messages"], 1):
        total = sum(int(row[column].replace(",", "")) for row in ran)
        assert total == sum(row[key] for row in outcome["threads"])
        assert total % STEPS == 0  # every actor computes once a step, forward and back
    assert f"messages {total:,}" in told


def test_demo_explains_shows_and_measures_what_it_does(told):
    assert "A turn is one computation of one actor." in told
    assert "At most 2 threads compute at a time" in told
    assert len(re.findall(r"^epoch +\d/4  loss ", told, re.MULTILINE)) == EPOCHS
    lines = told.splitlines()
    times = lines[lines.index("loss and gradients of one batch, median") + 1 :][:3]
    assert [line.split(",")[0].strip() for line in times] == ["1 worker", *["2 workers"] * 2]
    assert all(re.search(r" ms, (\d+\.\d\d times as fast|about the same)", t) for t in times[1:])


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (1.8, "1.80 times as fast"),
        (1.01, "about the same"),
        (0.97, "about the same"),
        (0.5, "0.50 times as fast: slower, here and now"),
    ],
)
def test_demo_tells_gains_and_losses_alike(gain, words):
    assert _demo._compared(gain) == words


def test_demo_ends_with_two_commands_that_work(told, tmp_path):
    commands = re.findall(r"^  (actorgraph .*?)(?:  |$)", told.split("try next")[1], re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        arguments = shlex.split(command)[1:]
        if "trace" in arguments:
            arguments += ["--output", str(tmp_path / "step")]
        assert cli.main(arguments) == 0
    assert (tmp_path / "step.html").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_in_mid_training_stops_cleanly():
    # A shell may start background jobs with SIGINT ignored, which a child inherits.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from actorgraph.cli import main; sys.exit(main(['demo', '--epochs', '10000']))"
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
