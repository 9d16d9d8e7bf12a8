"""Errors of the dispatcher itself, planted where it takes, starts and ends batches."""

from functools import partial

import anyio
import anyio.to_thread
import numpy as np
import pytest

import actorgraph as ag
from tests._until import until
from tests.serving._models import Asked, entered, expected, new_gate, rows, served

on_both_loops = pytest.mark.anyio

PLACES = [
    "_call_helpers", "_next_batch", "_start", "_collect", "_finish", "statistics.formed",
    "queue.due_batch", "queue.remove",
]  # fmt: skip


@pytest.fixture
def plant(monkeypatch):
    """Return a function that has a place of a model's dispatcher raise."""

    def planted(model, place, error):
        def fail(*args, **kwargs):
            raise error

        owner, name = model._dispatcher, place
        if "." in place:
            attribute, name = place.split(".")
            owner = getattr(owner, attribute)
        monkeypatch.setattr(owner, name, fail)

    return planted


def doubled():
    x = ag.Graph("doubled").input("x", ("rows", 2), "float64")
    return {"y": x * 2.0 + 1.0}


async def serves(model, monkeypatch):
    """Check that the model has forgotten failed requests, and answers others."""
    monkeypatch.undo()
    await until(lambda: not model._dispatcher.batches)
    core = model._dispatcher._core  # None before the first run
    # A worker that has met the error, and not told it yet, fails requests that come meanwhile.
    await until(lambda: core is None or core.scheduler.quiet())
    assert (model.inflight, model.queued, model._dispatcher._helpers) == (0, 0, 0)
    with anyio.fail_after(20):
        answer = await model.infer(rows(5))
    np.testing.assert_array_equal(answer["y"], expected(5))


@on_both_loops
@pytest.mark.parametrize("in_place_s", [0.0, 0.002])
@pytest.mark.parametrize("place", PLACES)
async def test_all_who_wait_get_the_error_of_a_dispatch_and_later_ones_are_served(
    plant, monkeypatch, place, in_place_s, caplog
):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), max_concurrent_batches=2, in_place_s=in_place_s)
        plant(model, place, MemoryError("planted"))
        asked = [Asked(tasks, partial(model.infer, rows(k), request_id=f"r{k}")) for k in range(5)]
        for k, one in enumerate(asked):
            with anyio.fail_after(20), pytest.raises(ag.serving.ServingError) as caught:
                await one.answer()
            assert str(caught.value) == "model 'double' could not answer: MemoryError: planted"
            assert isinstance(caught.value.__cause__, MemoryError)
            assert caught.value.__notes__[1:] == [f"request r{k}"]
        await serves(model, monkeypatch)
    assert "model 'double' could not start or end a run" in caplog.text


@on_both_loops
@pytest.mark.parametrize("place", PLACES)
async def test_an_error_after_a_run_is_the_answer_of_those_that_wait(plant, monkeypatch, place):
    gate = new_gate()
    async with served(max_concurrent_batches=1) as (model, tasks):
        running = Asked(tasks, partial(model.infer, rows(0)))
        await entered(gate)
        waiting = [Asked(tasks, partial(model.infer, rows(k))) for k in (1, 2)]
        await until(lambda: model.queued == 2)
        plant(model, place, ValueError("planted"))
        gate.open(2)
        for one in waiting:
            with anyio.fail_after(20), pytest.raises(ag.serving.ServingError, match="planted"):
                await one.answer()
        await running.done.wait()  # with the result, where it ended before the error
        await serves(model, monkeypatch)


@pytest.mark.parametrize("place", PLACES)
def test_a_blocked_thread_gets_the_error_of_a_dispatch(plant, monkeypatch, place):
    with ag.serving.Server() as server:
        model = server.add("double", doubled())
        plant(model, place, RuntimeError("planted"))
        with pytest.raises(ag.serving.ServingError, match="RuntimeError: planted"):
            model.infer_sync(rows(1))
        monkeypatch.undo()
        np.testing.assert_array_equal(model.infer_sync(rows(1))["y"], expected(1))


def test_ctrl_c_in_a_dispatch_ends_its_caller_and_leaves_nothing_behind(plant, monkeypatch):
    with ag.serving.Server() as server:
        model = server.add("double", doubled())
        for place in ("_next_batch", "statistics.formed"):
            plant(model, place, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                model.infer_sync(rows(1))
            monkeypatch.undo()
            assert (model.inflight, model.queued) == (0, 0)
            np.testing.assert_array_equal(model.infer_sync(rows(1))["y"], expected(1))


@on_both_loops
async def test_the_error_that_a_worker_meets_reaches_who_waits_in_a_loop(plant, monkeypatch):
    gate = new_gate()
    async with served(max_concurrent_batches=1) as (model, tasks):
        running = Asked(tasks, partial(model.infer, rows(0)))
        await entered(gate)
        waiting = Asked(tasks, partial(model.infer, rows(1)))
        await until(lambda: model.queued)
        plant(model, "_next_batch", ValueError("planted"))
        await anyio.to_thread.run_sync(model._dispatcher.dispatch, None)
        with anyio.fail_after(20), pytest.raises(ag.serving.ServingError, match="planted"):
            await waiting.answer()
        gate.open()
        np.testing.assert_array_equal(await running.answer(), expected(0))
        gate.open()
        await serves(model, monkeypatch)


@on_both_loops
@pytest.mark.parametrize("place", ["answer", "_settle"])
async def test_a_failing_check_of_deadlines_fails_who_waits(plant, monkeypatch, place):
    gate = new_gate()
    async with served(max_concurrent_batches=1) as (model, tasks):
        running = Asked(tasks, partial(model.infer, rows(0)))
        await entered(gate)
        plant(model, place, ValueError("planted"))
        waiting = Asked(tasks, partial(model.infer, rows(1), deadline_s=0.01))
        with anyio.fail_after(20):
            await waiting.done.wait()
        assert "planted" in str(waiting.error)
        gate.open()
        monkeypatch.undo()
        np.testing.assert_array_equal(await running.answer(), expected(0))
        gate.open()
        await serves(model, monkeypatch)


@on_both_loops
@pytest.mark.parametrize("in_place_s", [0.0, 0.002])
async def test_failing_telemetry_keeps_no_one_waiting(plant, monkeypatch, in_place_s):
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), in_place_s=in_place_s)
        plant(model, "statistics.answered", ValueError("planted"))
        asked = [Asked(tasks, partial(model.infer, rows(k))) for k in range(3)]
        with anyio.fail_after(20):
            for one in asked:
                await one.done.wait()
        assert all(one.result is not None or "planted" in str(one.error) for one in asked)
        await serves(model, monkeypatch)


@on_both_loops
async def test_a_late_request_is_answered_while_it_runs_where_telemetry_fails(plant, monkeypatch):
    gate = new_gate()
    async with served(max_concurrent_batches=1) as (model, tasks):
        plant(model, "statistics.answered", ValueError("planted"))
        late = Asked(tasks, partial(model.infer, rows(0), deadline_s=0.05))
        await entered(gate)
        with anyio.fail_after(20), pytest.raises(ag.serving.DeadlineExceeded):
            await late.answer()
        gate.open(2)
        await serves(model, monkeypatch)


@on_both_loops
async def test_a_model_that_stops_refuses_all_who_wait_where_telemetry_fails(plant):
    gate = new_gate()
    async with served(max_concurrent_batches=1) as (model, tasks):
        running = Asked(tasks, partial(model.infer, rows(0)))
        await entered(gate)
        waiting = [Asked(tasks, partial(model.infer, rows(k))) for k in (1, 2, 3)]
        await until(lambda: model.queued == 3)
        plant(model, "statistics.answered", ValueError("planted"))
        model._dispatcher.stop()
        for one in (running, *waiting):
            with anyio.fail_after(20), pytest.raises(ag.serving.NotReady, match="was stopped"):
                await one.answer()
        gate.open()


@on_both_loops
async def test_an_error_at_the_end_of_one_batch_leaves_others_alone():
    gate = new_gate()
    async with served(max_concurrent_batches=2) as (model, tasks):
        first = Asked(tasks, partial(model.infer, rows(0)))
        await entered(gate)
        second = Asked(tasks, partial(model.infer, rows(1)))
        dispatcher = model._dispatcher
        await until(lambda: len(dispatcher.batches) == 2)
        failing = next(iter(dispatcher.batches))
        dispatcher._fail(ValueError("planted"), failing)
        gate.open(2)
        with anyio.fail_after(20):
            await first.done.wait()
            await second.done.wait()
        assert sum("planted" in str(one.error) for one in (first, second)) == 1
        assert sum(one.result is not None for one in (first, second)) == 1


@on_both_loops
async def test_a_model_is_idle_when_the_last_request_that_waited_has_its_answer():
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        model = server.add("double", doubled(), max_batch_size=2, batch_wait_s=9.0)
        waiting = Asked(tasks, partial(model.infer, rows(1)))
        await until(lambda: model.queued)
        told = []
        model._dispatcher.begin_draining()
        model._dispatcher.call_when_idle(lambda: told.append(model.queued + model.inflight))
        assert not told
        with anyio.fail_after(20):
            np.testing.assert_array_equal(await waiting.answer(), expected(1))
        await until(lambda: told)
        assert told == [0]
