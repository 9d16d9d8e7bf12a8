"""`ServedModel`: admission, batching and answers of one served graph.

A model has no task and no thread of its own.  Whoever brings a request asks for a look at the queue
at his desk, which is his event loop or thread; who looks starts what can be started, in batches of
all that has come until then.  Brief runs are computed there and then, others by workers; the worker
that has ended one starts the next.  Batches belong to nobody, so that a client who leaves takes
nobody with him.  Each desk looks after the times of its own requests.

- A request that has not left is in the queue or in one batch, and gets one answer.
- Whenever a run may start and requests wait, a look has been asked of a desk where one waits; who
  leaves passes it on.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
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
from actorgraph.machines.step import SYNC_US
from actorgraph.scheduler import POOL
from actorgraph.serving.config import Config
from actorgraph.serving.desks import Desk, Desks
from actorgraph.serving.errors import (
    DeadlineExceeded,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    as_served,
)
from actorgraph.serving.line import Line
from actorgraph.serving.request import BATCH, PROTOCOL, Answer, Request, RequestBatch
from actorgraph.serving.signature import Array, Signature
from actorgraph.serving.spans import Spans
from actorgraph.serving.statistics import NodeTimes, Statistics

_LOGGER = logging.getLogger("actorgraph")

_TURN_S = 0.001
"""How long a look computes at most before others of its loop have their turn."""

_LEAST_HELPED_US, _MOST_HELPED_US = 100.0, 20_000.0
"""What runs take that threads compute whole, one beside the other, while requests wait: to wake one
costs 60, and a cancelled run goes on to its end there."""

_GLANCE_S = 1.0
"""Seconds after which a blocked thread looks by itself: Ctrl-C just before it waits counts then."""


class _Asked(NamedTuple):
    """What a request was called with, and whether it is a later step of a stream."""

    inputs: Mapping[Any, Any]
    deadline_s: float | None
    priority: int
    request_id: str | None
    continues: bool = False


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
        self._spans: Spans | None = None
        if config.tracing != "off":
            self._spans = Spans(name, version, machine, nodes=config.tracing == "nodes")
        self.node_times: NodeTimes | None = None
        if config.metrics == "nodes":
            self.node_times = NodeTimes(machine)
            self._listening = listen(self.node_times)
        one_by_one = config.max_batch_size > 1 or config.preserve_order
        runs = 1 if one_by_one else machine.max_in_flight
        self._most_runs = config.max_concurrent_batches or runs
        self._lock = threading.Lock()
        self._numbers = count()
        self._by_actors = "nodes" in (config.metrics, config.tracing)  # whose turns are told
        self._desks = Desks(0.0 if self._by_actors else config.in_place_s * 1e6)
        self._line = Line(name, config, self._most_runs)
        self._batches, self._inflight = set[RequestBatch](), 0
        self._streams = self._helpers = 0
        self._run_us, self._core = inf, cast("Core | None", None)  # of the latest run
        self._share = 1.0  # of what is predicted
        self._stopping = False  # nothing new is taken
        self._stopped = False  # nor does what was taken go on
        self._left = False  # its ops are not waited for any more
        self._idle: list[Callable[[], object]] = []  # called once, when nothing is left

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

        Cancelling the caller takes the request out, of whatever state; its companions go on.

        Parameters
        ----------
        inputs : dict
            Arrays by name or node, the dim that is batched included.  Not copied.
        deadline_s : float, optional
            Seconds for waiting and running together, at most ``request_timeout_s``.
        priority : int
            1 is the most urgent level, 0 the model's default.
        request_id : str, optional
            Stands in a note of errors.

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
        return await self._infer(_Asked(inputs, deadline_s, priority, request_id))

    async def _infer(self, asked: _Asked) -> dict[str, Array]:
        desk = self._desks.here()
        request = self._admitted(desk, asked)
        try:
            if not desk.asked:
                desk.asked = True
                desk.soon(partial(self._look, desk))
            self._set_alarm(desk, request)
            assert request.bell is not None
            await request.bell
        finally:
            if type(request.answer) is not dict:
                self._leave(request)
        return self._told(request, asked.request_id)

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

        A step takes from the one before what `feedback` says, and begins when it is asked for: who
        reads slowly holds nothing but the arrays of one step.  Steps of several streams are joined
        into batches as requests are.  A stream that was taken goes on when the queue is full and
        while the model drains; as many as `max_inflight` are taken at once.

        Parameters
        ----------
        inputs : dict
            Those of the first step.
        max_steps : int, optional
            At most ``max_steps`` of the config.
        deadline_s : float, optional
            For all steps together, at most ``request_timeout_s``.
        priority, request_id
            As of `infer`.

        Raises
        ------
        InvalidInput, PayloadTooLarge, Overloaded, NotReady, DeadlineExceeded, NodeError
            As of `infer`, at the step that it happens to.
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
                part = await self._infer(_Asked(inputs, left_s, priority, request_id, step > 0))
                inputs = self.signature.next_inputs(inputs, part)
                yield part
                if self.signature.has_ended(part):
                    return
        finally:
            with self._lock:
                self._streams -= 1
            self._advance()

    def infer_sync(
        self,
        inputs: Mapping[Any, Any],
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        request_id: str | None = None,
    ) -> dict[str, Array]:
        """Answer a request from a plain thread, which is blocked; else as `infer`.

        Raises
        ------
        GraphError
            Called inside a running event loop; await `infer` there.
        """
        self.machine.refuse_blocking("infer_sync", "await model.infer(...)")
        if self.signature.waits:  # its ops want a loop
            ask = partial(self.infer, inputs, deadline_s=deadline_s, priority=priority)
            return anyio.run(partial(ask, request_id=request_id))
        calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        whole = self.config.in_place_s and not self._by_actors
        desk = Desk.of_thread(SYNC_US if whole else 0.0, calls)
        request = self._admitted(desk, _Asked(inputs, deadline_s, priority, request_id))
        try:
            self._look(desk)
            while request.answer is None:
                try:
                    left_s = max(0.0, request.looks_at(now := monotonic()) - now)
                    calls.get(timeout=min(left_s, _GLANCE_S))()
                except Empty:
                    self._look_at_clock(desk)
        finally:
            self._leave(request)
        return self._told(request, request_id)

    async def warm_up(self) -> None:
        """Run the example, if there is one, unless it has run; it is not counted nor bounded."""
        example, self._example = self._example, None
        for _ in range(self.config.warmup):
            if example is not None:
                await self.machine.run(self.signature.joined([example]))

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._line.requests)

    def waiting(self) -> dict[int, int]:
        """Return how many requests wait, by priority."""
        with self._lock:
            found = Counter([one.order[0] for one in self._line.requests])
        return {level: found[level] for level in range(1, self.config.priority_levels + 1)}

    @property
    def inflight(self) -> int:
        """How many requests are in runs."""
        return self._inflight

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self._stopping

    async def drain(self, grace_s: float | None = None) -> None:
        """Take no more requests, and wait for those that were taken; see `Server.drain`."""
        with self._lock:
            self._stopping = True
            now = monotonic()
            for request in self._line.requests:
                request.due = min(request.due, now)  # no company will come
        if not await self._emptied(self.config.shutdown_grace_s if grace_s is None else grace_s):
            left = self._inflight + self.queued
            _LOGGER.warning("the grace of model %r is over: %d are refused", self.name, left)
            self.stop()

    async def _emptied(self, within_s: float) -> bool:
        """Wait until nothing is left of what was taken, but not for ever."""
        event, notify = anyio.Event(), loop_notifier()
        with self._lock:
            self._idle.append(partial(notify, event.set))
        self._advance()
        with anyio.move_on_after(within_s):
            await event.wait()
        return event.is_set()

    def stop(self) -> None:
        """Take no more requests, and answer those that were taken with `NotReady`."""
        with self._lock:
            self._stopping = self._stopped = True
            ended, self._line.requests = self._line.requests, []
            for batch in self._batches:
                ended += batch.members
        why = f"model {self.name!r} was stopped before the request had ended"
        for request in ended:
            self._answer(request, NotReady(why))
        self._advance()

    async def aclose(self) -> None:
        """Stop, and close the machine if it was made for the model."""
        self.stop()
        if not self._owned:
            return
        if await self._emptied(0.0 if self._left else self.config.cancel_grace_s):
            await self.machine.aclose()
        elif not self._left:
            self._left = True
            _LOGGER.warning("model %r has ops that do not return: they are left", self.name)
            POOL.later(self.machine.close, "closing")

    def close(self) -> None:
        """End as `aclose` does, from a plain thread."""
        self.stop()
        if self._owned:
            self.machine.close()

    # -- admission ------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raise `Overloaded` where a request would not be taken now, before its body is read."""
        with self.reading():
            self._line.check_room(len(self._batches), self._inflight)

    def refused(self, error: Exception, request: Request | None = None) -> None:
        """Count a request that is not taken."""
        with self._lock:
            self.statistics.answered(error, 0.0, PROTOCOL.get(), first=True)
        if self._spans is not None and request is not None:
            self._spans.answered(request, error)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a request that proves wrong inside of the block: none waits for it."""
        try:
            yield
        except GraphError as error:
            self.refused(error)
            raise

    def _admitted(self, desk: Desk, asked: _Asked) -> Request:
        """Return a request that waits from now on, after all that it brings was checked."""
        request, continues = None, asked.continues
        try:
            if not continues:
                self._line.check_room(len(self._batches), self._inflight)
            request = self._request(desk, asked)
            if self._spans is not None:
                self._spans.came(request, asked.request_id)
            with self._lock:
                if self._stopped if continues else self._stopping:
                    raise NotReady(f"model {self.name!r} takes no more requests: it is stopping")
                shed = None
                if not continues:
                    shed = self._line.joined(request, len(self._batches), self._inflight)
                self._line.add(request)
        except GraphError as error:
            self.refused(error, request)
            _note(error, asked.request_id)
            raise
        if shed is not None:
            self._answer(shed, self._line.overload(self._inflight))
        return request

    def _request(self, desk: Desk, asked: _Asked) -> Request:
        config, (inputs, deadline_s, priority, _, continues) = self.config, asked
        limit_s, level = config.limit_s(deadline_s), config.level(priority)
        arrays, rows, kind = self.signature.read(inputs)
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
            arrays, rows, kind, (level, next(self._numbers)), now, due, now + limit_s, desk,
            desk.bell(), copy_context() if self.signature.own else None, continues,
            protocol=PROTOCOL.get(), cost=cost,
        )  # fmt: skip

    # -- time -----------------------------------------------------------------------------------

    def _set_alarm(self, desk: Desk, request: Request) -> None:
        """Have the time looked at when the request wants it, unless that is done before."""
        now = monotonic()
        at = request.looks_at(now)
        if at < desk.alarm:
            desk.alarm = at
            desk.later(max(0.0, at - now), partial(self._look_at_clock, desk, at))

    def _look_at_clock(self, desk: Desk, at: float = inf) -> None:
        """Answer the requests of a desk whose time is up, and look for a batch that is due."""
        if at < inf and desk.alarm != at:  # an earlier one was set in its place
            return
        now, desk.alarm = monotonic(), inf
        with self._lock:
            waiting = [one for one in self._line.requests if one.desk is desk]
            running = [one for batch in self._batches for one in batch.members if one.desk is desk]
        for one in waiting + running:
            if one.batch is None and now >= one.until and not self.config.drop_expired_before_run:
                one.until = inf
            elif one.answer is None and now >= one.until:
                where = "it was running" if one.batch is not None else "it was waiting for a run"
                late = DeadlineExceeded(f"the deadline is over: {where}")
                late.why = None if one.batch is not None else "expired"
                self._answer(one, late)
        if any(one.due <= now for one in waiting):
            self._look(desk)
        for one in waiting + running:
            if one.answer is None:
                self._set_alarm(desk, one)

    # -- answers --------------------------------------------------------------------------------

    def _leave(self, request: Request) -> None:
        """Forget a request whose caller goes, with an answer or without."""
        self._answer(request, RunCancelled("the request was cancelled"))
        with self._lock:
            if request.batch is None and request in self._line.requests:
                self._line.requests.remove(request)
            batch = request.batch
            running = batch in self._batches
        if running and batch is not None and batch.run is not None and batch.abandoned:
            batch.run.cancel()
        if not request.desk.loops:  # a thread that goes does not look any more
            request.desk.asked = False
        self._advance()

    def _answer(self, request: Request, answer: Answer) -> None:
        """Give a request its answer, unless it has one."""
        with self._lock:
            if request.answer is not None:
                return
            self._settle(request, answer, monotonic())
        request.desk.call(partial(request.desk.ring, request.bell))

    def _settle(self, request: Request, answer: Answer, now: float) -> None:
        request.answer, first = answer, not request.continues
        self.statistics.answered(answer, now - request.born, request.protocol, first)
        if self._spans is not None and request.span is not None:
            self._spans.answered(request, answer)

    def _told(self, request: Request, request_id: str | None) -> dict[str, Array]:
        answer = request.answer
        if isinstance(answer, dict):
            return answer
        assert answer is not None
        _note(answer, request_id)
        raise answer

    # -- batches --------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Have a desk look where a run can start; tell who waits for the end."""
        with self._lock:
            desks = (
                dict.fromkeys([one.desk for one in self._line.requests]) if self._has_room() else {}
            )
            idle: list[Callable[[], object]] = []
            if self._idle and not self._is_busy():
                idle, self._idle = self._idle, []
        for desk in desks:
            if desk.asked:
                break
            desk.asked = True
            if desk.call(partial(self._look, desk)):
                break
        for tell in idle:
            tell()

    def _is_busy(self) -> bool:
        return bool(self._batches or self._line.requests or (self._streams and not self._stopped))

    def _has_room(self) -> bool:
        runs = len(self._batches)
        return runs < self._most_runs and self._inflight < self.config.max_inflight

    def _look(self, desk: Desk | None) -> None:
        """Start what can be started: at a desk, or without one in a worker that has ended a run."""
        if desk is not None:
            desk.asked = False
        if self._is_helped():
            return
        until = 0.0
        while (batch := self._next_batch()) is not None:
            until = until or batch.formed + _TURN_S
            self._start(batch, desk, 0.0 if desk is None else desk.in_place_us)
            if batch.run is not None and batch.run.done and monotonic() > until:
                self._advance()
                return
            if self._is_helped():
                return

    def _is_helped(self) -> bool:
        """Return whether threads compute what waits, and call more of them where they are too few.

        Actors give a run all workers; where many runs wait, each is faster on a thread of its own.
        """
        if not _LEAST_HELPED_US < self._run_us < _MOST_HELPED_US or self._most_runs == 1:
            return False
        with self._lock:
            waiting = len(self._line.requests)
            if not waiting or not self._has_room() or waiting + self._helpers == 1:
                return False
            more = min(waiting, self.machine.workers - self._helpers)
            self._helpers += more
        core, called = self._core, 0
        assert core is not None
        while called < more and core.pool.wait(core.scheduler, self._help):
            called += 1
        with self._lock:
            self._helpers -= more - called  # the machine was closed: starting tells
        return called == more

    def _help(self) -> None:
        """Compute what waits, in a thread of its own."""
        while (batch := self._next_batch(helping=True)) is not None:
            self._start(batch, None, _MOST_HELPED_US)

    def _next_batch(self, *, helping: bool = False) -> RequestBatch | None:
        with self._lock:
            found = self._taken_batch() if self._line.requests and self._has_room() else None
            # Who comes from now on finds one helper fewer, and calls another.
            self._helpers -= helping and found is None
            return found

    def _taken_batch(self) -> RequestBatch | None:
        now = monotonic()
        members, reason = self._line.taken(self._inflight, now)
        if not members:
            return None
        batch = RequestBatch(members, now)
        for request in members:
            request.batch = batch
        self._batches.add(batch)
        self._inflight += len(members)
        waits = [(one.order[0], now - one.born) for one in members]
        self.statistics.formed(batch.rows, reason, waits)
        return batch

    def _start(self, batch: RequestBatch, desk: Desk | None, in_place_us: float) -> None:
        first = batch.members[0]
        start = partial(
            start_or_compute, self.machine, priority=batch.priority, most_us=in_place_us,
            share=self._share, host=(first.desk if desk is None else desk).host,
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
            self._end(batch, desk, error)
            if not isinstance(error, Exception):
                raise
            return
        batch.run, self._core = run, run.core
        if not self._by_actors:
            self._run_us = direct_us(self.machine, run, self._share)
        self._share = share_of(run, self._share)
        if run.done:
            self._ended(batch, desk)
            return
        if batch.abandoned:  # before there was a run to cancel
            run.cancel()
        batch.starter = threading.get_ident()
        run.add_done_callback(partial(self._ended_elsewhere, batch))
        batch.starter = None

    def _ended_elsewhere(self, batch: RequestBatch) -> None:
        """Take the results of a run and start the next; called in the thread that has ended it."""
        nested = batch.starter == threading.get_ident()  # in `_start`, which goes on with the next
        self._ended(batch, None)
        if nested:
            return
        if self.signature.waits:  # its ops want a loop
            self._advance()
        else:
            self._look(None)

    def _ended(self, batch: RequestBatch, desk: Desk | None) -> None:
        """Take the results of a run."""
        run, ended = batch.run, monotonic()
        assert run is not None
        requests = [one.arrays for one in batch.members]
        try:
            values = {name: run[node].value for name, node in self.signature.outputs.items()}
            answers = self.signature.split(values, requests)
        except BaseException as error:  # noqa: BLE001 - it is raised where the requests wait
            self._end(batch, desk, error)
        else:
            began, ran_s = batch.started, ended - batch.started
            with self._lock:
                self._line.run_s = ran_s
                self.statistics.ran(batch.rows, began - batch.formed, ran_s, monotonic() - ended)
            self._end(batch, desk, None, answers)

    def _end(
        self,
        batch: RequestBatch,
        desk: Desk | None,
        error: BaseException | None,
        answers: Sequence[Answer] = (),
    ) -> None:
        """Answer the requests of a batch, at a desk or without; if it failed, each runs alone."""
        members, told = batch.members, dict[Desk, list[Any]]()
        if self._spans is not None and batch.span is not None:
            self._spans.ended(batch, error)
        with self._lock:
            self._batches.discard(batch)
            batch.members = []  # no cycles: a collection holds the loop for tens of milliseconds
            self._inflight -= len(members)
            if error is not None and len(members) > 1:
                for request in members:
                    if request.answer is None:
                        request.batch, request.kind = None, object()  # joins nobody
                        request.due = batch.formed
                        self._line.add(request)
                answers = ()
            elif error is not None:
                answers = (as_served(error),)
            now = monotonic()
            for request, answer in zip(members, answers):
                if request.answer is None:
                    self._settle(request, answer, now)
                    told.setdefault(request.desk, []).append(request.bell)
            idle = self._idle and not self._is_busy()
        for other, bells in told.items():
            if other is desk:
                _ring_all(other, bells)
            else:
                other.call(partial(_ring_all, other, bells))
        if idle:
            self._advance()

    def __repr__(self) -> str:
        state = f"{self.queued} waiting, {self.inflight} running"
        return f"<ServedModel {self.name} {self.version}: {state}>"


def _ring_all(desk: Desk, bells: Sequence[Any]) -> None:
    for bell in bells:
        desk.ring(bell)


def _note(error: BaseException, request_id: str | None) -> None:
    if request_id is not None:
        error.add_note(f"request {request_id}")
