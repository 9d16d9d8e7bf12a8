"""Strands: rows of a table that several threads walk, in any order that the waits allow."""

import ctypes
import os
import random
import threading
from contextlib import ExitStack, contextmanager
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native, structs
from actorgraph.devices import strands as walking
from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.helpers import HELPERS
from actorgraph.jit import groups as forming
from actorgraph.lower import quick_rows, strands, table, table_rows
from actorgraph.scratch import scratch_bytes
from actorgraph.testing._examples import check_in_turn, expected, results
from tests._each import each
from tests._soak import SOAK, drawn
from tests.machines._graphs import graphs

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


@contextmanager
def forced(helped=True, pieces_us=0.0, direct=True, parted_us=0.0):
    """Put all rows into strands and parts, cut wherever allowed, with helpers at every walk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "FEWEST_ROWS", 1)
        patch.setattr(strands, "_LEAST_US", 0.0)
        patch.setattr(strands, "_WORTH", np.inf)
        patch.setattr(strands, "_PIECE_US", pieces_us)
        patch.setattr(strands, "_PARTED_US", parted_us)
        patch.setattr(strands, "_FOLLOWING_US", parted_us)
        patch.setattr(HELPERS, "count", max(HELPERS.count, 1))
        patch.setattr(walking.Trial, "is_together", lambda _: helped)
        patch.setattr(ag.ActorMachine, "_small", lambda *_: direct)
        yield patch


def rows_of(machine):
    """Return the rows that were written for the parts of a machine's modes."""
    plans = machine._plans.values()
    programs = [plan.inline.program for plan in plans if plan.inline.program is not None]
    return [part.stretch._latest for program in programs for part in program.parts]


def columns(count=4, depth=5, side=16, dtype="float32"):
    """Return chains that are joined at some steps, with feeds."""
    g = ag.Graph()
    x = g.input("x", (side, side), dtype)
    w = g.parameter("w", np.linspace(-1, 1, side * side).reshape(side, side).astype(dtype))
    ends = [ops.tanh(x * (k + 0.5)) @ w for k in range(count)]
    for level in range(depth):
        ends = [
            ops.sigmoid(end) + (ends[k - 1] if (level + k) % 3 == 0 else 1.0)
            for k, end in enumerate(ends)
        ]
    loss = ops.concatenate(ends, axis=0).mean()
    return loss, {"x": np.random.default_rng(4).normal(size=(side, side)).astype(dtype)}


# -- what waits for what ---------------------------------------------------------------------------

PLACES = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 6), st.booleans())
TOUCHES = st.lists(st.tuples(PLACES, st.integers(1, 2)), max_size=12)


@drawn(200, 5000)
@given(TOUCHES)
def test_who_writes_what_others_touch_or_reads_what_others_wrote_waits_for_them(touches):
    touched, behind, noted = strands.Touched(), [], []
    for (base, begin, size, writes), beside in touches:
        # Units that are added together interleave: each touches other bytes of this range.
        one = base, begin * 1000, (begin + size) * 1000, writes
        first = len(behind)
        found = touched.touch(first, [[one]] * beside)
        assert len(found) == beside
        for waits in found:
            assert all(other < first for other in waits)
            behind.append(waits.union(*[behind[other] for other in waits]))
            for other, (base_2, begin_2, end_2, wrote) in enumerate(noted[:first]):
                same = one[1] < end_2 and begin_2 < one[2]
                meets = base == base_2 and same and (writes or wrote)
                assert not meets or other in behind[-1]
        noted += [one] * beside


@drawn(200, 5000)
@given(st.lists(st.sets(st.integers(0, 8)), max_size=9))
def test_the_nearest_to_wait_for_are_behind_all_the_others(drawn_waits):
    waits = [{one for one in some if one < at} for at, some in enumerate(drawn_waits)]
    order = [*range(len(waits))]

    def closure(of):
        found = []
        for some in of:
            found.append({*some}.union(*[found[one] for one in some]))
        return found

    near = strands.nearest(waits, order)
    assert closure(near) == closure(waits)
    for some, all_before in zip(near, [closure(near)] * len(near), strict=True):
        assert not any(one in all_before[other] for one in some for other in some)


@drawn(100, 2000)
@given(
    st.lists(st.tuples(st.sets(st.integers(0, 19)), st.floats(0.05, 9)), max_size=20),
    st.integers(1, 3),
)
def test_steps_begin_when_those_before_have_ended_and_their_strand_is_free(steps, threads):
    before = [sorted(one for one in some if one < at) for at, (some, _) in enumerate(steps)]
    costs = [cost for _, cost in steps]
    own_strand, begins, ends_us = strands.timed(before, costs, [64] * len(costs), threads)
    ends = [begin + cost for begin, cost in zip(begins, costs, strict=True)]
    for number, some in enumerate(before):
        assert all(ends[one] <= begins[number] for one in some)
    for strand in range(threads):
        own = sorted(
            (begin, end) for begin, end, s in zip(begins, ends, own_strand, strict=True)
            if s == strand
        )  # fmt: skip
        assert all(one[1] <= two[0] for one, two in pairwise(own))
    assert ends_us == max(ends, default=0.0)


def test_one_thread_leaves_a_strand_only_where_a_piece_waits_for_another_strand():
    assert strands.one_by_one([0, 300, 600], [()] * 600) == [*range(600)]
    assert strands.one_by_one([0, 2, 4], [(), (2,), (), (1,)]) == [0, 2, 1, 3]


# -- who takes what --------------------------------------------------------------------------------


def _moves(state, strand_ends, waits):
    """Yield the states after a thread's next access to a shared word, as in `devices.strands`."""
    nexts, done, threads = state

    def after(thread, does, nexts=nexts, done=done):
        return nexts, done, (*threads[:thread], does, *threads[thread + 1 :])

    for thread, (what, *at) in enumerate(threads):
        if what == "looks":
            if nexts == strand_ends:
                yield after(thread, ("left",))
            for strand, (piece, end) in enumerate(zip(nexts, strand_ends, strict=True)):
                if piece < end and waits[piece] <= done:
                    yield after(thread, ("has seen", strand, piece))
        elif what == "has seen":
            strand, piece = at
            if nexts[strand] != piece:
                yield after(thread, ("looks",))
            else:
                taken = (*nexts[:strand], piece + 1, *nexts[strand + 1 :])
                yield after(thread, ("works", piece), nexts=taken)
        elif what == "works":
            [piece] = at
            assert waits[piece] <= done
            assert piece not in done
            assert sum([other == ("works", piece) for other in threads]) == 1
            yield after(thread, ("looks",), done=done | {piece})


@drawn(60, 2000)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sets(st.integers(0, 5))), max_size=6),
    st.integers(1, 3),
)
def test_whatever_threads_do_first_each_piece_is_made_once_and_all_of_them_leave(steps, threads):
    order = sorted(range(len(steps)), key=lambda at: steps[at][0])  # strand after strand
    number = {at: piece for piece, at in enumerate(order)}
    waits = [frozenset(number[one] for one in steps[at][1] if one < at) for at in order]
    first = sum([strand == 0 for strand, _ in steps])
    ends = first, len(steps)
    begin = (0, first), frozenset(), (("looks",),) * threads
    seen, todo = {begin}, [begin]
    while todo:
        state = todo.pop()
        following = set(_moves(state, ends, waits))
        if not following:
            assert set(state[2]) == {("left",)}
            assert state[1] == {*range(len(steps))}
        todo += following - seen
        seen |= following


# -- bits ------------------------------------------------------------------------------------------


@drawn(25, 4000)
@given(graphs(max_ops=24))
def test_drawn_graphs_in_strands_have_the_bits_of_the_sequential_machine(example):
    nodes, wanted = expected(example)
    with (
        forced(),
        ag.ActorMachine(example.outputs, wrt=example.wrt, native="wait", workers=2) as machine,
    ):
        for _ in range(3):
            check_in_turn(machine, example, nodes, wanted)


class _AnyOrder:
    """Walks pieces in a random order, drawn from those that their waits allow."""

    def __init__(self, monkeypatch, seed):
        self._draw, self.walks, self.orders = random.Random(seed), 0, set()
        kinds = ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t
        self._begin = ctypes.CFUNCTYPE(*kinds)(self._walk)
        self._pieces = {}
        words = walking.Pieces.words

        def made(pieces):
            found = words(pieces)
            place = ctypes.cast(self._begin, ctypes.c_void_p).value
            found[0][0] = place
            self._pieces[found[0].ctypes.data] = pieces, found
            return found

        monkeypatch.setattr(walking.Pieces, "words", made)

    def _walk(self, words, block, run):
        pieces, _ = self._pieces[words]
        kinds = ctypes.c_int64, *[ctypes.c_size_t] * 2, *[ctypes.c_int64] * 4
        rows = ctypes.PYFUNCTYPE(*kinds)(native.RUNTIME.routine(pieces.walks))
        done, left, raised = [], {*range(len(pieces.pieces))}, 0
        while left:
            ready = sorted(one for one in left if {*pieces.waits[one]} <= {*done})
            one = self._draw.choice(ready)
            begin, end = pieces.pieces[one]
            flags = rows(block, run, begin, end, end, 0)
            if flags < 0:
                return flags
            raised |= flags
            done.append(one)
            left.remove(one)
        self.walks += 1
        self.orders.add(tuple(done))
        return raised


@drawn(25, 4000)
@given(graphs(max_ops=24), st.integers(0, 2**32))
def test_pieces_in_any_order_that_they_allow_give_the_same_bits(example, seed):
    nodes, wanted = expected(example)
    with forced() as patch:
        _AnyOrder(patch, seed)
        with ag.ActorMachine(example.outputs, wrt=example.wrt, native="wait", workers=2) as machine:
            for _ in range(3):
                check_in_turn(machine, example, nodes, wanted)


@pytest.mark.parametrize("slack", [0, 16])
def test_memory_that_is_used_again_is_waited_for(slack, monkeypatch):
    loss, feeds = columns()
    with ag.LispMachine([loss]) as machine:
        wanted = machine.run_sync(feeds, backward=True)[loss.graph.parameters[0]].grad
    with forced() as patch:
        patch.setattr(strands, "_SLACK", slack)
        order = _AnyOrder(patch, 1)
        with ag.ActorMachine([loss], native="wait", workers=2) as machine:
            for _ in range(25):
                got = machine.run_sync(feeds, backward=True)[loss.graph.parameters[0]].grad
                assert got.tobytes() == wanted.tobytes()
    assert order.walks >= 25
    assert len(order.orders) > 20


def test_a_machine_tells_of_strands():
    loss, feeds = columns()
    with forced(), ag.ActorMachine([loss], native="wait", workers=2) as machine:
        machine.run_sync(feeds)
        [rows] = rows_of(machine)
        line = f"{len(rows.pieces.waits)} pieces in 2 strands"
        assert line in machine.explain()
        assert line in machine.source


def test_a_walk_keeps_its_helpers_while_another_thread_walks_the_table_alone():
    loss, feeds = columns()
    found = []

    def helped(block):
        return ctypes.c_int64.from_address(block + native.HELPED * 8).value

    def in_main_thread(*_):
        return threading.current_thread() is threading.main_thread()

    def walked(arrays, block, run):
        before = helped(block)
        if in_main_thread():
            other = threading.Thread(target=machine.run_sync, args=(feeds,))
            other.start()
            other.join()
        found.append((bool(before), helped(block) == before))
        return walk(arrays, block, run)

    with forced() as patch, ag.ActorMachine([loss], native="wait", workers=2) as machine:
        machine.run_sync(feeds)
        walk = native.RUNTIME.walk
        patch.setattr(walking.Trial, "is_together", in_main_thread)
        patch.setattr(native.RUNTIME, "walk", walked)
        machine.run_sync(feeds)
    assert found == [(False, True), (True, True)]


@pytest.mark.parametrize(
    ("gains", "together_us", "anew"), [(False, 0.0, True), (True, 95.0, True), (True, 60.0, False)]
)
def test_rows_are_written_anew_for_one_thread_unless_helpers_pay_clearly(gains, together_us, anew):
    loss, feeds = columns()
    weight = loss.graph.parameters[0]
    with ag.LispMachine([loss]) as machine:
        wanted = machine.run_sync(feeds, backward=True)[weight].grad
    with (
        forced(helped=False) as patch,
        ag.ActorMachine([loss], native="wait", workers=2) as machine,
    ):
        patch.setattr(walking.Trial, "note", lambda *_: None)

        def runs(count):
            for _ in range(count):
                assert machine.run_sync(feeds, backward=True)[weight].grad.tobytes() == (
                    wanted.tobytes()
                )

        runs(1)
        [rows] = rows_of(machine)
        assert isinstance(rows, strands.StrandRows)
        rows.pieces.trial.gains, rows.pieces.trial.medians_us = gains, (100.0, together_us)
        runs(table._ALONE)
        done = threading.Event()
        BACKGROUND.submit(done.set)  # behind the rows, which are requested by now
        assert done.wait(30)
        runs(3)
        plans = machine._plans.values()
        [stretch] = [part.stretch for plan in plans for part in plan.inline.program.parts]
        assert sorted([type(one()._written) for one in stretch._blocks], key=str) == [
            strands.StrandRows, *[table_rows.Written] * anew,
        ]  # fmt: skip


# -- with jit --------------------------------------------------------------------------------------


@contextmanager
def compiled(**how):
    """Do as `forced`; put all that can be into groups and into machine code."""
    with forced(**how) as patch:
        patch.setattr(HELPERS, "count", 2)
        patch.setattr(forming, "FEWEST", 1)
        patch.setattr(quick_rows, "_LEAST_ROW_FLOPS", 0.0)
        yield patch


def with_jit(outputs, workers, wrt=None):
    return ag.ActorMachine(
        outputs, wrt=wrt, exact=False, jit="wait", native="wait", workers=workers
    )


@drawn(5, 1000)
@given(graphs(max_ops=24), st.integers(2, 3), st.integers(0, 2**32))
def test_drawn_graphs_with_jit_have_equal_bits_for_all_workers_and_orders(example, workers, seed):
    with compiled() as patch:
        with with_jit(example.outputs, 1, example.wrt) as machine:
            nodes = [*example.outputs, *machine.wrt]
            wanted = [results(machine.run_sync(f, **mode), nodes) for f, mode in example.runs()]
        with with_jit(example.outputs, workers, example.wrt) as machine:
            for _ in range(3):
                check_in_turn(machine, example, nodes, wanted)
        _AnyOrder(patch, seed)
        with with_jit(example.outputs, workers, example.wrt) as machine:
            for _ in range(3):
                check_in_turn(machine, example, nodes, wanted)


def layers(batch, count=5 if SOAK else 3, side=32):
    """Return chains of products and of groups, some of several results, with feeds."""
    g = ag.Graph()
    x = g.input("x", (batch, side))
    draw = np.random.default_rng(3).standard_normal
    w, b = g.parameter("w", draw((side, side), "f") / 6), g.parameter("b", draw(side, "f"))
    ends = [x * (k + 0.5) for k in range(count)]
    for _ in range(4 if SOAK else 2):
        ends = [ops.tanh(end @ w.T + b) + ends[k - 1] for k, end in enumerate(ends)]
        ends = [ops.softmax(end * 0.5 - b, axis=-1) * float(side) for end in ends]
    return ops.square(ops.stack(ends)).mean(), {"x": draw((batch, side), "f")}


@pytest.mark.parametrize(
    ("workers", "batch", "parted_us"),
    [(2, 32, 0.0), (3, 6, np.inf),
     *([(2, 32, np.inf), (3, 6, 0.0), *product((2, 3), (8, 32), (0.0, np.inf))] if SOAK else [])],
)  # fmt: skip
def test_groups_and_products_in_strands_have_the_bits_that_one_thread_gives(
    workers, batch, parted_us
):
    loss, feeds = layers(batch)
    with compiled(parted_us=parted_us) as patch:
        with with_jit([loss], 1) as machine:
            wanted = machine.run_sync(feeds, backward=True)
        nodes = [loss, *loss.graph.parameters]
        for seed in (None, 1):
            order = seed and _AnyOrder(patch, seed)
            with with_jit([loss], workers) as machine:
                for _ in range(20):
                    got = machine.run_sync(feeds, backward=True)
                    assert results(got, nodes) == results(wanted, nodes)
                [rows] = rows_of(machine)
                code = [row for _, row in rows.columns.notes if row.touches]
                assert len({row.loop.function for row in code}) > 2
                assert any(row.parts for row in code) is (parted_us == 0.0)
        assert len(order.orders) > 15


def test_halves_of_a_chain_with_jit_meet_nobody_from_its_begin_to_its_end():
    g = ag.Graph()
    numbers = np.linspace(-0.1, 0.1, 4096, dtype="float32").reshape(64, 64)
    x, w = g.input("x", (64, 64)), g.parameter("w", numbers)
    y = x
    for _ in range(6):
        y = ops.relu(y @ w + x) * 0.5
    feeds = {"x": np.random.default_rng(4).standard_normal((64, 64), "f")}
    with compiled(pieces_us=1e9) as patch:
        patch.setattr(HELPERS, "count", 1)
        with with_jit([y], 1) as machine:
            wanted = machine.run_sync(feeds)[y].value
        with with_jit([y], 2) as machine:
            for _ in range(20):
                assert machine.run_sync(feeds)[y].value.tobytes() == wanted.tobytes()
            [rows] = rows_of(machine)
    assert [*rows.pieces.waits] == [[], []]


# -- what goes wrong, and what has no strands ------------------------------------------------------


@pytest.mark.parametrize("helped", [False, True])
def test_warnings_and_errors_are_those_of_the_sequential_machine(helped):
    g = ag.Graph()
    x, index = g.input("x", (64,), "float32"), g.input("index", (3,), "int64")
    ends = [ops.log(x * float(k)) for k in range(1, 6)] + [ops.tanh(x)[index]]
    total = sum([end.sum() for end in ends], start=ops.exp(x).sum())
    good = {"x": np.linspace(1, 2, 64, dtype="float32"), "index": np.arange(3)}
    bad = {**good, "x": np.linspace(-1.3, 2, 64, dtype="float32")}
    with (
        ag.LispMachine([total]) as lisp,
        forced(helped),
        ag.ActorMachine([total], native="wait", workers=2) as machine,
    ):
        for _ in range(20):
            for feeds in (good, bad):
                with np.errstate(invalid="ignore"):
                    got = machine.run_sync(feeds)[total].value
                    wanted = lisp.run_sync(feeds)[total].value
                assert got.tobytes() == wanted.tobytes()
        with pytest.warns(RuntimeWarning, match="invalid value") as told:
            machine.run_sync(bad)
        with pytest.warns(RuntimeWarning, match="invalid value") as wanted:
            lisp.run_sync(bad)
        assert {str(one.message) for one in told} == {str(one.message) for one in wanted}
        with pytest.raises(ag.NodeError, match="index") as failed:
            machine.run_sync({**good, "index": np.array([0, 1, 64])})
        with pytest.raises(ag.NodeError) as expected_error:
            lisp.run_sync({**good, "index": np.array([0, 1, 64])})
        assert str(failed.value) == str(expected_error.value)
        assert machine.run_sync(good)[total].value == lisp.run_sync(good)[total].value


def test_an_error_is_heard_before_rows_that_pass_over_errors():
    x = ag.Graph().input("x", (64,), "float32")
    total = ops.stack([ops.sigmoid(ops.log(x * float(k))) for k in range(1, 5)]).mean()
    feeds = {"x": np.linspace(-1, 1, 64, dtype="float32")}
    with forced(pieces_us=1e9), ag.ActorMachine([total], native="wait", workers=2) as machine:
        with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
            machine.run_sync(feeds)
        assert [type(rows) for rows in rows_of(machine)] == [strands.StrandRows]


def test_the_last_row_of_a_piece_tests_the_error_flags_itself():
    loss, feeds = columns()
    with forced(pieces_us=1e9), ag.ActorMachine([loss], native="wait", workers=2) as machine:
        machine.run_sync(feeds)
        [rows] = rows_of(machine)
    own = [rows.lines[begin:end, -1].tolist() for begin, end in rows.pieces.pieces]
    assert native.LATER not in [heard[-1] for heard in own]
    assert any(native.LATER in heard for heard in own)


@pytest.mark.parametrize("helped", [False, True])
def test_a_run_that_dies_ends_within_a_row_and_the_next_one_has_its_bits(helped, monkeypatch):
    loss, feeds = columns(side=128, depth=8)
    mortal = structs._idle()
    monkeypatch.setattr(structs, "IDLE", mortal)  # the run of direct walks
    with forced(helped), ag.ActorMachine([loss], native="wait", workers=2) as machine:
        wanted = machine.run_sync(feeds)[loss].value
        assert [type(rows) for rows in rows_of(machine)] == [strands.StrandRows]
        outcomes = set()
        for turn in range(60):
            killer = threading.Timer(turn * 1e-4, setattr, (mortal, "dead", Exception("dead")))
            if not turn:
                mortal.dead = Exception("dead")
            killer.start()
            try:
                assert machine.run_sync(feeds)[loss].value == wanted
                outcomes.add("done")
            except ag.NodeError:
                outcomes.add("died")
            killer.join()
            mortal.dead = None
            assert machine.run_sync(feeds)[loss].value == wanted
        assert "died" in outcomes


@each(
    "settings",
    [
        {"fuse": "none"},
        {"fuse": "all"},
        {"workers": 1},
        {"native": False},
        {"seed": 3},
        {"statistics": True},
        {"watch": ("nan",)},
    ],
)
def test_who_asks_for_something_else_has_no_strands(settings):
    loss, feeds = columns()
    given = {"native": "wait", "workers": 2, **settings}
    with forced(), ag.ActorMachine([loss], **given) as machine:
        for _ in range(3):
            machine.run_sync(feeds)
        assert not any(isinstance(rows, strands.StrandRows) for rows in rows_of(machine))


def test_steps_that_need_each_other_in_turn_have_no_strands():
    h = ag.Graph().input("x", (64, 64), "float32")
    for _ in range(20):
        h = ops.tanh(h)
    with ag.ActorMachine([h], native="wait", workers=2) as machine:
        machine._small = lambda *_: True
        machine.run_sync({"x": np.ones((64, 64), "float32")})
        [rows] = rows_of(machine)
        assert not isinstance(rows, strands.StrandRows)


def chain(side=128, depth=6, dtype="float32"):
    """Return steps each of which needs the one before, like the layers of a net, with feeds."""
    g = ag.Graph()
    x = g.input("x", (side, side), dtype)
    w = g.parameter("w", np.linspace(-0.1, 0.1, side * side).reshape(side, side).astype(dtype))
    y = x
    for _ in range(depth):
        y = ops.softmax(ops.tanh(y @ w) + x, axis=-1) * float(side)
    return y, {"x": np.random.default_rng(4).normal(size=(side, side)).astype(dtype)}


def test_halves_of_a_chain_meet_nobody_from_its_begin_to_its_end():
    y, feeds = chain(dtype="float64")  # OpenBLAS splits its products with equal bits everywhere
    with ag.LispMachine([y]) as machine:
        wanted = machine.run_sync(feeds)[y].value
    with forced(pieces_us=1e9) as patch:
        patch.setattr(HELPERS, "count", 1)
        with ag.ActorMachine([y], native="wait", workers=2) as machine:
            for _ in range(20):
                assert machine.run_sync(feeds)[y].value.tobytes() == wanted.tobytes()
            [rows] = rows_of(machine)
    assert [*rows.pieces.waits] == [[], []]
    assert len(rows.pieces.pieces) == 2


def test_steps_that_take_long_are_in_parts_and_those_that_read_them():
    before = [[], [0], [1], [2], [2]]
    costs = [0.5, 20.0, 2.0, 0.5, 9.0]
    laid = strands._laid(before, costs, [4096] * 5, 2)
    assert [len(one.strands) for one in laid] == [1, 2, 2, 1, 2]
    assert {*laid[1].strands} == {*laid[2].strands} == {0, 1}
    assert strands._laid([[]], [9.0], [4096], 2) is None


def test_one_sequence_that_a_worker_runs_has_strands_too():
    loss, feeds = columns()
    with ag.LispMachine([loss]) as lisp:
        wanted = lisp.run_sync(feeds)[loss].value
    with (
        forced(direct=False),
        ag.ActorMachine([loss], native="wait", workers=2) as machine,
    ):
        runs = [machine.run_sync(feeds) for _ in range(30)]
        assert all(run[loss].value == wanted for run in runs)
        [plan] = machine._plans.values()
        assert plan.sequential is not None
        assert "pieces in 2 strands" in machine.explain()


@pytest.mark.usefixtures("values_share_memory")
def test_strands_of_all_tables_write_into_one_memory():
    loss, feeds = columns(side=96)
    with ag.LispMachine([loss]) as lisp:
        wanted = lisp.run_sync(feeds)[loss].value
    with forced(), ag.ActorMachine([loss], native="wait", workers=2) as machine:
        for _ in range(20):
            assert machine.run_sync(feeds)[loss].value == wanted
        [written] = rows_of(machine)
        [plan] = machine._plans.values()
        assert written.rooms > 2
        assert 128 * 1024 <= written.total <= scratch_bytes()
        assert plan.inline.program.walked_bytes == 0


def test_threads_that_run_one_machine_or_several_have_their_bits():
    built = [columns(count=k, side=32) for k in (3, 4)]
    failed = []
    with forced(), ExitStack() as scope:
        machines = [
            scope.enter_context(ag.ActorMachine([loss], native="wait", workers=2))
            for loss, _ in built
        ]
        wanted = [
            machine.run_sync(feeds)[loss].value
            for machine, (loss, feeds) in zip(machines, built, strict=True)
        ]

        def runs(start):
            for turn in range(start, start + 200):
                loss, feeds = built[turn % 2]
                if machines[turn % 2].run_sync(feeds)[loss].value != wanted[turn % 2]:
                    failed.append(turn)

        threads = [threading.Thread(target=runs, args=(start,)) for start in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert not failed


def test_a_child_of_a_fork_walks_without_the_helpers_of_its_parent():
    loss, feeds = columns()
    with forced(), ag.ActorMachine([loss], native="wait", workers=2) as machine:
        wanted = machine.run_sync(feeds)[loss].value
        child = os.fork()
        if not child:
            try:
                with ag.ActorMachine([loss], native="wait", workers=2) as own:
                    same = bool(own.run_sync(feeds)[loss].value == wanted)
                os._exit(0 if same else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_a_view_of_a_constant_that_no_step_has_read_before_has_its_place():
    g, draw = ag.Graph(), np.random.default_rng(0).standard_normal
    weights = [g.parameter(f"w{k}", draw((256, 64)) * 0.1) for k in range(2)]
    hidden = cell = g.constant(np.zeros((32, 64)))  # the gradient of its weights transposes it
    for k in range(8):
        x = g.input(f"x{k}", (32, 64), "float64")
        hidden, cell = ops.lstm_cell(x, (hidden, cell), *weights)
    feeds = {f"x{k}": draw((32, 64)) for k in range(8)}
    with ag.ActorMachine([(hidden * hidden).mean()], workers=2, native="wait") as machine:
        for _ in range(3):
            machine.run_sync(feeds, backward=True)
        assert "rows of 0 are written" not in machine.explain()
