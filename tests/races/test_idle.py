"""A worker that goes idle looks for a stall: it sees real ones, and takes no busy moment for it."""

from __future__ import annotations

import pytest

from actorgraph.errors import DeadlockError
from actorgraph.scheduler import Scheduler
from tests.races._interleave import assert_found, assert_holds, planted
from tests.races._wires import Machine, join

FOCUS = ("quiet", "on_idle", "_work", "offer", "leave")


class Busy(Machine):
    """One worker goes idle; a run has been injected, and the thread that did it offers it now."""

    def __init__(self, workers=1, **options):
        super().__init__(join, workers=workers, **options)
        self.start(self.run(), slot=0)
        self.offered = False

    def threads(self):
        return [self.core.on_idle, self.offer, lambda: self.serve(until=lambda: self.offered)]

    def offer(self):
        self.scheduler.offer()
        self.offered = True


class Returning(Busy):
    """The thread that runs the first run leaves when it has ended, with others under way."""

    def __init__(self, workers=1):
        super().__init__(workers)
        self.start(self.run(), slot=0)

    def offer(self):
        slot = self.scheduler.acquire()
        if slot is not None:
            self.core.help(self.runs[0], slot)
        self.offered = True
        self.scheduler.offer()


def busy():
    return Busy()


def busy_with_two():
    return Busy(2)


def returning():
    return Returning()


def returning_of_two():
    return Returning(2)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [busy, busy_with_two, returning, returning_of_two])
def test_a_busy_machine_is_not_taken_for_a_stalled_one(make):
    assert_holds(make, f"idle {make.__name__}", 3000, FOCUS)


class Stalled(Machine):
    """The messages of one actor get lost, so the first two runs stall; a third is queued."""

    def __init__(self, **options):
        super().__init__(join, workers=2, max_in_flight=2, **options)
        lost = next(port for port in self.network.channels if port.name.endswith("cos_2"))
        for entry in self.network.entries:
            entry[:] = [target for target in entry if target[1] is not lost.messages]
        self.begin(3)

    def threads(self):
        return [self.drain, self.drain]

    def drain(self):
        self.serve(until=lambda: True)

    def check(self):
        self.pool.work_off()
        for run in self.runs[:2]:
            assert isinstance(run.dead, DeadlockError), f"{run} did not end, or of {run.dead!r}"
        self.runs = self.runs[2:]
        super().check()


class StalledBeside(Stalled):
    """Another thread has computed a run without actors, and may be the last to leave its slot."""

    def begin(self, count):
        self.slot = self.scheduler.acquire()
        super().begin(count)

    def threads(self):
        return [self.drain, lambda: self.scheduler.leave(self.slot)]


class StalledInReplaced(Stalled):
    """The network has been replaced by one with tables, which a fourth run is to pass through."""

    def begin(self, count):
        super().begin(count)
        self.network.is_due = lambda: True
        super().begin(1)
        assert self.network not in self.core.networks.values()


def stalled():
    return Stalled()


def stalled_in_a_network_that_was_replaced():
    return StalledInReplaced()


def stalled_beside_another():
    return StalledBeside()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "make", [stalled, stalled_beside_another, stalled_in_a_network_that_was_replaced]
)
def test_a_stall_ends_the_runs_in_flight_and_no_other(make):
    assert_holds(make, f"idle {make.__name__}", 3000, FOCUS)


class LooksAtSlotsFirst(Scheduler):
    """A worker that begins between the two looks is seen in neither."""

    quiet = planted(
        Scheduler.quiet,
        """
        held = []
        while (slot := self.acquire()) is not None:
            held.append(slot)
        quiet = len(held) == self.workers and not self.any_ready()
        self.free.extend(held)
        """,
        "quiet = len(self.free) == self.workers and not self.any_ready()",
    )


class LeavesWithoutALook(Scheduler):
    """Whoever leaves last must look for a stall, not only who has found nothing to do."""

    leave = planted(
        Scheduler.leave,
        """
        elif len(self.free) == self.workers:
            self.on_idle()
        """,
        "",
    )


def looks_at_slots_first():
    return Busy(scheduler=LooksAtSlotsFirst)


def leaves_without_a_look():
    return StalledBeside(scheduler=LeavesWithoutALook)


@pytest.mark.parametrize(
    ("bug", "place"), [(looks_at_slots_first, "quiet"), (leaves_without_a_look, "leave")]
)
def test_a_planted_bug_is_found(bug, place):
    assert_found(bug, f"idle {bug.__name__}", 5000, [place, "_work"])
