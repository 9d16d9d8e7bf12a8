"""Admission by bytes: runs wait until they fit, and what never fits is refused before it starts."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.cuts import one_per_node, sequential
from actorgraph.machines.admission import Admission
from actorgraph.machines.claim import Claim, bytes_of
from actorgraph.memory.arenas import Arenas
from actorgraph.testing._examples import results
from tests._each import each
from tests._soak import SOAK
from tests.machines._faults import gate

SIDE = 256
BLOCK = SIDE * SIDE * 8
"""Bytes of one value of the test graphs: half a megabyte."""

OVERHEAD = 300_000
"""Bytes for runs, messages and programs, which are not arrays."""

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
    pytest.param(ag.ActorMachine, {"workers": 3, "fuse": "none"}, id="one actor a node"),
    pytest.param(ag.ActorMachine, {"workers": 3, "fuse": "all"}, id="fused"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)


def wide(branches=6, depth=3):
    """x -> branches of tanh(... + i), each `depth` long -> their sum: the sequence needs few."""
    x = ag.Graph().input("x", ("n", SIDE), "float64")
    total = None
    for i in range(branches):
        y = x
        for _ in range(depth):
            y = np.tanh(y + float(i))
        total = y if total is None else total + y
    return total.sum()


def feeds(count, rows=SIDE):
    for number in range(count):
        yield {"x": np.full((rows, SIDE), number / count)}


def peak_of(machine, items, **options):
    """Return the most bytes above those at the start while a stream ran, and the values' bits."""
    (output,) = machine.outputs
    values = []
    list(machine.stream(items[:2], **options))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for run in machine.stream(items, max_in_flight=16, **options):
            values.append(run[output].value.tobytes())
            del run
        return tracemalloc.get_traced_memory()[1] - before, values
    finally:
        tracemalloc.stop()


@machines
@pytest.mark.parametrize(
    ("blocks", "backward"), [(24, True), (80, False), *([(24, False), (80, True)] if SOAK else [])]
)
def test_a_deep_stream_stays_below_max_bytes(machine_type, options, backward, blocks):
    loss = wide()
    wrt = [loss.graph["x"]] if backward else []
    items = list(feeds(24))
    with ag.LispMachine(loss, wrt=wrt) as machine:
        expected = [run[loss].value.tobytes() for run in machine.stream(items)]
    limit = blocks * BLOCK
    with machine_type(loss, wrt=wrt, max_in_flight=16, max_bytes=limit, **options) as machine:
        peak, values = peak_of(machine, items, backward=backward)
    assert values == expected
    # Runs that wait for their turn in the stream hold a value and a gradient each, the user's own.
    assert peak < limit + 16 * 2 * BLOCK * backward + OVERHEAD


@machines
@each("backward", [False, True])
def test_a_run_never_holds_more_than_it_claims(machine_type, options, backward):
    loss, feed = wide(), next(feeds(1))
    with machine_type(loss, wrt=[loss.graph["x"]], max_bytes=100 * BLOCK, **options) as machine:
        for _ in range(3):
            tracemalloc.start()
            run = machine.start(feed, backward=backward)
            claimed = run.claim.alone(machine._core.scheduler.workers)["cpu"]
            run.result()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < claimed + OVERHEAD


def test_runs_wait_for_bytes_in_order_and_all_end(passing):
    x = ag.Graph().input("x", (SIDE, SIDE), "float64")
    y = gate(np.tanh(x)) * 2.0
    with ag.ActorMachine(y, fuse="none", workers=4, max_bytes=4 * BLOCK) as machine:
        runs = [machine.start({"x": np.full((SIDE, SIDE), float(i))}) for i in range(6)]
        passing.wait_entered()
        admission = machine._core.admission
        assert [run.number for run in admission.runs] == list(range(6))
        assert list(admission.in_flight) == [0]
        passing.open(6)
        for i, run in enumerate(runs):
            assert run.result()[y].value[0, 0] == (np.tanh(float(i)) + 1) * 2


@pytest.mark.usefixtures("values_share_memory")
def test_what_fits_only_in_sequential_order_runs_so_with_the_same_bits():
    loss = wide()
    items = list(feeds(3))
    with ag.LispMachine(loss) as machine:
        expected = [results(run, [loss]) for run in machine.stream(items)]
    options = {"fuse": "none", "workers": 3}
    with ag.ActorMachine(loss, max_bytes=50 * BLOCK, **options) as machine:
        assert machine.start(items[0]).plan.cut is one_per_node
    with ag.ActorMachine(loss, max_bytes=5 * BLOCK, **options) as machine:
        runs = [machine.start(feed) for feed in items]
        assert {run.plan.cut for run in runs} == {sequential}
        assert [results(run.result(), [loss]) for run in runs] == expected


@machines
def test_a_run_that_never_fits_is_refused_with_the_bytes_it_needs(machine_type, options):
    loss = wide().named("loss")
    with machine_type(loss, max_bytes=4 * BLOCK, **options) as machine:
        small = machine.run_sync(next(feeds(1, rows=100)))[loss].value
        match = (
            r"(?s)needs [\d_]+ bytes even in sequential order \(n = 1000\).*max_bytes is 2_097_152"
        )
        with pytest.raises(ag.errors.MemoryLimitError, match=match) as caught:
            machine.run_sync(next(feeds(1, rows=1000)))
        assert isinstance(caught.value, MemoryError)
        assert "the largest values, by node: " in str(caught.value)
        assert "2_048_000" in str(caught.value)
        assert not machine._core.admission.runs
        assert machine.run_sync(next(feeds(1, rows=100)))[loss].value == small


@pytest.mark.usefixtures("values_share_memory")
def test_memory_kept_for_other_sizes_makes_room():
    loss = wide()
    rows = [SIDE, 1, 3 * SIDE, 7, 2 * SIDE, SIDE]
    with ag.LispMachine(loss) as machine:
        expected = [machine.run_sync(next(feeds(1, n)))[loss].value for n in rows]
    for fuse in ("none", "all"):
        with ag.ActorMachine(loss, fuse=fuse, workers=2, max_bytes=11 * BLOCK) as machine:
            tracemalloc.start()
            found = [machine.run_sync(next(feeds(1, n)))[loss].value for n in rows]
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert found == expected
        assert peak < (11 + 3) * BLOCK + OVERHEAD  # one feed of three blocks is the user's


def test_steps_and_small_runs_are_admitted_too():
    w = ag.Graph().parameter("w", np.ones((SIDE, SIDE)))
    loss = np.tanh(w).sum()
    with ag.TapeMachine(loss, max_bytes=20 * BLOCK) as machine:
        limited = machine.compile_step(ag.solvers.SGD(lr=0.5))
        values = [float(limited()[loss].value) for _ in range(3)]
    w.value = np.ones((SIDE, SIDE))
    with ag.TapeMachine(loss) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.5))
        assert [float(step()[loss].value) for _ in range(3)] == values
    with (
        ag.TapeMachine(loss, max_bytes=BLOCK) as machine,
        pytest.raises(
            ag.errors.MemoryLimitError, match="even in sequential order, but max_bytes is"
        ),
    ):
        machine.compile_step(ag.solvers.SGD(lr=0.5))()


def test_claims_of_runs_in_flight_share_the_turns_of_workers():
    admission = Admission(8, 100, workers=2)
    run = type("Run", (), {"claim": Claim(kept=10, turn=20, arena=5, tasks=3)})
    assert run.claim.alone(2) == {"cpu": 10 + 2 * 25}
    admission.in_flight = {0: run, 1: run}
    assert admission.claimed(Arenas()) == {"cpu": 20 + 2 * 25}
    assert admission.claimed(Arenas(), run) == {"cpu": 30 + 2 * 25}


def test_a_task_needs_what_outlives_its_turn_and_the_most_of_the_rest_to_the_byte():
    x = ag.Graph().input("x", (4,), "float64")
    e, n = np.exp(x), -x
    steps = [e, n, e + n, np.sqrt(e + n)]
    for kept, planned, needed in (
        ([3], [], (32, 96)),
        ([0, 3], [], (64, 64)),
        ([3], [1], (32, 64)),
        ([0, 1, 2, 3], [], (128, 0)),
    ):
        outliving = [steps[number] for number in kept]
        written = frozenset(steps[number].id for number in planned)
        assert bytes_of(steps, outliving, written, SimpleNamespace(symbols={})) == needed


def test_what_runs_in_flight_hold_on_each_device_adds_up():
    admission = Admission(8, 100, workers=2)
    claims = [Claim(10, 0, 0, 1, {"a": 7}), Claim(10, 0, 0, 1, {"a": 5, "b": 3})]
    admission.in_flight = {i: type("Run", (), {"claim": one}) for i, one in enumerate(claims)}
    assert admission.claimed(Arenas()) == {"cpu": 20, "a": 12, "b": 3}


@each("max_bytes", [0, -1, 1.5, True, "1GB"])
def test_max_bytes_is_a_positive_int(max_bytes):
    with pytest.raises(ValueError, match="max_bytes must be an int of at least 1"):
        ag.TapeMachine(wide(), max_bytes=max_bytes)


def every_other(name, **more):
    return ag.ops.define(
        name, scheme="f[n] -> f[m]", forward=lambda xp, x: x[::2],
        shape=lambda checks, x: (x[0] // 2,), **more,
    )  # fmt: skip


@pytest.mark.parametrize("is_view", [False, True])
@pytest.mark.usefixtures("values_share_memory")
def test_an_op_of_the_user_that_is_declared_a_view_counts_nothing(is_view):
    half = every_other(f"half_{is_view}", is_view=is_view)
    y = np.tanh(ag.Graph().input("x", (2 * BLOCK // 8,), "float64"))
    total = sum(half(y + float(i)).sum() for i in range(3))
    feeds = {"x": np.ones(2 * BLOCK // 8)}
    # The sequence holds y and the operand of one half at a time, of two blocks each.
    with ag.TapeMachine(total, max_bytes=4 * BLOCK + 1000) as machine:
        if is_view:
            assert machine.run_sync(feeds)[total].value > 0
        else:
            with pytest.raises(ag.MemoryLimitError, match="even in sequential order"):
                machine.run_sync(feeds)


def test_a_declared_view_that_is_none_is_told():
    copy = ag.ops.define(
        "no_view", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x + 1, is_view=True
    )
    y = copy(ag.Graph().input("x", (3,), "float64"))
    with (
        ag.TapeMachine(y) as machine,
        pytest.raises(ag.NodeError, match="'no_view' is declared with is_view=True, but returned"),
    ):
        machine.run_sync({"x": np.ones(3)})
