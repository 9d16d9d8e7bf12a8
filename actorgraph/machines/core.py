"""`Core`: what a machine shares with its workers: networks, runs, and how runs begin and end.

A machine makes its core at the first run.  A core does not know its machine, so a machine that is
dropped is collected, and its core closed.

Invariants, all under `lock`:

- A run is queued, or in flight, or ended.  It is injected into its network when it is admitted, so
  the runs of a network pass in the order of their admission.
- A run in flight ends when every result has been delivered, perhaps as poison; no worker computes
  for it any more then.
- Buffers are written in the order of the runs' numbers, never by a run that failed.
- No op is called while `lock` is held.

Callers: any thread starts and aborts runs, and closes.  The thread of ``run_sync`` works for its
run (`help`), or computes a small one itself (`run_directly`); the caller's event loop computes
`Looped` runs, and may work for others.  The thread that delivers the last result of a run calls
`finish`; the last worker that finds nothing ready calls `on_idle`.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING

from actorgraph import instrument
from actorgraph.errors import DeadlockError, GraphError, MachineClosedError, text_of
from actorgraph.lower.kernels import is_silent
from actorgraph.machines.admission import Admission
from actorgraph.machines.calls import Calls
from actorgraph.machines.capacities import Capacities
from actorgraph.machines.claim import Limits
from actorgraph.machines.looped import Looped
from actorgraph.machines.network import Networks, story
from actorgraph.machines.process import THIS
from actorgraph.machines.run import Run
from actorgraph.machines.tally import Tally
from actorgraph.scheduler import POOL, WAITING, Scheduler, inside
from actorgraph.store import take
from actorgraph.tiles import here
from actorgraph.warned import asked, reporting_context

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents


class Core:
    """Networks and runs of a machine, by the machine's options."""

    def __init__(
        self, *, workers: int, slots: int = 0, seed: int, max_in_flight: int,
        max_bytes: Limits = None, capacities: Capacities, counted: bool,
    ) -> None:  # fmt: skip
        self.lock = threading.RLock()
        self.admission = Admission(max_in_flight, max_bytes, workers)
        self.assigning: dict[int, Run] = {}
        self.numbers = count()
        self.closed = False
        self.interrupted = False
        self.pool = POOL
        self.process = THIS.id
        self.scheduler = Scheduler(
            workers, seed, self.pool, self.on_idle, self.abandon, slots, max(max_in_flight, WAITING)
        )
        self.networks = Networks(
            self.scheduler,
            max_in_flight=max_in_flight,
            capacities=capacities,
            counted=counted,
            recycling=max_bytes is None,  # no claim counts arrays that are kept for reuse
        )
        self.calls = Calls(self.lock)
        self.tally = Tally()
        self._placing: Residents | None = None

    def open(self, placing: Residents | None) -> None:
        """Count as a user of the pool's threads, and of devices; `release` ends that."""
        self.pool.retain(self.scheduler)
        if placing is not None:
            placing.retain()
            self._placing = placing

    @property
    def is_alive(self) -> bool:
        """Whether it is open, in the process that has made it."""
        return not self.closed and self.process == THIS.id

    # -- starting -----------------------------------------------------------------------------

    def start(self, run: Run, slot: int | None = None) -> None:
        """Admit a run, or queue it while too many are in flight.

        `slot` is one that the calling thread holds, and is going to work in.
        """
        if instrument.listening:
            instrument.tell("on_run_start", run)
        with self.lock:
            if self.closed:
                raise MachineClosedError("the machine was closed; make a new one")
            run.network = self.networks.of(run, self.admission.runs)
            self.admission.add(run)
            if run.plan.compiled.assignments and not run.plan.compiled.updates_parameters:
                self.assigning[run.number] = run
            self._admit(slot)
            # Its deadline has passed already: it need not wait for admission.
            stillborn = run.dead is not None and self.admission.remove(run)
        if stillborn:
            self._conclude(run)
        if slot is None:
            self.scheduler.offer()

    def _admit(self, slot: int | None = None) -> None:
        """Inject queued runs while there is room."""
        for run in self.admission.admitted(self.networks.arenas):
            self.scheduler.awaited += run.host is not None
            run.take_arrays()
            if instrument.listening:
                instrument.tell("on_run_admitted", run)
            if run.plan.result_count:
                run.expect(run.plan.result_count)
                run.network.inject(run, 0 if slot is None else slot)
            else:
                self.finish(run)  # every output is a leaf

    # -- working ------------------------------------------------------------------------------

    def help(self, run: Run, slot: int | None = None) -> None:
        """Work in the calling thread until `run` has ended or nothing is ready."""
        self.work(run, slot)
        self.tell_interrupt()

    def work(self, run: Run, slot: int | None = None, *, briefly: bool = False) -> None:
        """Work like `help`, but leave it to `tell_interrupt` to raise for Ctrl-C in an op.

        `briefly` leaves long turns to other threads if there are other runs in flight.
        """
        try:
            slot = self.scheduler.acquire() if slot is None else slot
            if slot is not None:
                alone = self.admission.is_alone if briefly else None
                # Outside of this context: runs of others must not see this caller's np.errstate.
                reporting_context().run(self.scheduler.work, slot, run, alone)
        except BaseException:
            self.give_up()
            raise

    def tell_interrupt(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C has interrupted an op in this thread."""
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def give_up(self) -> None:
        """End every run and close, after Ctrl-C has interrupted the working thread.

        An actor may be in the middle of a turn, and slots that the thread held may be lost.
        """
        held = getattr(here, "held", None)
        while held is not None and held[0] is self.scheduler:
            held = held[2]
        here.held = held
        self.abandon(GraphError("the machine was interrupted while it worked on this run"))

    def run_directly(self, run: Run) -> bool:
        """Compute a small run in the calling thread, without actors; False if refused."""
        try:
            scheduler = self.scheduler
            if (
                run.plan.compiled.waits
                or self.admission.max_bytes is not None
                or (run.plan.compiled.jit and not is_silent(asked()))
            ):
                return False  # as compiled loops report no errors; networks have other kernels
            slot = scheduler.acquire()
            if slot is None:
                return False
            entered = False
            try:
                with self.lock:
                    entered = not self.closed and self.admission.enter(run)
                if not entered:
                    return False
                run.compute()
            finally:
                scheduler.leave(slot)
                if entered:
                    self.admission.direct.pop()
                    if self.admission.queued:
                        self._admit_more()
            self._conclude(run)
            return True
        except Exception:
            raise
        except BaseException:
            self.give_up()
            raise

    def start_on_loop(self, run: Run) -> Looped | None:
        """Return a `Looped` that computes a small run with asynchronous ops; None if not allowed.

        While instruments listen, such runs go through actors, of which instruments are told.
        """
        limited = self.admission.max_bytes is not None
        fits = run.host is not None and run.plan.compiled.fits_loop
        if limited or instrument.listening or not fits:
            return None
        if run.plan.compiled.jit and not is_silent(asked()):
            return None  # as in `run_directly`
        looped = Looped(run)
        with self.lock:
            if self.closed or not self.admission.enter(run):
                return None
            self.calls.hold(looped)
            run.take_arrays()
        return looped

    def leave_loop(self, looped: Looped) -> bool:
        """End a run that the loop has computed, or has given up; return False if it has ended."""
        run = looped.run
        with self.lock:
            if not self.calls.drop(looped):
                return False
            self.admission.direct.pop()
        self._conclude(run)
        if self.admission.queued:
            self._admit_more()
        return True

    def refuse_inside_op(self, what: str) -> None:
        """Raise if the calling thread runs an op of this machine, which would wait for itself."""
        if inside(self.scheduler):
            raise GraphError(
                f"{what} was called inside an op of the same machine, which would wait for itself; "
                "use another machine, or make the value an input of the node"
            )

    # -- ending -------------------------------------------------------------------------------

    def finish(self, run: Run) -> None:
        """End a run whose results are complete; called by the thread that delivers the last."""
        if self._end_now(run) and self.admission.queued:
            self._admit_more()

    def _admit_more(self) -> None:
        """Admit queued runs after a run has left.

        It may be skipped if none are queued: a run that is queued later is admitted by `start`.
        """
        with self.lock:
            self._admit()
        self.scheduler.offer()

    def _conclude(self, run: Run) -> None:
        """Make the results of a run, commit what it assigns, and wake its waiters."""
        if not run.collected:
            run.collect()
        if run.binding.is_large:
            self.tally.note(run, 1 + self.admission.under_way)
        if self.admission.stepping is run:
            with self.lock:
                take(run.assigned)
                run.assigned, self.admission.stepping = (), None
        if self.assigning:  # has each run that assigns buffers, from its start
            self._commit()
        if run.dead is not None and isinstance(run.dead.__cause__, MemoryError):
            with self.lock:
                self.networks.give_up_memory(run.plan)
        run.complete()

    def _commit(self) -> None:
        """Write what runs assign to buffers, in the order of the runs' numbers."""
        with self.lock:
            while self.assigning:
                first = min(self.assigning)
                run = self.assigning[first]
                if not run.collected:
                    return
                del self.assigning[first]
                take(run.assigned)
                run.assigned = ()

    def abort(self, run: Run, cause: BaseException) -> None:
        """Let a run die: a queued one ends now, one in flight when its poison has arrived."""
        with self.lock:
            if run.done:
                return
            if run.dead is not None:
                if cause is not run.dead:
                    run.dead.add_note(f"later: {text_of(cause)}")
                return
            run.dead = cause
            for part in run.microbatches:
                part.run.dead = cause
            calls = self.calls.of(run)
            queued = self.admission.remove(run)
        for call in calls:
            call.give_up()
        if queued:
            self._conclude(run)

    def on_idle(self) -> None:
        """End runs that are deadlocked; the error says which tasks wait for what."""
        in_flight = self.admission.in_flight
        if not in_flight:
            return  # the usual case; starting a run from now on offers a slot to a worker
        with self.lock:
            if not in_flight or self.calls or not self.scheduler.quiet():
                return
            stalled = list(in_flight.values())
            error = DeadlockError(f"no actor can make a step: {story(stalled)}")
            self.networks.clear()
            for run in self.admission.waiting:
                run.network = self.networks.of(run, [])
        for run in stalled:
            self._end_now(run, error)
        with self.lock:
            self._admit()
        self.scheduler.offer()

    def _end_now(self, run: Run, cause: BaseException | None = None) -> bool:
        """End a run in flight without waiting for its actors; return False if it has ended."""
        with self.lock:
            if self.admission.in_flight.pop(run.number, None) is None:
                return False
            self.scheduler.awaited -= run.host is not None
            run.dead = cause if run.dead is None else run.dead
        self._conclude(run)
        return True

    def abandon(self, cause: BaseException, join: bool = True) -> None:
        """End every run at once and close; actors may be in the middle of a turn.

        `join` waits for the pool's threads if this was the last machine.
        """
        with self.lock:
            self.closed = True
            runs, queued = [*self.admission.in_flight.values()], self.admission.waiting
            self.admission.queued = []
            calls = self.calls.of()
        for call in calls:
            call.run.dead = call.run.dead or cause
            call.give_up()
        for run in queued:
            run.dead = run.dead or cause
            self._conclude(run)
        for run in runs:
            self._end_now(run, cause)
        self.networks.clear()
        self.release(join)

    def stop_admitting(self) -> list[Run]:
        """Refuse new runs, abort the others, and return those that have not ended."""
        with self.lock:
            self.closed = True
            runs = dict.fromkeys([one.run for one in self.calls.of()] + self.admission.runs)
        for run in runs:
            run.abort(MachineClosedError(f"the machine was closed during run {run.number}"))
        return [run for run in runs if not run.done]

    def close(self) -> None:
        """Close the channels and release the threads; nothing may be in flight."""
        for network in self.networks.values():
            network.close()
        self.networks.clear()
        self.release()

    def release(self, join: bool = True) -> None:
        """Release the threads of the pool and of devices."""
        self.pool.release(self.scheduler, join)
        placing, self._placing = self._placing, None
        if placing is not None:
            placing.release(join)
