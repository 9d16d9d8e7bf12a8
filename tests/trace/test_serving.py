"""A socket says what the machines of a process do, and ends whatever has become of its path."""

import io
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import actorgraph as ag
from actorgraph import cli, instrument
from actorgraph.errors import GraphError
from actorgraph.trace import serving as serving_module
from actorgraph.trace.serving import ask, watch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket may be 100 characters long
    return "live.sock"


def test_a_socket_answers_with_the_same_figures_and_is_gone_afterwards(model, path):
    before = set(threading.enumerate())
    with model.actors() as machine, ag.trace.serve(path) as live:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        machine.run_sync(model.feeds)
        first, second = ask(path), live.views()
        assert [view.actors for view in first] == [view.actors for view in second]
        assert (first[0].name, first[0].ended) == ("model", 1)
    assert not os.path.exists(path)
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name == "actorgraph-server"]


def test_a_socket_of_one_machine_tells_of_no_other(model, path):
    with model.actors() as machine, model.actors() as other, ag.trace.serve(path, machine):
        other.run_sync(model.feeds)
        assert ask(path) == []


def test_a_path_that_is_taken_is_refused_and_left_alone(path):
    with ag.trace.serve(path):
        with pytest.raises(GraphError, match="something else is at 'live.sock' already"):
            ag.trace.serve(path).__enter__()
        assert ask(path) == []
    Path(path).write_text("mine")
    with pytest.raises(GraphError, match="'live.sock'"):
        ag.trace.serve(path).__enter__()
    assert Path(path).read_text() == "mine"


def test_the_socket_of_a_killed_process_is_taken_over(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(path)
    with ag.trace.serve(path):
        assert ask(path) == []


@pytest.mark.parametrize("address", ["absent.sock", "no/folder/x.sock", "x" * 300])
def test_asking_where_nobody_serves_says_what_to_do(address, path):
    with pytest.raises(GraphError, match="nobody answers at .*ag.trace.serve"):
        ask(address)


def test_a_socket_that_cannot_be_made_is_an_error_before_anything_starts(path):
    with pytest.raises(GraphError, match="no socket can be made at 'no/folder/x.sock'"):
        ag.trace.serve("no/folder/x.sock").__enter__()
    assert instrument.listening == set()


def test_top_on_the_command_line_looks_once_from_another_process(model, path):
    with model.actors() as machine, ag.trace.serve(path):
        machine.run_sync(model.feeds)
        seen = subprocess.run(
            [sys.executable, "-m", "actorgraph", "top", os.path.abspath(path), "--once"],
            capture_output=True, text=True, timeout=50, check=False,
            cwd=ROOT,
        )  # fmt: skip
    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout.startswith("model: ")
    assert "1 ended, 0 failed" in seen.stdout


def test_watching_goes_on_until_the_program_ends(model, path, monkeypatch):
    shown, looks = io.StringIO(), []

    def look_again(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            serving.__exit__(None, None, None)

    monkeypatch.setattr(serving_module, "sleep", look_again)
    serving = ag.trace.serve(path)
    serving.__enter__()
    watch(path, shown, every_s=7)
    assert looks == [7, 7, 7]
    assert shown.getvalue().splitlines() == ["no machine is open and has run"] * 3


def test_top_where_nobody_serves_is_one_line(path, capsys):
    assert cli.main(["top", path]) == 1
    assert capsys.readouterr().err.startswith("actorgraph: error: ")


def test_a_served_block_may_change_the_folder(path, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    with ag.trace.serve(path):
        monkeypatch.chdir(tmp_path / "other")
        assert ask("../live.sock") == []
    assert os.listdir(tmp_path) == ["other"]


def test_a_socket_that_somebody_removed_or_replaced_is_no_error(path):
    with ag.trace.serve(path):
        os.unlink(path)
    with ag.trace.serve(path):
        os.unlink(path)
        Path(path).write_text("mine")
    assert Path(path).read_text() == "mine"


@pytest.mark.parametrize("spoil", [lambda path: None, os.unlink])
def test_what_the_served_block_raises_is_what_comes_out(path, spoil):
    serving = ag.trace.serve(path)
    serving.__enter__()
    spoil(path)
    error = ZeroDivisionError("mine")
    assert not serving.__exit__(ZeroDivisionError, error, None)
    assert error.__context__ is None
    assert not os.path.exists(path)
    assert instrument.listening == set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_socket_to_its_parent(model, path):
    serving, held, done = ag.trace.serve(path), threading.Event(), threading.Event()
    live = serving.__enter__()
    with model.actors() as parents:
        parents.run_sync(model.feeds)

        def hold():  # as a thread of the parent may at any time
            with parents._core.lock:
                held.set()
                done.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(20)
        child = os.fork()
        if not child:
            with model.actors() as machine:
                machine.run_sync(model.feeds)
                seen = [view.ended for view in live.views()]
            serving.__exit__(None, None, None)
            os._exit(0 if (seen, live.views()) == ([1], []) else 1)
        assert os.waitpid(child, 0) == (child, 0)
        assert [view.ended for view in ask(path)] == [1]
        done.set()
        thread.join()
    serving.__exit__(None, None, None)
    assert not os.path.exists(path)


def test_a_child_does_not_keep_the_socket_of_a_parent_that_ended(path):
    program = """
import os, signal, sys, actorgraph as ag
ag.trace.serve(sys.argv[1]).__enter__()
if not os.fork():
    sys.stdin.read()  # outlives its parent
    os._exit(0)
print("forked", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ROOT},
    )  # fmt: skip
    with started:
        assert started.stdout.readline() == b"forked\n"
        started.wait(20)
        with ag.trace.serve(path):
            assert ask(path) == []


def answering(path, answer):
    """Serve at `path` what `answer` does with the first connection, in a thread."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()

    def serve():
        with listener, listener.accept()[0] as connection:
            answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_who_answers_a_byte_at_a_time_is_not_waited_for_longer_than_was_said(path, monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(serving_module, "monotonic", lambda: float(next(ticks)))

    def drip(connection):
        with suppress(OSError):  # until who asked has gone
            while True:
                connection.sendall(b" ")

    thread = answering(path, drip)
    with pytest.raises(GraphError, match=r"nobody answers at 'live.sock' \(timed out\)"):
        ask(path, timeout_s=20)
    thread.join(20)
    assert next(ticks) < 30


@pytest.mark.parametrize(
    "answer", [b"\n", b"3\n", b"[3]\n", b'[{"name": 3}]\n', b"[" * 100_000 + b"\n", b"\xff\n", b""]
)
def test_who_answers_something_else_is_told_apart(path, answer):
    thread = answering(path, lambda connection: connection.sendall(answer))
    with pytest.raises(GraphError, match="nobody answers at 'live.sock'"):
        ask(path)
    thread.join(20)


@pytest.mark.parametrize("wrong", ["", "a\0b", 3, None, b"", "\ud800"])
def test_a_path_that_is_none_is_refused(wrong, path):
    with pytest.raises(GraphError, match="no socket can be made at"):
        ag.trace.serve(wrong).__enter__()
    with pytest.raises(GraphError, match="nobody answers at"):
        ask(wrong)


@pytest.mark.parametrize("wrong", [float("nan"), -1, "5", None, True])
def test_the_time_to_wait_for_an_answer_is_checked(wrong, path):
    with pytest.raises(ValueError, match="timeout_s is a number of seconds"):
        ask(path, timeout_s=wrong)
