"""Loops that are walked as tables: which are, that they change no bit, and when they decline."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff.trees import flatten
from actorgraph.devices import native, vectors
from actorgraph.lower import loop_table
from actorgraph.lower.loop_table import LoopTable

ops = ag.ops
RNG = np.random.default_rng(0)
FEEDS = {
    "x": RNG.normal(size=(3, 3)).astype("float32"),
    "w": (RNG.normal(size=(3, 3)) / 2).astype("float32"),
    "xs": RNG.normal(size=(7, 3, 3)).astype("float32"),
}

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


@pytest.fixture(autouse=True)
def walks(monkeypatch):
    """The numbers of iterations of the calls that were walked."""
    monkeypatch.setattr(loop_table, "FEWEST", 1)
    found, call = [], LoopTable.__call__

    def noted(self, *args):
        last, trips = call(self, *args)
        found.append(trips)
        return last, trips

    monkeypatch.setattr(LoopTable, "__call__", noted)
    return found


def inputs(g):
    return g.input("x", (3, 3)), g.input("w", (3, 3)), g.input("xs", ("n", 3, 3))


def scanned(body, **how):
    def build(x, w, xs):
        return ag.scan(lambda c, e: body(c, e, w), x, xs, **how)

    return build


def fibonacci(x, w, xs):
    return ag.fori_loop(0, 5, lambda i, c: (c[1], ops.tanh(c[0] + c[1])), (x, w))


def turned(x, w, xs):
    return ag.fori_loop(0, 5, lambda i, c: (c[0] * 0.5, ops.transpose(c[0])), (x, w))


def counted(x, w, xs):
    step = lambda i, c: c + i.astype("float32") * w  # noqa: E731
    return ag.fori_loop(2, 6, lambda i, c: ag.cond(True, step, step, i, c), x)


def until(x, w, xs):
    step = lambda c: (ops.tanh(c[0] @ w), c[1] + 1.0)  # noqa: E731
    return ag.while_loop(lambda c: c[1] < 400.0, step, (x, np.zeros((), "float32")))


def flagged(x, w, xs):
    step = lambda c: (c[0] * 0.5, ops.logical_not(c[1]))  # noqa: E731
    return ag.while_loop(lambda c: c[1], step, (x, np.array(True)))


def from_zeros(x, w, xs):
    body = lambda c, e: (ops.tanh(c @ w + e), c.sum(0))  # noqa: E731
    return ag.scan(body, ops.zeros_like(x), xs)


LOOPS = {
    "broadcast zeros first": (from_zeros, 7),
    "carries and rows": (scanned(lambda c, e, w: (ops.tanh(c @ w + e), c * 2)), 7),
    "from the last": (scanned(lambda c, e, w: (ops.tanh(c @ w + e), c * e), reverse=True), 7),
    "what needs a copy": (scanned(lambda c, e, w: (c * e, (c, e, w, c[0], np.ones(2)))), 7),
    "one result twice": (scanned(lambda c, e, w: (c * e, (c * e, c * e))), 7),
    "carries that change places": (fibonacci, 5),
    "a view of a carry": (turned, 5),
    "a test": (until, 400),
    "a flag": (flagged, 1),
}


@pytest.mark.parametrize("case", LOOPS)
def test_what_is_walked_has_the_bits_of_the_interpreter(g, walks, case):
    build, trips = LOOPS[case]
    found = build(*inputs(g))
    outputs, _ = flatten(found)
    with ag.TapeMachine(outputs, wrt=[], native="wait") as machine:
        run = machine.run_sync(FEEDS)
    assert set(walks) == {trips}
    wanted = ag.LispMachine(outputs, wrt=[]).run_sync(FEEDS)
    for node in outputs:
        one, other = np.asarray(run[node].value), np.asarray(wanted[node].value)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(
    ("shape", "hidden", "layers", "trips"),
    [((7, 2, 3), 3, 2, [7] * 4), ((9, 16, 64), 64, 1, [9] * 2)],
    ids=["small", "wide"],
)
def test_both_passes_of_a_recurrent_net_are_walked_with_the_bits_of_the_interpreter(
    g, walks, shape, hidden, layers, trips
):
    x = g.input("x", shape)
    y, _ = ag.nn.LSTM(shape[-1], hidden, layers)(x)
    loss = (y * y).sum()
    feed = {"x": RNG.normal(size=shape).astype("float32")}
    with ag.TapeMachine([loss], native="wait") as machine:
        run = machine.run_sync(feed, backward=True)
        assert walks == trips
        wanted = ag.LispMachine([loss]).run_sync(feed, backward=True)
        assert run[loss].value.tobytes() == wanted[loss].value.tobytes()
        for node in machine.wrt:
            assert run[node].grad.tobytes() == wanted[node].grad.tobytes()


WIDE = {
    "x": RNG.normal(size=(9, 16)).astype("float32"),
    "w": (RNG.normal(size=(16, 16)) / 2).astype("float32"),
    "xs": RNG.normal(size=(7, 9, 16)).astype("float32"),
}
GROUPED = {
    "gates": (lambda c, e, w: (ops.sigmoid(c + e) * ops.tanh(c - e), -(c * e)), 2),
    "a vector of each row": (lambda c, e, w: ((c + w[0]) * 0.5 - e, ops.square(c) / w[1]), 1),
    "a number of each row": (lambda c, e, w: (c / (2 + e[:, :1]) - e, ops.sqrt(-c) * -1.0), 1),
    "columns beside others": (lambda c, e, w: (c * 0.5 + e, c[:, 4:12] * e[:, :8] + 1.0), 1),
    "a sum of products": (lambda c, e, w: (c + e @ w, None), 1),
    "a carry that others read": (lambda c, e, w: (-(c * e), (c[1:] * 2 + 1, c.sum(0))), 1),
}


def grouped(g, monkeypatch, dtype, case):
    """A loop, and how often a group of its steps is written."""
    written, write = [], vectors.elements_text
    monkeypatch.setattr(
        vectors, "elements_text", lambda *args: written.append(args) or write(*args)
    )
    x, w, xs = [g.input(name, array.shape, dtype) for name, array in WIDE.items()]
    outputs, _ = flatten(ag.scan(lambda c, e: GROUPED[case][0](c, e, w), x, xs))
    return outputs, written


def assert_bits(outputs, feeds, trips, walks):
    with ag.TapeMachine(outputs, wrt=[], native="wait") as machine:
        run = machine.run_sync(feeds)
    assert set(walks) == {trips}
    wanted = ag.LispMachine(outputs, wrt=[]).run_sync(feeds)
    for node in outputs:
        assert np.asarray(run[node].value).tobytes() == np.asarray(wanted[node].value).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", GROUPED)
def test_steps_that_are_one_row_have_the_bits_of_the_interpreter(
    g, walks, monkeypatch, dtype, case
):
    outputs, written = grouped(g, monkeypatch, dtype, case)
    feeds = {name: array.astype(dtype) for name, array in WIDE.items()}
    with np.errstate(invalid="ignore"):
        assert_bits(outputs, feeds, 7, walks)
    assert len(written) >= GROUPED[case][1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", GROUPED)
def test_odd_numbers_of_such_rows_have_these_bits_too(g, walks, monkeypatch, dtype, case):
    outputs, _ = grouped(g, monkeypatch, dtype, case)
    small = np.finfo(dtype).smallest_subnormal
    # Which of two NaN is kept depends in NumPy on how many elements there are beside them.
    first = -np.nan if case == "columns beside others" else np.nan
    odd = [first, -np.nan, np.inf, -np.inf, 0.0, -0.0, small, -3 * small, 1e30, -89.5, 0.3]
    feeds = {
        name: np.resize(np.roll(np.array(odd, dtype), k), array.shape)
        for k, (name, array) in enumerate(WIDE.items())
    }
    with np.errstate(all="ignore"):
        assert_bits(outputs, feeds, 7, walks)


def test_errors_in_such_rows_are_told_with_their_node(g, walks, monkeypatch):
    x = g.input("x", (9, 16))
    last, _ = ag.scan(lambda c, _: ((c * c + 1.0) * 2.0, None), x, length=9)
    feeds = {"x": np.full((9, 16), 1e3, "float32")}
    with ag.TapeMachine([last], wrt=[], native="wait") as machine:
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert np.isinf(machine.run_sync(feeds)[last].value).all()
        with np.errstate(over="raise"), pytest.raises(ag.errors.NodeError, match="overflow"):
            machine.run_sync(feeds)
    assert walks == []


@pytest.mark.parametrize("turned", [True, False])
def test_a_carry_in_another_memory_layout_is_summed_up_in_its_order(g, walks, turned):
    c, e = g.input("c", (37, 37)), g.input("e", (5, 37, 37))

    def body(c, e):
        now = (c - c.mean()) * 0.5 + e * 0.001
        return (ops.transpose(now) if turned else now), c.sum()

    _, ys = ag.scan(body, c, e)
    feeds = {"c": RNG.normal(size=(37, 37)), "e": RNG.normal(size=(5, 37, 37))}
    feeds = {name: one.astype("float32") for name, one in feeds.items()}
    feeds["c"] = feeds["c"] if turned else np.asfortranarray(feeds["c"])
    with ag.TapeMachine([ys], wrt=[], native="wait") as machine:
        got = machine.run_sync(feeds)[ys].value
    assert got.tobytes() == ag.LispMachine([ys], wrt=[]).run_sync(feeds)[ys].value.tobytes()
    assert walks == ([] if turned else [5])  # the first carry is copied into C order


@pytest.mark.parametrize("save", ["all", "carry", 2])
@pytest.mark.parametrize(
    "loss", [lambda ys: ys.sum(), lambda ys: ops.square(ops.swapaxes(ys, 0, 1)).sum()]
)
def test_elements_and_cotangents_in_another_memory_layout_are_walked(walks, loss, save):
    """And what is kept of a loop changes no bit of a gradient."""
    feeds = {"c": RNG.normal(size=(37, 37)).astype("float32") / 37}
    feeds["es"] = RNG.normal(size=(37, 5, 37)).astype("float32").transpose(1, 2, 0)
    found = []
    for kind, how, kept in (
        (ag.TapeMachine, {"native": "wait"}, save),
        (ag.LispMachine, {}, save),
        (ag.LispMachine, {}, "all"),
    ):
        g = ag.Graph()
        c, es = g.input("c", (37, 37)), g.input("es", (5, 37, 37))
        _, ys = ag.scan(lambda c, e: (ops.tanh(c - e.mean()) + e @ c,) * 2, c, es, save=kept)
        with kind([loss(ys)], wrt=[c, es], **how) as machine:
            run = machine.run_sync(feeds, backward=True)
            found.append([run[c].grad.tobytes(), run[es].grad.tobytes()])
    assert found == [found[0]] * 3
    assert walks == [5] * (1 if save == 2 else 2)  # few slots go back iteration by iteration


def test_with_jit_loops_are_walked_too(g, walks):
    pytest.importorskip("llvmlite")
    y = until(*inputs(g))[0]
    with ag.TapeMachine([y], wrt=[], jit="wait", exact=False) as machine:
        machine.run_sync(FEEDS)
    assert walks == [400]


def test_a_run_that_is_out_of_time_ends_an_endless_loop(g, walks):
    x = g.input("x", (), "float64")
    y = ag.while_loop(lambda c: c > 0.0, lambda c: c + 0.0, x, max_trips=10**8)
    with ag.TapeMachine([y], wrt=[], native="wait") as machine:
        with pytest.raises(TimeoutError):
            machine.run_sync({"x": 1.0}, timeout_s=0.05)
        assert machine.run_sync({"x": -1.0})[y].value == -1.0
    assert walks == []


def test_python_has_its_turn_in_a_long_loop_in_which_a_signal_ends_it(g, walks, monkeypatch):
    x = g.input("x", (), "float64")
    y = ag.while_loop(lambda c: c > 0.0, lambda c: c + 0.0, x, max_trips=10**6)
    with ag.TapeMachine([y], wrt=[], native="wait") as machine:
        machine.run_sync({"x": -1.0})
        walk, turns = native.RUNTIME.walk, []

        def interrupted(*args):
            if turns:
                raise KeyboardInterrupt
            turns.append(walk(*args))
            return turns[0]

        with monkeypatch.context() as patch:
            patch.setattr(native.RUNTIME, "walk", interrupted)
            with pytest.raises(KeyboardInterrupt):
                machine.run_sync({"x": 1.0})
        assert machine.run_sync({"x": -1.0})[y].value == -1.0
    assert walks == []


def test_who_calls_a_loop_seldom_waits_for_no_rows(g, walks):
    y, _ = ag.scan(lambda c, _: (ops.tanh(c) + 1.0, None), g.input("x", (), "float64"), length=9)
    native.RUNTIME.request()
    native.RUNTIME.done.wait()
    with ag.TapeMachine([y], wrt=[], native=True) as machine:
        wanted = machine.run_sync({"x": 1.0})[y].value
        machine.run_sync({"x": 1.0})
        assert walks == []
        while not walks:
            assert machine.run_sync({"x": 1.0})[y].value == wanted


def test_no_more_iterations_than_allowed(g, walks):
    x = g.input("x", (), "float64")
    y = ag.while_loop(lambda c: c < 100.0, lambda c: c + 1.0, x, max_trips=20)
    with ag.TapeMachine([y], wrt=[], native="wait") as machine:
        assert machine.run_sync({"x": 80.0})[y].value == 100.0
        with pytest.raises(ag.NodeError, match="max_trips=20"):
            machine.run_sync({"x": 79.0})
    assert walks == [20, 21]


def test_an_overflow_is_told_by_the_loop_in_python(g, walks):
    x = g.input("x", (), "float64")
    y, _ = ag.scan(lambda c, _: (c * c, None), x, length=12)
    with ag.TapeMachine([y], wrt=[], native="wait") as machine:
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match="overflow encountered in multiply"):
                assert machine.run_sync({"x": 2.0})[y].value == np.inf
        assert walks == []
        assert machine.run_sync({"x": 0.5})[y].value == 0.5**4096
    assert walks == [12]


def test_a_body_with_a_step_that_is_no_row_is_not_walked(g, walks):
    xs = g.input("xs", (5, 4), "float64")
    ys = ag.map(lambda x: ops.sort(x) * 2.0 + 1.0, xs)
    with ag.TapeMachine([ys], wrt=[], native="wait") as machine:
        machine.run_sync({"xs": np.ones((5, 4))})
    assert walks == []
