"""A run whose memory cannot be had fails by itself: the next is right, and nothing is kept."""

import gc
import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from tests import _allocator
from tests.machines._graphs import results

ROWS = 100


@pytest.fixture
def allocator():
    with _allocator.replaced() as found:
        yield found


def model():
    """Return outputs and parameters: branches, a view, a sum of cotangents, a large result."""
    graph = ag.Graph("model")
    rng = np.random.default_rng(0)
    x = graph.input("x", ("n", ROWS), "float64")
    w = graph.parameter("W", rng.normal(size=(ROWS, ROWS)))
    b = graph.parameter("b", rng.normal(size=ROWS))
    h = ag.ops.tanh(x @ w + b)
    gated = h * ag.ops.sigmoid(h) + h
    loss = (gated * gated).mean()
    return [loss, gated, h.transpose()], [w, b]


FEEDS = {"x": np.random.default_rng(1).normal(size=(ROWS, ROWS))}
MODES = [
    pytest.param({}, id="forward"),
    pytest.param({"backward": True}, id="backward"),
    pytest.param({"tangents": {"x": FEEDS["x"]}}, id="tangents"),
]


def awaited(machine, **mode):
    import anyio

    async def main():
        return await machine.run(FEEDS, **mode)

    return anyio.run(main)


def streamed(machine, **mode):
    *_, last = machine.stream([FEEDS] * 3, **mode)
    return last


WAYS = [
    pytest.param(lambda machine, **mode: machine.run_sync(FEEDS, **mode), id="run_sync"),
    pytest.param(lambda machine, **mode: machine.start(FEEDS, **mode).result(), id="start"),
    pytest.param(streamed, id="stream"),
    pytest.param(awaited, id="await"),
]
MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "auto"}, id="auto"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none", "capacity": 1}, id="none"),
    pytest.param(ag.ActorMachine, {"workers": 3, "fuse": "all"}, id="all"),
    pytest.param(ag.ActorMachine, {"workers": 2, "max_bytes": 10_000_000}, id="max_bytes"),
    pytest.param(ag.ActorMachine, {"workers": 2, "split_batch": 2}, id="split"),
]


def causes(error):
    while error is not None:
        yield error
        error = error.__cause__


def every_failure(allocator, attempt):
    """Call `attempt` with each of its allocations failing; yield what it raised, or None."""
    place = 0
    while True:
        raised = None
        with allocator.failing(place):
            try:
                attempt()
            except BaseException as error:
                raised = error
        if not allocator.failed:
            assert raised is None
            return
        yield raised
        place += 1


def kept_bytes():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def is_told(error):
    return isinstance(error, ag.GraphError) and any(
        isinstance(one, MemoryError) for one in causes(error)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("machine_type", "options"), MACHINES)
def test_each_allocation_of_a_run_may_fail(allocator, machine_type, options, mode, way):
    outputs, wrt = model()
    with machine_type(outputs, wrt=wrt, **options) as machine:
        nodes = [*outputs, *wrt]
        for _ in range(3):
            expected = results(way(machine, **mode), nodes)
        tracemalloc.start()
        for _ in range(3):
            way(machine, **mode)
        before = kept_bytes()
        count = 0
        for error in every_failure(allocator, lambda: way(machine, **mode)):
            assert is_told(error), repr(error)
            assert isinstance(error, ag.NodeError)
            del error
            assert results(way(machine, **mode), nodes) == expected
            count += 1
        assert count
        print(count, kept_bytes()-before)
        tracemalloc.stop()
