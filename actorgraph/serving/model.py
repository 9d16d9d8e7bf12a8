"""`ServedModel`: admission, batching and answers of one served graph.

A model has no task and no thread of its own.  A new request schedules a *dispatch* in its caller's
loop (`CallerLoop`).  A dispatch takes batches from the queue and starts their runs.  Short runs are
computed in the dispatching thread, others by workers; the worker that ends a run starts the next
batch.  A batch belongs to none of its requests, so cancelling one leaves its companions alone.
Each caller loop keeps the timers of its own requests.

- A request that was not cancelled is in the queue or in exactly one batch, and gets one answer.
- Whenever a run may start and requests wait, a dispatch is pending in the loop of one of them; a
  request that leaves passes it on.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from itertools import count
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, cast, final

import anyio

from actorgraph.errors import GraphError, RunCancelled
from actorgraph.instrument import listen
from actorgraph.machines import Machine
from actorgraph.machines.brief import direct_us, share_of, start_or_compute
from actorgraph.machines.core import Core
from actorgraph.machines.event_loops import loop_notifier
from actorgraph.machines.life import SYNC_US
from actorgraph.scheduler import POOL
from actorgraph.serving.caller_loops import CallerLoop, CallerLoops
from actorgraph.serving.config import Config
from actorgraph.serving.errors import (
    DeadlineExceeded,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    as_served,
)
from actorgraph.serving.request import BATCH, PROTOCOL, Answer, Request, RequestBatch
from actorgraph.serving.request_queue import RequestQueue
from actorgraph.serving.signature import Array, Signature
from actorgraph.serving.spans import Spans
from actorgraph.serving.statistics import NodeTimes, Statistics

_LOGGER = logging.getLogger("actorgraph")

_TURN_S = 0.001
"""How long a dispatch computes before it yields to other callbacks of its event loop."""

_MIN_HELPED_US, _MAX_HELPED_US = 100.0, 20_000.0
"""Runs of this length are computed whole by helper threads, side by side, while requests wait.
Waking a thread costs 60 us, and a cancelled run goes on to its end there."""

_POLL_S = 1.0
"""How often a blocked thread wakes: Ctrl-C that came just before it blocked is handled then."""


class _InferCall(NamedTuple):
    """The arguments of a call of `infer`."""

    inputs: Mapping[Any, Any]
    deadline_s: float | None
    priority: int
    request_id: str | None
    continues: bool = False  # a later step of a stream


@final
class ServedModel:
    """One version of a served model; `Server.add` makes it.

    Attributes
    ----------
    name, version : str
    config : Config
    signature : Signature
    machine : Machine
    statistics : Statistics
    counts : Counter

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", ("rows", 2))
    >>> machine, server = ag.TapeMachine([x * 2]), ag.serving.Server()
    >>> model = server.add("twice", machine)
    >>> model.name, model.config.max_batch_size
    ('twice', 1)
    """

    def __init__(
        self,
        name: str,
        version: str,
        machine: Machine,
        signature: Signature,
        config: Config,
        example: Mapping[Any, Any] | None = None,
        *,
        owned: bool = False,
    ) -> None:
        self.name, self.version, self.config = name, version, config
        self.signature, self.machine, self._owned = signature, machine, owned
        self._example = None if example is None else signature.arrays(example)
        self.statistics = Statistics(config.max_batch_size)
        self.counts = self.statistics.counts
        traced, nodes = config.tracing != "off", config.tracing == "nodes"
        self._spans = Spans(name, version, machine, nodes=nodes) if traced else None
        self.node_times: NodeTimes | None = None
        if config.metrics == "nodes":
            self.node_times = NodeTimes(machine)
            self._listening = listen(self.node_times)
        one_by_one = config.max_batch_size > 1 or config.preserve_order
        runs = 1 if one_by_one else machine.max_in_flight
        self._max_runs = config.max_concurrent_batches or runs
        self._lock = threading.Lock()
        self._numbers = count()
        # Turns of actors can be observed only if workers compute the runs.
        self._observes_nodes = "nodes" in (config.metrics, config.tracing)
        self._loops = CallerLoops(0.0 if self._observes_nodes else config.in_place_s * 1e6)
        self._queue = RequestQueue(name, config, self._max_runs)
        self._batches, self._inflight = set[RequestBatch](), 0
        self._streams = self._helpers = 0
        self._run_us, self._core = inf, cast("Core | None", None)  # of the latest run
        self._share = 1.0  # measured by predicted time of runs
        self._stopping = False  # no new request is admitted
        self._stopped = False  # admitted requests were refused too
        self._close_deferred = False  # the machine is closed once its ops return
        self._on_idle: list[Callable[[], object]] = []  # called once, when no request is left

    # -- for users ------------------------------------------------------------------------------

    async def infer(
        self,
        inputs: Mapping[Any, Any],
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        request_id: str | None = None,
    ) -> dict[str, Array]:
        """Answer a request; works in asyncio and trio.

        Cancelling the caller withdraws the request, whatever its state; others of its batch go on.

        Parameters
        ----------
        inputs : dict
            Arrays by name or node, including the batch dim.  Not copied.
        deadline_s : float, optional
            Seconds for waiting and running together, at most ``request_timeout_s``.
        priority : int
            1 is the most urgent level, 0 the model's default.
        request_id : str, optional
            Added to errors as a note.

        Returns
        -------
        dict
            Arrays by the names of outputs, the caller's own.

        Raises
        ------
        InvalidInput, PayloadTooLarge, Overloaded, NotReady, DeadlineExceeded
            See `actorgraph.serving.errors`.
        NodeError
            An op failed on this request.
        """
        return await self._infer(_InferCall(inputs, deadline_s, priority, request_id))

    async def _infer(self, call: _InferCall) -> dict[str, Array]:
        loop = self._loops.current()
        request = self._admitted(loop, call)
        try:
            if not loop.dispatch_pending:
                loop.dispatch_pending = True
                loop.call_soon(partial(self._dispatch, loop))
            self._set_timer(loop, request)
            assert request.waiter is not None
            await request.waiter
        finally:
            if type(request.answer) is not dict:
                self._leave(request)
        return self._result_of(request, call.request_id)

    async def stream(
        self,
        inputs: Mapping[Any, Any],
        *,
        max_steps: int | None = None,
        deadline_s: float | None = None,
        priority: int = 0,
        request_id: str | None = None,
    ) -> AsyncGenerator[dict[str, Array]]:
        """Yield the answer of each step; a model without `feedback` has one step.

        `feedback` says which outputs become inputs of the next step.  A step starts when the reader
        asks for it, so a slow reader holds only the arrays of one step.  Steps of several streams
        are batched as requests are.  A stream once admitted goes on when the queue is full and
        while the model drains; at most `max_inflight` streams are open at once.

        Parameters
        ----------
        inputs : dict
            Inputs of the first step.
        max_steps : int, optional
            At most ``max_steps`` of the config.
        deadline_s : float, optional
            Seconds for all steps together, at most ``request_timeout_s``.
        priority, request_id
            As of `infer`.

        Raises
        ------
        InvalidInput, PayloadTooLarge, Overloaded, NotReady, DeadlineExceeded, NodeError
            As of `infer`, at the step concerned.
        """
        steps = self.config.steps(max_steps) if self.signature.feedback else 1
        until = monotonic() + self.config.limit_s(deadline_s)
        with self.reading(), self._lock:
            if self._streams >= self.config.max_inflight:
                raise Overloaded(
                    f"model {self.name!r} has {self._streams} streams open, which is all it takes "
                    "(max_inflight); ask again later"
                )
            self._streams += 1
        try:
            for step in range(steps):
                left_s = max(0.0, until - monotonic())
                part = await self._infer(_InferCall(inputs, left_s, priority, request_id, step > 0))
                inputs = self.signature.next_inputs(inputs, part)
                yield part
                if self.signature.has_ended(part):
                    return
        finally:
            with self._lock:
                self._streams -= 1
            self._request_dispatch()

    def infer_sync(
        self,
        inputs: Mapping[Any, Any],
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        request_id: str | None = None,
    ) -> dict[str, Array]:
        """Answer a request from a plain thread, which blocks; otherwise like `infer`.

        Raises
        ------
        GraphError
            Called inside a running event loop; await `infer` there.
        """
        self.machine.refuse_blocking("infer_sync", "await model.infer(...)")
        call = _InferCall(inputs, deadline_s, priority, request_id)
        if self.signature.waits:  # its ops need an event loop
            return anyio.run(self._infer, call)
        calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        in_place = self.config.in_place_s and not self._observes_nodes
        loop = CallerLoop.of_thread(SYNC_US if in_place else 0.0, calls)
        request = self._admitted(loop, call)
        try:
            self._dispatch(loop)
            while request.answer is None:
                try:
                    left_s = max(0.0, request.next_event(now := monotonic()) - now)
                    calls.get(timeout=min(left_s, _POLL_S))()
                except Empty:
                    self._check_times(loop)
        finally:
            self._leave(request)
        return self._result_of(request, request_id)

    async def warm_up(self) -> None:
        """Run the example, if there is one and it has not run; counts and bounds ignore it."""
        example, self._example = self._example, None
        if example is not None:
            for _ in range(self.config.warmup):
                await self.machine.run(self.signature.joined([example]))

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue.requests)

    def waiting(self) -> dict[int, int]:
        """Return how many requests wait, by priority."""
        with self._lock:
            counts = Counter([request.order[0] for request in self._queue.requests])
        return {level: counts[level] for level in range(1, self.config.priority_levels + 1)}

    @property
    def inflight(self) -> int:
        """How many requests are in runs."""
        return self._inflight

    @property
    def ready(self) -> bool:
        """Whether requests are admitted."""
        return not self._stopping

    async def drain(self, grace_s: float | None = None) -> None:
        """Admit no more requests, and wait for those admitted; see `Server.drain`."""
        with self._lock:
            self._stopping = True
            now = monotonic()
            for request in self._queue.requests:
                request.due = min(request.due, now)  # nothing will join them
        grace_s = self.config.shutdown_grace_s if grace_s is None else grace_s
        if not await self._wait_until_idle(grace_s):
            left = self._inflight + self.queued
            _LOGGER.warning("the grace of model %r is over: %d are refused", self.name, left)
            self.stop()

    async def _wait_until_idle(self, within_s: float) -> bool:
        """Wait until no admitted request is left; False if that takes longer."""
        event, notify = anyio.Event(), loop_notifier()
        with self._lock:
            self._on_idle.append(partial(notify, event.set))
        self._request_dispatch()
        with anyio.move_on_after(within_s):
            await event.wait()
        return event.is_set()

    def stop(self) -> None:
        """Admit no more requests, and answer those admitted with `NotReady`."""
        with self._lock:
            self._stopping = self._stopped = True
            refused, self._queue.requests = self._queue.requests, []
            for batch in self._batches:
                refused += batch.members
        why = f"model {self.name!r} was stopped before the request had ended"
        for request in refused:
            self._answer(request, NotReady(why))
        self._request_dispatch()

    async def aclose(self) -> None:
        """Stop, and close the machine if the model owns it."""
        self.stop()
        if not self._owned:
            return
        if await self._wait_until_idle(0.0 if self._close_deferred else self.config.cancel_grace_s):
            await self.machine.aclose()
        elif not self._close_deferred:
            self._close_deferred = True
            _LOGGER.warning("model %r has ops that do not return: they are left", self.name)
            POOL.later(self.machine.close, "closing")

    def close(self) -> None:
        """Stop and close as `aclose` does, from a plain thread."""
        self.stop()
        if self._owned:
            self.machine.close()

    # -- admission ------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raise `Overloaded` if a request would be refused now, before its body is read."""
        with self.reading():
            self._queue.check_room(len(self._batches), self._inflight)

    def refused(self, error: Exception, request: Request | None = None) -> None:
        """Count a request that was refused."""
        with self._lock:
            self.statistics.answered(error, 0.0, PROTOCOL.get(), first=True)
        if self._spans is not None and request is not None:
            self._spans.answered(request, error)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a request whose reading, in the block, raises an error."""
        try:
            yield
        except GraphError as error:
            self.refused(error)
            raise

    def _admitted(self, loop: CallerLoop, call: _InferCall) -> Request:
        """Check a request, put it into the queue and return it."""
        request, continues = None, call.continues
        try:
            if not continues:
                self._queue.check_room(len(self._batches), self._inflight)
            request = self._request(loop, call)
            if self._spans is not None:
                self._spans.arrived(request, call.request_id)
            with self._lock:
                if self._stopped if continues else self._stopping:
                    raise NotReady(f"model {self.name!r} takes no more requests: it is stopping")
                shed = None
                if not continues:
                    shed = self._queue.make_room(request, len(self._batches), self._inflight)
                self._queue.add(request)
        except GraphError as error:
            self.refused(error, request)
            _add_request_id(error, call.request_id)
            raise
        if shed is not None:
            self._answer(shed, self._queue.overload(self._inflight))
        return request

    def _request(self, loop: CallerLoop, call: _InferCall) -> Request:
        config, (inputs, deadline_s, priority, _, continues) = self.config, call
        limit_s, level = config.limit_s(deadline_s), config.level(priority)
        arrays, rows, key = self.signature.read(inputs)
        size = sum([array.nbytes for array in arrays.values()])
        if size > config.max_request_bytes:
            raise PayloadTooLarge(
                f"the inputs have {size:,} bytes, more than the {config.max_request_bytes:,} that "
                f"model {self.name!r} takes (max_request_bytes)"
            )
        cost = rows if config.cost_fn is None else config.cost_fn(inputs)
        now = monotonic()
        due = now + min(config.batch_wait_s, limit_s / 2) if config.batch_wait_s else now
        return Request(
            arrays, rows, key, (level, next(self._numbers)), now, due, now + limit_s, loop,
            loop.waiter(), copy_context() if self.signature.has_user_ops else None, continues,
            protocol=PROTOCOL.get(), cost=cost,
        )  # fmt: skip

    # -- time -----------------------------------------------------------------------------------

    def _set_timer(self, loop: CallerLoop, request: Request) -> None:
        """Have the loop check the time at the request's next event, unless it does so earlier."""
        now = monotonic()
        at = request.next_event(now)
        if at < loop.timer_at:
            loop.timer_at = at
            loop.call_later(max(0.0, at - now), partial(self._check_times, loop, at))

    def _check_times(self, loop: CallerLoop, at: float = inf) -> None:
        """Answer the late requests of a loop, and dispatch if a batch is due."""
        if at < inf and loop.timer_at != at:  # an earlier timer replaced this one
            return
        now, loop.timer_at = monotonic(), inf
        with self._lock:
            waiting = [one for one in self._queue.requests if one.loop is loop]
            running = [one for batch in self._batches for one in batch.members if one.loop is loop]
        for one in waiting + running:
            if one.answer is not None or now < one.deadline:
                continue
            if one.batch is not None:
                self._answer(one, DeadlineExceeded("the deadline is over: it was running"))
            elif self.config.drop_expired_before_run:
                late = DeadlineExceeded("the deadline is over: it was waiting for a run")
                late.why = "expired"
                self._answer(one, late)
            else:
                one.deadline = inf
        if any(one.due <= now for one in waiting):
            self._dispatch(loop)
        for one in waiting + running:
            if one.answer is None:
                self._set_timer(loop, one)

    # -- answers --------------------------------------------------------------------------------

    def _leave(self, request: Request) -> None:
        """Forget a request whose caller returns, with an answer or without."""
        self._answer(request, RunCancelled("the request was cancelled"))
        with self._lock:
            if request.batch is None and request in self._queue.requests:
                self._queue.requests.remove(request)
            batch = request.batch
            running = batch in self._batches
        if running and batch is not None and batch.run is not None and batch.abandoned:
            batch.run.cancel()
        if not request.loop.is_event_loop:  # its thread makes no more calls
            request.loop.dispatch_pending = False
        self._request_dispatch()

    def _answer(self, request: Request, answer: Answer) -> None:
        """Give a request its answer, unless it has one, and wake its caller."""
        with self._lock:
            if request.answer is not None:
                return
            self._settle(request, answer, monotonic())
        request.loop.call(partial(request.loop.wake, request.waiter))

    def _settle(self, request: Request, answer: Answer, now: float) -> None:
        request.answer, first = answer, not request.continues
        self.statistics.answered(answer, now - request.arrived, request.protocol, first)
        if self._spans is not None and request.span is not None:
            self._spans.answered(request, answer)

    def _result_of(self, request: Request, request_id: str | None) -> dict[str, Array]:
        answer = request.answer
        if isinstance(answer, dict):
            return answer
        assert answer is not None
        _add_request_id(answer, request_id)
        raise answer

    # -- batches --------------------------------------------------------------------------------

    def _request_dispatch(self) -> None:
        """Schedule a dispatch if a run may start; if nothing is left, make the `_on_idle` calls."""
        with self._lock:
            waiting = self._queue.requests if self._has_room() else []
            loops = dict.fromkeys([request.loop for request in waiting])
            callbacks: list[Callable[[], object]] = []
            if self._on_idle and not self._is_busy():
                callbacks, self._on_idle = self._on_idle, []
        for loop in loops:
            if loop.dispatch_pending:
                break
            loop.dispatch_pending = True
            if loop.call(partial(self._dispatch, loop)):
                break
        for callback in callbacks:
            callback()

    def _is_busy(self) -> bool:
        return bool(self._batches or self._queue.requests or (self._streams and not self._stopped))

    def _has_room(self) -> bool:
        runs = len(self._batches)
        return runs < self._max_runs and self._inflight < self.config.max_inflight

    def _dispatch(self, loop: CallerLoop | None) -> None:
        """Start the runs that may start: in a caller's loop, or (None) in a worker."""
        if loop is not None:
            loop.dispatch_pending = False
        until = 0.0
        while not self._call_helpers() and (batch := self._next_batch()) is not None:
            until = until or batch.formed + _TURN_S
            self._start(batch, loop, 0.0 if loop is None else loop.in_place_us)
            if batch.run is not None and batch.run.done and monotonic() > until:
                self._request_dispatch()
                return

    def _call_helpers(self) -> bool:
        """Wake helper threads for the requests that wait; False if the caller has to start runs.

        Actors give a run all workers; when many runs wait, one thread for each run is faster.
        """
        if not _MIN_HELPED_US < self._run_us < _MAX_HELPED_US or self._max_runs == 1:
            return False
        with self._lock:
            waiting = len(self._queue.requests)
            if not waiting or not self._has_room() or waiting + self._helpers == 1:
                return False
            more = min(waiting, self.machine.workers - self._helpers)
            self._helpers += more
        core, called = self._core, 0
        assert core is not None
        while called < more and core.pool.wait(core.scheduler, self._help):
            called += 1
        with self._lock:
            self._helpers -= more - called  # the machine was closed: starting a run reports it
        return called == more

    def _help(self) -> None:
        """Compute batches, in a helper thread, until none is left."""
        while (batch := self._next_batch(helping=True)) is not None:
            self._start(batch, None, _MAX_HELPED_US)

    def _next_batch(self, *, helping: bool = False) -> RequestBatch | None:
        """Take a batch out of the queue; a helper that gets none ends."""
        members: list[Request] = []
        with self._lock:
            if self._queue.requests and self._has_room():
                now = monotonic()
                members, reason = self._queue.take_batch(self._inflight, now)
            if not members:
                # Under the same lock, so that a request from now on wakes another helper.
                self._helpers -= helping
                return None
            batch = RequestBatch(members, now)
            for request in members:
                request.batch = batch
            self._batches.add(batch)
            self._inflight += len(members)
            waits = [(request.order[0], now - request.arrived) for request in members]
            self.statistics.formed(batch.rows, reason, waits)
            return batch

    def _start(self, batch: RequestBatch, loop: CallerLoop | None, in_place_us: float) -> None:
        first = batch.members[0]
        start = partial(
            start_or_compute, self.machine, priority=batch.priority, most_us=in_place_us,
            share=self._share, host=(first.loop if loop is None else loop).host,
        )  # fmt: skip
        try:
            feeds = self.signature.joined([one.arrays for one in batch.members])
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
        if not self._observes_nodes:
            self._run_us = direct_us(self.machine, run, self._share)
        self._share = share_of(run, self._share)
        if run.done:
            self._collect(batch, loop)
            return
        if batch.abandoned:  # before there was a run to cancel
            run.cancel()
        batch.starter = threading.get_ident()
        run.add_done_callback(partial(self._on_run_done, batch))
        batch.starter = None

    def _on_run_done(self, batch: RequestBatch) -> None:
        """Answer the requests of a run and start the next; called in the thread that ended it."""
        nested = batch.starter == threading.get_ident()  # inside `_start`: its caller goes on
        self._collect(batch, None)
        if self.signature.waits and not nested:  # its ops need an event loop
            self._request_dispatch()
        elif not nested:
            self._dispatch(None)

    def _collect(self, batch: RequestBatch, loop: CallerLoop | None) -> None:
        """Split the results of a run among its requests, and answer them."""
        run, ended = batch.run, monotonic()
        assert run is not None
        requests = [request.arrays for request in batch.members]
        try:
            values = {name: run[node].value for name, node in self.signature.outputs.items()}
            answers = self.signature.split(values, requests)
        except BaseException as error:  # noqa: BLE001 - raised where the requests wait
            self._finish(batch, loop, error)
        else:
            began, ran_s = batch.started, ended - batch.started
            with self._lock:
                self._queue.run_s = ran_s
                self.statistics.ran(batch.rows, began - batch.formed, ran_s, monotonic() - ended)
            self._finish(batch, loop, None, answers)

    def _finish(
        self,
        batch: RequestBatch,
        loop: CallerLoop | None,
        error: BaseException | None,
        answers: Sequence[Answer] = (),
    ) -> None:
        """Answer the requests of a batch; if it failed, queue each of them to run alone.

        `loop` is the one in which this is called, if any.
        """
        answered: defaultdict[CallerLoop, list[Any]] = defaultdict(list)
        members = batch.members
        if self._spans is not None and batch.span is not None:
            self._spans.ended(batch, error)
        with self._lock:
            self._batches.discard(batch)
            batch.members = []  # breaks cycles: a collection stops the loop for tens of ms
            self._inflight -= len(members)
            if error is not None and len(members) > 1:
                for request in members:
                    if request.answer is None:
                        request.batch, request.batch_key = None, object()  # equals no other
                        request.due = batch.formed
                        self._queue.add(request)
                answers = ()
            elif error is not None:
                answers = (as_served(error),)
            now = monotonic()
            for request, answer in zip(members, answers):
                if request.answer is None:
                    self._settle(request, answer, now)
                    answered[request.loop].append(request.waiter)
            idle = self._on_idle and not self._is_busy()
        for other, waiters in answered.items():
            if other is loop:
                _wake_all(other, waiters)
            else:
                other.call(partial(_wake_all, other, waiters))
        if idle:
            self._request_dispatch()

    def __repr__(self) -> str:
        counts = f"{self.queued} waiting, {self.inflight} running"
        return f"<ServedModel {self.name} {self.version}: {counts}>"


def _wake_all(loop: CallerLoop, waiters: Sequence[Any]) -> None:
    for waiter in waiters:
        loop.wake(waiter)


def _add_request_id(error: BaseException, request_id: str | None) -> None:
    if request_id is not None:
        error.add_note(f"request {request_id}")
