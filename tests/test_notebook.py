"""What a notebook shows of results."""

import numpy as np

import actorgraph as ag
from actorgraph.notebook import in_words, table
from tests._each import each


@each(
    "array, words",
    [
        (np.float32(2.5), "float32[], 2.5"),
        (np.arange(6).reshape(2, 3), "int64[2, 3], 0 to 5, mean 2.5"),
        (np.zeros((0, 2)), "float64[0, 2]"),
        (np.array([1.0, np.nan, 3.0]), "float64[3], 1 to 3, mean 2, 1 not finite"),
        (np.full(2, np.inf), "float64[2], no finite entry"),
        (np.ones(2, bool), "bool[2]"),
        (None, ""),
    ],
)
def test_an_array_is_told_by_its_type_and_its_range(array, words):
    assert in_words(array) == words


def test_a_table_escapes_what_it_shows_and_counts_what_it_does_not():
    shown = table("<x>", ("a",), [("<b>",)] * 120)
    assert "<x>" not in shown
    assert "<b>" not in shown
    assert "20 more rows" in shown
    assert shown.count("<tr>") == 101


def test_a_dual_shows_its_value_and_what_was_differentiated():
    w = ag.Graph().parameter("w", np.ones(3))
    run = ag.TapeMachine([(w * w).sum()], wrt=[w]).run_sync(backward=True)
    shown = run[w]._repr_html_()
    assert "Dual of w" in shown
    assert "float64[3], 2 to 2, mean 2" in shown
    assert "tangent" not in shown


def test_a_recording_shows_its_page():
    machine = ag.TapeMachine([ag.Graph().input("x", (2,)).sum()])
    with ag.trace.record() as recording:
        assert recording._repr_html_() is None
        machine.run_sync({"x": np.ones(2, "float32")})
    assert recording._repr_html_().startswith("<iframe")


def test_a_run_shows_what_it_gives_and_a_machine_what_it_does():
    w = ag.Graph().parameter("w", np.ones(3))
    with ag.TapeMachine([(w * w).sum().named("loss")], wrt=[w]) as machine:
        run = machine.run_sync(backward=True)
        shown = run._repr_html_()
        assert "loss" in shown
        assert "float64[3], 2 to 2, mean 2" in shown
        assert "backward" in machine._repr_html_()
