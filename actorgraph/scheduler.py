"""The scheduler: ready queues, workers, and the process's pool of threads.

A machine has `Scheduler.workers` slots.  A worker is whoever holds a slot and runs
`Scheduler.work`: a thread of the pool, a thread that waits for a run, or a test.  Each slot has one
ready queue per class of priority.  A worker takes its newest task (depth first: warm caches, few
live arrays) and steals the oldest task of another slot when its own queues are empty.

Invariants:

- No ready task is missed: a worker frees its slot *before* its last look at the queues, and whoever
  makes a task ready from outside looks for a free slot *afterwards*.
- A task runs on one worker at a time: its generator refuses a second ``send``.  That turn is not
  lost, for the worker that runs the task checks ``task.wait`` after the task has parked.
- The hot path takes no lock; deque operations are atomic.
- A worker that spins (`patience_s`) keeps its slot, so no thread is woken for the work it finds.
- A worker that finds no ready task helps with the tiles of large products (`tiles`).  A product
  does not depend on helpers, so no last look is needed there.  `tile_slots` serve tiles only.

Sources of the numbers: handing over the GIL every 0.5 ms keeps the lateness of a 1 ms ticker at
p99 1 to 2 ms instead of 46; waking a thread costs 50 to 80 us, which pays for tasks of about 10 us
and more.
"""

from __future__ import annotations

import os
import sys
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from operator import itemgetter
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from actorgraph import instrument, scratch
from actorgraph.deadlines import Deadlines
from actorgraph.devices import blas
from actorgraph.devices.blas_threads import OneThread
from actorgraph.devices.threads import start
from actorgraph.flag import Flag
from actorgraph.gates import Gate
from actorgraph.options import in_child_of_fork
from actorgraph.tiles import TileQueue, here
from actorgraph.warned import reporting_context, runs_steps

if TYPE_CHECKING:
    from random import Random

    from actorgraph.node_actor import Task
    from actorgraph.runs import AbstractRun

WAITING = 32
"""Threads for blocking ops that a machine may have, or `max_in_flight` if that is more."""
_HANDOVER_S = 0.0005
_CROWDED = 1024
"""Length of a ready queue above which duplicate entries are removed."""
_SAMPLED = 16
"""One turn in so many is timed; reading the clock around every turn would cost 0.1 us each."""

_T = TypeVar("_T")


def inside(scheduler: Scheduler) -> bool:
    """Return whether the calling thread is running an op for this scheduler."""
    held = getattr(here, "held", None)
    return held is not None and any(one is scheduler for one, _ in _work_of_this_thread())


def waited_for(scheduler: Scheduler) -> list[AbstractRun]:
    """Return the runs that the calling thread waits for while it works for the scheduler."""
    return [run for held, run in _work_of_this_thread() if held is scheduler and run is not None]


def _work_of_this_thread() -> Iterator[tuple[Scheduler, AbstractRun | None]]:
    # Nested: an op may run another machine, whose ops may run a third.
    held = getattr(here, "held", None)
    while held is not None:
        scheduler, run, held = held
        yield scheduler, run


class Scheduler:
    """Ready queues and slots of one machine.

    - `workers`: how many tasks may run at once
    - `seed`: 0 keeps the natural order; any other seed permutes the ready order (for tests)
    - `on_idle`: called by the last worker to free its slot when nothing is ready
    - `on_crash`: called with an error that escaped from `work` in a thread of the pool
    - `slots`: how many threads may compute tiles of large products at once, if more than `workers`;
      the extra slots take no tasks
    - `waiting`: how many calls of blocking ops may run in threads at once
    - `patience_s`: how long an idle worker spins on `flag` before it sleeps, while other workers
      are busy.  A thread that made a task ready sets the flag when it releases the GIL.
    """

    def __init__(
        self, workers: int, seed: int, pool: Pool, on_idle: Callable[[], None],
        on_crash: Callable[[BaseException], None], slots: int = 0, waiting: int = 1,
    ) -> None:  # fmt: skip
        self.workers, self.slots = workers, max(workers, slots)
        self.pool, self.on_idle, self.on_crash = pool, on_idle, on_crash
        self.waiting = Gate(waiting)
        self.free: deque[int] = deque(range(workers - 1, -1, -1))
        self.tile_slots: deque[int] = deque(range(workers, self.slots))
        self.tile_queue = TileQueue(self._summon)
        self.flag = Flag()
        self.patience_s = 0.0
        self.classes: list[tuple[int, list[deque[Task]]]] = []
        self.awaited = 0
        self.crowded = _CROWDED
        self._phases = count()
        self.random: Random | None = None
        if seed:
            from random import Random  # 1 ms that only tests of interleavings pay

            self.random = Random(seed)

    def ready_queues(self, priority: int) -> list[deque[Task]]:
        """Return the ready queues, one per slot, of a class of priority (lower is more urgent)."""
        for known, queues in self.classes:
            if known == priority:
                return queues
        queues = [deque() for _ in range(self.workers)]
        # Replaced, not mutated: workers iterate over it without a lock.
        classes = list(self.classes)
        insort(classes, (priority, queues), key=itemgetter(0))
        self.classes = classes
        return queues

    def quiet(self) -> bool:
        """Return whether nothing runs and nothing is ready.

        Meanwhile nothing may be made ready from outside.  All slots are held during the check: a
        worker that started between looking at the slots and at the queues would be missed.
        """
        held = []
        while (slot := self.acquire()) is not None:
            held.append(slot)
        quiet = len(held) == self.workers and not self.any_ready()
        self.free.extend(held)
        if not quiet and self.any_ready():
            self.offer()  # an offer made meanwhile found no free slot
        return quiet

    def any_ready(self) -> bool:
        """Return whether any task is ready."""
        for _, queues in self.classes:
            for queue in queues:
                if queue:
                    return True
        return False

    def is_idle(self) -> bool:
        """Return whether no worker is busy; one may start right now."""
        return len(self.free) == self.workers

    def acquire(self) -> int | None:
        """Take a free slot, or return None."""
        try:
            return self.free.pop()
        except IndexError:
            return None

    def offer(self) -> None:
        """Start a worker in a thread of the pool, if a slot is free."""
        slot = self.acquire()
        if slot is not None:
            self.pool.submit(self, slot)

    def _summon(self) -> bool:
        """Start a thread of the pool that helps with tiles, if a slot is free."""
        try:
            slot = self.free.pop() if self.free else self.tile_slots.pop()
        except IndexError:
            return False
        self.pool.submit(self, slot)
        return True

    def work(
        self, slot: int, until: AbstractRun | None = None, alone: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        """Run ready tasks in `slot`, which the caller has acquired, and free it at the end.

        Returns when nothing is ready, or as soon as the run `until` has ended.  If `alone` returns
        False before a turn that is worth waking a worker, that turn is left to one.
        """
        self.call(self._work, slot, until, alone, until=until)

    def serve(self, slot: int) -> None:
        """Run `work` in a thread of the pool."""
        try:
            reporting_context().run(self.work, slot)
        except BaseException as error:  # noqa: BLE001 - our bug; the thread lives, the runs end
            self.on_crash(error)

    def call(self, function: Callable[..., _T], *args: Any, until: AbstractRun | None = None) -> _T:
        """Call `function` with the thread marked as running ops for this scheduler."""
        outer = getattr(here, "held", None)
        here.held = self, until, outer
        try:
            return function(*args)
        finally:
            here.held = outer

    @runs_steps("task")
    def _work(self, slot: int, until: AbstractRun | None, alone: Callable[[], bool] | None) -> None:
        if slot >= self.workers:
            self.tile_queue.help()
            self.tile_slots.append(slot)
            return
        self._handover_at = perf_counter() + _HANDOVER_S
        # Each call begins at another number: short runs that all began at one would never be timed.
        left = _SAMPLED - next(self._phases) % _SAMPLED
        while True:
            task = self._take(slot)
            if task is None:
                helps = alone is None and self.tile_queue.help()
                if helps or (self.patience_s and self._waits_awake(until)):
                    continue
                self.free.append(slot)
                again = self.acquire() if self.any_ready() else None
                if again is None:
                    break
                slot = again
                continue
            queue = task.ready[slot]
            push = queue.append
            # Go back to the queues after each turn if the order is permuted or a more urgent class
            # may have work; else go on with the last consumer, whose input is in the cache.
            ask = self.random is not None or len(self.classes) > 1
            while task is not None:
                left -= 1
                try:
                    if not left or task.heavy:
                        left = left or _SAMPLED
                        if alone is not None and task.heavy and not alone():
                            push(task)
                            self.leave(slot)
                            return
                        following = self._timed_turn(task, queue)
                    elif instrument.listening_to_turns:
                        following = (task.observed or instrument.observed(task))(push)
                    else:
                        following = task.send(push)
                except ValueError:
                    break  # it runs on another worker, which checks it again after the turn
                if task.wait:
                    push(task)
                task = following
                if until is not None and until.done:
                    if task is not None:
                        push(task)
                    self.leave(slot)
                    return
                if ask and task is not None:
                    push(task)
                    break
        if len(self.free) == self.workers:
            self.on_idle()

    def _waits_awake(self, until: AbstractRun | None) -> bool:
        """Spin for work while other workers are busy; return whether a task is ready."""
        self.flag.set()  # another spinning worker checks whether the run it waits for has ended
        end = perf_counter() + self.patience_s
        while len(self.free) < self.workers - 1 and not (until is not None and until.done):
            self.flag.clear()
            if self.any_ready():
                return True
            if perf_counter() > end:
                break
            self.flag.watch()
        return False

    def leave(self, slot: int) -> None:
        """Free a slot; offer it to another thread if a task is ready."""
        self.free.append(slot)
        if not self.classes:
            return  # there is no network yet, so no task can be ready
        if self.any_ready():
            self.offer()
        elif len(self.free) == self.workers:
            self.on_idle()

    @runs_steps("task")
    def _timed_turn(self, task: Task, queue: deque[Task]) -> Task | None:
        if task.heavy and self.free and any(task.ready):
            self.offer()  # the new worker does the same, until every ready task has a worker
        if len(queue) > self.crowded:
            self._thin(queue)
        # A turn that only finds a message missing says nothing about what the task costs.
        complete = all(port.messages for port in task.ports)
        started = perf_counter()
        if instrument.listening_to_turns:
            following = (task.observed or instrument.observed(task))(queue.append)
        else:
            following = task.send(queue.append)
        ended = perf_counter()
        if complete:
            task.note_turns(1 if task.heavy else _SAMPLED, ended - started)
        if self.awaited and ended > self._handover_at:
            # Any other thread that wants the GIL, such as the event loop's, gets it now.
            sleep(0)
            self._handover_at = ended + _HANDOVER_S
        return following

    def _thin(self, queue: deque[Task]) -> None:
        """Remove duplicate entries; keep the newest of each task.

        A task with waiting messages is made ready both by its worker and by every sender.  The
        superfluous entries sink to the old end of the queue, where an endless load would let them
        pile up.
        """
        kept: dict[Task, None] = {}
        while queue:
            try:
                kept[queue.pop()] = None
            except IndexError:  # stolen in between
                break
        queue.extendleft(kept)
        self.crowded = max(_CROWDED, 2 * len(kept))

    def _take(self, slot: int) -> Task | None:
        """Return a ready task of the most urgent class: the newest own, or the oldest of others."""
        for _, queues in self.classes:
            if self.random is not None:
                task = self._take_any(queues)
                if task is not None:
                    return task
                continue
            own = queues[slot]
            if own:
                try:
                    return own.pop()
                except IndexError:  # stolen in between
                    pass
            for other in queues:
                if other:
                    try:
                        return other.popleft()
                    except IndexError:
                        pass
        return None

    def _take_any(self, queues: list[deque[Task]]) -> Task | None:
        assert self.random is not None
        filled = [queue for queue in queues if queue]
        if not filled:
            return None
        queue = self.random.choice(filled)
        queue.rotate(self.random.randrange(len(queue) + 1))
        try:
            return queue.popleft()
        except IndexError:
            return None


class Threads:
    """Threads that do jobs; a job that finds no thread idle starts one, up to a limit.

    The caller of `add` holds the owner's lock.  Invariant: `_spare` is the number of threads minus
    the number of jobs that wait or run; if negative, that many jobs wait for a thread.
    """

    def __init__(self, name: str, lock: threading.Lock) -> None:
        self._name, self._lock = name, lock
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started: list[threading.Thread] = []
        self._failed = 0
        self._spare = 0

    def add(self, job: Callable[[], None], limit: int) -> None:
        """Do a job, which must not raise, in a thread."""
        if self._spare <= 0 and len(self._started) - self._failed < limit:
            number = len(self._started) + 1
            thread = threading.Thread(
                target=self._serve, name=f"actorgraph-{self._name}{number}", daemon=True
            )
            self._started.append(thread)
            try:
                start(thread)
            except BaseException:
                self._failed += 1  # it may or may not be running: another may take its place
                raise
        else:
            self._spare -= 1
        self._jobs.put(job)

    def end(self, join: bool) -> None:
        """End the threads when all jobs are done; no job may be added afterwards."""
        for _ in self._started:
            self._jobs.put(None)
        for thread in self._started if join else ():
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def _serve(self) -> None:
        jobs = self._jobs
        if _nice:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _nice)
        while (job := jobs.get()) is not None:
            job()
            del job  # an idle thread keeps no machine alive
            with self._lock:
                self._spare += 1


class Pool:
    """The threads of the process, shared by all machines: workers and threads of blocking ops.

    The limit is the sum of what the open machines ask for.  With fewer threads, a machine that is
    always busy would starve the others, and an op that waits for a run of another machine could
    wait forever.  The threads end when the last machine closes.

    While a machine is open, BLAS runs on one thread: its results depend on its number of threads,
    and its threads would compete with ours for cores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares: dict[Scheduler, int] = {}
        self._blas: Any = None
        self._renew()

    def _renew(self) -> None:
        self._workers = Threads("", self._lock)
        self._waiting = Threads("waiting-", self._lock)
        self.deadlines = Deadlines()

    def retain(self, scheduler: Scheduler) -> None:
        """Count the machine of a scheduler as open; `release` undoes what is interrupted, too."""
        blas.asked()  # raises for an impossible choice before anything starts
        with self._lock:
            first = not self._shares
            self._shares[scheduler] = scheduler.slots
            if first:
                self._blas = OneThread()
                self._blas.hold()

    def release(self, scheduler: Scheduler, join: bool = True) -> None:
        """Count a machine as closed; the last one ends the threads, and joins them if `join`.

        It drops the scratch memory of ops, too.
        """
        with self._lock:
            if self._shares.pop(scheduler, None) is None:
                return  # closed already, or opened before a fork
            if self._shares:
                return
            held, self._blas = self._blas, None
            workers, waiting, deadlines = self._workers, self._waiting, self.deadlines
            self._renew()
        deadlines.stop(join)
        waiting.end(join)
        workers.end(join)
        scratch.clear()
        with self._lock:
            if self._shares:
                self._blas = held  # a machine opened meanwhile, and took our limit for the original
            elif held is not None:
                held.restore()

    def submit(self, scheduler: Scheduler, slot: int) -> None:
        """Run ``scheduler.work(slot)`` in a thread of the pool."""
        slots = scheduler.free if slot < scheduler.workers else scheduler.tile_slots
        with self._lock:
            if scheduler not in self._shares:
                slots.append(slot)
                return  # its machine was closed
            try:
                self._workers.add(partial(scheduler.serve, slot), sum(self._shares.values()))
            except Exception:  # no thread could be started
                slots.append(slot)
                raise

    def wait(self, scheduler: Scheduler, call: Callable[[], None]) -> bool:
        """Make a call outside of any actor's turn in a thread; return False if the machine closed.

        The call blocks, and was let in by `Scheduler.waiting`, or is one of at most
        `Scheduler.workers` others.
        """
        with self._lock:
            if scheduler not in self._shares:
                return False
            self._waiting.add(call, sum([one.waiting.limit + one.workers for one in self._shares]))
            return True

    def later(self, function: Callable[[], None], name: str = "collector") -> threading.Thread:
        """Call `function` in a new thread: a finalizer must not wait for our locks."""
        thread = threading.Thread(target=function, name=f"actorgraph-{name}", daemon=True)
        thread.start()
        return thread


POOL = Pool()
"""The pool of this process."""

_nice = 0


def make_threads_nice(by: int) -> None:
    """Lower the priority of threads that are started from now on (Linux only)."""
    global _nice
    if sys.platform == "linux":  # elsewhere niceness is a property of the process
        _nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + by)


@in_child_of_fork
def _after_fork_in_child() -> None:
    # The parent's threads do not exist here, and may have held its locks.
    POOL.__init__()  # type: ignore[misc]
