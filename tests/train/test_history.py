"""A history is a table of figures that can be looked at anywhere."""

import sys

import pytest

import actorgraph as ag
from actorgraph.errors import GraphError


def history_of(*rows):
    history = ag.train.History()
    for row in rows:
        history.add(row)
    return history


def test_figures_that_come_late_or_stay_away_have_none():
    history = history_of({"loss": 3.0}, {"loss": 2.0, "val_loss": 4.0}, {"loss": 1.0})
    assert dict(history) == {"loss": [3.0, 2.0, 1.0], "val_loss": [None, 4.0, None]}
    assert history.last() == {"loss": 1.0, "val_loss": None}
    again = ag.train.History()
    again.load_state_dict(history.state_dict())
    assert dict(again) == dict(history)


def test_a_figure_that_is_not_there_is_told_with_near_names():
    with pytest.raises(KeyError, match="no figure 'los'; did you mean 'loss'"):
        history_of({"loss": 1.0})["los"]


def test_curves_are_bars_in_a_terminal_with_gaps_and_means_of_neighbours(monkeypatch):
    nan = float("nan")
    history = history_of(*[{"loss": one, "bad": nan} for one in (8.0, nan, 1.0)])
    assert str(history) == "loss  8 █ ▁ 1\nbad   nan     nan"
    long = str(history_of(*[{"loss": float(500 - step)} for step in range(500)]))
    assert long.count("█") >= 1
    assert len(long) < 80
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert repr(history.plot()) == str(history)
    with pytest.raises(GraphError, match=r"pip install 'actorgraph\[plot\]'"):
        history.plot("curve.png")


def test_a_picture_has_a_panel_for_each_quantity(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"loss": 1.0, "val_loss": 2.0, "accuracy": 0.5, "confusion": [[1]], "seconds": 1.0}] * 2
    figure = history_of(*rows).plot(tmp_path / "curve.png")
    assert [axes.get_title() for axes in figure.axes] == ["loss", "accuracy"]
    assert len(figure.axes[0].lines) == 2
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
