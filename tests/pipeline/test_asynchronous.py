"""Asynchronous ops run on a loop while their lanes wait."""

import random

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, MachineClosedError, NodeError, RunCancelled
from tests._soak import SOAK
from tests._until import until
from tests.pipeline._drawn import drawn_pipeline, drawn_run
from tests.pipeline._model import (
    Model,
    actions_of,
    assert_same_bits,
    one_after_another,
    recorded,
)


async def asked(xp, value):
    """Answer in a later turn of the loop."""
    await anyio.lowlevel.checkpoint()
    if np.isnan(value).any():
        raise ValueError("not a number")
    return value * 2.0


service = ag.ops.define(
    "pipeline_service", scheme="f[*s] -> f[*s]", forward=asked, vjp=lambda argnum, ct, y, x: ct * y
)


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dynamic"])
def test_asynchronous_ops_run_on_a_loop_while_their_lane_waits(name):
    model = Model(between=service)
    with model.pipeline(name, 2, 4) as pipeline:
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
        with ag.trace.record() as t:
            run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)
        with pytest.raises(GraphError, match="asynchronous ops, which run on the caller's event"):
            pipeline.start(model.feeds)
    assert len(t.calls) == 4
    stages = [{node.id for node in nodes} for nodes in pipeline.stages()]
    stage = next(i for i, held in enumerate(stages) if model.called.id in held)
    lane = pipeline.schedule.lane_names[pipeline.schedule.device_of[stage]]
    turns = [part for part in t.slices if part.lane == lane]
    for call in t.calls:
        assert any(part.start <= call.start and call.end <= part.end for part in turns)


def test_each_lane_keeps_its_order_where_ops_are_asynchronous():
    model = Model(between=service)
    with model.pipeline("1f1b", 3, 5) as pipeline:
        t = recorded(pipeline, model.feeds)
        for name, lane in zip(pipeline.schedule.lane_names, pipeline.schedule.lanes, strict=True):
            listed = [(stage, kind[0], number) for stage, kind, number, _ in lane]
            assert actions_of(t, name, pipeline) == listed


@pytest.mark.anyio
async def test_an_asynchronous_op_that_fails_is_named_and_its_neighbours_go_on():
    model = Model(between=service)
    spoilt = {"x": model.feeds["x"] * np.nan}
    async with model.pipeline("zb-h1", 2, 3, max_in_flight=3) as pipeline:
        good, bad, late = [
            pipeline.start(feeds, timeout_s=limit)
            for feeds, limit in ((model.feeds, None), (spoilt, None), (model.feeds, 0))
        ]
        with pytest.raises(NodeError, match="not a number") as caught:
            await bad
        assert caught.value.op == "pipeline_service"
        with pytest.raises(TimeoutError, match="did not end in time"):
            await late
        run = await good
        await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)
        async with pipeline.stream([model.feeds] * 3) as runs:
            async for run in runs:
                await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(40) if SOAK else range(3))
async def test_awaited_runs_that_end_early_leave_their_neighbours_the_right_bits(seed):
    rng = random.Random(seed)
    model = Model(between=service)
    pipeline = drawn_pipeline(rng, model, seed)
    expected = await anyio.to_thread.run_sync(one_after_another, model, pipeline)
    async with pipeline:
        for _ in range(4):
            runs = []
            for _ in range(8):
                what, run = drawn_run(rng, pipeline, model.feeds)
                for _ in range(rng.choice([0, 0, 1, 5])):
                    await anyio.lowlevel.checkpoint()
                if what == "cancelled":
                    run.cancel()
                runs.append((what, run))
            for what, run in runs:
                try:
                    await run
                except (NodeError, RunCancelled, TimeoutError):
                    assert what in ("failing", "cancelled", "late")
                else:
                    assert what != "failing"  # the others may have been faster
                    for node, gradient in zip(model.wrt, expected, strict=True):
                        assert run[node].grad.tobytes() == gradient.tobytes()
        assert not pipeline._core.admission.in_flight
        assert not pipeline._core.calls


async def forever(xp, value):
    """Answer the rows of a batch of 11; for one of 4 rows, never."""
    if len(value) == 1:
        calls["reached"].set()
        try:
            await anyio.sleep_forever()
        finally:
            calls["ended"].append(True)
    return value


calls = {}
endless = ag.ops.define(
    "pipeline_endless", scheme="f[*s] -> f[*s]", forward=forever, vjp=lambda argnum, ct, y, x: ct
)


@pytest.mark.anyio
async def test_a_call_ends_with_its_cancelled_run_and_the_lane_goes_on():
    reached, ended = calls["reached"], calls["ended"] = anyio.Event(), []
    model = Model(between=endless)
    async with model.pipeline(microbatches=4, max_in_flight=2) as pipeline:
        first = pipeline.start({"x": model.feeds["x"][:4]})
        await reached.wait()
        second = pipeline.start(model.feeds)
        first.cancel()
        with pytest.raises(RunCancelled, match="was cancelled"):
            await first
        run = await second
        assert ended == [True]
        await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)


@pytest.mark.anyio
async def test_closing_ends_a_call_that_a_lane_waits_for():
    reached, ended = calls["reached"], calls["ended"] = anyio.Event(), []
    model = Model(between=endless)
    async with model.pipeline(microbatches=4) as pipeline:
        run = pipeline.start({"x": model.feeds["x"][:4]})
        await reached.wait()
    assert ended == [True]
    with pytest.raises(MachineClosedError, match="closed during run 0"):
        await run


meeting = {}


async def meet(xp, value):
    """Answer nobody before as many are inside as have to meet."""
    meeting["inside"] += 1
    await until(lambda: meeting["inside"] >= meeting["wanted"])
    return value * 2.0


met = ag.ops.define(
    "pipeline_meeting", scheme="f[*s] -> f[*s]", forward=meet, vjp=lambda argnum, ct, y, x: ct * y
)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dynamic"])
async def test_a_lane_goes_on_with_other_runs_while_an_op_waits(name):
    meeting.update(inside=0, wanted=3)
    model = Model(between=met)
    async with model.pipeline(name, 2, 4, max_in_flight=3) as pipeline:
        with anyio.fail_after(30):
            for run in [pipeline.start(model.feeds) for _ in range(3)]:
                await run
                await anyio.to_thread.run_sync(assert_same_bits, model, pipeline, run)
