"""Runs that overlap end in every way at once: neighbours, order and memory stay as they were."""

import gc
import random
import tracemalloc
import weakref

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.testing._examples import results
from tests._soak import SOAK
from tests.machines._faults import nobody_reads

DISTURBED = 10_000 if SOAK else 200
AT_ONCE = 16
ENDINGS = ("fine", "fine", "cancel", "deadline", "fault", "left")
MACHINES = [
    pytest.param({"workers": 3, "fuse": "none", "capacity": 1, "max_in_flight": 4}, id="credits"),
    pytest.param({"workers": 2, "fuse": "none", "seed": 5}, id="permuted"),
    pytest.param({"workers": 2, "fuse": "all", "max_bytes": 20_000}, id="bytes"),
]
order: list[float] = []


def _marked(xp, x):
    """Note in which order runs pass; refuse negative ones."""
    order.append(abs(float(x[0])))
    if x[0] < 0:
        raise ArithmeticError("negative")
    return x + 0.0


marked = ag.ops.define(
    "overlapping_marked", scheme="f[*s] -> f[*s]", forward=_marked, vjp=(lambda ct, y, x: ct,)
)


def model():
    g = ag.Graph()
    x, w = g.input("x", (8,), "float64"), g.parameter("w", np.linspace(0.5, 1.5, 8))
    y = np.tanh(marked(x) * w)
    return (y * w + np.sin(y)).sum(), w


class Storm:
    """Starts runs in batches, ends some of them early, and looks at what became of each."""

    def __init__(self, machine, loss, w, right, seed):
        self.machine, self.nodes, self.right = machine, [loss, w], right
        self.rng = random.Random(seed)
        self.disturbed = self.number = 0
        self.ended = dict.fromkeys(ENDINGS, 0)
        self.seen = []

    def ended_in_every_way(self):
        """Whether each ending has come before the run's own end at least once."""
        return all(self.ended[ending] for ending in ("cancel", "deadline", "fault", "left"))

    async def batch(self):
        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                ending = self.rng.choice(ENDINGS)
                self.number += 1
                self.disturbed += ending != "fine"
                value = -self.number if ending == "fault" else self.number
                timeout_s = self.rng.choice([0, 1e-5, 1e-4, 1e-3]) if ending == "deadline" else None
                run = self.machine.start(
                    {"x": np.full(8, float(value))}, backward=True, timeout_s=timeout_s
                )
                self.seen.append(weakref.ref(run))
                group.start_soon(self.follow, run, ending, self.number, self.rng.randrange(6))

    async def follow(self, run, ending, number, pauses):
        with anyio.CancelScope() as scope:
            try:
                if ending in ("cancel", "left"):
                    for _ in range(pauses):
                        await anyio.lowlevel.checkpoint()
                    if ending == "cancel":
                        run.cancel()
                    else:
                        scope.cancel()
                await run
            except (ag.RunCancelled, TimeoutError, ag.NodeError) as error:
                wanted = {
                    "cancel": ag.RunCancelled,
                    "deadline": TimeoutError,
                    "fault": ag.NodeError,
                }
                self.ended[ending] += 1
                if type(error) is wanted.get(ending):
                    return
                raise
        assert run.done
        if run.dead is None:
            assert ending != "fault"
            assert results(run, self.nodes) == self.right(number)
        else:
            assert ending == "left"
            self.ended[ending] += 1


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.anyio
@pytest.mark.parametrize("options", MACHINES)
async def test_neighbours_and_order_survive_runs_that_end_in_every_way(options, anyio_backend):
    loss, w = model()
    bits = {}
    async with ag.LispMachine(loss, wrt=[w]) as reference:
        for number in range(1, 4 * DISTURBED + 100):
            run = await reference.run({"x": np.full(8, float(number))}, backward=True)
            bits[number] = results(run, [loss, w])
    order.clear()
    async with ag.ActorMachine(loss, wrt=[w], **options) as machine:
        storm = Storm(machine, loss, w, bits.__getitem__, seed=1)
        while storm.disturbed < DISTURBED or not storm.ended_in_every_way():
            await storm.batch()
        core = machine._core
        assert not core.admission.runs
        assert not core.calls
        for channel in machine.channels():
            assert channel.depth == 0
        for network in core.networks.values():
            for channel in network.channels:
                assert channel.credits is None or len(channel.credits) == channel.capacity
        if options["fuse"] == "none":
            assert order == sorted(order)
    gc.collect()  # after the close: a worker may have been on its way out of a run
    assert not [run for run in storm.seen if run() is not None]
    del run
    assert nobody_reads(w)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.anyio
async def test_a_slow_consumer_never_makes_memory_grow(ordered, anyio_backend):
    x = ag.Graph().input("x", (50_000,), "float64")
    y = np.tanh(x * 2.0)
    size = 50_000 * 8

    async def endless():
        while True:
            await anyio.lowlevel.checkpoint()
            yield {"x": np.ones(50_000)}

    async with ag.ActorMachine(y, workers=2) as machine:
        tracemalloc.start()
        try:
            async with machine.stream(endless(), max_in_flight=3, ordered=ordered) as runs:
                taken = 0
                async for run in runs:
                    assert run[y].value.shape == (50_000,)
                    for _ in range(10):
                        await anyio.lowlevel.checkpoint()
                    taken += 1
                    if taken == 10:
                        tracemalloc.reset_peak()
                    if taken == 60:
                        break
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # Three runs with a feed, two values and a copy each, one run and one feed more, kept arrays.
    assert peak < 24 * size
