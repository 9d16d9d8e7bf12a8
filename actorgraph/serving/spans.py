"""Spans of OpenTelemetry: of requests, their waiting, their batches, and nodes where asked for.

Only its API is used: where spans go is the application's to configure, and without that they cost a
few microseconds and go nowhere.  A batch is a child of its first request and has links to all; what
ops do in their threads is below the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, perf_counter, time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from actorgraph._version import __version__
from actorgraph.errors import GraphError
from actorgraph.instrument import listen
from actorgraph.machines import Machine, Run
from actorgraph.machines.instrument import Instrument
from actorgraph.serving.request import Answer, Request, RequestBatch

if TYPE_CHECKING:
    from actorgraph.node_actor import Task

_RUNS = 1000
_T = TypeVar("_T")


class Spans:
    """Those of a model; with `nodes` each turn of an actor has one."""

    def __init__(self, name: str, version: str, machine: Machine, *, nodes: bool) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise GraphError(
                "tracing needs the API of OpenTelemetry; install it with: "
                'pip install "actorgraph[otel]"'
            ) from None
        self._api = trace
        self._tracer = trace.get_tracer("actorgraph", __version__)
        self._name = name
        self._told = {"actorgraph.model": name, "actorgraph.version": version}
        if nodes:
            self._nodes = _NodeSpans(machine, self._tracer, self._told)
            self._listening = listen(self._nodes)

    def came(self, request: Request, request_id: str | None) -> None:
        """Begin the span of a request, below what the caller is in."""
        api = self._api
        above = api.get_current_span().get_span_context()
        served = above.is_remote or not above.is_valid  # nobody else tells of the exchange
        told: dict[str, Any] = {**self._told, "actorgraph.rows": request.rows}
        if request_id is not None:
            told["actorgraph.request_id"] = request_id
        kind = api.SpanKind.SERVER if served else api.SpanKind.INTERNAL
        request.span = self._tracer.start_span(f"infer {self._name}", kind=kind, attributes=told)

    def answered(self, request: Request, answer: Answer) -> None:
        """End the span of a request."""
        if request.batch is None:
            self._waited(request)
        if isinstance(answer, BaseException):
            self._fail(request.span, answer)
        request.span.end()

    def started(self, batch: RequestBatch, start: Callable[[Any], _T], feeds: Any) -> _T:
        """Begin the span of a batch, and start its run below it."""
        api, members = self._api, [one for one in batch.members if one.span is not None]
        for request in members:
            self._waited(request)
        told: dict[str, Any] = {**self._told, "actorgraph.rows": batch.rows}
        told["actorgraph.requests"] = len(members)
        above = api.set_span_in_context(members[0].span) if members else None
        links = [api.Link(one.span.get_span_context()) for one in members]
        batch.span = self._tracer.start_span("batch", above, links=links, attributes=told)
        with api.use_span(batch.span, record_exception=False, set_status_on_exception=False):
            return start(feeds)

    def ended(self, batch: RequestBatch, error: BaseException | None) -> None:
        """End the span of a batch."""
        if error is not None:
            self._fail(batch.span, error)
        batch.span.end()

    def _waited(self, request: Request) -> None:
        """Tell of the time in the queue, once."""
        if request.has_queue_span:
            return
        request.has_queue_span = True
        now, above = time_ns(), self._api.set_span_in_context(request.span)
        began = now - int((monotonic() - request.born) * 1e9)
        told = {"actorgraph.priority": request.order[0]}
        self._tracer.start_span("queue", above, start_time=began, attributes=told).end(now)

    def _fail(self, span: Any, error: BaseException) -> None:
        span.record_exception(error)
        span.set_status(self._api.StatusCode.ERROR, str(error))


class _NodeSpans(Instrument):
    """Tells of each turn of an actor, below the batch that its run belongs to."""

    def __init__(self, machine: Machine, tracer: Any, told: Mapping[str, str]) -> None:
        from opentelemetry import context

        self._machine, self._tracer, self._told = machine, tracer, told
        self._context = context
        self._above: dict[tuple[Any, int], Any] = {}

    def on_run_start(self, run: Run) -> None:
        """Keep what the run was started in."""
        if run.machine is self._machine:
            self._above[run.core, run.number] = self._context.get_current()
            if len(self._above) > _RUNS:  # a turn may be told after the end of its run
                self._above.pop(next(iter(self._above)), None)

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """Tell of a turn."""
        above = self._above.get((run.core, run.number))
        if above is not None:
            offset = time_ns() - int(perf_counter() * 1e9)
            self._tracer.start_span(
                f"node {task.spec.name}", above, start_time=int(started * 1e9) + offset,
                attributes=self._told,
            ).end(int(ended * 1e9) + offset)  # fmt: skip


@contextmanager
def parent_of(tracing: str, headers: Iterable[tuple[str | bytes, str | bytes]]) -> Iterator[None]:
    """Be below the client's span, by W3C's ``traceparent``, where we trace and no other is there.

    What is read is the application's.
    """
    if tracing == "off":
        yield
        return
    from opentelemetry import context, propagate, trace

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    told = [[one if isinstance(one, str) else one.decode("latin-1") for one in pair]
            for pair in headers]  # fmt: skip
    token = context.attach(propagate.extract(dict(told)))
    try:
        yield
    finally:
        context.detach(token)
