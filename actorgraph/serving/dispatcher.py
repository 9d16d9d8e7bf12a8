"""`Dispatcher`: takes batches from a model's queue, starts their runs and answers their requests.

It has no task and no thread of its own.  A new request schedules a *dispatch* in its caller's loop
(`CallerLoop`).  A dispatch takes batches from the queue and starts their runs.  Short runs are
computed in the dispatching thread, others by workers; the worker that ends a run starts the next
batch.  A batch belongs to none of its requests, so cancelling one leaves its companions alone.
Each caller loop keeps the timers of its own requests.

- A request that was not cancelled is in the queue or in a batch, and gets one answer.
- Whenever a run may start and requests wait, a dispatch is pending in the loop of one of them; a
  request that leaves passes it on.
- An error of the dispatcher itself, or of telemetry that it calls, is the answer of every request
  that waits.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from threading import get_ident
from time import monotonic
from typing import Any, cast, final

from actorgraph.errors import RunCancelled, text_of
from actorgraph.machines import Machine
from actorgraph.machines.brief import direct_us, share_of, start_or_compute
from actorgraph.machines.core import Core
from actorgraph.serving.caller_loops import CallerLoop
from actorgraph.serving.config import Config
from actorgraph.serving.errors import (
    DeadlineExceeded,
    NotReady,
    ServingError,
    as_served,
)
from actorgraph.serving.request import BATCH, Answer, Request, RequestBatch
from actorgraph.serving.request_queue import RequestQueue
from actorgraph.serving.signature import Signature
from actorgraph.serving.spans import Spans
from actorgraph.serving.statistics import Statistics

_LOGGER = logging.getLogger("actorgraph")

_TURN_S = 0.001
"""How long a dispatch computes before it yields to other callbacks of its event loop."""

_MIN_HELPED_US, _MAX_HELPED_US = 300.0, 20_000.0
"""Runs of this length are computed whole by helper threads, side by side, while requests wait.
Waking a thread and sharing the interpreter with it costs a loop that serves HTTP 250 us a request,
and a cancelled run goes on to its end there."""


@final
class Dispatcher:
    """The queue, the batches and the answers of a model; they change under `lock`."""

    def __init__(
        self, name: str, machine: Machine, signature: Signature, config: Config, spans: Spans | None
    ) -> None:
        self._name, self._machine, self._signature, self._config = name, machine, signature, config
        self.statistics, self._spans = Statistics(config.max_batch_size), spans
        one_by_one = config.max_batch_size > 1 or config.preserve_order
        runs = 1 if one_by_one else machine.max_in_flight
        self._max_runs = config.max_concurrent_batches or runs
        self.lock = threading.Lock()
        self.queue = RequestQueue(name, config, self._max_runs)
        self.batches = set[RequestBatch]()
        self.inflight = 0  # requests in these
        self.streams = 0  # open ones, each of which may send more requests
        self.stopping = False  # no new request is admitted
        self.stopped = False  # admitted requests were refused too
        self._helpers = 0
        # Turns of actors can be observed only if workers compute the runs.
        self.observes_nodes = "nodes" in (config.metrics, config.tracing)
        self._run_us, self._core = inf, cast("Core | None", None)  # of the latest run
        self._share = 1.0  # measured by predicted time of runs
        self._on_idle: list[Callable[[], object]] = []

    # -- admission ------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request; `NotReady` or `Overloaded` if it is refused."""
        shed = None
        with self.lock:
            if self.stopped if request.continues else self.stopping:
                raise NotReady(f"model {self._name!r} takes no more requests: it is stopping")
            if not request.continues:
                shed = self.queue.make_room(request, len(self.batches), self.inflight)
            self.queue.add(request)
        if shed is not None:
            self.answer(shed, self.queue.overload(self.inflight))

    def begin_draining(self) -> None:
        """Admit no new request; those that wait for others to join them need not."""
        with self.lock:
            self.stopping = True
            now = monotonic()
            for request in self.queue.requests:
                request.due = min(request.due, now)

    def stop(self) -> None:
        """Admit no request; all get `NotReady`, and runs are cancelled as their callers leave."""
        with self.lock:
            self.stopping = self.stopped = True
            refused, self.queue.requests = self.queue.requests, []
            for batch in self.batches:
                refused += batch.members
        for request in refused:
            why = f"model {self._name!r} was stopped before the request had ended"
            self.answer(request, NotReady(why))
        self.request_dispatch()

    # -- when to dispatch -----------------------------------------------------------------------

    def request_dispatch(self) -> None:
        """Schedule a dispatch if a run may start; if nothing is left, make the `_on_idle` calls."""
        with self.lock:
            waiting = self.queue.requests if self._has_room() else []
            loops = dict.fromkeys([request.loop for request in waiting])
            callbacks: list[Callable[[], object]] = []
            if self._on_idle and not self._is_busy():
                callbacks, self._on_idle = self._on_idle, []
        for loop in loops:
            if loop.dispatch_pending:
                break
            loop.dispatch_pending = True
            if loop.call(partial(self.dispatch, loop)):
                break
        for callback in callbacks:
            callback()

    def call_when_idle(self, callback: Callable[[], object]) -> None:
        """Call a function once, in any thread, when no admitted request is left."""
        with self.lock:
            self._on_idle.append(callback)
        self.request_dispatch()

    def _is_busy(self) -> bool:
        return bool(self.batches or self.queue.requests or (self.streams and not self.stopped))

    def _has_room(self) -> bool:
        runs = len(self.batches)
        return runs < self._max_runs and self.inflight < self._config.max_inflight

    def set_timer(self, loop: CallerLoop, request: Request) -> None:
        """Have the loop check the time at the request's next event, unless it does so earlier."""
        now = monotonic()
        at = request.next_event(now)
        if at < loop.timer_at:
            loop.timer_at = at
            loop.call_later(max(0.0, at - now), partial(self.check_times, loop, at))

    def check_times(self, loop: CallerLoop, at: float = inf) -> None:
        """Answer the late requests of a loop, and dispatch if a batch is due."""
        if at < inf and loop.timer_at != at:  # an earlier timer replaced this one
            return
        try:
            self._check_deadlines(loop)
        except BaseException as error:  # noqa: BLE001 - its requests hear of it
            self._fail(error)

    def _check_deadlines(self, loop: CallerLoop) -> None:
        now, loop.timer_at = monotonic(), inf
        with self.lock:
            waiting = [one for one in self.queue.requests if one.loop is loop]
            running = [one for batch in self.batches for one in batch.members if one.loop is loop]
        try:
            for request in waiting + running:
                if request.answer is None and now >= request.deadline:
                    self._end_late(request)
            if any(one.due <= now for one in waiting):
                self.dispatch(loop)
        finally:
            for request in waiting + running:
                if request.answer is None:
                    self.set_timer(loop, request)

    def _end_late(self, request: Request) -> None:
        """Answer a request whose deadline is over, unless it may be late."""
        if request.batch is not None:
            self.answer(request, DeadlineExceeded("the deadline is over: it was running"))
        elif self._config.drop_expired_before_run:
            late = DeadlineExceeded("the deadline is over: it was waiting for a run")
            late.why = "expired"
            self.answer(request, late)
        else:
            request.deadline = inf

    # -- starting runs --------------------------------------------------------------------------

    def dispatch(self, loop: CallerLoop | None) -> None:
        """Start the runs that may start: in a caller's loop, or (None) in a worker."""
        if loop is not None:
            loop.dispatch_pending = False
        batch, until = None, 0.0
        try:
            while not self._call_helpers() and (batch := self._next_batch()) is not None:
                until = until or batch.formed + _TURN_S
                self._start(batch, loop, 0.0 if loop is None else loop.in_place_us)
                run, batch = batch.run, None
                if run is not None and run.done and monotonic() > until:
                    self.request_dispatch()
                    return
        except BaseException as error:  # noqa: BLE001 - its requests hear of it
            self._fail(error, batch)

    def _call_helpers(self) -> bool:
        """Wake helper threads for the requests that wait; False if the caller has to start runs.

        Actors give a run all workers; when many runs wait, one thread for each run is faster.
        """
        if not _MIN_HELPED_US < self._run_us < _MAX_HELPED_US or self._max_runs == 1:
            return False
        with self.lock:
            waiting = len(self.queue.requests)
            if not waiting or not self._has_room() or waiting + self._helpers == 1:
                return False
            more = min(waiting, self._machine.workers - self._helpers)
            self._helpers += more
        core, called = self._core, 0
        assert core is not None
        try:
            while called < more and core.pool.wait(core.scheduler, self._help):
                called += 1
        finally:
            with self.lock:
                self._helpers -= more - called  # the machine was closed: starting a run reports it
        return called == more

    def _help(self) -> None:
        """Compute batches, in a helper thread, until none is left."""
        batch = None
        try:
            while (batch := self._next_batch(helping=True)) is not None:
                self._start(batch, None, _MAX_HELPED_US)
                batch = None
        except BaseException as error:  # noqa: BLE001 - its requests hear of it
            with self.lock:
                self._helpers -= 1
            self._fail(error, batch)

    def _next_batch(self, *, helping: bool = False) -> RequestBatch | None:
        """Take a batch out of the queue; a helper that gets none ends."""
        members: list[Request] = []
        with self.lock:
            if self.queue.requests and self._has_room():
                now = monotonic()
                members, reason = self.queue.due_batch(self.inflight, now)
            if not members:
                # Under the same lock, so that a request from now on wakes another helper.
                self._helpers -= helping
                return None
            batch = RequestBatch(members, now, starter=get_ident())
            self.batches.add(batch)
            self.inflight += len(members)
            self.queue.remove(members)
            for request in members:
                request.batch = batch
            waits = [(request.order[0], now - request.arrived) for request in members]
            self.statistics.formed(batch.rows, reason, waits)
            return batch

    def _start(self, batch: RequestBatch, loop: CallerLoop | None, in_place_us: float) -> None:
        first = batch.members[0]
        start = partial(
            start_or_compute, self._machine, priority=batch.priority, most_us=in_place_us,
            share=self._share, host=(first.loop if loop is None else loop).host,
        )  # fmt: skip
        try:
            feeds = self._signature.joined([request.arrays for request in batch.members])
            batch.started = monotonic()
            if self._spans is not None:
                start = partial(self._spans.started, batch, start)
            if first.context is not None:
                first.context.run(BATCH.set, batch)
                start = partial(first.context.run, start)
            run = start(feeds)
        except BaseException as error:
            self._finish(batch, loop, error)
            if not isinstance(error, Exception):
                raise
            return
        batch.run, self._core = run, run.core
        if not self.observes_nodes:
            self._run_us = direct_us(self._machine, run, self._share)
        self._share = share_of(run, self._share)
        if run.done:
            self._collect(batch, loop)
            return
        if batch.abandoned:  # before there was a run to cancel
            run.cancel()
        run.add_done_callback(partial(self._on_run_done, batch))
        batch.starter = None

    # -- answers --------------------------------------------------------------------------------

    def _on_run_done(self, batch: RequestBatch) -> None:
        """Answer the requests of a run and start the next; called in the thread that ended it."""
        nested = batch.starter == get_ident()  # inside `_start`: its caller goes on
        try:
            self._collect(batch, None)
        except BaseException as error:  # noqa: BLE001 - its requests hear of it
            self._fail(error, batch)
        if self._signature.waits and not nested:  # its ops need an event loop
            self.request_dispatch()
        elif not nested:
            self.dispatch(None)

    def _collect(self, batch: RequestBatch, loop: CallerLoop | None) -> None:
        """Split the results of a run among its requests, and answer them."""
        run, ended = batch.run, monotonic()
        assert run is not None
        requests = [request.arrays for request in batch.members]
        try:
            values = {name: run[node].value for name, node in self._signature.outputs.items()}
            answers = self._signature.split(values, requests)
        except BaseException as error:  # noqa: BLE001 - raised where the requests wait
            self._finish(batch, loop, error)
        else:
            began, ran_s = batch.started, ended - batch.started
            with self.lock:
                self.queue.run_s = ran_s
                self.statistics.ran(batch.rows, began - batch.formed, ran_s, monotonic() - ended)
            self._finish(batch, loop, None, answers)

    def _finish(
        self, batch: RequestBatch, loop: CallerLoop | None, error: BaseException | None,
        answers: Sequence[Answer] = (),
    ) -> None:  # fmt: skip
        """Answer the requests of a batch; if it failed, queue each of them to run alone.

        `loop` is the one in which this is called, if any.
        """
        answered: defaultdict[CallerLoop, list[Any]] = defaultdict(list)
        members = batch.members
        if self._spans is not None and batch.span is not None:
            self._spans.ended(batch, error)
        with self.lock:
            if error is not None and len(members) > 1:
                for request in members:
                    if request.answer is None:
                        request.batch, request.batch_key = None, object()  # equals no other
                        request.due = batch.formed
                        self.queue.add(request)
                answers = ()
            elif error is not None:
                answers = (as_served(error),)
            now = monotonic()
            for request, answer in zip(members, answers):
                if request.answer is None:
                    self._settle(request, answer, now)
                    answered[request.loop].append(request.waiter)
            self._forget(batch)
            idle = self._on_idle and not self._is_busy()
        for other, waiters in answered.items():
            if other is loop:
                _wake_all(other, waiters)
            else:
                other.call(partial(_wake_all, other, waiters))
        if idle:
            self.request_dispatch()

    def _forget(self, batch: RequestBatch) -> None:
        self.batches.discard(batch)
        self.inflight -= len(batch.members)
        batch.members = []  # breaks cycles: a collection stops the loop for tens of ms

    def _fail(self, error: BaseException, failed_batch: RequestBatch | None = None) -> None:
        """Answer the requests that wait, and those of a batch, with an error.

        Batches that this thread has taken from the queue, and not begun to start, fail too.  Later
        requests are tried anew.  Ctrl-C and the like are raised again.
        """
        _LOGGER.error("model %r could not start or end a run", self._name, exc_info=error)
        thread = get_ident()
        with self.lock:
            failed, self.queue.requests = self.queue.requests, []
            for batch in self.batches.copy():
                if batch is failed_batch or (batch.starter == thread and not batch.started):
                    failed += batch.members
                    self._forget(batch)
        for request in failed:
            answer = ServingError(f"model {self._name!r} could not answer: {text_of(error)}")
            answer.__cause__ = error
            with suppress(Exception):  # answering may be what has raised `error`
                self.answer(request, answer)
            request.loop.call(partial(request.loop.wake, request.waiter))
        self.request_dispatch()
        if not isinstance(error, Exception):
            raise error

    def answer(self, request: Request, answer: Answer) -> None:
        """Give a request its answer, unless it has one, and wake its caller."""
        with self.lock:
            if request.answer is not None:
                return
            try:
                self._settle(request, answer, monotonic())
            finally:
                request.loop.call(partial(request.loop.wake, request.waiter))

    def _settle(self, request: Request, answer: Answer, now: float) -> None:
        """Set an answer.  Telemetry that raises is logged, and keeps nobody waiting."""
        request.answer, first = answer, not request.continues
        try:
            self.statistics.answered(answer, now - request.arrived, request.protocol, first)
            if self._spans is not None and request.span is not None:
                self._spans.answered(request, answer)
        except Exception:
            _LOGGER.exception("model %r could not count an answer", self._name)

    def leave(self, request: Request) -> None:
        """Forget a request whose caller returns, with an answer or without."""
        if request.answer is None:
            self.answer(request, RunCancelled("the request was cancelled"))
        with self.lock:
            if request.batch is None and request in self.queue.requests:
                self.queue.requests.remove(request)
            batch = request.batch
            running = batch in self.batches
        if running and batch is not None and batch.run is not None and batch.abandoned:
            batch.run.cancel()
        if not request.loop.is_event_loop:  # its thread makes no more calls
            request.loop.dispatch_pending = False
        self.request_dispatch()


def _wake_all(loop: CallerLoop, waiters: Sequence[Any]) -> None:
    for waiter in waiters:
        loop.wake(waiter)
