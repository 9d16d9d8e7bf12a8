"""Workers take tasks from the same queues: each runs once, none that is ready is forgotten."""

from __future__ import annotations

import pytest

from actorgraph.scheduler import Scheduler
from tests.races._interleave import assert_found, assert_holds, planted
from tests.races._wires import Jobs, Slots

FOCUS = ("_work", "_take", "offer", "_waits_awake")


class Tally:
    """A task that counts its turns; its generator lets in one at a time, as that of an actor."""

    wait = ports = ()

    def __init__(self, ready, *, heavy=False, then=None):
        self.ready = ready
        self.heavy = heavy
        self.ran = 0
        self.send = self._turns(then).send
        self.send(None)

    def note_turns(self, count, seconds):
        """Take what the scheduler has measured."""

    def _turns(self, then):
        push = yield
        while True:
            self.ran += 1
            if then is not None:
                push(then)
            push = yield


class Workers:
    """Two workers, tasks in the queue of one of them, and a thread from outside with one more."""

    def __init__(self, scheduler=Scheduler, workers=2, seed=0, tasks=3):
        self.pool = Jobs()
        self.idle = 0
        self.scheduler = scheduler(workers, seed, self.pool, self.count_idle, self.crash)
        self.scheduler.free = Slots(self.scheduler.free)
        self.queues = self.scheduler.ready_queues(0)
        last = Tally(self.queues)
        self.tasks = [Tally(self.queues, heavy=n == 0) for n in range(tasks)]
        self.tasks += [Tally(self.queues, then=last), last, Tally(self.queues)]
        self.queues[0].extend(self.tasks[:-2])
        for _ in range(workers):
            self.scheduler.offer()

    def count_idle(self):
        self.idle += 1

    def crash(self, error):
        raise AssertionError("a worker crashed") from error

    def threads(self):
        return [self.work, self.work, self.ready_from_outside]

    def work(self):
        if self.pool.jobs:
            scheduler, slot = self.pool.jobs.popleft()
            scheduler.work(slot)

    def ready_from_outside(self):
        self.queues[0].append(self.tasks[-1])
        self.scheduler.offer()

    def check(self):
        self.pool.work_off()
        assert [task.ran for task in self.tasks] == [1] * len(self.tasks)
        assert sorted(self.scheduler.free) == list(range(self.scheduler.workers))
        assert self.idle


class Few(Workers):
    """As many workers as look for the last task, so that the last look counts."""

    def __init__(self, scheduler=Scheduler, workers=1):
        super().__init__(scheduler, workers, tasks=0)


def two_workers():
    return Workers()


def in_seeded_order():
    return Workers(seed=3)


def one_worker():
    return Few()


def patient_workers():
    found = Workers()
    found.scheduler.patience_s = 1e-9  # one look
    return found


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [two_workers, in_seeded_order, one_worker, patient_workers])
def test_every_task_that_is_ready_runs_once(make):
    assert_holds(make, f"steal {make.__name__}", 3000, FOCUS)


class LooksBeforeItFreesItsSlot(Scheduler):
    _work = planted(
        Scheduler._work,
        """
        self.free.append(slot)
        again = self.acquire() if self.any_ready() else None
        if again is None:
            break
        slot = again
        continue
        """,
        """
        if self.any_ready():
            continue
        self.free.append(slot)
        break
        """,
    )


class LooksAndTakes(Scheduler):
    _take = planted(
        Scheduler._take,
        """
        try:
            return other.popleft()
        except IndexError:
            pass
        """,
        "return other.popleft()",
    )


def frees_its_slot_after_the_last_look():
    return Few(LooksBeforeItFreesItsSlot)


def looks_at_a_queue_and_takes_from_it():
    return Workers(LooksAndTakes)


@pytest.mark.parametrize(
    ("bug", "place"),
    [(frees_its_slot_after_the_last_look, "_work"), (looks_at_a_queue_and_takes_from_it, "_take")],
)
def test_a_planted_bug_is_found(bug, place):
    assert_found(bug, f"steal {bug.__name__}", 5000, [place])
