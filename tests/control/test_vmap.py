"""vmap: rows as single calls have them, gradients through it and inside of it."""

import numpy as np
import pytest

import actorgraph as ag
from tests.control._runs import values

DRAW = np.random.default_rng(0).normal


def test_each_row_has_the_bits_of_a_single_call(g):
    x, w = g.input("x", (4, 3), "float64"), g.input("w", (3, 3), "float64")
    f = lambda x, w: ag.ops.softmax(ag.ops.tanh(x @ w), axis=-1)  # noqa: E731
    rows = [f(x[i], w) for i in range(4)]
    found, *single = values(
        [ag.vmap(f, (0, None))(x, w), *rows], {"x": DRAW(size=(4, 3)), "w": DRAW(size=(3, 3))}
    )
    for one, other in zip(found, single, strict=True):
        assert one.tobytes() == other.tobytes()


def test_axes_say_where_rows_are_and_where_they_go(g):
    x, y = g.input("x", (3, "n"), "float64"), g.input("y", ("n", 3), "float64")
    feed = {"x": DRAW(size=(3, 5)), "y": DRAW(size=(5, 3))}
    out = ag.vmap(lambda x, y: {"sum": x + y}, in_axes=(1, 0), out_axes=1)(x, y)["sum"]
    assert out.shape == (3, "n")
    np.testing.assert_array_equal(values(out, feed)[0], feed["x"] + feed["y"].T)


def test_gradients_of_each_example(g):
    w, xs = g.input("w", (3,), "float64"), g.input("xs", ("n", 3), "float64")
    slope = lambda x: ag.gradients(ag.ops.sin((w * x).sum()), [w])[0]  # noqa: E731
    feed = {"w": DRAW(size=3), "xs": DRAW(size=(4, 3))}
    found = values(ag.vmap(slope)(xs), feed)[0]
    wanted = np.cos(feed["xs"] @ feed["w"])[:, None] * feed["xs"]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_gradients_go_through(g):
    w, xs = g.input("w", (3,), "float64"), g.input("xs", ("n", 3), "float64")
    loss = ag.vmap(lambda x: ag.ops.sin((w * x).sum()))(xs).sum()
    feed = {"w": DRAW(size=3), "xs": DRAW(size=(4, 3))}
    found = values(ag.gradients(loss, [w]), feed)[0]
    np.testing.assert_allclose(found, np.cos(feed["xs"] @ feed["w"]) @ feed["xs"], rtol=1e-12)


def test_vmaps_nest_and_meet_other_control_flow(g):
    x = g.input("x", (2, 3), "float64")
    power = lambda v: ag.while_loop(lambda c: abs(c) < 10, lambda c: c * 2.0, v)  # noqa: E731
    feed = np.array([[1.0, 3.0, 11.0], [-0.5, 20.0, 5.0]])
    found = values(ag.vmap(ag.vmap(power))(x), {"x": feed})[0]
    np.testing.assert_array_equal(found, [[16.0, 12.0, 11.0], [-16.0, 20.0, 10.0]])


def test_a_branch_that_a_row_does_not_take_leaves_no_nan_in_its_gradient(g):
    x = g.input("x", ("n",), "float64")
    safe = lambda v: ag.cond(v > 0, lambda: ag.ops.log(v), lambda: v * 0.0)  # noqa: E731
    slope = ag.gradients(ag.vmap(safe)(x).sum(), [x])[0]
    np.testing.assert_array_equal(values(slope, {"x": np.array([0.0, 2.0])})[0], [0.0, 0.5])


def test_what_has_no_rows_is_refused(g):
    x = g.input("x", (3,), "float64")
    with pytest.raises(ag.GraphTypeError, match="None for all"):
        ag.vmap(lambda x: x, in_axes=None)(x)
    with pytest.raises(ag.ShapeError, match="has no axis 1"):
        ag.vmap(lambda x: x, in_axes=1)(x)
    with pytest.raises(ag.GraphTypeError, match="2 entries for 1 argument"):
        ag.vmap(lambda x: x, in_axes=(0, 0))(x)
    with pytest.raises(ag.ShapeError, match="lengths"):
        ag.vmap(lambda x, y: x)(x, x[:2])
