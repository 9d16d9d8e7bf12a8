"""What cond, switch, scan, map, fori_loop and while_loop mean, and what they refuse."""

import re

import numpy as np
import pytest

import actorgraph as ag
from tests.control._runs import MACHINES, ON_DEVICES, WALKING, on_every_machine, values

on_machines = pytest.mark.parametrize("machine", MACHINES)


def scalar(g, name="x", dtype="float64"):
    return g.input(name, (), dtype)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "wanted"), [(3.0, 9.0), (-3.0, 3.0)])
def test_cond_computes_the_branch_that_the_predicate_chooses(g, x, wanted):
    node = scalar(g)
    assert values(ag.cond(node > 0, lambda y: y * y, lambda y: -y, node), {"x": x}) == [wanted]


def test_only_the_branch_that_is_taken_runs(g):
    calls = []

    def forward(xp, x):
        calls.append(float(x))
        return x

    noted = ag.ops.define("noted_in_a_branch", scheme="f[*s] -> f[*s]", forward=forward)
    x = scalar(g)
    y = ag.cond(x > 0, lambda: noted(x), lambda: x)
    assert calls == []
    assert values(y, {"x": -1.0}) == [-1.0]
    assert calls == []
    assert values(y, {"x": 1.0}) == [1.0]
    assert calls == [1.0] * len((*MACHINES, *WALKING, *ON_DEVICES))


def test_a_python_bool_chooses_at_once(g):
    x = scalar(g)
    assert ag.cond(True, lambda: x, lambda: 1 / 0) is x
    assert ag.cond(np.bool_(False), lambda: 1 / 0, lambda: x) is x
    assert ag.switch(1, [lambda: 1 / 0, lambda: x]) is x


def test_branches_take_and_give_trees(g):
    x = scalar(g)
    tree = {"a": x, "b": (x, np.ones(2))}
    found = ag.cond(x > 0, lambda t: (t["b"][1] * t["a"], None), lambda t: (t["b"][1], None), tree)
    assert found[1] is None
    np.testing.assert_array_equal(values(found[0], {"x": 5.0})[0], [5.0, 5.0])


def test_switch_takes_the_branch_of_its_index(g):
    i = g.input("i", (), "int64")
    x = scalar(g)
    y = ag.switch(i, [lambda: x, lambda: x * x, lambda: x * x * x])
    assert [values(y, {"i": n, "x": 2.0})[0] for n in range(3)] == [2.0, 4.0, 8.0]


@on_machines
@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_out_of_range_fails_the_run(g, machine, index):
    i, x = g.input("i", (), "int64"), scalar(g)
    y = ag.switch(i, [lambda: x, lambda: -x])
    text = rf"got the index {index}; it has 2 branches"
    with machine(y) as made, pytest.raises(ag.NodeError, match=text):
        made.run_sync({"i": index, "x": 1.0})
    with pytest.raises(ag.GraphError, match="got the index 2; it has 2 branches"):
        ag.switch(2, [lambda: x, lambda: -x])


def test_a_scan_carries_and_stacks(g):
    xs = g.input("xs", ("n",), "float64")
    last, sums = ag.scan(lambda c, x: (c + x, c + x), np.zeros(()), xs)
    feed = {"xs": np.arange(5.0)}
    assert values(last, feed) == [10.0]
    np.testing.assert_array_equal(values(sums, feed)[0], np.cumsum(np.arange(5.0)))


def test_a_scan_in_reverse_is_the_scan_of_what_is_flipped(g):
    xs = g.input("xs", ("n", 2), "float64")
    body = lambda c, x: (ag.ops.tanh(c + x), c * x)  # noqa: E731
    one = ag.scan(body, np.zeros(2), xs, reverse=True)
    other = ag.scan(body, np.zeros(2), xs[::-1])
    feed = {"xs": np.linspace(-1, 1, 8).reshape(4, 2)}
    last, ys, last_of_flipped, flipped = values([*one, *other], feed)
    assert last.tobytes() == last_of_flipped.tobytes()
    np.testing.assert_array_equal(ys, flipped[::-1])


def test_a_scan_may_have_no_elements_and_stack_nothing(g):
    x = scalar(g)
    last, ys = ag.scan(lambda c, _: (c * x, None), np.ones(()), None, length=5)
    assert ys is None
    assert values(last, {"x": 2.0}) == [32.0]


def test_a_scan_may_carry_nothing(g):
    xs = g.input("xs", ("n",), "float64")
    carry, ys = ag.scan(lambda c, x: (c, x * x), None, xs)
    assert carry is None
    np.testing.assert_array_equal(values(ys, {"xs": np.arange(3.0)})[0], [0.0, 1.0, 4.0])


def test_no_iterations_give_the_first_carry_and_empty_stacks(g):
    xs = g.input("xs", ("n", 3), "float32")
    init = g.input("c", (3,), "float32")
    last, ys = ag.scan(lambda c, x: (c + x, c * x), init, xs)
    feed = {"xs": np.zeros((0, 3), "float32"), "c": np.ones(3, "float32")}
    found, stacked = values([last, ys], feed)
    np.testing.assert_array_equal(found, np.ones(3))
    assert stacked.shape == (0, 3)
    assert stacked.dtype == np.float32
    found[...] = 7
    np.testing.assert_array_equal(feed["c"], np.ones(3))


def test_halves_of_a_scan_are_the_scan(g):
    xs = g.input("xs", (6,), "float64")
    body = lambda c, x: (ag.ops.sin(c * x) + c, c)  # noqa: E731
    whole, ys = ag.scan(body, np.ones(()), xs)
    half, first = ag.scan(body, np.ones(()), xs[:3])
    rest, second = ag.scan(body, half, xs[3:])
    feed = {"xs": np.linspace(0.1, 1, 6)}
    one, stacked, other, left, right = values([whole, ys, rest, first, second], feed)
    assert one == other
    np.testing.assert_array_equal(stacked, np.concatenate([left, right]))


def test_map_applies_a_function_to_each_element(g):
    xs = g.input("xs", ("n", 3), "float64")
    feed = {"xs": np.arange(6.0).reshape(2, 3)}
    found = values(ag.map(lambda x: {"sum": x.sum()}, xs)["sum"], feed)
    np.testing.assert_array_equal(found[0], [3.0, 12.0])


def test_the_index_of_fori_loop_is_an_integer_scalar(g):
    seen = []

    def body(i, c):
        seen.append((i.dtype, i.shape))
        return c + i

    total = ag.fori_loop(2, 6, body, g.constant(np.int64(0)))
    assert values(total, {}) == [2 + 3 + 4 + 5]
    assert seen == [(np.dtype("int64"), ())]


@pytest.mark.parametrize(("low", "high", "wanted"), [(0, 3, 8.0), (4, 4, 1.0), (5, 2, 1.0)])
def test_the_bounds_of_fori_loop_may_be_nodes(g, low, high, wanted):
    lower, upper = g.input("lower", (), "int32"), g.input("upper", (), "int64")
    x = ag.fori_loop(lower, upper, lambda i, c: c * 2.0, np.ones(()))
    assert values(x, {"lower": np.int32(low), "upper": high}) == [wanted]


def test_a_while_loop_ends_when_its_test_is_false(g):
    x = scalar(g)
    doubled = ag.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 2, c[1] + 1), (x, np.array(0)))
    assert values(list(doubled), {"x": 3.0}) == [192.0, 6]
    assert values(list(doubled), {"x": 300.0}) == [300.0, 0]
    assert values(list(doubled), {"x": np.nan})[1] == 0


def test_steps_that_are_walked_after_the_test_write_elsewhere_than_it_does(g):
    x, w = g.input("x", ("n", 5), "float32"), g.parameter("w", np.eye(5, dtype="float32"))
    zero = np.zeros((), "int64")
    y, trips = ag.while_loop(
        lambda c: c[1] < 3, lambda c: (ag.ops.tanh(c[0] @ w), c[1] + 1), (x, zero)
    )
    moves = {w: np.ones((5, 5), "float32")}
    for rows in (1, 3, 9, 17, 33):
        feeds = {"x": np.full((rows, 5), 0.5, "float32")}
        found = on_every_machine([y, trips], feeds, wrt=[], tangents=moves, times=4)
        assert [int(one) for one in found if one.dtype == zero.dtype] == [3]


@on_machines
def test_passing_max_trips_fails_the_run(g, machine):
    x = scalar(g)
    y = ag.while_loop(lambda c: c < 100, lambda c: c * 2, x, max_trips=3)
    with machine(y) as made:
        assert made.run_sync({"x": 13.0})[y].value == 104.0
        with pytest.raises(ag.NodeError, match="has made max_trips=3 iterations"):
            made.run_sync({"x": 1.0})


def test_loops_nest_to_any_depth(g):
    x = scalar(g)

    def nested(depth, c):
        if not depth:
            return ag.cond(c < 1000, lambda: c + x, lambda: c)
        return ag.fori_loop(0, 2, lambda i, inner: nested(depth - 1, inner), c)

    assert values(nested(5, x), {"x": 1.0}) == [33.0]


def test_a_function_may_close_over_nodes_of_every_level(g):
    w, xs = g.parameter("w", np.array(2.0)), g.input("xs", ("n",), "float64")

    def outer(c, x):
        inner, _ = ag.scan(lambda d, y: (d + x * y * w, None), c, xs)
        return inner, None

    last, _ = ag.scan(outer, np.zeros(()), xs)
    assert values(last, {"xs": np.array([1.0, 2.0])}) == [2.0 * (1 + 2) * (1 + 2)]


def test_what_functions_close_over_tells_the_graph(g):
    x = g.input("x", (2,), "float64")
    assert values(ag.fori_loop(0, 3, lambda i, c: c * x, np.ones(2)), {"x": [2.0, 3.0]})[0][1] == 27


def test_a_length_may_be_symbolic_and_differ_between_runs(g):
    xs = g.input("xs", ("n",), "float64")
    _, ys = ag.scan(lambda c, x: (c + 1, c * x), np.zeros(()), xs)
    assert ys.shape == ("n",)
    for n in (0, 1, 4):
        np.testing.assert_array_equal(values(ys, {"xs": np.ones(n)})[0], np.arange(float(n)))


# -- structure ------------------------------------------------------------------------------------


def test_equal_loops_are_one_node(g):
    xs = g.input("xs", ("n",), "float64")

    def total():
        return ag.scan(lambda c, x: (c + x * 2, None), np.zeros(()), xs)[0]

    other = ag.scan(lambda c, x: (c + x * 3, None), np.zeros(()), xs)[0]
    assert total() is total()
    assert total() is not other


def test_a_drawing_shows_bodies_below_their_node(g):
    x = scalar(g)
    y = ag.while_loop(lambda c: c < 9, lambda c: ag.cond(c > 1, lambda: c + x, lambda: c), x)
    text = str(g)
    for line in (
        r"  loop_1 = loop\(x, x, loop=while_loop\)",
        r"    test\(carry_0\):",
        r"    body\(iteration, ",
        r"        cond 1\(",
    ):
        assert re.search(rf"^{line}", text, re.MULTILINE), text
    dot = g.to_dot()
    assert dot.count("subgraph cluster_") == 4
    assert dot.count("{") == dot.count("}")
    assert ag.Graph.clone(g).node(y.name).shape == ()


# -- refusals -------------------------------------------------------------------------------------


def test_a_carry_keeps_its_dtype(g):
    xs = g.input("xs", ("n",), "float64")
    text = r"carry 0 of scan enters as float32\[\] and leaves as float64\[\].*\.astype\('float32'\)"
    with pytest.raises(ag.GraphTypeError, match=text):
        ag.scan(lambda c, x: (c.astype("float64") + x, None), np.zeros((), "float32"), xs)


@pytest.mark.parametrize("change", [lambda c: c[:2], lambda c: c.sum()])
def test_a_carry_keeps_its_dims(g, change):
    c = g.input("c", (3,), "float64")
    with pytest.raises(ag.ShapeError, match=r"carry 0 of fori_loop enters as float64\[3\]"):
        ag.fori_loop(0, 3, lambda i, c: change(c), c)


def test_a_carry_keeps_its_structure(g):
    c = scalar(g)
    with pytest.raises(ag.GraphTypeError, match=r"the carry .* is \(\*, \*\), it has to be \*"):
        ag.fori_loop(0, 3, lambda i, c: (c, c), c)


def test_branches_give_equal_types(g):
    x = g.input("x", (3,), "float64")
    p = g.input("p", (), "bool")
    with pytest.raises(ag.GraphTypeError, match="float64.* in false_fun and float32.* in true_fun"):
        ag.cond(p, lambda: x.astype("float32"), lambda: x)
    with pytest.raises(ag.ShapeError, match="branches give results of one shape"):
        ag.cond(p, lambda: x[:2], lambda: x)
    with pytest.raises(ag.GraphTypeError, match=r"true_fun of cond is \(\*, \*\)"):
        ag.cond(p, lambda: (x, x), lambda: x)


def test_a_predicate_is_a_bool_scalar(g):
    x = g.input("x", (3,), "float64")
    with pytest.raises(ag.GraphTypeError, match="the predicate of cond is a bool scalar"):
        ag.cond(x, lambda: x, lambda: x)
    with pytest.raises(ag.ShapeError, match="the predicate of cond is a scalar"):
        ag.cond(x > 0, lambda: x, lambda: x)
    with pytest.raises(ag.ShapeError, match="the test of while_loop is a scalar"):
        ag.while_loop(lambda c: c > 0, lambda c: c, x)
    with pytest.raises(ag.GraphTypeError, match="the index of switch is an integer scalar"):
        ag.switch(x[0], [lambda: x])


def test_a_python_scalar_is_no_carry(g):
    xs = g.input("xs", ("n",), "float64")
    with pytest.raises(ag.GraphTypeError, match=r"Python scalar 0\.0.*np\.array\(0\.0"):
        ag.scan(lambda c, x: (c + x, None), 0.0, xs)


def test_lengths_that_differ_are_refused(g):
    xs, ys = g.input("xs", (3,), "float64"), g.input("ys", (4,), "float64")
    with pytest.raises(ag.ShapeError, match="different lengths"):
        ag.scan(lambda c, x: (c, x[0]), None, (xs, ys))
    with pytest.raises(ag.GraphTypeError, match="needs length="):
        ag.scan(lambda c, x: (c, None), xs)
    with pytest.raises(ag.ShapeError, match="goes along the first axis"):
        ag.scan(lambda c, x: (c, None), None, xs[0])


def test_a_node_that_leaked_from_a_body_is_refused(g):
    xs = g.input("xs", ("n",), "float64")
    leaked = []

    def body(c, x):
        leaked.append(c * x)
        return c, None

    ag.scan(body, np.zeros(()), xs)
    text = "of the body of scan was used outside of it.*return it as a result"
    with pytest.raises(ag.GraphError, match=text):
        leaked[0] + 1.0
    with pytest.raises(ag.GraphError, match="body of scan"):
        xs + leaked[0]
    with pytest.raises(ag.GraphError, match=text):
        ag.ActorMachine(leaked)
    with pytest.raises(ag.GraphError, match="body of scan"):
        ag.scan(lambda c, x: (c + leaked[0], None), np.zeros(()), xs)


def test_a_failed_trace_leaves_the_graph_as_it_was(g):
    x = scalar(g)
    with pytest.raises(ZeroDivisionError):
        ag.cond(x > 0, lambda: 1 / 0, lambda: x)
    assert (x + 1.0).graph is g


def test_buffers_are_not_assigned_in_a_body(g):
    seen = g.buffer("seen", np.zeros(()))

    def body(i, c):
        g.assign(seen, c, c)
        return c

    with pytest.raises(ag.GraphError, match="seen.* cannot be assigned in the body of fori_l"):
        ag.fori_loop(0, 3, body, scalar(g))


def test_ops_that_wait_are_not_called_in_a_body(g):
    async def forward(xp, x):
        return x

    asked = ag.ops.define("asked_in_a_body", scheme="f[*s] -> f[*s]", forward=forward)
    with pytest.raises(ag.GraphError, match="'asked_in_a_body' waits"):
        ag.fori_loop(0, 3, lambda i, c: asked(c), scalar(g))


def test_without_any_node_there_is_no_graph():
    with pytest.raises(ag.GraphTypeError, match="finds no node"):
        ag.fori_loop(0, 3, lambda i, c: c, np.ones(()))


# -- random numbers -------------------------------------------------------------------------------


def test_random_ops_draw_by_iteration(g):
    x = scalar(g)

    def body(c, _):
        return c, ag.ops.random.uniform(g, (2,), dtype="float64") + x

    _, ys = ag.scan(body, None, None, length=4)
    nested = ag.map(
        lambda row: ag.map(lambda _: ag.ops.random.normal(x, ()), row), np.zeros((3, 4))
    )
    one, other = values([ys, nested], {"x": 0.0})
    assert len(np.unique(one)) == 8
    assert len(np.unique(other)) == 12
    with ag.LispMachine([ys]) as machine:
        runs = [machine.run_sync({"x": 0.0}, run_number=n)[ys].value for n in (0, 1, 1)]
    assert not np.isin(runs[0], runs[1]).any()
    np.testing.assert_array_equal(runs[1], runs[2])


def test_a_reversal_sees_the_draws_of_the_forward_pass(g):
    x = scalar(g)

    def body(c, _):
        noise = ag.ops.random.uniform(g, (), dtype="float64")
        return c * noise * x, noise

    results = [
        ag.scan(body, np.ones(()), None, length=5, save=save) for save in ("all", "carry", 2)
    ]
    for last, noise in results:
        slope = ag.gradients(last, [x])[0]
        found, drawn = values([slope, noise], {"x": 1.0})
        np.testing.assert_allclose(found, 5 * drawn.prod(), rtol=1e-12)
