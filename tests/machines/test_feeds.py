"""Feeds like those of an earlier run skip the checks; whatever differs from them is checked."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.machines.plan import Plan
from tests._each import each

GOOD = np.ones((4, 3), "float32")
PLANNED = []
"""Shapes for which a plan has asked what `planned` costs."""


def _cost(shapes, result, attrs):
    PLANNED.append(result)
    return 1.0


planned = ag.ops.define(
    "machines_planned", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x + 1, cost=_cost
)


def machine():
    g = ag.Graph()
    x, y = g.input("x", ("n", 3)), g.input("y", ("n", 3))
    return ag.ActorMachine([x + 2 * y])


@each(
    "bad, problem",
    [
        ({"x": GOOD}, "missing feed 'y'"),
        ({"x": GOOD, "z": GOOD}, "unknown feed 'z'"),
        ({"x": GOOD, "y": GOOD.astype("float64")}, "dtype float64, not float32"),
        ({"x": GOOD, "y": GOOD[:, :2]}, "a dim 2, not 3"),
        ({"x": GOOD, "y": GOOD[:2]}, "n = 2, but 'x' has n = 4"),
        ({"x": GOOD, "y": np.ma.masked_array(GOOD)}, "masked array"),
        ([("x", GOOD), ("y", GOOD)], "got list"),
    ],
)
def test_feeds_that_do_not_fit_are_refused_after_others_that_did(bad, problem):
    with machine() as one:
        one.run_sync({"x": GOOD, "y": GOOD})
        with pytest.raises(ag.FeedError, match=problem):
            one.run_sync(bad)


def test_feeds_by_node_are_checked_once_as_those_by_name_are(monkeypatch):
    with machine() as one:
        x, y = one.graph.inputs
        one.run_sync({x: GOOD, y: GOOD})
        with monkeypatch.context() as patch:
            patch.setattr(Plan, "checked", None)
            for feeds in ({x: GOOD, y: GOOD}, {"y": GOOD, x: GOOD}, {"x": GOOD, "y": GOOD}):
                [found] = one.run_sync(feeds).duals.values()
                assert found.value.tolist() == (3 * GOOD).tolist()
        with pytest.raises(ag.FeedError, match="'x' is given twice"):
            one.run_sync({x: GOOD, "x": GOOD})
        with pytest.raises(ag.FeedError, match="belongs to another graph"):
            one.run_sync({x: GOOD, machine().graph["y"]: GOOD})


def test_scalars_and_arrays_with_gaps_are_checked_once_too(monkeypatch):
    g = ag.Graph()
    x, s = g.input("x", ("n", 3)), g.input("s", ())
    with ag.TapeMachine([x * s]) as one:  # which tries no other plan
        one.run_sync({"x": GOOD, "s": np.array(2.0, "float32")})
        with monkeypatch.context() as patch:
            patch.setattr(Plan, "checked", None)
            for scalar in (2, 2.0, np.float32(2), np.float64(2), np.array(2.0, "float32")):
                for array in (GOOD, np.asfortranarray(GOOD), np.ones((8, 6), "float32")[::2, ::2]):
                    [found] = one.run_sync({"x": array, "s": scalar}).duals.values()
                    assert found.value.dtype == np.float32
                    assert found.value.tolist() == (2 * GOOD).tolist()
        for bad in (2j, "2", np.ma.masked, None):
            with pytest.raises(ag.FeedError, match="'s'"):
                one.run_sync({"x": GOOD, "s": bad})


@pytest.mark.parametrize("rows", [1, 4, 7, 0])
def test_each_number_of_rows_is_computed_as_what_it_is(rows):
    with machine() as one:
        for count in (4, rows, 4, rows):
            x = np.arange(3 * count, dtype="float32").reshape(count, 3)
            [found] = one.run_sync({"x": x, "y": x}).duals.values()
            np.testing.assert_array_equal(found.value, 3 * x)


@pytest.mark.parametrize(
    "unlike",
    [np.asfortranarray(GOOD), np.ones((8, 6), "float32")[::2, ::2]],
    ids=["fortran", "strided"],
)
def test_feeds_of_another_layout_give_the_same_values_after_regular_ones(unlike):
    with machine() as one:
        first = one.run_sync({"x": GOOD, "y": GOOD})
        again = one.run_sync({"x": unlike, "y": GOOD})
        for node in first.duals:
            np.testing.assert_array_equal(first[node].value, again[node].value)


def test_more_shapes_than_are_remembered_are_all_computed_right():
    with machine() as one:
        for count in [*range(1, 80), *range(1, 80)]:
            x = np.full((count, 3), count, "float32")
            [found] = one.run_sync({"x": x, "y": x}).duals.values()
            assert found.value.shape == (count, 3)
            assert found.value[0, 0] == 3 * count


def test_a_size_in_use_is_not_forgotten_however_many_others_come():
    PLANNED.clear()
    with ag.ActorMachine([planned(ag.Graph().input("x", ("n",)))]) as one:
        one.run_sync({"x": np.ones(3, "float32")})
        first = PLANNED.count((3,))
        for count in range(4, 100):
            one.run_sync({"x": np.ones(3, "float32")})
            one.run_sync({"x": np.ones(count, "float32")})
    assert PLANNED.count((3,)) == first > 0
