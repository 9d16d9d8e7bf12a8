"""`Lifetime`: how a machine starts at its first run, starts runs, and ends."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Iterable, Mapping
from contextvars import copy_context
from functools import partial
from math import inf
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, NoReturn, Self

import anyio

from actorgraph.errors import GraphError, GraphTypeError, MachineClosedError
from actorgraph.keywords import Answering
from actorgraph.lower.kernels import is_silent
from actorgraph.machines.capacities import Capacities
from actorgraph.machines.claim import Limits, checked_limits
from actorgraph.machines.core import Core
from actorgraph.machines.event_loops import in_event_loop, in_trio, loop_notifier, refuse_in_loop
from actorgraph.machines.looped import Looped
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan
from actorgraph.machines.process import THIS
from actorgraph.machines.run import Run
from actorgraph.machines.stream import Stream
from actorgraph.machines.tuner import Tuner
from actorgraph.options import positive, seconds, whole
from actorgraph.tiles import here
from actorgraph.warned import DEFAULT, ERRORS, asked, reporting_context

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents

INLINE_US = 50.0
"""Runs predicted to take less run in the calling thread: waking another thread costs as much."""

SYNC_US = 3000.0
"""Runs of one sequence predicted to take less are computed by the thread that waits for them.

It would work for them anyway.  Longer sequences go through actors, as several programs: a single
one would take half a second to compile.
"""

_LOOK_S = 0.0002
"""Interval of polling for the end of direct runs, which are short and notify nobody."""

_DEFAULT_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


class Lifetime(Answering, ABC):
    """The life of a machine: it owns the `Core`, and makes it by the machine's options."""

    _one_task = False
    """Whether every plan is one task, so that a second worker would have nothing to do."""

    _calls_back = False
    """Whether runs call a function of the user that is no op: see `LispMachine`."""

    _batches: Any = None
    """Makes plans and runs of microbatches, if anything: see `pipeline.batches`."""

    def __init__(
        self, *, workers: int, seed: int, max_in_flight: int, max_bytes: Limits,
        capacities: Capacities, statistics: bool,
    ) -> None:  # fmt: skip
        self.workers = positive("workers", workers)
        self.seed = whole("seed", seed)
        self.max_in_flight = positive("max_in_flight", max_in_flight)
        self.max_bytes = checked_limits(max_bytes)
        self._capacities, self._statistics, self._closed = capacities, statistics, False
        self._plans: dict[Any, Plan] = {}
        self._tuners: dict[Any, Tuner] = {}
        self._placing: Residents | None = None
        self._core: Core | None = None
        self._finalizer: Any = None

    def _started(self) -> Core:
        """Return the core; make one at the first run, after a fork and after an interrupt."""
        with THIS.starting:
            core = self._core
            if core is not None and core.is_alive:
                return core
            if self._closed:
                raise MachineClosedError("the machine was closed; make a new one")
            core = Core(
                workers=1 if self._one_task else self.workers,
                slots=self.workers,
                seed=self.seed,
                max_in_flight=self.max_in_flight,
                max_bytes=self.max_bytes,
                capacities=self._capacities,
                counted=self._statistics,
            )
            try:
                core.open(self._placing)
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(self, _collect, core)
                self._finalizer.atexit = False  # an open machine never delays the process's exit
                self._core = core
            except BaseException:  # Ctrl-C
                self._core = None
                core.release(join=False)
                raise
            return core

    def _stop(self) -> Core | None:
        """Refuse new runs; return the core if there is one to end."""
        with THIS.starting:
            core = self._core
            if core is not None and not core.is_alive:
                core = None
            if core is not None:
                core.refuse_inside_op("close")
            self._closed, self._core = True, None
        return core

    def _state(self) -> str:
        return "closed" if self._closed else "open" if self._core is not None else "not started"

    # -- runs ---------------------------------------------------------------------------------

    @abstractmethod
    def start(self, *args: Any, **kwargs: Any) -> Run:
        """Start a run and return it at once."""

    def stream(
        self, source: Iterable[Any] | AsyncIterable[Any], *, max_in_flight: int | None = None,
        ordered: bool = True, **options: Any,
    ) -> Stream:  # fmt: skip
        """Run the graph for each item of `source`, pipelined; iterate with ``for``, ``async for``.

        Parameters
        ----------
        source : iterable or async iterable of feeds
        max_in_flight : int, optional
            Runs that are started and not yet returned; default that of the machine.
        ordered : bool
            False returns runs as they finish.
        **options
            Arguments of `start` for each run.

        Returns
        -------
        Stream
            Its ``for`` blocks the thread until a run has ended, its ``async for`` only the task.
            Dropping it cancels its runs; ``async with`` closes an asynchronous source too.

        Raises
        ------
        FeedError
            `source` is one dict of feeds, or cannot be iterated.  If an item does not fit, that is
            raised in its turn, with a note of its place in the source; so are errors of the source,
            and those of `run`.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", ("n",), "float64")
        >>> y = x.sum()
        >>> with ag.ActorMachine([y]) as machine:
        ...     [float(run[y].value) for run in machine.stream({"x": np.ones(n)} for n in (1, 2))]
        [1.0, 2.0]
        """
        limit = self.max_in_flight if max_in_flight is None else max_in_flight
        return Stream(partial(self.start, **options), source, limit, ordered)

    def _launch(
        self, run: Run, timeout_s: float | None, slot: int | None = None, *, looped: bool = False
    ) -> Looped | None:
        """Start a run; the calling thread is going to work in `slot`, if it holds one.

        `looped` says that the run is small, with asynchronous ops.  If it may be computed on the
        event loop, it is not started: the caller awaits, or begins, the `Looped` returned.
        """
        core: Core = run.core
        run.machine = self  # a machine that is dropped ends after its runs
        run.context = reporting_context(copy_context()) if run.plan.compiled.has_user_ops else None
        try:
            if self._placing is not None:
                _check_thread(self._placing)
            if timeout_s is not None:
                given_s = seconds("timeout_s", timeout_s)
                # Its error names `given_s`, also if it expires right now.
                run.deadline = inf, given_s
                run.deadline = core.pool.deadlines.add(run, given_s), given_s
                if timeout_s == 0:
                    run.expire()
            on_loop = core.start_on_loop(run) if looped else None
            if on_loop is None:
                run.errors = current_errors()
                core.start(run, slot)
            return on_loop
        except Exception:
            if slot is not None:
                core.scheduler.leave(slot)
            raise
        except BaseException:
            core.give_up()  # Ctrl-C: the run may be injected in part
            raise

    def _begin(self, run: Run, timeout_s: float | None = None, *, in_loop: bool) -> Run:
        """Start a run and return it; a small one may be computed in a task of the running loop."""
        compiled = run.plan.compiled
        if compiled.needs_loop and not in_loop:
            raise GraphError(
                "this graph has asynchronous ops, which run on the caller's event loop: "
                "call start() inside one, or use run_sync()"
            )
        looped = in_loop and compiled.waits and self._small(run)
        on_loop = self._launch(run, timeout_s, looped=looped)
        if on_loop is not None:
            on_loop.begin()
        return run

    @abstractmethod
    def _small(self, run: Run, sequential_us: float = INLINE_US) -> bool:
        """Return whether the calling thread may compute the run at once, without actors."""

    async def _run_soon(self, run: Run, timeout_s: float | None = None) -> Run:
        """Run to the end while the calling task waits; a small run is computed at once."""
        small, core, compiled = self._small(run), run.core, run.plan.compiled
        looped = small and compiled.waits
        fits = looped and compiled.fits_loop
        if small and timeout_s is None and not fits and core.run_directly(run):
            return await run
        run.host = loop_notifier()
        if fits:
            return await self._run_awaited(run, timeout_s, looped=True)
        if timeout_s is None and self._is_brief(run):
            if compiled.waits:
                run.on_loop = loop_notifier(at_once=True)
            self._start_and_work(run, briefly=True)
            core.tell_interrupt()
            try:
                return await run
            finally:
                core.tell_interrupt()
        return await self._run_awaited(run, timeout_s, looped=looped)

    def _is_brief(self, run: Run) -> bool:
        """Return whether the thread of an event loop may work on the run's actors itself.

        They take less time than waking a worker, and the loop again.
        """
        core, compiled = run.core, run.plan.compiled
        idle = core.scheduler.is_idle() if compiled.waits else not core.admission.in_flight
        return (
            run.binding.predicted_us < INLINE_US
            and compiled.fits_loop_thread
            and idle
            and not core.admission.queued
            and self._batches is None
            and not self._calls_back
        )

    async def _run_awaited(self, run: Run, timeout_s: float | None, *, looped: bool) -> Run:
        """Run to the end while the calling task waits."""
        on_loop = self._launch(run, timeout_s, looped=looped)
        if on_loop is not None and in_trio():
            on_loop.begin()  # a task of its own: Ctrl-C interrupts the caller's task, not the op
        elif on_loop is not None:
            await on_loop
            if on_loop.suspended:
                run._raise_if_failed()
                return run
        return await run

    def _run_here(self, run: Run, timeout_s: float | None) -> Run:
        """Run to the end; the calling thread works as one of the workers."""
        core: Core = run.core
        alone = not core.admission.in_flight
        started = perf_counter()
        self._start_and_work(run, timeout_s)
        try:
            core.tell_interrupt()
            run._wait()
        except BaseException:
            run.cancel()
            run._wait()
            raise
        run._raise_if_failed()
        if alone and not core.admission.in_flight:
            tuner = self._tuners.get(run.plan.compiled.mode.key)
            if tuner is not None:
                tuner.note(run.plan, perf_counter() - started)
        return run

    def _start_and_work(
        self, run: Run, timeout_s: float | None = None, *, briefly: bool = False
    ) -> None:
        """Start a run; work in the calling thread until it has ended, or nothing is ready.

        `briefly` as in `Core.work`.  Ctrl-C meanwhile gives the core up, for a slot may be lost.
        """
        core: Core = run.core
        try:
            slot = core.scheduler.acquire()
            self._launch(run, timeout_s, slot)
            if slot is not None:
                core.work(run, slot, briefly=briefly)
        except Exception:
            raise
        except BaseException:
            core.give_up()
            raise

    def _run_on_own_loop(self, run: Run, timeout_s: float | None, *, looped: bool = False) -> Run:
        """Run to the end on an event loop of its own, which asynchronous ops need."""
        if in_event_loop():
            raise GraphError("this graph has asynchronous ops: await machine.run(...)")

        async def awaited() -> Run:
            run.host = loop_notifier()
            return await self._run_awaited(run, timeout_s, looped=looped)

        return anyio.run(awaited)

    def refuse_blocking(self, what: str, instead: str) -> None:
        """Raise if the caller is in an event loop, or in an op of this machine."""
        refuse_in_loop(what, instead)
        core = self._core
        if core is not None and getattr(here, "held", None) is not None:
            core.refuse_inside_op(what)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise GraphTypeError(
            f"{self!r} cannot be copied or pickled: make another one of the same outputs"
        )

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """End the machine: runs in flight fail with `MachineClosedError`; closing twice is allowed.

        Blocks until the operations that are running end.
        """
        core = self._stop()
        if core is None:
            return
        for run in core.stop_admitting():
            core.help(run)
            run._wait()
        while core.admission.direct:
            sleep(_LOOK_S)
        core.close()

    async def aclose(self) -> None:
        """End the machine like `close`, without blocking the event loop."""
        core = self._stop()
        if core is None:
            return
        with anyio.CancelScope(shield=True):
            for run in core.stop_admitting():
                core.scheduler.offer()
                await run._ended()
            while core.admission.direct:  # noqa: ASYNC110 - they notify nobody
                await anyio.sleep(_LOOK_S)
        core.close()

    def _networks(self) -> list[Network]:
        return [] if self._core is None else list(self._core.networks.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def current_errors() -> Mapping[str, Any] | None:
    """Return the caller's `np.errstate` as keywords, None for NumPy's default."""
    if ERRORS.get() is DEFAULT:
        return None  # no errstate was ever set here
    errors = asked()
    return None if errors == _DEFAULT_ERRORS else errors


def _check_thread(placing: Residents) -> None:
    """Raise `GraphError` if devices cannot run what the calling thread asks for.

    A lane would wait for itself, or a device cannot observe the caller's `np.errstate`.
    """
    lane = getattr(here, "lane", None)
    if lane is not None and lane.device in placing.used:
        raise GraphError(
            f"a machine was run inside an op on {lane.name}, and that machine is on "
            f"{lane.device.name} too, which would wait for itself; place the node of the op on "
            "'cpu', or make the inner machine on another device"
        )
    without_errors = [device.name for device in placing.used if device.xp.__name__ != "numpy"]
    errors = asked()
    if without_errors and not is_silent(errors):
        raise GraphError(
            f"np.errstate({errors}) cannot hold on {without_errors[0]}, which reports no "
            "floating-point errors: run outside of it, and make the machine with "
            "watch=('nan', 'inf') to find them"
        )


def _collect(core: Core) -> None:
    """Close the core of a machine that was dropped, outside of the garbage collector's call."""
    if core.is_alive:
        error = MachineClosedError("the machine was dropped while the run was in flight")
        core.pool.later(partial(core.abandon, error, join=False))
