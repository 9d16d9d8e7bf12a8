"""The scheduler: ready queues, workers, and the process's pool of threads.

A machine has `Scheduler.workers` slots.  Whoever holds a slot runs `Scheduler.work`, a plain
callable over shared state: a thread of the pool, the caller of ``run_sync``, or a test.  Each slot
has its own ready queue a class of priority; a worker takes its newest task (depth first: warm
caches, few live arrays) and steals the oldest of others when its own are empty.

Invariants:

- A task in a ready queue is found: a worker frees its slot *before* it looks at the queues a last
  time, and whoever makes a task ready from outside looks for a free slot *after* that.
- A task runs on one worker at a time: its generator refuses a second ``send``; the worker that
  runs it looks at its marker when it has parked, so the dropped turn is not lost.
- The hot path takes no lock; deque operations are atomic.
- A worker that is patient keeps its slot while it watches, so nobody is woken for what it takes.
- A worker that finds nothing ready helps with large products of others (`tiles`); a product needs
  no helper, so nobody looks a last time.  `tile_slots` are slots for that alone.

Sources of the numbers: handing the GIL over every 0.5 ms keeps a 1 ms ticker's lateness at
p99 1 to 2 ms instead of 46; waking a thread costs 50 to 80 us, so only tasks of about 10 us and
more are worth it.
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

from actorgraph import instrument
from actorgraph.deadlines import Deadlines, start
from actorgraph.devices import blas
from actorgraph.devices.blas_threads import OneThread
from actorgraph.flag import Flag
from actorgraph.gates import Gate
from actorgraph.tiles import TileQueue, here
from actorgraph.warned import reporting_context, runs_steps

if TYPE_CHECKING:
    from random import Random

    from actorgraph.node_actor import Task
    from actorgraph.runs import AbstractRun

WAITING = 32
"""Threads that a machine may have for ops that wait, if no more runs may be in flight."""
_HANDOVER_S = 0.0005
_CROWDED = 1024
"""Places in a ready queue above which tasks are looked for that have several."""
_SAMPLED = 16
"""One turn in so many is timed; a clock around each would cost 0.1 us."""

_T = TypeVar("_T")


def inside(scheduler: Scheduler) -> bool:
    """Return whether the calling thread is running an op for this scheduler."""
    held = getattr(here, "held", None)
    return held is not None and any(one is scheduler for one, _ in _work_of_this_thread())


def waited_for(scheduler: Scheduler) -> list[AbstractRun]:
    """Return the runs whose end the calling thread waits for while it works for the scheduler."""
    return [run for held, run in _work_of_this_thread() if held is scheduler and run is not None]


def _work_of_this_thread() -> Iterator[tuple[Scheduler, AbstractRun | None]]:
    # An op may run another machine, whose ops may run another one ...
    held = getattr(here, "held", None)
    while held is not None:
        scheduler, run, held = held
        yield scheduler, run


class Scheduler:
    """Ready queues and slots of one machine.

    Parameters
    ----------
    workers : int
        How many tasks may run at once.
    slots : int, optional
        Threads that may compute tiles of large products at once, if more than `workers`: the slots
        beyond them take no tasks.
    waiting : int, optional
        Most calls at once of ops that wait in threads.
    seed : int
        0 keeps the natural order; another seed permutes the ready order (for tests).
    on_idle : callable
        Called by a worker that found nothing more to do, when no slot is taken any more.
    on_crash : callable
        Called with an error that escaped from `work` in a thread of the pool.

    Attributes
    ----------
    patience_s : float
        How long a worker that has nothing to do watches the `flag`, before it sleeps, while others
        are at work.  Whoever has made something ready sets it when he lets go of Python's lock.
    """

    def __init__(
        self,
        workers: int,
        seed: int,
        pool: Pool,
        on_idle: Callable[[], None],
        on_crash: Callable[[BaseException], None],
        slots: int = 0,
        waiting: int = 1,
    ) -> None:
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
        """Return the ready queues of a class of priority (lower is more urgent)."""
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
        """Return whether nothing runs and nothing is ready; from outside nothing must become so.

        All slots are taken for the look: a worker that began between a look at the slots and one
        at the queues would be seen in neither.
        """
        held = []
        while (slot := self.acquire()) is not None:
            held.append(slot)
        quiet = len(held) == self.workers and not self.any_ready()
        self.free.extend(held)
        if not quiet and self.any_ready():
            self.offer()  # whoever offered meanwhile has found no slot
        return quiet

    def any_ready(self) -> bool:
        """Return whether a task waits for a worker."""
        for _, queues in self.classes:
            for queue in queues:
                if queue:
                    return True
        return False

    def acquire(self) -> int | None:
        """Take a slot, or return None where all are taken."""
        try:
            return self.free.pop()
        except IndexError:
            return None

    def offer(self) -> None:
        """Have a thread of the pool work, if a slot is free."""
        slot = self.acquire()
        if slot is not None:
            self.pool.submit(self, slot)

    def _summon(self) -> bool:
        """Have a thread of the pool help with tiles, if a slot is free."""
        try:
            slot = self.free.pop() if self.free else self.tile_slots.pop()
        except IndexError:
            return False
        self.pool.submit(self, slot)
        return True

    def work(self, slot: int, until: AbstractRun | None = None) -> None:
        """Run ready tasks in `slot`, which the caller has acquired; the slot is free at the end.

        Returns as soon as the run `until` has ended.
        """
        self.call(self._work, slot, until, until=until)

    def serve(self, slot: int) -> None:
        """Work as a thread of the pool."""
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
    def _work(self, slot: int, until: AbstractRun | None) -> None:
        if slot >= self.workers:
            self.tile_queue.help()
            self.tile_slots.append(slot)
            return
        self._handover_at = perf_counter() + _HANDOVER_S
        # Short runs would never come to the turn that is timed if each began to count at 0.
        turns = next(self._phases)
        while True:
            task = self._take(slot)
            if task is None:
                if self.tile_queue.help() or (self.patience_s and self._waits_awake(until)):
                    continue
                self.free.append(slot)
                again = self.acquire() if self.any_ready() else None
                if again is None:
                    break
                slot = again
                continue
            queue = task.ready[slot]
            push = queue.append
            # Ask the queues after each turn where another order is wanted, or something more
            # urgent may wait; else go on with the last consumer, whose input is in the cache.
            ask = self.random is not None or len(self.classes) > 1
            while task is not None:
                turns += 1
                try:
                    if task.heavy or not turns % _SAMPLED:
                        following = self._timed_turn(task, queue)
                    elif instrument.listening_to_turns:
                        following = (task.observed or instrument.observed(task))(push)
                    else:
                        following = task.send(push)
                except ValueError:
                    break  # it runs on another worker, which looks at it again
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
        """Watch for something to do while others are at work; return whether there is any."""
        self.flag.set()  # who waits for a run looks whether it has ended
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
        """Give a slot back, for others if something is ready."""
        self.free.append(slot)
        if not self.classes:
            return  # no network has been made: no task can be ready, and no run wait for one
        if self.any_ready():
            self.offer()
        elif len(self.free) == self.workers:
            self.on_idle()

    @runs_steps("task")
    def _timed_turn(self, task: Task, queue: deque[Task]) -> Task | None:
        if task.heavy and self.free and any(task.ready):
            self.offer()  # who comes does the same, until all that is ready has a worker
        if len(queue) > self.crowded:
            self._thin(queue)
        # Else it only finds that another message is missing: no turn to learn from.
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
            # Any other thread that wants the GIL, such as the event loop's, gets it here.
            sleep(0)
            self._handover_at = ended + _HANDOVER_S
        return following

    def _thin(self, queue: deque[Task]) -> None:
        """Keep one place of each task, the newest.

        A task that has messages waiting is made ready by its worker and by whoever sends more.
        The places that it does not need sink to the end of its queue, and under a load that never
        ends nobody would come to them.
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
    """Threads that do jobs; one is started when a job finds none idle, up to a limit.

    Its owner's lock is held where jobs are added.  Invariant: `_spare` is the number of threads
    less the jobs that wait or run; below zero, so many jobs wait for a thread.
    """

    def __init__(self, name: str, lock: threading.Lock) -> None:
        self._name, self._lock = name, lock
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started: list[threading.Thread] = []
        self._failed = 0
        self._spare = 0

    def add(self, job: Callable[[], None], limit: int) -> None:
        """Have a thread do a job, which must not raise."""
        if self._spare <= 0 and len(self._started) - self._failed < limit:
            number = len(self._started) + 1
            thread = threading.Thread(
                target=self._serve, name=f"actorgraph-{self._name}{number}", daemon=True
            )
            self._started.append(thread)
            try:
                start(thread)
            except BaseException:
                self._failed += 1  # whether it ever serves is unknown: another may take its place
                raise
        else:
            self._spare -= 1
        self._jobs.put(job)

    def end(self, join: bool) -> None:
        """Have the threads end when all jobs are done; no more may be added."""
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
    """The threads of the process, shared by all machines: workers, and those of ops that wait.

    There are as many as the open machines have asked for together, and they end with the last
    machine.  With fewer, a machine that is always busy would starve the others, and an op that
    waits for a run of another machine would wait forever.

    While a machine is open, BLAS runs on one thread: its results depend on how many it uses, and
    its own threads fight ours for cores.
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
        """Count the machine of a scheduler as open."""
        blas.asked()  # an impossible choice is told before anything starts
        with self._lock:
            if not self._shares:
                self._blas = OneThread()
            self._shares[scheduler] = scheduler.slots

    def release(self, scheduler: Scheduler, join: bool = True) -> None:
        """Count a machine as closed; with the last one the threads end, and `join` waits for it."""
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
        with self._lock:
            if self._shares:
                self._blas = held  # a machine was opened meanwhile: it took 1 for the original
            elif held is not None:
                held.restore()

    def submit(self, scheduler: Scheduler, slot: int) -> None:
        """Have a thread run ``scheduler.work(slot)``."""
        slots = scheduler.free if slot < scheduler.workers else scheduler.tile_slots
        with self._lock:
            if scheduler not in self._shares:
                slots.append(slot)
                return  # its machine was closed
            try:
                self._workers.add(partial(scheduler.serve, slot), sum(self._shares.values()))
            except Exception:  # no thread could be started; whoever comes next takes the slot
                slots.append(slot)
                raise

    def wait(self, scheduler: Scheduler, call: Callable[[], None]) -> bool:
        """Have a thread make a call that is none of an actor's; False if closed.

        It waits, let in by `Scheduler.waiting`, or is one of at most `Scheduler.workers` others.
        """
        with self._lock:
            if scheduler not in self._shares:
                return False
            self._waiting.add(call, sum([one.waiting.limit + one.workers for one in self._shares]))
            return True

    def later(self, function: Callable[[], None], name: str = "collector") -> threading.Thread:
        """Call `function` soon, in a thread of its own: a finalizer may not wait for our locks."""
        thread = threading.Thread(target=function, name=f"actorgraph-{name}", daemon=True)
        thread.start()
        return thread


POOL = Pool()
"""The pool of this process."""

_nice = 0


def make_threads_nice(by: int) -> None:
    """Let the main thread go before those that are started from now on, where the system can."""
    global _nice
    if sys.platform == "linux":  # elsewhere it is a property of the process
        _nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + by)


def _after_fork_in_child() -> None:
    # The parent's threads do not exist here, and its locks may be held by them.
    POOL.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
