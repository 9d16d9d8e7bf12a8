"""`ServedModel`: what callers use of a served graph, and which requests it admits.

It checks each request and puts it into the queue of its `Dispatcher`, which answers it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, final

import anyio

from actorgraph.errors import GraphError
from actorgraph.instrument import listen
from actorgraph.machines import Machine
from actorgraph.machines.event_loops import loop_notifier
from actorgraph.machines.life import SYNC_US
from actorgraph.scheduler import POOL
from actorgraph.serving.caller_loops import CallerLoop, CallerLoops
from actorgraph.serving.config import Config
from actorgraph.serving.dispatcher import Dispatcher
from actorgraph.serving.errors import Overloaded, PayloadTooLarge
from actorgraph.serving.request import PROTOCOL, Request
from actorgraph.serving.signature import Array, Signature
from actorgraph.serving.spans import Spans
from actorgraph.serving.statistics import NodeTimes

_LOGGER = logging.getLogger("actorgraph")

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
        self, name: str, version: str, machine: Machine, signature: Signature, config: Config,
        example: Mapping[Any, Any] | None = None, *, owned: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.version, self.config = name, version, config
        self.signature, self.machine, self._owned = signature, machine, owned
        self._example = None if example is None else signature.arrays(example)
        traced, nodes = config.tracing != "off", config.tracing == "nodes"
        self._spans = Spans(name, version, machine, nodes=nodes) if traced else None
        self.node_times: NodeTimes | None = None
        if config.metrics == "nodes":
            self.node_times = NodeTimes(machine)
            self._listening = listen(self.node_times)
        self._dispatcher = Dispatcher(name, machine, signature, config, self._spans)
        self._lock, self._queue = self._dispatcher.lock, self._dispatcher.queue
        self.statistics = self._dispatcher.statistics
        self.counts = self.statistics.counts
        self._numbers = count()
        in_place = not self._dispatcher.observes_nodes
        self._loops = CallerLoops(config.in_place_s * 1e6 if in_place else 0.0)
        self._close_deferred = False  # the machine is closed once its ops return

    # -- for users ------------------------------------------------------------------------------

    async def infer(
        self, inputs: Mapping[Any, Any], *, deadline_s: float | None = None, priority: int = 0,
        request_id: str | None = None,
    ) -> dict[str, Array]:  # fmt: skip
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
        loop, dispatcher = self._loops.current(), self._dispatcher
        request = self._admitted(loop, call)
        try:
            if not loop.dispatch_pending:
                loop.dispatch_pending = True
                loop.call_soon(partial(dispatcher.dispatch, loop))
            dispatcher.set_timer(loop, request)
            assert request.waiter is not None
            await request.waiter
        finally:
            if type(request.answer) is not dict:
                dispatcher.leave(request)
        return self._result_of(request, call.request_id)

    async def stream(
        self, inputs: Mapping[Any, Any], *, max_steps: int | None = None,
        deadline_s: float | None = None, priority: int = 0, request_id: str | None = None,
    ) -> AsyncGenerator[dict[str, Array]]:  # fmt: skip
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
        runs, most = self._dispatcher, self.config.max_inflight
        with self.reading(), self._lock:
            if runs.streams >= most:
                raise Overloaded(
                    f"model {self.name!r} has {most} streams open, which is all it takes "
                    "(max_inflight); ask again later"
                )
            runs.streams += 1
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
                runs.streams -= 1
            runs.request_dispatch()

    def infer_sync(
        self, inputs: Mapping[Any, Any], *, deadline_s: float | None = None, priority: int = 0,
        request_id: str | None = None,
    ) -> dict[str, Array]:  # fmt: skip
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
        in_place = self.config.in_place_s and not self._dispatcher.observes_nodes
        loop = CallerLoop.of_thread(SYNC_US if in_place else 0.0, calls)
        request = self._admitted(loop, call)
        try:
            self._dispatcher.dispatch(loop)
            while request.answer is None:
                try:
                    left_s = max(0.0, request.next_event(now := monotonic()) - now)
                    calls.get(timeout=min(left_s, _POLL_S))()
                except Empty:
                    self._dispatcher.check_times(loop)
        finally:
            self._dispatcher.leave(request)
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
        return self._dispatcher.inflight

    @property
    def ready(self) -> bool:
        """Whether requests are admitted."""
        return not self._dispatcher.stopping

    async def drain(self, grace_s: float | None = None) -> None:
        """Admit no more requests, and wait for those admitted; see `Server.drain`."""
        self._dispatcher.begin_draining()
        grace_s = self.config.shutdown_grace_s if grace_s is None else grace_s
        if not await self._wait_until_idle(grace_s):
            left = self.inflight + self.queued
            _LOGGER.warning("the grace of model %r is over: %d are refused", self.name, left)
            self.stop()

    async def _wait_until_idle(self, within_s: float) -> bool:
        """Wait until no admitted request is left; False if that takes longer."""
        event, notify = anyio.Event(), loop_notifier()
        self._dispatcher.call_when_idle(partial(notify, event.set))
        with anyio.move_on_after(within_s):
            await event.wait()
        return event.is_set()

    def stop(self) -> None:
        """Admit no more requests, and answer those admitted with `NotReady`."""
        self._dispatcher.stop()

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

    def refusal(self, coming: int = 0) -> Overloaded | None:
        """Return the error of a request behind those `coming`, None if there is room.

        It is asked before the body of the request is read.
        """
        return self._queue.refusal(len(self._dispatcher.batches), self.inflight, coming)

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
        request = None
        try:
            if not call.continues and (full := self.refusal()) is not None:
                raise full
            request = self._request(loop, call)
            if self._spans is not None:
                self._spans.arrived(request, call.request_id)
            self._dispatcher.add(request)
        except GraphError as error:
            self.refused(error, request)
            _add_request_id(error, call.request_id)
            raise
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

    def _result_of(self, request: Request, request_id: str | None) -> dict[str, Array]:
        answer = request.answer
        if isinstance(answer, dict):
            return answer
        assert answer is not None
        _add_request_id(answer, request_id)
        raise answer

    def __repr__(self) -> str:
        counts = f"{self.queued} waiting, {self.inflight} running"
        return f"<ServedModel {self.name} {self.version}: {counts}>"


def _add_request_id(error: BaseException, request_id: str | None) -> None:
    if request_id is not None:
        error.add_note(f"request {request_id}")
