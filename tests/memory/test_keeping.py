"""How much memory machines keep for their next run, and how much a run allocates beside it."""

import gc
import random
import tracemalloc
from threading import Event

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.background import BACKGROUND
from actorgraph.lower.multiplying import numbers
from actorgraph.lower.spots import Spot, view_spot
from actorgraph.memory.free_lists import FreeList
from actorgraph.scheduler import Pool
from actorgraph.scratch import scratch, scratch_bytes
from actorgraph.testing._examples import results
from benchmarks.graphs import convnet

ROWS, COLUMNS = 256, 256
BYTES = ROWS * COLUMNS * 4
FEEDS = {"x": np.linspace(-1, 1, ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)}


def of_depth(depth, wrt=False):
    graph = ag.Graph()
    x = graph.input("x", (ROWS, COLUMNS))
    y = x * graph.parameter("s", np.float32(1)) if wrt else x
    for _ in range(depth):
        y = np.tanh(y)
    return y


def test_a_free_list_has_hardly_more_arrays_than_were_held_at_once_in_whatever_order_they_die():
    for seed in range(40):
        draw, arrays, held, most = random.Random(seed), FreeList((2,), np.dtype("float32")), [], 0
        arrays.limit, bound = 10_000, draw.randint(1, 100)
        for _ in range(1_000):
            if len(held) < bound and draw.random() < 0.55:
                held.append(arrays.take())
                most = max(most, len(held))
            elif held:
                held.pop(draw.choice([0, -1, draw.randrange(len(held))]))
        idle, lent = arrays.kept()
        assert len(idle) + len(lent) <= most + most // 15 + 1
        assert len(lent) == len(held)
        assert {*map(id, lent)} == {*map(id, held)}


def test_actors_of_single_nodes_keep_hardly_more_than_is_alive_at_once():
    depth = 40
    loss = of_depth(depth, wrt=True).mean()
    with ag.ActorMachine([loss], fuse="none", workers=1) as machine:
        for _ in range(4):
            machine.run_sync(FEEDS, backward=True)
        kept = machine.memory().arenas
    assert depth * BYTES < kept < 1.15 * (depth + 2) * BYTES


@pytest.mark.usefixtures("values_share_memory")
def test_steps_of_parts_inside_parts_write_into_planned_memory():
    early = of_depth(200)
    last = early.graph["x"] * early.mean()  # in the array of which early values lie
    with ag.TapeMachine([last], workers=1) as machine:
        for _ in range(3):
            machine.run_sync(FEEDS)
        gc.collect()
        tracemalloc.start()
        start = tracemalloc.get_traced_memory()[0]
        machine.run_sync(FEEDS)
        more = tracemalloc.get_traced_memory()[1] - start
        tracemalloc.stop()
    assert more < BYTES


def fresh_bytes(machine, feeds, **mode):
    """Return the most bytes that a warm machine allocates in a run."""
    for _ in range(3):
        machine.run_sync(feeds, **mode)
    tracemalloc.start()
    try:
        machine.run_sync(feeds, **mode)
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        machine.run_sync(feeds, **mode)
        return tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()


def test_a_mask_that_only_one_step_reads_is_scratch():
    x = of_depth(1, wrt=True)
    loss = ag.ops.relu(x).mean()
    with ag.TapeMachine([loss], workers=1) as machine:
        assert fresh_bytes(machine, FEEDS, backward=True) < 1.5 * ROWS * COLUMNS


@pytest.mark.parametrize("kind", [ag.ActorMachine, ag.TapeMachine])
@pytest.mark.parametrize("native", [False, "wait"])
@pytest.mark.usefixtures("values_share_memory")
def test_columns_lie_in_planned_memory_that_is_idle_meanwhile(kind, native):
    loss, feeds = convnet(2)
    nodes = [loss, *loss.graph.parameters]
    with ag.LispMachine([loss]) as lisp:
        wanted = results(lisp.run_sync(feeds, backward=True), nodes)
    with kind([loss], workers=1, native=native, fuse="none") as machine:
        for _ in range(4):
            run = machine.start(feeds, backward=True).result()
            assert results(run, nodes) == wanted
        assert scratch_bytes() == 0


def arrays():
    gc.collect()
    mine = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    return sum(one.size for one in tracemalloc.take_snapshot().filter_traces([mine]).traces)


def test_arrays_do_not_grow_with_the_number_of_steps_once_tables_are_written():
    graph = ag.Graph()
    x = graph.input("x", (8, 16))
    weights = [graph.parameter(f"w{i}", np.eye(16, dtype="float32")) for i in range(4)]
    for weight in weights:
        x = np.tanh(x @ weight)
    solver = ag.solvers.SGD(lr=1e-3)

    def train(steps):
        for _ in range(steps):
            run = machine.run_sync({"x": np.ones((8, 16), "float32")}, backward=True)
            solver.step([run[weight] for weight in weights])

    with ag.TapeMachine([x.mean()], workers=1) as machine:
        tracemalloc.start()
        train(120)
        written = Event()
        BACKGROUND.submit(written.set)
        assert written.wait(60)
        train(10)
        before = arrays()
        train(200)
        grown = arrays() - before
        tracemalloc.stop()
    assert grown <= 0


def test_what_rows_of_tables_are_tried_on_is_not_kept_where_it_is_large():
    numbers("f", 4)
    tracemalloc.start()
    before = arrays()
    assert len(numbers("f", 1 << 24)) == 1 << 22
    of = Spot(0, 0, (ROWS, COLUMNS), (4 * COLUMNS, 4), 4)
    assert view_spot(of, np.dtype("float32"), np.transpose).strides == (4, 4 * COLUMNS)
    kept = arrays() - before
    tracemalloc.stop()
    assert kept <= 0


class Owner:
    slots = 1


def test_the_last_machine_that_closes_drops_the_scratch_memory_of_ops():
    pool, first, last = Pool(), Owner(), Owner()
    for owner in (first, last):
        pool.retain(owner)
    array = scratch(np, (ROWS, COLUMNS), np.dtype("float32"))
    array.fill(3)
    pool.release(first)
    assert scratch_bytes() >= BYTES
    pool.release(last)
    assert not scratch_bytes()
    assert (array == 3).all()  # whoever holds an array keeps it
