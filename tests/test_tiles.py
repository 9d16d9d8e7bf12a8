"""Parts of a step are computed once each, by whoever is there, and the owner returns after all."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.tiles import TileQueue, Tiles, compute_parts


def nobody():
    return False


def test_without_a_machine_the_thread_computes_one_part_after_another():
    order = []
    compute_parts(order.append, 4)
    assert order == [0, 1, 2, 3]


def test_each_part_is_computed_once_by_owner_and_helper():
    both = threading.Barrier(2)
    done = []

    def compute(part):
        if part < 2:
            both.wait(20)  # two threads are inside at once
        done.append((part, threading.get_ident()))

    tiles = Tiles(compute, 5)
    helper = threading.Thread(target=tiles.help)
    helper.start()
    tiles.finish()
    helper.join()
    assert sorted(part for part, _ in done) == [0, 1, 2, 3, 4]
    assert len({thread for _, thread in done}) == 2


class Signal(threading.Event):
    """An event that calls back when somebody waits for it."""

    def __init__(self, before):
        super().__init__()
        self.before = before

    def wait(self, timeout=None):
        self.before()
        return super().wait(timeout)


def test_the_owner_waits_for_a_part_that_a_helper_computes():
    taken, finished, owner_waits = threading.Event(), threading.Event(), threading.Event()

    def compute(part):
        taken.set()
        owner_waits.wait(20)
        finished.set()

    tiles = Tiles(compute, 1)
    tiles._over = Signal(owner_waits.set)
    helper = threading.Thread(target=tiles.help)
    helper.start()
    assert taken.wait(20)
    tiles.finish()
    assert finished.is_set()
    helper.join()


def test_the_first_part_that_failed_is_raised_when_all_have_ended():
    ended = []

    def compute(part):
        ended.append(part)
        if part:
            raise MemoryError(f"part {part}")

    with pytest.raises(MemoryError, match="part 1"):
        Tiles(compute, 3).finish()
    assert ended == [0, 1, 2]


def test_an_error_in_a_helper_is_the_owners():
    def compute(part):
        raise MemoryError("no room")

    tiles = Tiles(compute, 1)
    assert tiles.help()
    with pytest.raises(MemoryError, match="no room"):
        tiles.finish()


def test_ctrl_c_in_a_helper_is_raised_there_and_ends_the_part():
    def compute(part):
        raise KeyboardInterrupt

    tiles = Tiles(compute, 1)
    with pytest.raises(KeyboardInterrupt):
        tiles.help()
    with pytest.raises(KeyboardInterrupt):
        tiles.finish()


def test_helpers_compute_under_the_owners_errstate():
    found = []
    with np.errstate(over="raise"):
        tiles = Tiles(lambda part: found.append(np.geterr()["over"]), 1)
    tiles.help()
    assert found == ["raise"]


def test_a_board_sends_a_helper_a_part_while_there_are_any():
    summoned = []

    def summon():
        summoned.append(None)
        return len(summoned) < 2

    tile_queue = TileQueue(summon)
    done = []
    tiles = Tiles(done.append, 5)
    tile_queue.share(tiles)
    assert len(summoned) == 2  # the second found nobody
    assert tile_queue.help()
    assert done == [0, 1, 2, 3, 4]
    assert not tile_queue.help()
    tile_queue.withdraw(tiles)


def test_a_helper_does_not_stay_at_a_board_where_all_parts_are_taken():
    tile_queue = TileQueue(nobody)
    tiles = Tiles(abs, 1)
    tile_queue.share(tiles)
    tiles.finish()
    assert not tile_queue.help()


def test_idle_workers_of_a_machine_come_for_the_parts_of_a_step():
    all_of_them = threading.Barrier(5)  # more than the one that waits for the run

    def forward(xp, x):
        compute_parts(lambda part: all_of_them.wait(20), 5)
        return x

    parted = ag.ops.define("tiles_parted", scheme="f[*s] -> f[*s]", forward=forward)
    y = parted(ag.Graph().input("x", (2,)))
    with ag.ActorMachine([y], workers=5, fuse="none") as machine:
        machine.start({"x": np.ones(2, "float32")}).result()
