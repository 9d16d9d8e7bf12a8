"""Threads that do jobs: as many as wait for one another, and no more than a limit."""

import threading
from functools import partial

import pytest

from actorgraph.scheduler import Threads

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


def test_an_idle_thread_is_one_thread_only(threads, lock):
    add(threads, lock, lambda: None)
    assert lock.given_back.acquire(timeout=WAIT_S)
    meeting = threading.Barrier(3)
    wait = partial(meeting.wait, WAIT_S)

    add(threads, lock, wait, wait)
    meeting.wait(WAIT_S)  # raises if only one of them runs


def test_jobs_beyond_the_limit_wait_for_a_thread(threads, lock):
    gate, names = threading.Event(), []
    add(threads, lock, partial(gate.wait, WAIT_S), partial(gate.wait, WAIT_S))
    add(threads, lock, lambda: names.append(threading.current_thread().name))
    gate.set()
    threads.end(join=True)

    assert names[0] in ("actorgraph-test-1", "actorgraph-test-2")
