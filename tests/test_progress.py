import io
import sys

import pytest

from actorgraph._progress import Lines, LiveView, ThreadRow, progress_for


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def steps(progress, epochs=2, steps_per_epoch=3, threads=()):
    with progress:
        progress.say("hello [x]")
        progress.begin(epochs, steps_per_epoch)
        for epoch in range(epochs):
            for step in range(steps_per_epoch):
                if progress.is_due():
                    progress.show({"loss": 1.0 / (step + 1)}, threads)
            figures = {"loss": 0.25 / (epoch + 1), "lr": 0.1, "confusion": [1]}
            progress.epoch(epoch + 1, figures, threads)


ROWS = [ThreadRow("main thread", 2000, 3000, 0.5, "[x] tanh"), ThreadRow("worker thread 1", 7, 9)]


def interrupted(number, figures, threads):
    raise KeyboardInterrupt


def test_pipe_gets_one_line_per_epoch():
    stream = io.StringIO()
    steps(progress_for(stream))
    assert stream.getvalue().splitlines() == [
        "hello [x]",
        "epoch   1/2  loss 0.2500",
        "epoch   2/2  loss 0.1250",
    ]


def test_terminal_gets_a_live_bar_with_the_figures(terminal):
    progress = progress_for(terminal)
    assert isinstance(progress, LiveView)
    steps(progress)
    shown = terminal.getvalue()
    assert "hello [x]" in shown
    assert "6/6" in shown
    assert "epoch 2/2" in shown
    assert "loss 0.1250" in shown


def test_a_bar_bears_a_loader_that_does_not_tell_its_length(terminal):
    progress = progress_for(terminal)
    with progress:
        progress.begin(1, None)
        progress.is_due()
        progress.show({"loss": 0.5})
    assert "1/?" in terminal.getvalue()


def test_epochs_say_what_threads_have_done():
    stream = io.StringIO()
    steps(progress_for(stream), epochs=1, threads=ROWS)
    assert stream.getvalue().splitlines()[1] == (
        "epoch   1/1  loss 0.2500  messages 3,009"
        "  main thread: 2,000 turns  worker thread 1: 7 turns"
    )


def test_terminal_gets_a_table_of_threads_with_their_actors(terminal):
    steps(progress_for(terminal), threads=ROWS)
    row = next(line for line in terminal.getvalue().splitlines()[::-1] if "main thread" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "main thread", "[x] tanh", "2,000", "3,000", "0.50",
    ]  # fmt: skip


def test_figures_are_asked_for_ten_times_a_second_and_not_at_every_step(terminal, monkeypatch):
    clock = iter([10.0, 10.0, 10.05, 10.2])
    monkeypatch.setattr("actorgraph._progress.monotonic", lambda: next(clock))
    with progress_for(terminal) as progress:
        progress.begin(1, 3)
        assert progress.is_due()
        progress.show({"loss": 1.0})
        assert not progress.is_due()
        assert progress.is_due()


def test_terminal_without_rich_gets_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(progress_for(Terminal()), Lines)


def test_silent_shows_nothing(capsys):
    stream = Terminal()
    steps(progress_for(stream, silent=True))
    assert (stream.getvalue(), *capsys.readouterr()) == ("", "", "")


def test_bar_gives_the_terminal_back_after_ctrl_c(terminal, monkeypatch):
    progress = progress_for(terminal)
    monkeypatch.setattr(progress, "epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        steps(progress)
    assert not progress._live.is_started
