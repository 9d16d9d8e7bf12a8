"""Tables write into the arrays of the run: the bits stay, and so does the memory."""

import gc
import random
import tracemalloc
import warnings
from math import inf
from threading import Event

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.background import BACKGROUND
from actorgraph.lower import table, table_rows
from actorgraph.lower.multiplying import numbers
from actorgraph.scratch import scratch_bytes
from benchmarks.graphs import lstm
from tests import _allocator

ops = ag.ops
SHAPE = 64, 128
BYTES = 64 * 128 * 8


def drawn(seed, length=24):
    """Return outputs of steps on arrays that are large enough to lie where the plan puts them."""
    draw, g = random.Random(seed), ag.Graph()
    values = [g.input("x", SHAPE, "float64"), g.input("z", SHAPE, "float64")]
    w = g.parameter("w", np.random.default_rng(seed).normal(size=(128, 128)) / 12)
    for _ in range(length):
        x, y = draw.choice(values[-4:]), draw.choice(values)
        values.append(
            draw.choice(
                [
                    lambda x, y: x * y, lambda x, y: x + y, lambda x, y: x - y * 0.5,
                    lambda x, y: ops.square(x) * 0.5, lambda x, y: ops.exp(x), lambda x, y: x @ w,
                    lambda x, y: ops.relu(x), lambda x, y: ops.softmax(x), lambda x, y: ops.tanh(y),
                    lambda x, y: ops.sort(x) if draw.random() < 0.5 else ops.tanh(x),
                    lambda x, y: x[::-1] + y, lambda x, y: x * y.sum(axis=1, keepdims=True) * 0.1,
                ]
            )(x, y)
        )  # fmt: skip
    return [ops.sort(values[-1]), (values[-2] + values[-3]).mean(), values[-1].sum()]


def bits(machine, outputs, feeds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = machine.run_sync(feeds, backward={outputs[1]: 1.0, outputs[2]: 1.0})
    given = [run[one].value for one in outputs] + [run[p].grad for p in outputs[0].graph.parameters]
    return [np.asarray(one).tobytes() for one in given]


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine])
def test_bits_stay_where_a_table_declines_after_it_has_written_into_arrays_of_the_run(
    kind, monkeypatch
):
    shared, lying = [], table.Stretch._lying
    monkeypatch.setattr(
        table.Stretch,
        "_lying",
        lambda self, *args: [found := lying(self, *args), shared.extend(found[1])][0],
    )
    for seed in range(12):
        outputs = drawn(seed)
        rng = np.random.default_rng(seed)
        usual = {name: rng.normal(size=SHAPE) for name in "xz"}
        large = {name: 300 * one for name, one in usual.items()}  # overflows, mostly
        with (
            kind(outputs, workers=1, native="wait") as machine,
            ag.LispMachine(outputs) as lisp,
        ):
            for feeds in (usual, large, usual, large):
                assert bits(machine, outputs, feeds) == bits(lisp, outputs, feeds), seed
    assert len(shared) > 50


def chain(depth):
    x = ag.Graph().input("x", SHAPE, "float64")
    y = x * x.graph.parameter("s", np.float64(0.5))
    for _ in range(depth):
        y = ops.relu(ops.tanh(y) + x)
    return y.mean(), {"x": np.random.default_rng(0).normal(size=SHAPE)}


def array_bytes():
    gc.collect()
    mine = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    return sum(one.size for one in tracemalloc.take_snapshot().filter_traces([mine]).traces)


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine])
@pytest.mark.parametrize("start", ["run_sync", "start"])
def test_written_tables_keep_hardly_more_memory_than_was_kept_before(kind, start, monkeypatch):
    _allocator.skip_without()
    # On a busy machine runs take longer, and may go to actors, which have memory of their own.
    monkeypatch.setattr("actorgraph.machines.base.SYNC_US", inf)
    loss, feeds = chain(20)
    numbers("d", 1)  # what the process keeps for all machines
    tracemalloc.start()
    try:
        before = array_bytes()
        with kind([loss], workers=1) as machine:

            def run():
                begun = getattr(machine, start)(feeds, backward=True)
                return begun if start == "run_sync" else begun.result()

            for _ in range(3):
                run()
            plain = array_bytes() - before - scratch_bytes()
            for _ in range(220):
                run()
            written = Event()
            BACKGROUND.submit(written.set)
            assert written.wait(60)
            for _ in range(3):
                run()
            walked = array_bytes() - before - scratch_bytes()
    finally:
        tracemalloc.stop()
    assert plain > 20 * BYTES
    assert walked < 1.1 * plain


def test_a_view_of_a_constant_that_is_read_behind_a_table_leaves_the_table_usable():
    loss, feeds = lstm(2)  # its first state is a constant of zeros
    with ag.TapeMachine([loss], native="wait") as machine:
        machine.run_sync(feeds, backward=True)
        assert "no table" not in machine.source


def test_zeros_are_repeated_from_a_small_constant(monkeypatch):
    kept, made = [], table_rows.Written.lines.fget
    lines = property(lambda self: [kept.extend(self.kept), made(self)][1])
    monkeypatch.setattr(table_rows.Written, "lines", lines)
    x = ag.Graph().input("x", (500, 101), "float64")
    y = x * x.graph.parameter("s", np.float64(2.0))
    for _ in range(3):
        y = ops.tanh(y)
    loss = ops.square(y[:10]).sum()
    feeds = {"x": np.linspace(-1, 1, 50500).reshape(500, 101)}
    with ag.TapeMachine([loss], native="wait") as machine, ag.LispMachine([loss]) as lisp:
        for node in loss.graph.parameters:
            found = machine.run_sync(feeds, backward=True)[node].grad
            assert found.tobytes() == lisp.run_sync(feeds, backward=True)[node].grad.tobytes()
    assert 0 < sum(one.nbytes for one in kept) < 64 * 1024
