"""An owner and helpers take parts of one step: each once, all ended when the owner returns."""

from __future__ import annotations

import pytest

from actorgraph import tiles
from actorgraph.scheduler import Scheduler
from actorgraph.tiles import TileQueue, Tiles
from tests.races._interleave import assert_found, assert_holds, pause, planted
from tests.races._wires import Jobs, Slots

FOCUS = ("_take_parts", "finish", "help", "share", "withdraw")


class Sharing:
    """An owner who holds a slot, a worker that is called, and one that comes by itself."""

    def __init__(self, kind=Tiles, workers=3, slots=3):
        self.pool = Jobs()
        self.scheduler = Scheduler(workers, 0, self.pool, self.idle, self.crash, slots)
        self.scheduler.free = Slots(self.scheduler.free)
        self.kind = kind
        self.slot = self.scheduler.acquire()
        self.computed = []
        self.inside = 0
        self.returned = False

    def idle(self):
        pass

    def crash(self, error):
        raise AssertionError("a worker crashed") from error

    def compute(self, part):
        assert not self.returned, "the owner has returned already"
        self.inside += 1
        pause()
        self.computed.append(part)
        self.inside -= 1

    def threads(self):
        return [self.own, self.work, self.work]

    def own(self):
        original, tiles.Tiles = tiles.Tiles, self.kind
        try:
            self.scheduler.call(tiles.compute_parts, self.compute, 3)
        finally:
            tiles.Tiles = original
        self.returned = True
        assert sorted(self.computed) == [0, 1, 2]
        self.scheduler.leave(self.slot)

    def work(self):
        for _ in range(20):
            if self.pool.jobs or self.returned:
                break
            pause()
        try:
            scheduler, slot = self.pool.jobs.popleft()
        except IndexError:
            return
        scheduler.work(slot)

    def check(self):
        self.pool.work_off()
        assert sorted(self.computed) == [0, 1, 2]
        assert not self.scheduler.tile_queue.help()
        scheduler = self.scheduler
        assert sorted(scheduler.free) == list(range(scheduler.workers)), "a slot was lost"
        assert sorted(scheduler.tile_slots) == list(range(scheduler.workers, scheduler.slots))


def workers_help():
    return Sharing()


def tile_slots_help():
    return Sharing(workers=1)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [workers_help, tile_slots_help])
def test_every_part_is_computed_once_before_the_owner_returns(make):
    assert_holds(make, f"tiles {make.__name__}", 2000, FOCUS)


class DoesNotWait(Tiles):
    __slots__ = ()
    finish = planted(
        Tiles.finish,
        """
        while len(self._ended) < self.count:
            self._over.wait(_GLANCE_S)
        """,
        "",
    )


class HandsOutByLooking(Tiles):
    __slots__ = ()
    _take_parts = planted(
        Tiles._take_parts,
        "for part in self._parts:",
        "for part in [p for p in range(self.count) if p not in self._ended]:",
    )


def returns_without_waiting():
    return Sharing(DoesNotWait)


def hands_out_by_looking():
    return Sharing(HandsOutByLooking)


@pytest.mark.parametrize("bug", [returns_without_waiting, hands_out_by_looking])
def test_a_planted_bug_is_found(bug):
    assert_found(bug, f"tiles {bug.__name__}", 2000, FOCUS)


class HelpsWhatIsWithdrawn(TileQueue):
    __slots__ = ()
    withdraw = planted(
        TileQueue.withdraw,
        """
        try:
            self._shared.remove(tiles)
        except ValueError:
            pass  # another thread has removed it
        """,
        "self._shared.remove(tiles)",
    )


class Crashing(Sharing):
    def __init__(self):
        super().__init__()
        self.scheduler.tile_queue = HelpsWhatIsWithdrawn(self.scheduler._summon)


def test_to_withdraw_what_another_has_withdrawn_is_found():
    assert_found(Crashing, "tiles withdraw", 2000, ["withdraw", "help"])
