"""Laps: a loop's rows in parts, one a thread; threads synchronise once a phase."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native, structs
from actorgraph.devices import strands as walking
from actorgraph.devices.helpers import HELPERS
from actorgraph.lower import loop_table
from actorgraph.lower.laps import PartedRows
from actorgraph.lower.loop_table import LoopTable
from actorgraph.testing._examples import results
from tests._bits import nans
from tests._soak import drawn
from tests.lower.test_strands import _AnyOrder

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
RNG = np.random.default_rng(0)


@contextmanager
def forced(helped=True, helpers=1):
    """Walk in parts every loop that can be split, with helpers; yields the rows of parts."""
    made, write = [], LoopTable.__init__

    def noted(table, *args):
        write(table, *args)
        made.append(table._parted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopTable, "__init__", noted)
        patch.setattr(loop_table, "FEWEST", 1)
        patch.setattr(loop_table, "_LEAST_US", 0.0)
        patch.setattr(loop_table, "_LEAST_BODY_US", 0.0)
        patch.setattr(HELPERS, "count", helpers)
        patch.setattr(walking.Trial, "is_together", lambda _: helped)
        yield patch, made


def parted(made):
    """Return the rows that have parts."""
    return [rows for rows in made if isinstance(rows, PartedRows)]


def both(outputs, feeds, wrt, times=3, **how):
    """Check that values and gradients have the bits of `LispMachine`."""
    options = {"backward": dict.fromkeys(outputs, 1.0)} if wrt else {}
    wanted = ag.LispMachine(outputs, wrt=wrt).run_sync(feeds, **options)
    with ag.ActorMachine(outputs, wrt=wrt, native="wait", workers=2, **how) as machine:
        for _ in range(times):
            run = machine.run_sync(feeds, **options)
            assert results(run, [*outputs, *wrt]) == results(wanted, [*outputs, *wrt])


def net(kind, batch=16, hidden=32, dtype="float32", length=9, **how):
    """Return the loss of a recurrent net, with feeds."""
    ag.nn.manual_seed(0)
    x = ag.Graph().input("x", (length, batch, hidden), dtype)
    y, _ = getattr(ag.nn, kind)(hidden, hidden, dtype=dtype, **how)(x)
    feeds = {"x": RNG.normal(size=(length, batch, hidden)).astype(dtype)}
    return (y * y).sum(), feeds


@pytest.mark.parametrize(("dtype", "helpers"), [("float32", 2), ("float64", 1)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_nets_in_parts_have_the_bits_of_the_interpreter(kind, dtype, helpers):
    loss, feeds = net(kind, batch=16 if helpers == 1 else 24, dtype=dtype)
    with forced(helpers=helpers):
        both([loss], feeds, loss.graph.parameters)
        both([loss], feeds, [])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_with_jit_parts_have_the_bits_of_the_whole(kind):
    loss, feeds = net(kind)
    found = []
    for helped in (False, True):
        with forced(helped) as (_, made):
            machine = ag.ActorMachine([loss], jit="wait", exact=False, workers=2)
            with machine:
                run = machine.run_sync(feeds, backward=True)
                found.append([run[loss].value, *[run[node].grad for node in machine.wrt]])
        assert parted(made)
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


UNARY = {
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
    "square": ops.square,
    "less": lambda c: -c * 0.5,
    "sum of rows": lambda c: c - c.sum(0) * 0.125,
    "sum of columns": lambda c: c - c.sum(1)[:, None],
    "from the last": lambda c: c[::-1] * 0.5,
    "turned rows": lambda c: ops.concatenate([c[1:], c[:1]]),
    "turned columns": lambda c: ops.concatenate([c[:, 3:], c[:, :3]], 1),
    "one row": lambda c: c * c[2],
    "mean": lambda c: c - c.mean(),
    "largest": lambda c: c - c.max(0),
    "other rows": lambda c: c.T.reshape(c.shape) * 0.5,
}
BINARY = {"+": ops.add, "*": ops.multiply, "-": ops.subtract, "/": lambda c, d: c / (d * d + 1.0)}
VALUES = st.recursive(
    st.sampled_from("cdexw"),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), inner),
        st.tuples(st.sampled_from([*sorted(BINARY), "@"]), inner, inner),
    ),
    max_leaves=5,
)


def value(recipe, names):
    """Return the node that a recipe describes, with the shape of a carry."""
    if isinstance(recipe, str):
        return names[recipe] if recipe != "w" else names["c"] @ names["w"]
    kind, *parts = recipe
    found = [value(part, names) for part in parts]
    if kind == "@":
        return (found[0] * 0.2) @ names["w"] - found[1]
    return UNARY[kind](*found) if len(found) == 1 else BINARY[kind](*found)


def drawn_loop(recipes, batch, dtype, reverse):
    """Return results of a loop with these carries, a sum and products over rows; and feeds."""
    g = ag.Graph()
    shapes = {"c": (batch, 16), "d": (batch, 16), "x": (batch, 16), "w": (16, 16)}
    shapes["e"] = (5, batch, 16)
    draw = np.random.default_rng(1).normal
    feeds = {name: (draw(size=one) * 0.3).astype(dtype) for name, one in shapes.items()}
    c, d, x, w, e = [g.input(name, one.shape, dtype) for name, one in feeds.items()]
    first = [c, d, np.zeros((16, 16), dtype), np.zeros(16, dtype)]

    def body(carries, element):
        c, d, outer, total = carries
        names = {"c": c, "d": d, "e": element, "x": x, "w": w}
        one, two, y = [value(recipe, names) * 0.5 for recipe in recipes]
        return [one, two, outer + one.T @ element, total + y.sum(0)], y

    last, ys = ag.scan(body, first, e, reverse=reverse)
    return [(ys * ys).sum() + sum([(one * one).sum() for one in last])], feeds, [c, w, x]


BODIES = (
    st.tuples(VALUES, VALUES, VALUES), st.sampled_from([8, 16]),
    st.sampled_from(["float32", "float64"]), st.booleans(),
)  # fmt: skip


TWO_NANS = (
    ("one row", ("sum of columns", ("one row", "c"))), "d",
    ("one row", ("sum of columns", ("mean", "c"))),
)  # fmt: skip


@drawn(12, 2000)
@given(*BODIES, st.sampled_from([1, 2]))
@example(TWO_NANS, 8, "float32", False, 1)
def test_drawn_loops_in_parts_have_the_bits_of_the_interpreter(
    recipes, batch, dtype, reverse, helpers
):
    with nans(), forced(helpers=helpers):
        both(*drawn_loop(recipes, batch, dtype, reverse))


@drawn(12, 2000)
@given(*BODIES, st.integers(0, 2**32))
def test_pieces_in_any_order_that_they_allow_give_the_same_bits(
    recipes, batch, dtype, reverse, seed
):
    with nans(), forced() as (patch, _):
        _AnyOrder(patch, seed)
        both(*drawn_loop(recipes, batch, dtype, reverse))


def halves(g, batch=16):
    """Return a loop whose rows can be split with any BLAS."""
    x, xs = g.input("x", (batch, 64), "float32"), g.input("xs", (40, batch, 64), "float32")
    last, ys = ag.scan(lambda c, e: (one := ops.tanh(c * 1.5 + e), one * one), x, xs)
    feeds = {"x": RNG.normal(size=x.dims), "xs": RNG.normal(size=xs.dims)}
    return [last, ys], {name: one.astype("float32") for name, one in feeds.items()}


@pytest.mark.parametrize("helped", [False, True])
def test_what_goes_by_rows_has_parts_and_each_thread_makes_all_iterations_of_its_own(g, helped):
    outputs, feeds = halves(g)
    with forced(helped) as (_, made):
        both(outputs, feeds, [], times=20)
    assert parted(made)
    assert all(rows.pieces.waits == [[], []] for rows in made)
    for rows in made:
        last = [rows.lines[end - 1, -1] for _, end in rows.pieces.pieces]
        assert native.LATER not in last  # it tests the error flags itself


@pytest.mark.parametrize("length", [40, 7])
@pytest.mark.parametrize("helped", [False, True])
def test_what_a_sum_over_the_batch_reads_is_left_behind_so_that_the_sum_may_follow(
    g, helped, length
):
    x, xs = g.input("x", (16, 64), "float32"), g.input("xs", (length, 16, 64), "float32")

    def body(carry, entry):
        one = ops.tanh(carry[0] * 1.5 + entry)
        return (one, carry[1] + (one * entry).sum(0), carry[2] + ops.exp(one).sum(0)), one

    zeros = ops.zeros(g, (64,), "float32")
    (last, *totals), ys = ag.scan(body, (x, zeros, zeros), xs)
    feeds = {one.name: RNG.normal(size=one.dims).astype("float32") for one in (x, xs)}
    with forced(helped) as (_, made):
        both([last, *totals, ys], feeds, [], times=20)
        both([last, *totals, ys], feeds, [x, xs], times=5)
    found = parted(made)
    assert found
    assert max(len(rows.phases) for rows in found) == 2


def test_arrays_that_later_phases_read_are_as_long_as_the_loop(g):
    x, xs = g.input("x", (16, 64), "float32"), g.input("xs", ("n", 16, 64), "float32")
    zeros = ops.zeros(g, (64,), "float32")

    def body(carry, entry):
        one = ops.tanh(carry[0] * 1.5 + entry)
        return (one, carry[1] + (one * entry).sum(0)), None

    (last, total), _ = ag.scan(body, (x, zeros), xs)
    start = RNG.normal(size=(16, 64)).astype("float32")
    with (
        forced() as (_, made), ag.LispMachine([last, total]) as lisp,
        ag.ActorMachine([last, total], native="wait", workers=2) as machine,
    ):  # fmt: skip
        for length in (5, 40, 3, 40, 1):
            feeds = {"x": start, "xs": RNG.normal(size=(length, 16, 64)).astype("float32")}
            wanted, run = lisp.run_sync(feeds), machine.run_sync(feeds)
            for node in (last, total):
                assert run[node].value.tobytes() == wanted[node].value.tobytes()
    assert parted(made)


def test_what_the_second_thread_writes_of_a_carry_begins_a_page(g):
    shapes = {"x": (16, 64), "y": (16, 32), "xs": (40, 16, 64)}
    x, y, xs = [g.input(name, shape, "float32") for name, shape in shapes.items()]

    def body(carries, entry):
        one, other = carries
        return [ops.tanh(one * 1.5 + entry), ops.tanh(other * 1.5 + entry[:, :32])], None

    last, _ = ag.scan(body, [x, y], xs)
    feeds = {name: RNG.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    with forced() as (_, made):
        both(last, feeds, [])
    for rows in parted(made):
        for base in (0, 1):
            assert rows.carry(base)[8:].ctypes.data % 4096 == 0


def test_a_machine_tells_of_laps_that_threads_share(g):
    outputs, feeds = halves(g)
    with forced(), ag.ActorMachine(outputs, native="wait", workers=2) as machine:
        machine.run_sync(feeds)
        told = machine.explain()
    assert "rows, walked by one thread, not 2, in 1 phase of shared laps: iterations " in told


def test_each_thread_makes_what_is_the_same_in_all_iterations_for_itself(g):
    x, xs = g.input("x", (16, 64), "float32"), g.input("xs", (40, 16, 64), "float32")
    scale = np.linspace(1, 2, 64, dtype="float32")

    def body(c, e):
        one = ops.tanh(c * 1.5 + e) + ops.sqrt(c.graph.constant(scale))
        return one, one * one

    last, ys = ag.scan(body, x, xs)
    feeds = {one.name: RNG.normal(size=one.dims).astype("float32") for one in (x, xs)}
    with forced() as (_, made):
        both([last, ys], feeds, [])
    assert parted(made)
    assert all(rows.pieces.waits == [[], []] for rows in made)


def test_one_worker_and_the_sequential_machine_have_no_parts(g):
    outputs, feeds = halves(g)
    with forced() as (_, made):
        for machine in (
            ag.TapeMachine(outputs, wrt=[], native="wait"),
            ag.ActorMachine(outputs, wrt=[], native="wait", workers=1),
        ):
            with machine:
                machine.run_sync(feeds)
    assert made == [None, None]


@pytest.mark.parametrize("row", [0, 15])
def test_errors_in_any_part_are_told_as_by_the_loop_in_python(g, row):
    x = g.input("x", (16, 64), "float32")
    last, _ = ag.scan(lambda c, _: (c * c * 0.5 + 0.25, None), x, length=9)
    good = {"x": np.full((16, 64), 0.5, "float32")}
    bad = {"x": good["x"].copy()}
    bad["x"][row] = 1e3
    with forced(), ag.ActorMachine([last], wrt=[], native="wait", workers=2) as machine:
        for _ in range(3):
            machine.run_sync(good)
            with pytest.warns(RuntimeWarning, match="overflow"):
                assert np.isinf(machine.run_sync(bad)[last].value[row]).all()
        with np.errstate(over="raise"), pytest.raises(ag.NodeError, match="overflow"):
            machine.run_sync(bad)


def test_an_error_is_heard_before_rows_that_pass_over_errors(g):
    x = g.input("x", (16, 64), "float32")
    last, _ = ag.scan(lambda c, _: (ops.sigmoid(ops.log(c)) - 0.5, None), x, length=3)
    feeds = {"x": np.full((16, 64), 2.0, "float32")}
    with (
        forced() as (_, made),
        ag.ActorMachine([last], wrt=[], native="wait", workers=2) as machine,
        pytest.warns(RuntimeWarning, match="invalid value encountered in log"),
    ):
        machine.run_sync(feeds)
    assert parted(made)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_parts_that_no_helper_comes_to_have_the_bits_of_the_interpreter(g, kind):
    loss, feeds = net(kind)
    with forced() as (patch, made):
        patch.setattr(type(HELPERS), "call", lambda _: 0)
        both([loss], feeds, loss.graph.parameters)  # in parts where BLAS lets products be split
        both(*halves(g), [])
    assert parted(made)


def test_a_run_that_dies_ends_all_threads_and_the_next_one_has_its_bits(g, monkeypatch):
    [last, ys], feeds = halves(g)
    with forced(), ag.ActorMachine([last, ys], wrt=[], native="wait", workers=2) as machine:
        wanted = machine.run_sync(feeds)[ys].value.tobytes()
        walk = native.RUNTIME.walk
        mortal = structs._idle(Exception("dead"))
        monkeypatch.setattr(
            native.RUNTIME, "walk", lambda arrays, block, _: walk(arrays, block, mortal)
        )
        with pytest.raises(Exception):  # noqa: B017, PT011 - as for any dead run
            machine.run_sync(feeds)
        monkeypatch.setattr(native.RUNTIME, "walk", walk)
        assert machine.run_sync(feeds)[ys].value.tobytes() == wanted
