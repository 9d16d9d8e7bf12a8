"""Runs are started from two threads while workers drain: each ends, never too many at once."""

from __future__ import annotations

import pytest

from actorgraph.machines.core import Core
from tests.races._interleave import assert_found, assert_holds, pause, planted
from tests.races._wires import Machine, join

FOCUS = ("start", "_admit", "admitted", "finish", "leave", "_work")


class Starters(Machine):
    """Two threads start two runs each; a third is the pool."""

    def __init__(self, max_in_flight=1, **options):
        super().__init__(join, max_in_flight=max_in_flight, **options)
        self.mine = [[self.run(), self.run()] for _ in range(2)]
        self.started = 0

    def threads(self):
        first, second = self.mine
        return [lambda: self.start_all(first), lambda: self.start_all(second), self.drain]

    def start_all(self, runs):
        for run in runs:
            self.start(run)
        self.started += 1

    def drain(self):
        self.serve(until=lambda: self.started == 2)


def one_in_flight():
    return Starters()


def two_in_flight():
    return Starters(2)


def one_worker():
    return Starters(2, workers=1)


class Inline(Machine):
    """One thread works along, as `Machine.run_sync` does, while another starts a run."""

    def __init__(self, workers=1):
        super().__init__(join, workers=workers, max_in_flight=4)
        self.mine, self.other, self.later = self.run(), self.run(), self.run()
        self.started = False

    def threads(self):
        return [self.inline, self.start_others, self.drain]

    def inline(self):
        slot = self.scheduler.acquire()
        self.start(self.mine, slot)
        if slot is not None:
            self.core.help(self.mine, slot)

    def start_others(self):
        self.start(self.other)
        self.start(self.later)
        self.started = True

    def drain(self):
        self.serve(until=lambda: self.started)


class Direct(Inline):
    """The thread computes its run without actors, as `Machine.run` does with a small graph."""

    def inline(self):
        if self.core.run_directly(self.mine):
            self.direct.append(self.mine)
        else:
            self.start(self.mine)


def direct():
    return Direct()


def direct_of_two():
    return Direct(workers=2)


def inline():
    return Inline()


def inline_of_two():
    return Inline(workers=2)


class Helped(Machine):
    """Two threads start a run each and help until it has ended, as `run_sync` does."""

    def __init__(self, workers=1):
        super().__init__(join, workers=workers, max_in_flight=2)
        self.mine = [self.run(), self.run()]
        self.returned = 0

    def threads(self):
        return [*[lambda run=run: self.run_sync(run) for run in self.mine], self.drain]

    def run_sync(self, run):
        slot = self.scheduler.acquire()
        self.start(run, slot)
        if slot is not None:
            self.core.help(run, slot)
        while not run.done:
            pause()
        self.returned += 1

    def drain(self):
        self.serve(until=lambda: self.returned == 2)


def helped():
    return Helped()


def helped_by_two():
    return Helped(workers=2)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "make",
    [
        one_in_flight,
        two_in_flight,
        one_worker,
        direct,
        direct_of_two,
        inline,
        inline_of_two,
        helped,
        helped_by_two,
    ],
)
def test_every_run_ends_and_never_too_many_are_in_flight(make):
    assert_holds(make, f"start {make.__name__}", 2000, FOCUS)


class AdmitsWithoutTheLock(Core):
    """Two threads may both see room for one more."""

    start = planted(
        Core.start,
        """
            self._admit(slot)
            # Its deadline has passed already: it need not wait for admission.
        """,
        """
            self.lock.release()
            self._admit(slot)
            self.lock.acquire()
        """,
    )


def admits_without_the_lock():
    return Starters(core=AdmitsWithoutTheLock)


def test_a_planted_bug_is_found():
    assert_found(admits_without_the_lock, "start admits_without_the_lock", 2000, ["start"])
