"""Where runs are computed: brief ones where their requests wait, others by workers."""

import gc
import threading
from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.serving.request import Request
from tests._until import until
from tests.serving._models import Asked, entered, new_gate, rows, served

pytestmark = pytest.mark.anyio

_threads = []
where = ag.ops.define(
    "serving_where", scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: _threads.append(threading.get_ident()) or x,
)  # fmt: skip


@pytest.fixture
def started(monkeypatch):
    """Return the runs that were started, not computed in place, by their priority."""
    found = []
    begin = ag.Machine._begin

    def noted(machine, run, *args, **options):
        found.append(run)
        return begin(machine, run, *args, **options)

    monkeypatch.setattr(ag.Machine, "_begin", noted)
    return found


def doubled():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    return {"y": x * 2.0}


async def test_a_brief_run_wakes_no_worker(started):
    async with ag.serving.Server() as server:
        model = server.add("double", doubled())
        np.testing.assert_array_equal((await model.infer(rows(1, 2)))["y"], rows(2, 4)["x"])
    assert not started


async def test_large_batches_are_brief_where_small_ones_took_less_than_predicted(
    started, monkeypatch
):
    slow = "actorgraph.machines.plan.predicted_us"
    monkeypatch.setattr(slow, lambda node, symbols: 6e5 * symbols["rows"])
    async with ag.serving.Server() as server:
        model = server.add("double", doubled(), max_batch_size=8, in_place_s=1.0)
        await model.infer(rows(1, 2))
        assert len(started) == 1  # 1.2 s are predicted
        # Some may meet the end of the first run, and are started too.
        while model._dispatcher._share == 1.0:
            await model.infer(rows(1))
        started.clear()
        await model.infer(rows(1, 2, 3, 4, 5, 6, 7, 8))
    assert not started


@pytest.mark.parametrize("outputs", [{"y": 1.0}, {"in_place_s": 0.0}])
async def test_a_run_that_is_not_brief_is_left_to_workers(started, outputs):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    y = where(x) if "y" in outputs else x * 2.0
    _threads.clear()
    async with ag.serving.Server() as server:
        model = server.add("other", {"y": y}, **{k: v for k, v in outputs.items() if k != "y"})
        await model.infer(rows(1))
    assert len(started) == 1
    assert threading.get_ident() not in _threads


async def test_requests_of_one_turn_of_the_loop_make_one_batch(started):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), max_batch_size=8)
        asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(5)]
        for k, one in enumerate(asked):
            np.testing.assert_array_equal(await one.answer(), rows(2 * k)["x"])
    assert model.counts["executions"] == 1
    assert not started


async def test_brief_runs_let_others_of_the_loop_have_their_turn(monkeypatch):
    monkeypatch.setattr("actorgraph.serving.dispatcher._TURN_S", 0.0)
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled())
        look, looks = model._dispatcher.dispatch, []

        def looking(loop):
            before = model.counts["executions"]
            look(loop)
            looks.append(model.counts["executions"] - before)

        monkeypatch.setattr(model._dispatcher, "dispatch", looking)
        for one in [Asked(tasks, partial(model.infer, rows(k))) for k in range(4)]:
            await one.answer()
    assert [runs for runs in looks if runs] == [1, 1, 1, 1]


async def test_threads_compute_whole_runs_while_requests_wait(started, monkeypatch):
    monkeypatch.setattr("actorgraph.serving.dispatcher._MIN_HELPED_US", 0.0)
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), in_place_s=0.0)
        await model.infer(rows(1))
        for _ in range(3):
            asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(20)]
            for k, one in enumerate(asked):
                np.testing.assert_array_equal(await one.answer(), rows(2 * k)["x"])
    assert len(started) <= 4  # behind the first of each burst nobody waited yet
    assert model.counts["ok"] == 61


@pytest.mark.parametrize(("run_us", "helps"), [(250.0, False), (350.0, True)])
async def test_threads_help_only_with_runs_that_pay_for_waking_them(monkeypatch, run_us, helps):
    monkeypatch.setattr("actorgraph.serving.dispatcher.direct_us", lambda *_: run_us)
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model, helped = server.add("double", doubled()), []
        dispatcher = model._dispatcher
        help_out = dispatcher._help

        def helping():
            helped.append(threading.get_ident())
            help_out()

        monkeypatch.setattr(dispatcher, "_help", helping)
        await model.infer(rows(1))
        for one in [Asked(tasks, partial(model.infer, rows(k))) for k in range(8)]:
            await one.answer()
    assert bool(helped) is helps


async def test_who_leaves_adds_no_look_to_the_one_that_is_on_its_way(monkeypatch):
    """Each look that ends with requests left asks for the next: two would hold the loop longer."""
    async with ag.serving.Server() as server:
        model, looks = server.add("double", doubled()), []
        look = model._dispatcher.dispatch

        def held_at_first(loop):
            looks.append(loop)
            if len(looks) > 1:
                look(loop)

        monkeypatch.setattr(model._dispatcher, "dispatch", held_at_first)
        async with anyio.create_task_group() as tasks:
            asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(4)]
            await until(lambda: model.queued == 4 and looks)
            for one in asked[:3]:
                one.scope.cancel()
            await until(lambda: model.queued == 1)
            look(looks[0])
        assert asked[3].result is not None
    assert len(looks) <= 2


async def test_a_machine_that_was_closed_is_told_of_where_threads_would_help(monkeypatch):
    monkeypatch.setattr("actorgraph.serving.dispatcher._MIN_HELPED_US", 0.0)
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", ag.ActorMachine(doubled()))
        await model.infer(rows(1))
        await model.machine.aclose()
        for one in [Asked(tasks, partial(model.infer, rows(k))) for k in range(3)]:
            with pytest.raises(ag.serving.NotReady, match="machine was closed"):
                await one.answer()


@pytest.mark.parametrize("config", [{}, {"max_batch_size": 4}, {"in_place_s": 0.0}])
async def test_an_answered_request_leaves_no_cycles(config):
    async with ag.serving.Server() as server:
        model = server.add("double", doubled(), **config)
        gc.collect()  # what other tests have left
        gc.disable()
        try:
            async with anyio.create_task_group() as tasks:
                for k in range(20):
                    tasks.start_soon(model.infer, rows(k))
            del tasks
            await until(lambda: not any(type(one) in (Request, ag.Run) for one in gc.get_objects()))
        finally:
            gc.enable()


async def test_an_error_in_place_is_that_of_its_request():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    async with ag.serving.Server() as server:
        model = server.add("root", ag.TapeMachine({"y": np.sqrt(x)}, watch=("nan",)))
        with pytest.raises(ag.NodeError, match="sqrt"):
            await model.infer(rows(-1))
        np.testing.assert_array_equal((await model.infer(rows(4)))["y"], rows(2)["x"])
        await model.machine.aclose()


async def test_one_clients_errstate_is_not_anothers():
    x = ag.Graph().input("x", ("rows", 2), "float64")
    async with ag.serving.Server() as server:
        model = server.add("ratio", {"y": 1.0 / x})
        with np.errstate(divide="raise"), pytest.warns(RuntimeWarning, match="divide"):
            assert np.isinf((await model.infer(rows(0)))["y"]).all()


async def test_the_worker_that_has_ended_a_run_starts_the_next(started):
    gate = new_gate()
    async with served(max_concurrent_batches=1) as (model, tasks):
        asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(3)]
        await entered(gate)
        await until(lambda: model.queued == 2)
        gate.open(3)
        for _ in range(2):
            gate.wait_entered()  # blocks the loop: nobody there can start anything
        for k, one in enumerate(asked):
            np.testing.assert_array_equal(await one.answer(), rows(2 * k + 1)["x"])
    assert len(started) == 3


async def test_a_thread_computes_for_a_loop_and_a_loop_for_a_thread():
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), max_batch_size=4)
        loops = [Asked(tasks, partial(model.infer, rows(k))) for k in range(20)]
        for k in range(20):
            answer = await anyio.to_thread.run_sync(model.infer_sync, rows(k))
            np.testing.assert_array_equal(answer["y"], rows(2 * k)["x"])
        for k, one in enumerate(loops):
            np.testing.assert_array_equal(await one.answer(), rows(2 * k)["x"])
    assert model.counts["ok"] == 40
