"""Spans of OpenTelemetry, as its SDK collects them."""

import sys

import anyio
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from tests._until import until
from tests.serving._http import post, tensor
from tests.serving._models import asking, entered, gated, new_gate, outputs, rows

pytestmark = pytest.mark.anyio
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)


@pytest.fixture
def spans(monkeypatch):
    """Give the function that returns the spans that have ended, in the order of their begin."""
    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return lambda: sorted(exporter.get_finished_spans(), key=lambda one: one.start_time)


@pytest.fixture
async def server(gate):
    async with ag.serving.Server({"tracing": "on"}) as made:
        yield made


def named(spans, name):
    return [one for one in spans() if one.name == name]


def identity(span):
    return span.get_span_context().span_id


async def test_a_request_its_waiting_and_its_batch_are_spans(server, gate, spans):
    gate.open()
    model = server.add("double", outputs(), max_batch_size=8)
    with trace.get_tracer("client").start_as_current_span("asked"):
        await model.infer(rows(1, 2), request_id="seven")
    (asked,), (infer,) = named(spans, "asked"), named(spans, "infer double")
    (queue,), (batch,) = named(spans, "queue"), named(spans, "batch")
    assert infer.parent.span_id == identity(asked)
    assert infer.kind is trace.SpanKind.INTERNAL
    assert dict(infer.attributes) == {
        "actorgraph.model": "double", "actorgraph.version": "1", "actorgraph.rows": 2,
        "actorgraph.request_id": "seven",
    }  # fmt: skip
    assert queue.parent.span_id == batch.parent.span_id == identity(infer)
    assert infer.start_time <= queue.end_time <= batch.start_time
    assert batch.end_time <= infer.end_time
    assert infer.instrumentation_scope.name == "actorgraph"


async def test_a_batch_has_links_to_all_of_its_requests(server, gate, spans):
    model = server.add("double", outputs(), max_batch_size=8)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.infer, rows(0))
        await entered(gate)
        for value in (1, 2):
            tasks.start_soon(model.infer, rows(value))
        await until(lambda: model.queued == 2)
        gate.open(2)
    batch = named(spans, "batch")[1]
    asked = named(spans, "infer double")[1:]
    assert {one.context.span_id for one in batch.links} == set(map(identity, asked))
    assert dict(batch.attributes)["actorgraph.requests"] == 2


async def test_a_failure_stands_in_the_spans_of_its_request_and_batch(server, spans):
    new_gate(bad=0.0).open(2)
    model = server.add("double", outputs())
    with pytest.raises(ag.NodeError, match="a bad row"):
        await model.infer(rows(0))
    for span in (*named(spans, "infer double"), *named(spans, "batch")):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert "a bad row" in span.status.description
        assert span.events[0].name == "exception"


async def test_who_leaves_the_queue_has_waited_and_was_in_no_batch(server, gate, spans):
    model = server.add("double", outputs(), max_concurrent_batches=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.infer, rows(0))
        await entered(gate)
        with pytest.raises(ag.serving.DeadlineExceeded):
            await model.infer(rows(1), deadline_s=0.0)
        gate.open()
    late = named(spans, "infer double")[1]
    assert [one.parent.span_id for one in named(spans, "queue")].count(identity(late)) == 1
    assert identity(late) not in [one.parent.span_id for one in named(spans, "batch")]


def _traced(xp, x):
    with trace.get_tracer("user").start_as_current_span("op"):
        return x + 0.0


traced = ag.ops.define("serving_traced", scheme="f[*s] -> f[*s]", forward=_traced)


async def test_what_an_op_does_in_its_thread_is_below_the_batch(server, spans):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    await server.add("own", {"y": traced(x)}).infer(rows(1))
    ((op,), (batch,)) = named(spans, "op"), named(spans, "batch")
    assert op.parent.span_id == identity(batch)


async def test_a_model_that_asks_another_has_its_spans_below(server, gate, spans):
    gate.open()
    inner = server.add("inner", outputs())
    await server.add("outer", asking(inner)).infer(rows(1))
    (asked,), (outer, _) = named(spans, "infer inner"), named(spans, "batch")
    assert asked.parent.span_id == identity(outer)
    assert len({one.get_span_context().trace_id for one in spans()}) == 1


async def test_nodes_are_spans_where_they_are_asked_for(server, gate, spans):
    gate.open()
    x = ag.Graph().input("x", ("rows", 2), "float64")
    with ag.ActorMachine({"y": gated(x).named("y")}, fuse="none") as machine:
        model = server.add("double", machine, tracing="nodes")
        await model.infer(rows(1))
        await until(lambda: named(spans, "node y"))
    (node,), (batch,) = named(spans, "node y"), named(spans, "batch")
    assert node.parent.span_id == identity(batch)
    assert batch.start_time <= node.start_time <= node.end_time


async def test_nodes_of_brief_runs_are_spans_too(server, spans):
    x = ag.Graph().input("x", ("rows", 2), "float64")
    model = server.add("double", {"y": (x * 2.0).named("y")}, tracing="nodes")
    for _ in range(5):
        await model.infer(rows(1))
    await until(lambda: len(named(spans, "node y")) == 5)


async def test_the_headers_of_a_request_are_what_its_spans_are_below(server, gate, spans):
    gate.open(2)
    server.add("double", outputs())
    app = ag.serving.asgi(server)
    sent = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    await post({"inputs": [tensor(1)]}, headers=sent).asked(app)
    (infer,) = named(spans, "infer double")
    assert f"{infer.parent.span_id:x}" == "b" * 16
    assert infer.kind is trace.SpanKind.SERVER
    with trace.get_tracer("framework").start_as_current_span("exchange"):
        await post({"inputs": [tensor(1)]}, headers=sent).asked(app)
    (exchange,), (_, second) = named(spans, "exchange"), named(spans, "infer double")
    assert second.parent.span_id == identity(exchange)


async def test_without_the_api_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(GraphError, match=r"actorgraph\[otel\]"), ag.serving.Server() as server:
        server.add("double", outputs(), tracing="on")


async def test_off_is_the_default_and_makes_none(gate, spans):
    gate.open()
    async with ag.serving.Server() as server:
        await server.add("double", outputs()).infer(rows(1))
    assert spans() == []
