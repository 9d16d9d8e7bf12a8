"""Streams: many runs of one machine, pipelined, bounded, in order."""

from __future__ import annotations

import gc
import weakref
from itertools import count

import anyio
import anyio.lowlevel
import pytest

import actorgraph as ag

NUMBERS = count()
"""Ops are declared by name once a process."""

MACHINES = [ag.ActorMachine, ag.TapeMachine, ag.LispMachine]
every_machine = pytest.mark.parametrize("machine_type", MACHINES)


def squared():
    x = ag.Graph().input("x", shape=(), dtype="float64")
    return (x * x).named("y")


def feeds(count, seen=None, failing_at=None):
    for number in range(count):
        if number == failing_at:
            raise KeyError("the source")
        if seen is not None:
            seen.append(number)
        yield {"x": float(number)}


async def async_feeds(count, seen=None, failing_at=None):
    for item in feeds(count, seen, failing_at):
        await anyio.lowlevel.checkpoint()
        yield item


SOURCES = [feeds, async_feeds]


def take_all(stream, node, values):
    for run in stream:
        values.append(float(run[node].value))


async def take_all_async(stream, node, values):
    async for run in stream:
        values.append(float(run[node].value))


@every_machine
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.anyio
async def test_runs_come_in_order_to_an_event_loop_too(machine_type, source):
    y = squared()
    async with machine_type(y) as machine:
        values = [run["y"].value async for run in machine.stream(source(30))]
    assert values == [float(n) ** 2 for n in range(30)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.anyio
async def test_unordered_runs_are_all_there(source):
    async with ag.ActorMachine(squared(), fuse="none", workers=2) as machine:
        stream = machine.stream(source(30), ordered=False)
        values = sorted([run["y"].value async for run in stream])
    assert values == [float(n) ** 2 for n in range(30)]


def test_the_source_is_read_no_further_than_the_bound():
    seen = []
    with ag.ActorMachine(squared()) as machine:
        stream = machine.stream(feeds(100, seen), max_in_flight=3)
        for handed_out, _ in enumerate(stream):
            assert len(seen) <= handed_out + 3
    assert len(seen) == 100


@pytest.mark.anyio
async def test_a_slow_consumer_holds_an_asynchronous_source_back():
    seen = []
    async with ag.ActorMachine(squared()) as machine:
        handed_out = 0
        async for _ in machine.stream(async_feeds(50, seen), max_in_flight=3):
            handed_out += 1
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert len(seen) <= handed_out + 4
    assert handed_out == 50


@pytest.mark.parametrize("ordered", [True, False])
def test_a_run_that_was_handed_out_is_no_longer_held(ordered):
    held = []
    with ag.ActorMachine(squared()) as machine:
        for run in machine.stream(feeds(30), max_in_flight=2, ordered=ordered):
            held.append(weakref.ref(run))
            del run
            gc.collect()
            assert sum(one() is not None for one in held) <= 1
    assert len(held) == 30


@pytest.mark.parametrize("ordered", [True, False])
def test_what_came_before_a_failure_of_the_source_is_delivered_first(ordered):
    values = []
    with ag.ActorMachine(squared()) as machine:
        stream = machine.stream(feeds(30, failing_at=12), ordered=ordered)
        with pytest.raises(KeyError, match="the source"):
            take_all(stream, "y", values)
    assert sorted(values) == [float(n) ** 2 for n in range(12)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.anyio
async def test_a_failing_source_ends_an_asynchronous_stream_after_its_items(source):
    values = []
    async with ag.ActorMachine(squared()) as machine:
        with pytest.raises(KeyError, match="the source"):
            await take_all_async(machine.stream(source(30, failing_at=12)), "y", values)
    assert values == [float(n) ** 2 for n in range(12)]


def test_a_failing_run_raises_in_its_turn_and_ends_the_stream():
    x = ag.Graph().input("x", shape=(), dtype="float64")

    def refuse(xp, value):
        if value == 5:
            raise ArithmeticError("five")
        return value + 0

    y = ag.ops.define("stream_refuses", scheme="f[] -> f[]", forward=refuse)(x)
    handed_out = []
    with ag.ActorMachine(y, fuse="none") as machine:
        with pytest.raises(ag.NodeError, match="five"):
            take_all(machine.stream(feeds(30)), y, handed_out)
        assert machine.run_sync({"x": 1.0})[y].value == 1.0
    assert handed_out == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_stream_that_is_dropped_cancels_its_runs():
    with ag.ActorMachine(squared(), fuse="none") as machine:
        for run in machine.stream(feeds(10**9), max_in_flight=4):
            assert run["y"].value == 0.0
            break
        gc.collect()
        assert machine.run_sync({"x": 3.0})["y"].value == 9.0
        assert not machine._core.admission.queued


def test_leaving_a_plain_block_ends_the_runs_and_closes_the_source():
    closed = []

    def source():
        try:
            yield from feeds(10**9)
        finally:
            closed.append(True)

    with ag.ActorMachine(squared()) as machine:
        with machine.stream(source(), max_in_flight=4) as runs:
            for run in runs:
                assert run["y"].value == 0.0
                break
            assert runs._outstanding
            assert not closed
        assert closed == [True]
        assert not runs._outstanding
        assert list(runs) == []


def test_a_plain_block_around_an_asynchronous_source_is_refused():
    with ag.ActorMachine(squared()) as machine:
        stream = machine.stream(async_feeds(3))
        with pytest.raises(ag.GraphError, match="write `async with`"), stream:
            pass
        stream.close()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.anyio
async def test_leaving_the_block_ends_the_runs_and_closes_the_source(source):
    async with ag.ActorMachine(squared()) as machine:
        items = source(10**9)
        async with machine.stream(items) as runs:
            async for run in runs:
                assert run["y"].value == 0.0
                break
        assert not machine._core.admission.in_flight
        with pytest.raises((StopIteration, StopAsyncIteration)):
            next(items) if source is feeds else await anext(items)


@pytest.mark.anyio
async def test_cancelling_the_consumer_cancels_the_runs():
    async def never(xp, value):
        await anyio.sleep_forever()

    x = ag.Graph().input("x", shape=(), dtype="float64")
    y = ag.ops.define(f"stream_never_{next(NUMBERS)}", scheme="f[] -> f[]", forward=never)(x)
    async with ag.ActorMachine(y) as machine, anyio.create_task_group() as group:

        async def consume():
            async for _ in machine.stream(feeds(3)):
                raise AssertionError("no run ends")

        group.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        assert machine._core.calls
        group.cancel_scope.cancel()
        core = machine._core
    assert not core.admission.runs


def test_bad_feeds_raise_in_their_turn():
    with ag.ActorMachine(squared()) as machine:
        stream = machine.stream([{"x": 1.0}, {"z": 1.0}])
        assert next(stream)["y"].value == 1.0
        with pytest.raises(ag.FeedError, match="unknown feed 'z'") as caught:
            next(stream)
    assert caught.value.__notes__[-1] == "item 2 of the stream's source, counted from 1"


@pytest.mark.anyio
async def test_bad_feeds_of_an_asynchronous_source_are_told_by_their_place_too():
    async def items():
        yield {"x": 1.0}
        yield {"x": "one"}

    async with ag.ActorMachine(squared()) as machine:
        stream = machine.stream(items())
        assert (await anext(stream))["y"].value == 1.0
        with pytest.raises(ag.FeedError, match="got str 'one'") as caught:
            await anext(stream)
    assert caught.value.__notes__[-1] == "item 2 of the stream's source, counted from 1"


def test_a_closed_machine_is_no_fault_of_an_item():
    machine = ag.ActorMachine(squared())
    machine.close()
    with pytest.raises(ag.MachineClosedError, match="was closed") as caught:
        next(machine.stream([{"x": 1.0}]))
    assert not any("item" in note for note in caught.value.__notes__)


def test_what_is_no_source_is_refused():
    with ag.ActorMachine(squared()) as machine:
        with pytest.raises(ag.FeedError, match="takes an iterable of feeds, got dict"):
            machine.stream({"x": 1.0})
        with pytest.raises(ValueError, match="max_in_flight must be an int of at least 1"):
            machine.stream([], max_in_flight=0)
        with pytest.raises(ValueError, match="ordered must be True or False, got 'no'"):
            machine.stream([], ordered="no")
        with pytest.raises(ag.GraphError, match="write `async for`"):
            iter(machine.stream(async_feeds(3)))


@pytest.mark.anyio
async def test_a_plain_loop_inside_an_event_loop_is_refused():
    async with ag.ActorMachine(squared()) as machine:
        with pytest.raises(ag.GraphError, match="iterating would block the running event loop"):
            next(machine.stream(feeds(3)))
