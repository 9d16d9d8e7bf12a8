"""How much memory machines keep for their next run, and how much a run allocates beside it."""

import gc
import random
import tracemalloc

import numpy as np

import actorgraph as ag
from actorgraph.memory.free_lists import FreeList

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
