"""`ServedModel`: admission, batching and answers of one served graph.

A model has no task and no thread of its own.  What may change when a request comes, ends or has
waited long enough is looked at there and then: batches are formed under a lock, started where one
of their requests waits (on its event loop, or in its thread), and belong to nobody, so that a
client who leaves takes nobody with him.  Each request looks after its own times.

- A request that has not left is in the queue or in one batch, and gets one answer.
- Whenever a run may start and requests wait, a look has been asked of one who waits; who leaves
  passes it on.
"""

from __future__ import annotations

import logging
import threading
from bisect import insort
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count
from operator import attrgetter
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, final

import anyio

from actorgraph.errors import (
    FeedError,
    MachineClosedError,
    NodeError,
    RunCancelled,
    shown,
)
from actorgraph.machines import Machine
from actorgraph.machines.event_loops import loop_notifier
from actorgraph.options import positive, seconds, whole
from actorgraph.serving.config import Config
from actorgraph.serving.errors import (
    DeadlineExceeded,
    InvalidInput,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    ServingError,
)
from actorgraph.serving.request import Answer, Request, RequestBatch, chosen
from actorgraph.serving.signature import Array, Signature
from actorgraph.serving.spans import Spans
from actorgraph.serving.statistics import Statistics

__all__ = ["ServedModel"]

_ORDER = attrgetter("order")


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
        ``statistics.counts``.

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
        *,
        owned: bool = False,
    ) -> None:
        self.name, self.version, self.config = name, version, config
        self.signature = signature
        self.machine = machine
        self._owned = owned
        self.statistics = Statistics()
        self.counts = self.statistics.counts
        self._spans: Spans | None = None
        if config.tracing != "off":
            self._spans = Spans(name, version, machine, nodes=config.tracing == "nodes")
        self._warm = False
        runs = 1 if config.max_batch_size > 1 else machine.max_in_flight
        self._most_runs = config.max_concurrent_batches or runs
        self._lock = threading.Lock()
        self._numbers = count()
        self._again: list[Request] = []  # whose batch has failed
        self._queue: list[Request] = []
        self._batches: set[RequestBatch] = set()
        self._inflight = self._streams = 0
        self._stopping = False  # nothing new is taken
        self._stopped = False  # nor does what was taken go on
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
        return await self._infer(inputs, deadline_s, priority, request_id)

    async def _infer(
        self,
        inputs: Mapping[Any, Any],
        deadline_s: float | None,
        priority: int,
        request_id: str | None,
        continues: bool = False,
    ) -> dict[str, Array]:
        event = anyio.Event()
        request = self._request(inputs, deadline_s, priority, loop_notifier(), event.set)
        request.continues = continues
        if self._spans is not None:
            self._spans.came(request, request_id)
        try:
            self._admit(request)
            while request.answer is None:
                with anyio.move_on_after(request.left_s()):
                    await event.wait()
                self._look_after(request)
        finally:
            self._leave(request)
        return self._told(request, request_id)

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
        steps, until = self._steps(max_steps), monotonic() + self._limit_s(deadline_s)
        with self._lock:
            if self._streams >= self.config.max_inflight:
                raise Overloaded(
                    f"model {self.name!r} has {self._streams} streams open, which is all it takes "
                    "(max_inflight); ask again later"
                )
            self._streams += 1
        try:
            for step in range(steps):
                left_s = max(0.0, until - monotonic())
                part = await self._infer(inputs, left_s, priority, request_id, step > 0)
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
            return anyio.run(
                partial(
                    self.infer, inputs, deadline_s=deadline_s, priority=priority,
                    request_id=request_id,
                )
            )  # fmt: skip
        calls: SimpleQueue[Callable[[], object]] = SimpleQueue()

        def host(function: Callable[[], object]) -> bool:
            calls.put(function)
            return True

        request = self._request(inputs, deadline_s, priority, host, _nothing)
        if self._spans is not None:
            self._spans.came(request, request_id)
        try:
            self._admit(request)
            while request.answer is None:
                try:
                    calls.get(timeout=min(request.left_s(), threading.TIMEOUT_MAX))()
                except Empty:
                    pass
                self._look_after(request)
        finally:
            self._leave(request)
        return self._told(request, request_id)

    async def warm_up(self, example: Mapping[Any, Any]) -> None:
        """Run an example, which is neither counted nor bounded, unless one has run already.

        Raises
        ------
        InvalidInput, NodeError
            It does not fit, or does not run.
        """
        runs, self._warm = 0 if self._warm else self.config.warmup, True
        for _ in range(runs):
            await self.machine.run(self.signature.joined([self.signature.arrays(example)]))

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue) + len(self._again)

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
        event, notify = anyio.Event(), loop_notifier()
        with self._lock:
            self._stopping = True
            self._idle.append(partial(notify, event.set))
            now = monotonic()
            for request in self._queue:
                request.due = min(request.due, now)  # no company will come
        self._advance()
        with anyio.move_on_after(self.config.shutdown_grace_s if grace_s is None else grace_s):
            await event.wait()
            return
        logging.getLogger("actorgraph").warning(
            "the grace of model %r is over: %d requests are refused",
            self.name, self._inflight + self.queued,
        )  # fmt: skip
        self.stop()
        await event.wait()

    def stop(self) -> None:
        """Take no more requests, and answer those that were taken with `NotReady`."""
        with self._lock:
            self._stopping = self._stopped = True
            ended = [*self._again, *self._queue]
            for batch in self._batches:
                ended += batch.members
            self._again, self._queue = [], []
        why = f"model {self.name!r} was stopped before the request had ended"
        for request in ended:
            self._answer(request, NotReady(why))
        self._advance()

    async def aclose(self) -> None:
        """Stop, and close the machine if it was made for the model."""
        self.stop()
        if self._owned:
            await self.machine.aclose()

    def close(self) -> None:
        """End as `aclose` does, from a plain thread."""
        self.stop()
        if self._owned:
            self.machine.close()

    # -- admission ------------------------------------------------------------------------------

    def _request(
        self,
        inputs: Mapping[Any, Any],
        deadline_s: float | None,
        priority: int,
        host: Callable[[Callable[[], object]], object],
        wake: Callable[[], object],
    ) -> Request:
        """Check everything that a request brings, and make it."""
        config = self.config
        limit_s = self._limit_s(deadline_s)
        try:
            level = whole("priority", priority) or config.default_priority
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        if not 1 <= level <= config.priority_levels:
            raise InvalidInput(
                f"priority is {shown(priority)}, but model {self.name!r} has the levels 1 to "
                f"{config.priority_levels}, and 0 for its default"
            )
        arrays = self.signature.arrays(inputs)
        size = sum(array.nbytes for array in arrays.values())
        if size > config.max_request_bytes:
            raise PayloadTooLarge(
                f"the inputs have {size:,} bytes, more than the {config.max_request_bytes:,} that "
                f"model {self.name!r} takes (max_request_bytes)"
            )
        now = monotonic()
        return Request(
            arrays, self.signature.rows(arrays), self.signature.kind(arrays),
            order=(level, next(self._numbers)), born=now,
            due=now + min(config.batch_wait_s, limit_s / 2), until=now + limit_s, host=host,
            wake=wake,
        )  # fmt: skip

    def _limit_s(self, deadline_s: float | None) -> float:
        limit_s = self.config.request_timeout_s
        if deadline_s is None:
            return limit_s
        try:
            return min(limit_s, seconds("deadline_s", deadline_s))
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    def _steps(self, max_steps: int | None) -> int:
        if not self.signature.feedback:
            return 1
        if max_steps is None:
            return self.config.max_steps
        try:
            return min(self.config.max_steps, positive("max_steps", max_steps))
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    def _admit(self, request: Request) -> None:
        """Take the request, start what can be started, and refuse one too many."""
        with self._lock:
            stopping = self._stopped if request.continues else self._stopping
            if not stopping:
                insort(self._queue, request, key=_ORDER)
        if stopping:
            why = f"model {self.name!r} takes no more requests: it is stopping"
            self._answer(request, NotReady(why))
            return
        self._dispatch()
        if self.config.overflow == "wait" or request.continues:
            return
        with self._lock:
            if request not in self._queue or len(self._queue) <= self.config.max_queued:
                return
            shed = request
            if self.config.overflow == "shed_oldest":
                new = [one for one in self._queue if not one.continues]
                shed = next(one for one in new if one.order[0] == new[-1].order[0])
            self._queue.remove(shed)
        self._answer(
            shed,
            Overloaded(
                f"model {self.name!r} has {self.config.max_queued} requests waiting and "
                f"{self._inflight} running, which is all it takes (max_queued); ask again later"
            ),
        )

    def _look_after(self, request: Request) -> None:
        """Do what the time asks for, in the place where the request waits."""
        if request.answer is not None:
            return
        now = monotonic()
        if now >= request.until:
            at = "it was running" if request.batch is not None else "it was waiting for a run"
            self._answer(request, DeadlineExceeded(f"the deadline is over: {at}"))
        elif request.batch is None and now >= request.due:
            self._dispatch()

    def _leave(self, request: Request) -> None:
        """Forget a request whose caller goes, with an answer or without."""
        self._answer(request, RunCancelled("the request was cancelled"))
        with self._lock:
            for line in (self._queue, self._again):
                if request in line:
                    line.remove(request)
            batch = request.batch
            running = batch in self._batches
        if running and batch is not None and batch.run is not None and batch.abandoned:
            batch.run.cancel()
        self._advance()

    def _answer(self, request: Request, answer: Answer) -> None:
        """Give a request its answer, unless it has one."""
        with self._lock:
            if request.answer is not None:
                return
            request.answer = answer
            self.statistics.answered(_outcome(answer), monotonic() - request.born)
        if self._spans is not None and request.span is not None:
            self._spans.answered(request, answer)
        request.host(request.wake)

    def _told(self, request: Request, request_id: str | None) -> dict[str, Array]:
        answer = request.answer
        if isinstance(answer, dict):
            return answer
        assert answer is not None
        if request_id is not None:
            answer.add_note(f"request {request_id}")
        raise answer

    # -- batches --------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Have somebody who waits look whether a run can start; tell who waits for the end."""
        with self._lock:
            waiting = [*self._again, *self._queue] if self._has_room() else []
            idle: list[Callable[[], object]] = []
            streams = self._streams and not self._stopped
            if not (self._batches or self._queue or self._again or streams):
                idle, self._idle = self._idle, []
        for request in waiting:
            if request.host(self._dispatch):
                break
        for tell in idle:
            tell()

    def _has_room(self) -> bool:
        runs = len(self._batches)
        return runs < self._most_runs and self._inflight < self.config.max_inflight

    def _dispatch(self) -> None:
        """Start what can be started; called where one of the requests waits."""
        while (batch := self._next_batch()) is not None:
            self._start(batch)

    def _next_batch(self) -> RequestBatch | None:
        with self._lock:
            if not self._has_room():
                return None
            now = monotonic()
            # Who is late is told so by himself, and must not cost a run.
            members = [one for one in self._again if one.until > now][:1]
            if not members:
                queue = [one for one in self._queue if one.until > now]
                members = chosen(queue, self.config.max_batch_size, now)
                members = members[: self.config.max_inflight - self._inflight]
            if not members:
                return None
            for line in (self._again, self._queue):
                line[:] = [one for one in line if one not in members]
            batch = RequestBatch(members, now)
            for request in members:
                request.batch = batch
            self._batches.add(batch)
            self._inflight += len(members)
            self.statistics.formed(batch.rows, [now - one.born for one in members])
            return batch

    def _start(self, batch: RequestBatch) -> None:
        try:
            feeds = self.signature.joined([one.arrays for one in batch.members])
            batch.started = monotonic()
            with nullcontext() if self._spans is None else self._spans.running(batch):
                run = self.machine.start(feeds, priority=batch.priority)
        except BaseException as error:
            self._end(batch, error)
            if not isinstance(error, Exception):
                raise
            return
        batch.run = run
        if batch.abandoned:  # before there was a run to cancel
            run.cancel()
        run.add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: RequestBatch) -> None:
        """Take the results of a run; called in the thread that has ended it."""
        run, ended = batch.run, monotonic()
        assert run is not None
        requests = [one.arrays for one in batch.members]
        try:
            values = {name: run[node].value for name, node in self.signature.outputs.items()}
            answers = self.signature.split(values, requests)
        except BaseException as error:  # noqa: BLE001 - it is raised where the requests wait
            self._end(batch, error)
        else:
            with self._lock:
                self.statistics.ran(
                    batch.rows, batch.started - batch.formed, ended - batch.started,
                    monotonic() - ended,
                )  # fmt: skip
            self._end(batch, None, answers)

    def _end(
        self, batch: RequestBatch, error: BaseException | None, answers: Sequence[Answer] = ()
    ) -> None:
        """Answer the requests of a batch; after a failure, run each by itself."""
        if self._spans is not None and batch.span is not None:
            self._spans.ended(batch, error)
        with self._lock:
            self._batches.discard(batch)
            self._inflight -= len(batch.members)
            again: list[Request] = []
            if error is not None and len(batch.members) > 1:
                again = [one for one in batch.members if one.answer is None]
            for request in again:
                request.batch = None
            self._again += again
        if error is None:
            for request, answer in zip(batch.members, answers, strict=True):
                self._answer(request, answer)
        elif len(batch.members) == 1:
            self._answer(batch.members[0], _served(error))
        self._advance()

    def __repr__(self) -> str:
        state = f"{self.queued} waiting, {self.inflight} running"
        return f"<ServedModel {self.name} {self.version}: {state}>"


def _nothing() -> None:
    return None


def _served(error: BaseException) -> BaseException:
    """Return what a client is told: an inner model's answer as what it is."""
    if isinstance(error, MachineClosedError):
        return NotReady(f"the model's machine was closed: {error}")
    if isinstance(error, FeedError):
        return InvalidInput(str(error))
    cause: BaseException | None = error
    while isinstance(cause, NodeError):
        cause = cause.__cause__
    return cause if isinstance(cause, ServingError) else error


def _outcome(answer: Answer) -> str:
    if isinstance(answer, dict):
        return "ok"
    if isinstance(answer, (Overloaded, NotReady)):
        return "rejected"
    if isinstance(answer, DeadlineExceeded):
        return "deadline"
    return "cancelled" if isinstance(answer, RunCancelled) else "error"
