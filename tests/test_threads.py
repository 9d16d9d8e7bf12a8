"""Threads that do jobs: as many as wait for one another, and no more than a limit."""

import os
import sys
import threading
from functools import partial

import pytest

from actorgraph import scheduler
from actorgraph.devices import cpu
from actorgraph.flag import Flag
from actorgraph.scheduler import _SAMPLED, Scheduler, Threads
from actorgraph.tiles import Tiles

WAIT_S = 20


class TellingLock:
    """A lock that counts how often it has been given back."""

    def __init__(self):
        self.lock = threading.Lock()
        self.given_back = threading.Semaphore(0)

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        self.given_back.release()


@pytest.fixture
def lock():
    return TellingLock()


@pytest.fixture
def threads(lock):
    threads = Threads("test-", lock)
    yield threads
    threads.end(join=True)


def add(threads, lock, *jobs, limit=2):
    with lock:
        for job in jobs:
            threads.add(job, limit)
    assert lock.given_back.acquire(timeout=WAIT_S)


def test_a_thread_that_is_idle_takes_the_next_job(threads, lock):
    names = []
    for _ in range(3):
        add(threads, lock, lambda: names.append(threading.current_thread().name))
        assert lock.given_back.acquire(timeout=WAIT_S)  # by the thread, which is idle now
    assert names == ["actorgraph-test-1"] * 3


def test_a_program_that_ends_waits_for_no_thread_of_ours(threads, lock):
    found = []
    add(threads, lock, lambda: found.append(threading.current_thread().daemon))
    later = scheduler.POOL.later(lambda: found.append(threading.current_thread().daemon))
    later.join(WAIT_S)
    threads.end(join=True)
    assert found == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere niceness is a process's")
def test_threads_that_are_told_to_be_nice_give_way_to_the_one_that_told_them(monkeypatch):
    monkeypatch.setattr(scheduler, "_nice", 0)
    found = []

    def tell():
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    own = os.getpriority(os.PRIO_PROCESS, 0)
    for by in (1, 20):
        scheduler.make_threads_nice(by)
        others = Threads("nice-", threading.Lock())
        others.add(tell, 1)
        others.end(join=True)
    assert found == [min(19, own + 1), 19]


def test_an_idle_thread_is_one_thread_only(threads, lock):
    add(threads, lock, lambda: None)
    assert lock.given_back.acquire(timeout=WAIT_S)
    meeting = threading.Barrier(3)
    wait = partial(meeting.wait, WAIT_S)
    add(threads, lock, wait, wait)
    meeting.wait(WAIT_S)  # raises if only one of them runs


def test_a_thread_whose_job_another_has_taken_is_idle(threads, lock, monkeypatch):
    late = []
    gate, meeting = threading.Event(), threading.Barrier(3)
    add(threads, lock, partial(gate.wait, WAIT_S))
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "start", late.append)
        add(threads, lock, lambda: None)
    gate.set()
    for _ in range(2):
        assert lock.given_back.acquire(timeout=WAIT_S)  # by the first thread, after each job
    late[0].start()
    meet = partial(meeting.wait, WAIT_S)
    add(threads, lock, meet, meet, limit=3)
    meeting.wait(WAIT_S)
    names = [one.name for one in threading.enumerate() if "actorgraph-test-" in one.name]
    assert sorted(names) == ["actorgraph-test-1", "actorgraph-test-2"]


def test_jobs_beyond_the_limit_wait_for_a_thread(threads, lock):
    gate, names = threading.Event(), []
    add(threads, lock, partial(gate.wait, WAIT_S), partial(gate.wait, WAIT_S))
    add(threads, lock, lambda: names.append(threading.current_thread().name))
    gate.set()
    threads.end(join=True)
    assert names[0] in ("actorgraph-test-1", "actorgraph-test-2")


def test_the_end_waits_for_others_and_not_for_the_thread_that_asks(threads, lock):
    gate, ended = threading.Event(), []

    def end():
        gate.set()
        threads.end(join=True)
        ended.append(True)

    add(threads, lock, partial(gate.wait, WAIT_S), end)
    threads.end(join=True)
    assert ended == [True]


# -- patience -----------------------------------------------------------------------------------


class Watched(Flag):
    """Tells that somebody watches."""

    def __init__(self):
        super().__init__()
        self.watching = threading.Event()

    def watch(self):
        self.watching.set()
        return super().watch()


class Once:
    """A task of one turn."""

    wait = ports = ()
    heavy = False

    def __init__(self, ready):
        self.ready, self.ran = ready, threading.Event()

    def send(self, push):
        self.ran.set()


def test_a_flag_that_is_set_ends_the_watch():
    flag = Flag()
    assert not flag.watch()
    flag.set()
    assert flag.watch()
    flag.clear()
    assert not flag.watch()


def test_a_patient_worker_takes_what_becomes_ready_while_others_are_at_work():
    woken = []
    scheduler = Scheduler(2, 0, woken, lambda: None, woken.append)
    scheduler.patience_s, scheduler.flag = WAIT_S, Watched()
    at_work, slot = scheduler.acquire(), scheduler.acquire()
    task = Once(scheduler.ready_queues(0))
    thread = threading.Thread(target=scheduler.work, args=(slot,))
    thread.start()
    assert scheduler.flag.watching.wait(WAIT_S)
    task.ready[at_work].append(task)
    scheduler.flag.set()
    assert task.ran.wait(WAIT_S)
    scheduler.offer()  # finds no slot: nobody has to be woken
    scheduler.free.append(at_work)
    thread.join(WAIT_S)  # with nobody at work there is nothing to wait for
    assert not thread.is_alive()
    assert not woken
    assert sorted(scheduler.free) == [0, 1]


class Again:
    """A task of some turns, which notes how many of them stand for each measurement."""

    wait = ports = ()

    def __init__(self, ready, turns, heavy):
        self.ready, self.left, self.heavy, self.noted = ready, turns, heavy, []

    def send(self, push):
        self.left -= 1
        if self.left:
            push(self)

    def note_turns(self, count, seconds):
        assert seconds >= 0
        self.noted.append(count)


@pytest.mark.parametrize(
    ("heavy", "noted"), [(True, [1] * (2 * _SAMPLED)), (False, [_SAMPLED] * 2)]
)
def test_each_turn_of_a_heavy_task_is_timed_and_one_of_several_of_a_light_one(heavy, noted):
    scheduler = Scheduler(1, 0, [], lambda: None, pytest.fail)
    task = Again(scheduler.ready_queues(0), 2 * _SAMPLED, heavy)
    task.ready[0].append(task)
    scheduler.work(scheduler.acquire())
    assert (task.left, task.noted) == (0, noted)


def test_who_leaves_long_turns_to_others_computes_no_tiles_of_theirs_either():
    scheduler, done = Scheduler(1, 0, [], lambda: None, lambda: None), []
    tiles = Tiles(done.append, 2)
    scheduler.tile_queue._shared.append(tiles)
    scheduler.work(scheduler.acquire(), None, lambda: False)
    assert done == []
    scheduler.work(scheduler.acquire())
    assert done == [0, 1]


def test_cores_are_crowded_where_threads_often_lose_them(monkeypatch):
    now, so_far, seen = [0.0], [0.0, 0], []
    monkeypatch.setattr(cpu, "perf_counter", lambda: now[0])
    monkeypatch.setattr(cpu, "_work_so_far", lambda: tuple(so_far))
    crowding = cpu.Crowding()
    for worked_s, lost in [(0.001, 0), (0.1, 2), (0.001, 500), (0.1, 500), (0.1, 0)]:
        now[0] += worked_s
        so_far[0] += worked_s
        so_far[1] += lost
        seen.append(crowding.found())
    assert seen == [True, False, False, True, False]
    now[0] += 1.0
    assert crowding.found()  # where nothing is told
