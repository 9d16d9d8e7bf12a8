import io
import sys

import pytest

from actorgraph._progress import Lines, Silent, TrainingBar, progress_for


class Terminal(io.StringIO):
    def isatty(self):
        return True


def steps(progress, epochs=2, steps_per_epoch=3):
    with progress:
        progress.say("hello [x]")
        progress.begin(epochs, steps_per_epoch)
        for step in range(epochs * steps_per_epoch):
            progress.step(loss=1.0 / (step + 1), accuracy=0.5)


def interrupted(loss, accuracy):
    raise KeyboardInterrupt


def test_pipe_gets_one_line_per_epoch():
    stream = io.StringIO()
    progress = progress_for(stream, silent=False)
    assert isinstance(progress, Lines)
    steps(progress)
    assert stream.getvalue().splitlines() == [
        "hello [x]",
        "epoch   1/2  loss 0.3333  accuracy 0.5000",
        "epoch   2/2  loss 0.1667  accuracy 0.5000",
    ]


def test_terminal_gets_a_live_bar_with_loss_and_accuracy(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = progress_for(stream, silent=False)
    assert isinstance(progress, TrainingBar)
    steps(progress)
    shown = stream.getvalue()
    assert "hello [x]" in shown
    assert "6/6" in shown
    assert "loss 0.1667  accuracy 0.5000" in shown


def test_terminal_without_rich_gets_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(progress_for(Terminal(), silent=False), Lines)


def test_silent_shows_nothing(capsys):
    progress = progress_for(Terminal(), silent=True)
    assert isinstance(progress, Silent)
    steps(progress)
    assert capsys.readouterr() == ("", "")


def test_bar_gives_the_terminal_back_after_ctrl_c(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    progress = progress_for(Terminal(), silent=False)
    monkeypatch.setattr(progress, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        steps(progress)
    assert not progress._progress.live.is_started
