"""Prometheus metrics of a server, by the library prometheus-client."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from math import inf
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from actorgraph._version import __version__
from actorgraph.errors import GraphError
from actorgraph.serving.config import json_fields
from actorgraph.serving.errors import Unsupported
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server
from actorgraph.serving.statistics import Histogram

_MISSING = 'metrics need prometheus-client; install it with: pip install "actorgraph[serve]"'

_Samples: TypeAlias = Iterable[tuple[tuple[str, ...], Any]]
"""Pairs of label values, besides the model's, and a number or `Histogram`."""


def exposition(server: Server, registry: Any) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the reply to ``GET /metrics``; a registry of None is the server's metrics alone."""
    try:
        from prometheus_client import CollectorRegistry, exposition
    except ImportError:
        raise Unsupported(_MISSING) from None
    if registry is None:  # it holds no state; the global one belongs to the application
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Collector(server))
    content: bytes = exposition.generate_latest(registry)
    return 200, [(b"content-type", exposition.CONTENT_TYPE_LATEST.encode())], content


def process_registry() -> Any:
    """Return the global registry, which also has the process's memory and time, or None."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return None
    return REGISTRY


@contextmanager
def metrics_endpoint(host: str, port: int, registry: Any) -> Iterator[int]:
    """Serve a registry at a port of its own, from a thread; gives the port.

    Raises `GraphError` if the port cannot be opened.
    """
    if registry is None:
        raise GraphError(_MISSING)
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        why = error.strerror or error
        raise GraphError(f"cannot serve metrics at {host}:{port}: {why}") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Collector:
    """Collects the metrics of all models at each scrape."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def describe(self) -> list[Any]:
        """Return nothing: the metrics depend on the models."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield a family of samples for each metric."""
        server = self._server
        versions = {
            "version": __version__, "python": platform.python_version(), "numpy": np.__version__,
            "cupy": _cupy(),
        }  # fmt: skip
        yield _family("gauge", "build_info", "Versions; 1.", versions, [((*versions.values(),), 1)])
        models = [model for model in server.models if model.config.metrics != "off"]
        for name, kind, about, extra, read in _METRICS:
            samples = (
                ((model.name, model.version, *labels), value)
                for model in models
                for labels, value in _samples(model, read)
            )
            yield _family(kind, name, about, ("model", "version", *extra), samples)
        of_model = ("model", "version")
        states = [((one["name"], one["version"], one["state"]), 1) for one in server.index()]
        yield _family("gauge", "model_state", "Models by state; 1.", (*of_model, "state"), states)
        loads = [((name, version), one) for name, version, one in server.loads()]
        yield _family("histogram", "model_load_seconds", "Time to make it.", of_model, loads)


def _cupy() -> str:
    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        try:
            return version(name)
        except PackageNotFoundError:
            pass
    return ""


def _family(kind: str, name: str, about: str, labels: Iterable[str], samples: _Samples) -> Any:
    from prometheus_client import core

    family_class = getattr(core, f"{kind.title()}MetricFamily")
    family = family_class(f"actorgraph_{name}", about, labels=list(labels))
    for values, measured in samples:
        if isinstance(measured, Histogram):
            buckets = [(_bound(bound), count) for bound, count in measured.cumulative()]
            family.add_metric(values, buckets, measured.total)
        else:
            family.add_metric(values, measured)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == inf else f"{bound:g}"


# -- samples of a model -------------------------------------------------------------------------


def _samples(model: ServedModel, read: str | Callable[[ServedModel], _Samples]) -> _Samples:
    """Read an attribute of the model, by a dotted name or function; a dict's keys are labels."""
    if callable(read):
        yield from read(model)
        return
    source = attrgetter(read)(model)
    source = source() if callable(source) else source
    for key, value in source.copy().items() if isinstance(source, dict) else [((), source)]:
        yield (tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)), value


def _nodes(model: ServedModel) -> _Samples:
    return [] if model.node_times is None else [*model.node_times.turns.copy().items()]


def _depths(model: ServedModel) -> _Samples:
    if model.config.metrics == "nodes":
        for channel in model.machine.channels():
            yield (channel.name,), channel.depth


def _busy(model: ServedModel) -> _Samples:
    if model.node_times is None:
        yield ("all",), sum(spent_s for _, _, spent_s, _ in model.machine.busiest(1 << 30))
        return
    for worker, spent_s in model.node_times.busy_s.copy().items():
        yield (worker,), spent_s


def _memory(model: ServedModel) -> _Samples:
    memory, placing = model.machine.memory(), model.machine._placing
    for device in [model.machine.device] if placing is None else placing.used:
        sizes = {"used": memory.total, "pool": memory.arenas}
        if hasattr(os, "sysconf"):
            sizes["total"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        sizes |= getattr(device.root, "memory", dict)()  # a GPU measures its own
        for kind, size in sizes.items():
            yield (device.name, kind), size


def _limits(model: ServedModel) -> _Samples:
    for name, value in json_fields(model.config).items():
        if type(value) in (int, float):
            yield (name,), value


_METRICS: tuple[
    tuple[str, str, str, tuple[str, ...], str | Callable[[ServedModel], _Samples]], ...
] = (
    ("requests", "counter", "Requests that have ended.", ("outcome", "protocol"),
     "statistics.requests"),
    ("request_duration_seconds", "histogram", "From arrival to answer.", ("outcome",),
     "statistics.durations"),
    ("time_to_first_response_seconds", "histogram", "From arrival to the first part.", (),
     "statistics.first_responses"),
    ("queue_duration_seconds", "histogram", "From arrival to the run.", ("priority",),
     "statistics.queue_waits"),
    ("requests_inflight", "gauge", "Requests in runs.", (), "inflight"),
    ("requests_queued", "gauge", "Requests that wait.", ("priority",), "waiting"),
    ("inflight_limit", "gauge", "max_inflight", (), "config.max_inflight"),
    ("queue_limit", "gauge", "max_queued", (), "config.max_queued"),
    ("limit", "gauge", "All numbers of the config.", ("limit",), _limits),
    ("rejected", "counter", "Requests that were not started.", ("reason",), "statistics.refusals"),
    ("inferences", "counter", "Requests in runs.", (),
     lambda one: [((), one.counts["inferences"])]),
    ("executions", "counter", "Runs of the graph.", (),
     lambda one: [((), one.counts["executions"])]),
    ("batch_size", "histogram", "Rows of a run.", (), "statistics.sizes"),
    ("batch_wait_seconds", "histogram", "The longest wait of a batch's requests.", (),
     "statistics.batch_waits"),
    ("batch_dispatch", "counter", "Batches by the reason for sending.", ("reason",),
     "statistics.reasons"),
    ("node_duration_seconds", "histogram", "Turns of a node.", ("node", "device"), _nodes),
    ("node_queue_depth", "gauge", "Messages in a channel to a node.", ("node",), _depths),
    ("worker_busy_seconds", "counter", "Time in ops.", ("worker",), _busy),
    ("device_memory_bytes", "gauge", "Arrays of the graph and its runs.", ("device", "kind"),
     _memory),
)  # fmt: skip
"""Name, kind, help text, labels, and the source of each metric."""
