"""Runs that overlap stay isolated: failure, cancellation, deadlines, priority, admission."""

import gc
import random
import sys
import threading
import tracemalloc
from collections import deque
from types import ModuleType

import anyio
import numpy as np
import pytest

import actorgraph as ag
import actorgraph.scheduler
from actorgraph.testing._examples import results
from tests._soak import SOAK
from tests.machines._faults import TRAP, feeds, gate, traced_model, trap

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1, "fuse": "none"}, id="one worker"),
    pytest.param(
        ag.ActorMachine,
        {"workers": 3, "fuse": "none", "seed": 5, "capacity": 1},
        id="three workers",
    ),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all"}, id="fused"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
ONES = {"x": np.ones(2)}


def gated():
    """x -> tanh -> gate -> * 2: a run that stands in the middle for as long as a test wants."""
    x = ag.Graph().input("x", (2,), "float64")
    return gate(ag.ops.tanh(x)) * 2.0


def wanted(value):
    return (np.tanh(value) + 1) * 2


def test_a_run_without_time_ends_though_others_fill_the_machine(passing):
    y = gated()
    with ag.ActorMachine([y], wrt=[], workers=1, max_in_flight=1) as machine:
        first = machine.start({"x": np.full(2, 1.0)})
        passing.wait_entered()
        late = machine.start({"x": np.full(2, 2.0)}, timeout_s=0)
        assert late.done
        with pytest.raises(TimeoutError, match="run 1 did not end in time"):
            late.result()
        passing.open(1)
        np.testing.assert_array_equal(first.result()[y].value, wanted(np.full(2, 1.0)))


@machines
@pytest.mark.parametrize("end", ["deadline", "fault"])
def test_neighbours_of_a_run_that_dies_finish_with_the_right_bits(
    machine_type, options, passing, clock, end
):
    y = trap(gated())
    with machine_type([y], wrt=[], **options) as machine:
        before = machine.start({"x": np.full(2, 1.0)})
        passing.wait_entered()
        doomed = machine.start(
            {"x": np.full(2, 2.0)}, timeout_s=3600 if end == "deadline" else None
        )
        after = machine.start({"x": np.full(2, 3.0)})
        if end == "fault":
            error, match = ag.RunCancelled, "for a reason"
            doomed.abort(ag.RunCancelled("for a reason"))
        else:
            error, match = TimeoutError, "run 1 did not end in time"
            clock.move_on(3600)
            while doomed.dead is None:
                pass  # the deadline's thread sets it
        passing.open(2)
        np.testing.assert_array_equal(before.result()[y].value, wanted(np.full(2, 1.0)))
        np.testing.assert_array_equal(after.result()[y].value, wanted(np.full(2, 3.0)))
        with pytest.raises(error, match=match):
            doomed.result()
        assert not doomed.cancel()
        assert passing.calls == 2  # the doomed run never came to the gate


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_runs_are_in_flight_than_was_allowed(passing, limit):
    x = ag.Graph().input("x", (2,), "float64")
    y = gate(gate(gate(gate(x) * 1.0) * 1.0) * 1.0)
    with ag.ActorMachine([y], workers=4, max_in_flight=limit, fuse="none") as machine:
        runs = [machine.start(ONES) for _ in range(8)]
        passing.wait_entered()  # run 0 in the first gate
        passing.open()
        for _ in range(min(limit, 2)):
            passing.wait_entered()  # run 0 in the second, run 1 in the first if it may
        assert passing.inside == min(limit, 2)
        passing.open(4 * len(runs))
        for run in runs:
            run.result()
    assert passing.most_inside <= limit
    assert passing.calls == 4 * len(runs)


@machines
def test_an_urgent_run_overtakes_those_that_wait(machine_type, options, passing):
    y = gated()
    order = []
    with machine_type([y], max_in_flight=1, **options) as machine:
        runs = {"first": machine.start(ONES)}
        passing.wait_entered()
        for name, priority in (("late", 5), ("normal", 0), ("urgent", -1), ("normal too", 0)):
            runs[name] = machine.start(ONES, priority=priority)
        for name, run in runs.items():
            run.add_done_callback(lambda name=name: order.append(name))
        passing.open(5)
        for run in runs.values():
            run.result()
    assert order == ["first", "urgent", "normal", "normal too", "late"]


def test_a_callback_that_fails_harms_nobody(caplog):
    _, outputs = traced_model()
    with ag.ActorMachine(outputs) as machine:
        run = machine.start(feeds())
        run.add_done_callback(lambda: 1 / 0)
        run.result()
        machine.run_sync(feeds())
    assert "division by zero" in caplog.text


@machines
def test_result_waits_no_longer_than_it_is_told(machine_type, options, passing):
    y = gated()
    with machine_type([y], **options) as machine:
        run = machine.start(ONES)
        passing.wait_entered()
        with pytest.raises(TimeoutError, match=r"has not ended after 0.001 s: it was running"):
            run.result(timeout_s=np.float32(0.001))
        assert "running" in repr(run)
        passing.open()
        assert run.result(timeout_s=float("inf")) is run
        assert "done" in repr(run)


@machines
def test_a_missed_deadline_says_how_long_it_was_and_whether_the_run_had_begun(
    machine_type, options, passing, clock
):
    y = gated()
    with machine_type([y], **{**options, "max_in_flight": 1}) as machine:
        first = machine.start(ONES, timeout_s=3600)
        passing.wait_entered()
        second = machine.start(ONES, timeout_s=1800)
        clock.move_on(2 * 3600)
        with pytest.raises(TimeoutError, match="1800 s: it had not begun, behind 1 in flight"):
            second.result()
        passing.open()
        with pytest.raises(TimeoutError, match="did not end in time, 3600 s: it was running"):
            first.result()


@machines
def test_a_deadline_may_be_centuries_away_or_over(machine_type, options):
    _, outputs = traced_model()
    with machine_type(outputs, **options) as machine:
        for far in (1e6, 1e300, float("inf")):
            machine.run_sync(feeds(), timeout_s=far)
        run = machine.start(feeds(), timeout_s=0)
        with pytest.raises(TimeoutError, match="did not end in time"):
            run.result()
        machine.run_sync(feeds(), timeout_s=1e6)


@machines
@pytest.mark.anyio
async def test_cancelling_the_caller_returns_when_the_running_ops_end(
    machine_type, options, passing, anyio_backend
):
    y = gated()
    async with machine_type([y], **options) as machine:
        ended = []

        async def call():
            try:
                await machine.run(ONES)
            finally:
                ended.append(passing.inside)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.to_thread.run_sync(passing.wait_entered)
            group.cancel_scope.cancel()
            threading.Thread(target=passing.open).start()
        assert ended == [0]
        passing.open()
        run = await machine.run(ONES)
        np.testing.assert_array_equal(run[y].value, wanted(np.ones(2)))


@machines
@pytest.mark.anyio
async def test_a_started_run_can_be_awaited_by_several(machine_type, options, anyio_backend):
    _, outputs = traced_model()
    async with machine_type(outputs, **options) as machine:
        run = machine.start(feeds())
        seen = []

        async def wait():
            seen.append((await run)[outputs[0]].value)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
        assert await run is run
        assert len({id(value) for value in seen}) == 1


def test_run_sync_inside_an_op_of_the_same_machine_says_so():
    x = ag.Graph().input("x", (2,), "float64")
    inner = ag.ActorMachine([x * 2.0])
    reentered = []

    def again(which):
        def call():
            which().run_sync(ONES)
            return RuntimeError("it came back")

        return call

    with ag.ActorMachine([trap(x)], workers=1) as outer, inner:
        TRAP.forward = again(lambda: outer)
        try:
            with pytest.raises(ag.NodeError, match="run_sync was called inside an op of the same"):
                outer.run_sync(ONES)
            TRAP.forward = again(lambda: inner)  # another machine is allowed
            with pytest.raises(ag.NodeError, match="it came back"):
                outer.run_sync(ONES)

            def close():
                reentered.append(1)
                outer.close()

            TRAP.forward = close
            with pytest.raises(ag.NodeError, match="close was called inside an op of the same"):
                outer.run_sync(ONES)
        finally:
            TRAP.forward = None
        assert reentered
        outer.run_sync(ONES)


def test_run_sync_inside_an_op_of_an_op_says_so():
    x = ag.Graph().input("x", (2,), "float64")
    with ag.ActorMachine([trap(x)], workers=1) as outer, ag.ActorMachine([trap(x)]) as inner:
        depth = []

        def down():
            depth.append(1)
            (inner if len(depth) == 1 else outer).run_sync(ONES)
            return RuntimeError("it came back")

        TRAP.forward = down
        try:
            with pytest.raises(ag.NodeError, match="run_sync was called inside an op of the same"):
                outer.run_sync(ONES)
        finally:
            TRAP.forward = None
        assert len(depth) == 2


def open_when_dead(passing, runs):
    while any(run.dead is None for run in runs):
        pass
    passing.open(len(runs))


@machines
@pytest.mark.anyio
async def test_closing_on_a_loop_ends_runs_in_flight(machine_type, options, passing, anyio_backend):
    y = gated()
    machine = machine_type([y], **options)
    runs = [machine.start(ONES) for _ in range(3)]
    await anyio.to_thread.run_sync(passing.wait_entered)
    threading.Thread(target=open_when_dead, args=(passing, runs)).start()
    with anyio.fail_after(20):
        await machine.aclose()
    for run in runs:
        with pytest.raises(ag.MachineClosedError, match="was closed during run"):
            await run


@pytest.mark.soak
@machines
def test_runs_cancelled_at_random_points_leave_the_next_run_right(machine_type, options):
    _, outputs = traced_model()
    random_points = random.Random(1)
    with machine_type(outputs, **options) as machine:
        nodes = [*outputs, *machine.wrt]
        right = results(machine.run_sync(feeds(), backward=True), nodes)
        for _ in range(400 if SOAK else 40):
            runs = [machine.start(feeds(), backward=True) for _ in range(10)]
            doomed = random_points.sample(runs, 5)
            for run in doomed:
                for _ in range(random_points.randrange(200)):
                    pass
                run.cancel()
            for run in runs:
                try:
                    assert results(run.result(), nodes) == right
                except ag.RunCancelled:
                    assert run in doomed  # others go on
            assert results(machine.run_sync(feeds(), backward=True), nodes) == right


@pytest.mark.soak
@pytest.mark.parametrize("fuse", ["none", "auto"])
def test_memory_stays_flat_over_many_runs(fuse):
    _, outputs = traced_model(4)
    with ag.ActorMachine(outputs, workers=2, fuse=fuse) as machine:

        def some(count):
            for i in range(count):
                runs = [machine.start(feeds(), backward=True, timeout_s=100) for _ in range(4)]
                if i % 4 == 0:
                    runs[0].cancel()
                if i % 10 == 0:
                    TRAP.forward = MemoryError
                for run in runs:
                    try:
                        run.result()
                    except (ag.RunCancelled, ag.NodeError):
                        TRAP.forward = None
                TRAP.forward = None
            del runs
            gc.collect()

        some(100)
        tracemalloc.start()
        some(50)
        before = tracemalloc.get_traced_memory()[0]
        some(5000 if SOAK else 250)
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert grown < 100_000, f"{grown} bytes more"


def test_places_in_ready_queues_do_not_pile_up_under_a_load_that_never_ends(monkeypatch):
    monkeypatch.setattr(actorgraph.scheduler, "_CROWDED", 64)
    x = ag.Graph().input("x", (20_000,), "float64")
    y = x
    for _ in range(5):
        y = ag.ops.tanh(y) + x
    array = {"x": np.ones(20_000)}
    with ag.ActorMachine([y], workers=1, fuse="none") as machine:
        machine.start(array).result()
        scheduler = machine._core.scheduler
        runs = deque(machine.start(array) for _ in range(24))
        most = 0
        for _ in range(400):
            runs.popleft().result(timeout_s=20)  # with a timeout the caller does not work along
            runs.append(machine.start(array))
            most = max(most, *(len(queue) for _, queues in scheduler.classes for queue in queues))
        for run in runs:
            run.result()
    assert most < 200


def test_a_busy_machine_does_not_starve_another(passing):
    y = gated()
    x = ag.Graph().input("x", (2,), "float64")
    other = ag.ops.tanh(x)
    with ag.ActorMachine([y], workers=1) as busy, ag.ActorMachine([other], workers=1) as machine:
        run = busy.start(ONES)
        passing.wait_entered()
        np.testing.assert_array_equal(
            machine.start(ONES).result(timeout_s=20)[other].value, np.tanh(np.ones(2))
        )
        passing.open()
        run.result()


def test_results_of_ended_runs_are_not_kept_by_their_deadlines():
    x = ag.Graph().input("x", (100_000,), "float64")
    with ag.ActorMachine([x + 1.0]) as machine:
        tracemalloc.start()
        for _ in range(60):
            machine.run_sync({"x": np.ones(100_000)}, timeout_s=1000)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert held < 10_000_000


@pytest.mark.parametrize("name", ["asyncio", "trio", "IPython"])
def test_run_sync_works_while_another_thread_imports_an_event_loop(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # there, and empty so far
    x = ag.Graph().input("x", (2,), "float64")
    with ag.ActorMachine([x * 2.0]) as machine:
        run = machine.run_sync({"x": np.ones(2)})
    assert run[x * 2.0].value.tolist() == [2, 2]


@pytest.mark.anyio
async def test_workers_know_how_many_runs_in_flight_a_loop_waits_for(passing):
    """While there are any, they hand Python's lock over."""
    y = gated()
    async with ag.ActorMachine([y], wrt=[], fuse="none", max_in_flight=2) as machine:
        runs = [machine.start(ONES) for _ in range(3)]
        await anyio.to_thread.run_sync(passing.wait_entered)
        assert machine._core.scheduler.awaited == 2  # the third is queued
        passing.open(3)
        for run in runs:
            await run
        assert machine._core.scheduler.awaited == 0


@pytest.mark.anyio
async def test_workers_hand_pythons_lock_over_in_runs_that_a_loop_waits_for(passing, monkeypatch):
    handed = []
    monkeypatch.setattr(actorgraph.scheduler, "sleep", handed.append)
    monkeypatch.setattr(actorgraph.scheduler, "_HANDOVER_S", 0.0)
    passing.open(2)
    async with ag.ActorMachine([gated()], wrt=[], fuse="none") as machine:
        await anyio.to_thread.run_sync(machine.run_sync, ONES)
        assert handed == []
        await machine.run(ONES)
        assert set(handed) == {0}


def test_what_is_more_urgent_goes_before_the_consumer_of_the_last_turn():
    order, begun, go_on = [], threading.Event(), threading.Event()

    def forward(xp, x):
        order.append(float(x[0]))
        if x[0] == 1:
            begun.set()
            assert go_on.wait(20)
        return x + 1

    step = ag.ops.define("runs_urgent_step", scheme="f[*s] -> f[*s]", forward=forward)
    x = ag.Graph().input("x", (1,), "float64")
    with ag.ActorMachine([step(step(step(x)))], workers=1, fuse="none") as machine:
        machine.start({"x": np.full(1, 20.0)}, priority=-1).result()
        order.clear()
        later = machine.start({"x": np.full(1, 1.0)})
        assert begun.wait(20)
        urgent = machine.start({"x": np.full(1, 10.0)}, priority=-1)
        go_on.set()
        urgent.result()
        later.result()
    assert order == [1, 10, 11, 12, 2, 3]
