"""Runs that fail, are cancelled, late or closed leave their neighbours the right bits."""

import random
import threading
import weakref
from types import SimpleNamespace

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, MachineClosedError, NodeError, RunCancelled
from tests._soak import SOAK
from tests.pipeline._drawn import drawn_pipeline, drawn_run
from tests.pipeline._model import WIDTH, Model, assert_same_bits, one_after_another

gates: dict[str, threading.Event] = {}
counted: list[int] = []


def opened():
    gates["reached"], gates["open"] = threading.Event(), threading.Event()


def gate(xp, value):
    gates["reached"].set()
    assert gates["open"].wait(30)
    return value


def refuse(xp, value):
    raise ValueError(f"rows {len(value)} refused")


def count(xp, value):
    counted.append(len(value))
    return value


def mind(xp, value):
    if np.isnan(value).any():
        raise ValueError("not a number")
    return value


sensitive = ag.ops.define(
    "pipeline_sensitive", scheme="f[*s] -> f[*s]", forward=mind, vjp=lambda argnum, ct, y, x: ct
)
waiting = ag.ops.define(
    "pipeline_gate", scheme="f[*s] -> f[*s]", forward=gate, vjp=lambda argnum, ct, y, x: ct
)
counting = ag.ops.define(
    "pipeline_count", scheme="f[*s] -> f[*s]", forward=count, vjp=lambda argnum, ct, y, x: ct
)
refused = ag.ops.define(
    "pipeline_refuse", scheme="f[*s] -> f[*s]", forward=refuse, vjp=lambda argnum, ct, y, x: ct
)


def test_a_failure_names_its_node_and_harms_no_other_run():
    model = Model(between=refused)
    good = Model()
    with model.pipeline("1f1b", 2, 4) as pipeline:
        runs = [pipeline.start(model.feeds) for _ in range(5)]
        for run in runs:
            with pytest.raises(NodeError, match="rows 3 refused") as caught:
                run.result()
            assert caught.value.op == "pipeline_refuse"
        assert not pipeline._core.admission.in_flight
    with good.pipeline() as pipeline:
        assert_same_bits(good, pipeline, pipeline.run_sync(good.feeds))


def test_a_cancelled_run_ends_and_its_neighbours_have_the_right_bits():
    model = Model(between=waiting)
    opened()
    with model.pipeline("zb-h1", 2, 4, max_in_flight=3) as pipeline:
        runs = [pipeline.start(model.feeds) for _ in range(4)]
        assert gates["reached"].wait(30)
        assert all([runs[0].cancel(), runs[2].cancel()])
        gates["open"].set()
        for run in (runs[0], runs[2]):
            with pytest.raises(RunCancelled, match="was cancelled"):
                run.result()
        for run in (runs[1], runs[3]):
            assert_same_bits(model, pipeline, run.result())
        assert not pipeline._core.admission.in_flight
        (network,) = pipeline._core.networks.values()
        assert not any(lane.runs for lane in network.lanes)


def test_a_loop_in_a_stage_ends_early_when_its_run_is_cancelled():
    def thrice(hidden):
        return ag.fori_loop(0, 3, lambda _, h: counting(waiting(h)), hidden)

    model = Model(between=thrice)
    opened()
    counted.clear()
    with model.pipeline("1f1b", 1, 1) as pipeline:
        run = pipeline.start(model.feeds)
        assert gates["reached"].wait(30)
        assert run.cancel()
        gates["open"].set()
        with pytest.raises(RunCancelled, match="was cancelled"):
            run.result()
        assert len(counted) <= 1
        pipeline.run_sync(model.feeds)
        assert len(counted) >= 3


def test_a_deadline_ends_a_run_that_waits_and_one_that_works(clock):
    model = Model(between=waiting)
    opened()
    with model.pipeline(max_in_flight=1) as pipeline:
        first = pipeline.start(model.feeds, timeout_s=3600)
        assert gates["reached"].wait(30)
        second = pipeline.start(model.feeds, timeout_s=1800)
        clock.move_on(1800)
        with pytest.raises(TimeoutError, match="did not end in time"):
            second.result()
        assert first.dead is None
        clock.move_on(1800)
        while first.dead is None:
            pass  # the deadlines' thread sets it
        gates["open"].set()
        with pytest.raises(TimeoutError, match="did not end in time"):
            first.result()
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))


def test_closing_ends_what_is_in_flight():
    model = Model(between=waiting)
    opened()
    pipeline = model.pipeline()
    run = pipeline.start(model.feeds)
    assert gates["reached"].wait(30)
    closer = threading.Thread(target=pipeline.close)
    closer.start()
    while run.dead is None:
        pass
    gates["open"].set()
    closer.join(30)
    with pytest.raises(MachineClosedError, match="closed during run 0"):
        run.result()
    with pytest.raises(MachineClosedError, match="was closed"):
        pipeline.run_sync(model.feeds)


def test_a_closed_pipeline_lets_go_of_what_its_lanes_have_not_taken():
    model, value = Model(), np.ones(3)
    left = weakref.ref(value)
    with model.pipeline() as pipeline:
        pipeline.run_sync(model.feeds)
        (network,) = pipeline._core.networks.values()
        message = SimpleNamespace(held=[]), 0, {0: value}
        network.lanes[0].tell(message, lambda task: None)
        del value, message
    assert left() is None


def test_a_stream_gives_every_batch_in_order():
    model = Model()
    rng = np.random.default_rng(1)
    batches = [{"x": rng.normal(size=(rows, WIDTH))} for rows in (8, 11, 9, 8, 12)]
    with model.pipeline("1f1b", 3, 4, max_in_flight=3) as pipeline:
        runs = list(pipeline.stream(batches))
        for run, feeds in zip(runs, batches, strict=True):
            model.feeds = feeds
            assert_same_bits(model, pipeline, run)


@pytest.mark.parametrize("seed", range(40) if SOAK else range(4))
def test_runs_that_end_early_leave_their_neighbours_the_right_bits(seed):
    rng = random.Random(seed)
    model = Model(between=sensitive)
    pipeline = drawn_pipeline(rng, model, seed)
    with pipeline:
        expected = one_after_another(model, pipeline)
        for _ in range(5):
            runs = []
            for _ in range(10):
                what, run = drawn_run(rng, pipeline, model.feeds)
                if what == "cancelled":
                    run.cancel()
                runs.append((what, run))
            for what, run in runs:
                try:
                    run.result()
                except (NodeError, RunCancelled, TimeoutError):
                    assert what in ("failing", "cancelled", "late")
                else:
                    assert what != "failing"  # the others may have been faster
                    for node, gradient in zip(model.wrt, expected, strict=True):
                        assert run[node].grad.tobytes() == gradient.tobytes()
        assert not pipeline._core.admission.in_flight


@pytest.mark.anyio
async def test_runs_streams_and_cancellation_work_in_event_loops():
    model = Model(between=waiting)
    opened()
    async with model.pipeline() as pipeline:
        with pytest.raises(GraphError, match="await machine.run"):
            pipeline.run_sync(model.feeds)
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def cancelled():
                with scope:
                    await pipeline.run(model.feeds)

            tasks.start_soon(cancelled)
            await anyio.to_thread.run_sync(gates["reached"].wait, 30)
            scope.cancel()
            gates["open"].set()
        assert not pipeline._core.admission.in_flight
        run = await pipeline.run(model.feeds)
        await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)
        async with pipeline.stream([model.feeds] * 3) as runs:
            assert [one.number async for one in runs] == [2, 3, 4]
