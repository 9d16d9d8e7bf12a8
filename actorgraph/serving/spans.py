"""OpenTelemetry spans of requests, their time in the queue, their batches, and optionally nodes.

Only the API is used: the application configures where spans go, and without that they cost a few
microseconds and go nowhere.  The span of a batch is a child of its first request's and links to
all; spans that ops open in their threads are below the batch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic, perf_counter, time_ns
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from actorgraph._version import __version__
from actorgraph.errors import GraphError
from actorgraph.instrument import listen
from actorgraph.machines import Machine, Run
from actorgraph.machines.instrument import Instrument
from actorgraph.serving.request import Answer, Request, RequestBatch

if TYPE_CHECKING:
    from actorgraph.node_actor import Task

_MAX_RUNS = 1000
_TextHeaders: TypeAlias = Iterable[tuple[str | bytes, str | bytes]]
_T = TypeVar("_T")


class Spans:
    """The spans of a model; with `nodes` each turn of an actor has one."""

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
        self._attributes = {"actorgraph.model": name, "actorgraph.version": version}
        if nodes:
            self._nodes = _NodeSpans(machine, self._tracer, self._attributes)
            self._listening = listen(self._nodes)

    def arrived(self, request: Request, request_id: str | None) -> None:
        """Begin the span of a request, below the caller's current span."""
        api = self._api
        parent = api.get_current_span().get_span_context()
        is_server = parent.is_remote or not parent.is_valid  # no HTTP middleware has a span
        attributes: dict[str, Any] = {**self._attributes, "actorgraph.rows": request.rows}
        if request_id is not None:
            attributes["actorgraph.request_id"] = request_id
        kind = api.SpanKind.SERVER if is_server else api.SpanKind.INTERNAL
        request.span = self._tracer.start_span(
            f"infer {self._name}", kind=kind, attributes=attributes
        )

    def answered(self, request: Request, answer: Answer) -> None:
        """End the span of a request."""
        if request.batch is None:
            self._queued(request)
        if isinstance(answer, BaseException):
            self._fail(request.span, answer)
        request.span.end()

    def started(self, batch: RequestBatch, start: Callable[[Any], _T], feeds: Any) -> _T:
        """Begin the span of a batch, and start its run below it."""
        api, members = self._api, [one for one in batch.members if one.span is not None]
        for request in members:
            self._queued(request)
        attributes: dict[str, Any] = {**self._attributes, "actorgraph.rows": batch.rows}
        attributes["actorgraph.requests"] = len(members)
        parent = api.set_span_in_context(members[0].span) if members else None
        links = [api.Link(request.span.get_span_context()) for request in members]
        batch.span = self._tracer.start_span("batch", parent, links=links, attributes=attributes)
        with api.use_span(batch.span, record_exception=False, set_status_on_exception=False):
            return start(feeds)

    def ended(self, batch: RequestBatch, error: BaseException | None) -> None:
        """End the span of a batch."""
        if error is not None:
            self._fail(batch.span, error)
        batch.span.end()

    def _queued(self, request: Request) -> None:
        """Write the span of the time in the queue, once."""
        if request.has_queue_span:
            return
        request.has_queue_span = True
        now, parent = time_ns(), self._api.set_span_in_context(request.span)
        began = now - int((monotonic() - request.arrived) * 1e9)
        attributes = {"actorgraph.priority": request.order[0]}
        self._tracer.start_span("queue", parent, start_time=began, attributes=attributes).end(now)

    def _fail(self, span: Any, error: BaseException) -> None:
        span.record_exception(error)
        span.set_status(self._api.StatusCode.ERROR, str(error))


class _NodeSpans(Instrument):
    """Writes a span for each turn of an actor, below the batch of its run."""

    def __init__(self, machine: Machine, tracer: Any, attributes: Mapping[str, str]) -> None:
        from opentelemetry import context

        self._machine, self._tracer, self._attributes = machine, tracer, attributes
        self._context = context
        self._parents: dict[tuple[Any, int], Any] = {}

    def on_run_start(self, run: Run) -> None:
        """Remember the context in which the run starts."""
        if run.machine is self._machine:
            self._parents[run.core, run.number] = self._context.get_current()
            if len(self._parents) > _MAX_RUNS:  # a turn may be reported after the end of its run
                self._parents.pop(next(iter(self._parents)), None)

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """Write the span of a turn."""
        parent = self._parents.get((run.core, run.number))
        if parent is not None:
            offset = time_ns() - int(perf_counter() * 1e9)
            self._tracer.start_span(
                f"node {task.spec.name}", parent, start_time=int(started * 1e9) + offset,
                attributes=self._attributes,
            ).end(int(ended * 1e9) + offset)  # fmt: skip


def parent_of(tracing: str, headers: _TextHeaders) -> AbstractContextManager[None]:
    """Enter the client's span of W3C's ``traceparent``, if we trace and no other span is open.

    The application configures which headers are read.
    """
    return nullcontext() if tracing == "off" else _parent_of(headers)


@contextmanager
def _parent_of(headers: _TextHeaders) -> Iterator[None]:
    from opentelemetry import context, propagate, trace

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    texts = [[one if isinstance(one, str) else one.decode("latin-1") for one in pair]
             for pair in headers]  # fmt: skip
    token = context.attach(propagate.extract(dict(texts)))
    try:
        yield
    finally:
        context.detach(token)
