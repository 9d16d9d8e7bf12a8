"""vmap: rows as single calls have them, gradients through it and inside of it."""

import numpy as np
import pytest

import actorgraph as ag
from tests.control._runs import values

DRAW = np.random.default_rng(0).normal


def loops_over(nodes):
    """The numbers of iterations of the loops among nodes."""
    return [node.attrs["loop"].length for node in nodes if node.op.name == "loop"]


def test_each_row_is_a_single_call(g):
    x, w = g.input("x", (4, 3), "float64"), g.input("w", (3, 3), "float64")
    f = lambda x, w: ag.ops.softmax(ag.ops.tanh(x @ w), axis=-1)  # noqa: E731
    rows = [f(x[i], w) for i in range(4)]
    both = ag.vmap(f, (0, None))(x, w)
    found, *single = values([both, *rows], {"x": DRAW(size=(4, 3)), "w": DRAW(size=(3, 3))})
    np.testing.assert_allclose(found, single, rtol=1e-14)


def test_rows_are_computed_together(g):
    x, w = g.input("x", ("n", 3), "float64"), g.input("w", (3, 3), "float64")
    before = len(g)
    y = ag.vmap(lambda x: ag.ops.tanh(x @ w + 1.0).sum())(x)
    assert [node.op.name for node in g.nodes[before:]].count("matmul") == 1
    assert not loops_over(g.nodes)
    assert y.inputs[0].shape == ("n", 3)


def test_errors_of_a_row_name_the_line_of_the_function(g):
    x = g.input("x", ("n", 3), "float64")
    y = ag.vmap(lambda x: ag.ops.cholesky(ag.ops.outer(x, -x)))(x)
    with pytest.raises(ag.NodeError, match=r"test_vmap.py") as caught:
        values(y, {"x": DRAW(size=(2, 3))})
    assert "cholesky" in str(caught.value)


def test_axes_of_a_scan_of_rows(g):
    """A carry without rows gets them where the body gives it some."""
    xs, w = g.input("xs", ("n", 5), "float64"), g.input("w", (), "float64")

    def sums(xs):
        return ag.scan(lambda c, x: (c * w + x, (c, w * 2.0)), np.zeros(()), xs)

    last, (before, twice) = ag.vmap(sums)(xs)
    assert loops_over(g.nodes) == [5]
    feed = {"xs": DRAW(size=(4, 5)), "w": np.array(0.5)}
    found = values([last, before, twice], feed)
    carry, wanted = np.zeros(4), []
    for x in feed["xs"].T:
        wanted.append(carry)
        carry = carry * 0.5 + x
    np.testing.assert_allclose(found[0], carry, rtol=1e-14)
    np.testing.assert_allclose(found[1], np.stack(wanted, axis=1), rtol=1e-14)
    np.testing.assert_array_equal(found[2], np.ones((4, 5)))


@pytest.mark.parametrize("save", ["all", "carry", 2])
def test_gradients_of_each_example_through_a_scan(g, save):
    xs, w = g.input("xs", ("n", 5), "float64"), g.input("w", (), "float64")

    def loss(xs):
        step = lambda c, x: (ag.ops.tanh(c * w + x), c * c)  # noqa: E731
        last, ys = ag.scan(step, np.ones(()), xs, save=save)
        return last + ys.sum()

    def slopes(xs):
        return ag.gradients(loss(xs), [w, xs])

    feed = {"xs": DRAW(size=(3, 5)), "w": np.array(0.7)}
    inside = ag.vmap(slopes)(xs)
    through = ag.gradients(ag.vmap(loss)(xs).sum(), [w, xs])
    single = [ag.map(slopes, xs)[i] for i in range(2)]
    found = values([*inside, *through, *single], feed)
    np.testing.assert_allclose(found[0], found[4], rtol=1e-11)
    np.testing.assert_allclose(found[1], found[5], rtol=1e-11)
    np.testing.assert_allclose(found[2], found[4].sum(0), rtol=1e-11)
    np.testing.assert_allclose(found[3], found[5], rtol=1e-11)


def test_a_branch_that_all_rows_share_is_taken_together(g):
    x, p = g.input("x", ("n", 3), "float64"), g.input("p", (), "bool")
    f = lambda x: ag.cond(p, lambda: (x.sum(), x), lambda: (x[0] * 0.0 + 1.0, x * 2.0))  # noqa: E731
    one, other = ag.vmap(f)(x)
    slope = ag.vmap(lambda x: ag.gradients(f(x)[1].sum(), [x])[0])(x)
    assert not loops_over(g.nodes)
    feed = DRAW(size=(2, 3))
    for chosen in (True, False):
        found = values([one, other, slope], {"x": feed, "p": np.bool_(chosen)})
        np.testing.assert_allclose(found[0], feed.sum(1) if chosen else [1.0, 1.0])
        np.testing.assert_allclose(found[1], feed if chosen else 2 * feed)
        np.testing.assert_array_equal(found[2], np.full((2, 3), 1.0 if chosen else 2.0))


def test_rows_that_stop_at_their_own_time_have_gradients(g):
    x = g.input("x", ("n",), "float64")
    power = lambda v: ag.while_loop(lambda c: abs(c) < 10, lambda c: c * c, v)  # noqa: E731
    slope = ag.vmap(lambda v: ag.gradients(power(v), [v])[0])(x)
    found = values(slope, {"x": np.array([3.0, 11.0, 2.0])})[0]
    np.testing.assert_allclose(found, [4 * 3.0**3, 1.0, 4 * 2.0**3])


def test_a_while_loop_that_all_rows_share_runs_together(g):
    x, n = g.input("x", ("n", 2), "float64"), g.input("k", (), "int64")

    def doubled(x):
        step = lambda c: (c[0] + 1, c[1] * x)  # noqa: E731
        return ag.while_loop(lambda c: c[0] < n, step, (np.int64(0), np.ones(2)))[1]

    y = ag.vmap(doubled)(x)
    assert len(loops_over(g.nodes)) == 1
    feed = DRAW(size=(3, 2))
    np.testing.assert_allclose(values(y, {"x": feed, "k": np.int64(3)})[0], feed**3)


def test_checkpoints_and_rules_of_ones_own_keep_their_gradients(g):
    x = g.input("x", ("n", 3), "float64")

    @ag.custom_vjp
    def twice(x):
        return x.sum() * 2.0

    @twice.defvjp
    def _(ct, y, x):
        return (ct * x * 100.0,)

    block = ag.checkpoint(lambda x: ag.ops.sin(x) * x)
    feed = DRAW(size=(2, 3))
    inside = ag.vmap(lambda x: ag.gradients(block(x).sum() + twice(x), [x])[0])(x)
    through = ag.gradients(ag.vmap(lambda x: block(x).sum() + twice(x))(x).sum(), [x])[0]
    wanted = np.cos(feed) * feed + np.sin(feed) + 100.0 * feed
    for found in values([inside, through], {"x": feed}):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_random_ops_draw_for_each_row_what_map_draws(g):
    x = g.input("x", ("n", 3), "float64")
    y = ag.vmap(lambda x: x + ag.ops.normal(x, (3,), dtype="float64"))(x)
    first, again = values([y, y * 1.0], {"x": np.zeros((4, 3))})
    assert len(np.unique(first)) == 12
    np.testing.assert_array_equal(first, again)


def test_rows_of_sizes_of_their_own_are_summed_one_by_one(g):
    x = g.input("x", ("n", 4), "float64")
    y = ag.vmap(lambda x: x[x > 0].sum())(x)
    feed = DRAW(size=(3, 4))
    np.testing.assert_allclose(values(y, {"x": feed})[0], np.maximum(feed, 0).sum(1))


def test_per_example_gradients_of_a_network_with_convolutions(g):
    x, t = g.input("x", (3, 2, 6, 6), "float64"), g.input("t", (3,), "int64")
    w = g.parameter("w", DRAW(size=(4, 2, 3, 3)))
    v = g.parameter("v", DRAW(size=(4 * 16, 5)))

    def loss(x, t):
        hidden = ag.ops.relu(ag.ops.conv2d(x[None], w))
        return ag.ops.cross_entropy(ag.ops.reshape(hidden, (1, -1)) @ v, t[None])

    inside = ag.vmap(lambda x, t: ag.gradients(loss(x, t), [w, v]))(x, t)
    assert not loops_over(g.nodes)
    single = [ag.gradients(loss(x[i], t[i]), [w, v]) for i in range(3)]
    feed = {"x": DRAW(size=(3, 2, 6, 6)), "t": np.array([0, 4, 2])}
    found = values([*inside, *[one for pair in single for one in pair]], feed)
    np.testing.assert_allclose(found[0], found[2::2], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found[1], found[3::2], rtol=1e-10, atol=1e-12)


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
