"""Waves: loops that are made at the same time, that they change no bit, and which are none."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.control import in_blocks, layers, split
from actorgraph.control.in_blocks import IN_BLOCKS
from actorgraph.tiles import compute_parts

ops = ag.ops
RNG = np.random.default_rng(0)
STEPS = 24


@pytest.fixture(autouse=True)
def whole(monkeypatch, made):
    """Loops are not split."""
    monkeypatch.setattr(split, "_WORTH", 0.0)


def test_products_by_blocks_obey_the_laws_of_ops():
    ag.testing.check_op(IN_BLOCKS)


@pytest.mark.parametrize("steps", [16, 50])
def test_blocks_that_take_as_long_as_waking_a_worker_are_shared(monkeypatch, steps):
    shared = []

    def noted(compute, count):
        shared.append(count)
        compute_parts(compute, count)

    monkeypatch.setattr(in_blocks, "compute_parts", noted)
    x, y = np.ones((steps, 16, 64), "float32"), np.ones((64, 256), "float32")
    np.testing.assert_array_equal(in_blocks._in_blocks(np, x, y), x @ y)
    assert shared == ([4] if steps == 50 else [])


def chained(xs, w, reverse=False, layers=3, between=lambda ys: ys):
    """Return the outputs of loops of which each takes what the one before has stacked."""
    for _ in range(layers):
        start = np.zeros((2, 3), "float32")
        step = lambda c, x: (ops.tanh(c @ w + x), c * x + 1.0)  # noqa: E731
        _, ys = ag.scan(step, start, xs, reverse=reverse)
        xs = between(ys)
    return xs


def check(outputs, feeds, backward=False):
    """Check the bits of two workers against the interpreter."""
    wanted = ag.LispMachine(outputs).run_sync(feeds, backward=backward)
    with ag.ActorMachine(outputs, workers=2) as machine:
        run = machine.run_sync(feeds, backward=backward)
        for node in machine.outputs.values():
            assert run[node].value.tobytes() == wanted[node].value.tobytes()
        for node in machine.wrt if backward else ():
            assert run[node].grad.tobytes() == wanted[node].grad.tobytes()


def given(g):
    xs, w = g.input("xs", ("n", 2, 3)), g.parameter("w", np.eye(3, dtype="float32") / 2)
    return xs, w, {"xs": RNG.normal(size=(STEPS, 2, 3)).astype("float32")}


@pytest.mark.parametrize("reverse", [False, True])
def test_loops_that_feed_one_another_are_a_wave_both_ways(g, made, reverse):
    xs, w, feeds = given(g)
    check([ops.sum(chained(xs, w, reverse) ** 2)], feeds, backward=True)
    assert made == [3, 3]


def test_what_is_computed_by_rows_between_loops_is_of_the_wave(g, made):
    xs, w, feeds = given(g)
    check([chained(xs, w, between=lambda ys: ops.tanh(ys) * 2.0 + xs)], feeds)
    assert made == [3]


def test_a_stacked_recurrent_net_is_a_wave(g, made):
    x = g.input("x", (160, 64, 3))
    y, _ = ag.nn.LSTM(3, 3, 2)(x)
    feeds = {"x": RNG.normal(size=(160, 64, 3)).astype("float32")}
    check([ops.sum(y * y)], feeds, backward=True)
    assert made == [2, 2]


def test_what_needs_all_rows_ends_a_wave(g, made):
    xs, w, feeds = given(g)
    ys = chained(xs, w, layers=2)
    check([chained(ys - ys.mean(0), w, layers=2)], feeds)
    assert made == [2, 2]


def test_loops_that_do_not_feed_one_another_in_order_are_none(g, made):
    xs, w, feeds = given(g)
    forth = chained(xs, w, layers=1)
    back = chained(forth, w, reverse=True, layers=1)
    ends, _ = ag.scan(lambda c, x: (c + x, None), np.zeros((2, 3), "float32"), back[0] + xs)
    check([ends], feeds)
    assert made == []


def test_few_steps_are_made_in_turn(g, made):
    xs, w, _ = given(g)
    check([chained(xs, w)], {"xs": np.ones((4, 2, 3), "float32")})
    assert made == []


def test_a_failure_is_that_of_the_iteration_and_its_loop(g, made):
    xs, _, feeds = given(g)
    _, ys = ag.scan(lambda c, x: (c, x * 2.0), np.zeros(()), xs)
    last, _ = ag.scan(lambda c, x: (c / x[0, 0], None), np.ones((), "float32"), ys)
    feeds["xs"][5] = 0.0
    with ag.ActorMachine([last], wrt=[], workers=2) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide") as caught:
            machine.run_sync(feeds)
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
            machine.run_sync(feeds)
    assert made == [2, 2]
    assert caught.value.iteration == (5,)


def test_layers_are_made_at_the_same_time():
    entered = threading.Barrier(2)

    class Layer:
        def __init__(self, number):
            self.number, self.seen = number, []

        def advance(self, positions):
            self.seen.append(positions)
            if (self.number, positions[0]) in ((0, 2), (1, 0)):
                entered.wait(20)  # the second block of the first, the first block of the second

    both = [Layer(0), Layer(1)]
    compute, count = layers._tiles([[layer] for layer in both], [range(2), range(2, 4)])
    parts = iter(range(count))
    threads = [threading.Thread(target=lambda: [compute(p) for p in parts]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [layer.seen for layer in both] == [[range(2), range(2, 4)]] * 2
