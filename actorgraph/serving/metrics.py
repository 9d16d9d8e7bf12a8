"""What a server tells Prometheus, where the library prometheus-client is installed."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from actorgraph._version import __version__
from actorgraph.serving.errors import Unsupported
from actorgraph.serving.server import Server
from actorgraph.serving.statistics import Histogram

__all__ = ["exposition"]

_LABELS = ["model", "version"]


def exposition(server: Server) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the answer to ``GET /metrics``: status, headers and body.

    Raises
    ------
    Unsupported
        prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, exposition
    except ImportError:
        raise Unsupported(
            'metrics need prometheus-client; install it with: pip install "actorgraph[serve]"'
        ) from None
    # A registry of each call: it holds nothing, and the global one is the application's.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(server))
    content: bytes = exposition.generate_latest(registry)
    return 200, [(b"content-type", exposition.CONTENT_TYPE_LATEST.encode())], content


class _Collector:
    """Reads the counts of all models when it is asked."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def describe(self) -> list[Any]:
        """Return nothing: what there is depends on the models."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield a family of samples for each metric."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        models = self._server.models
        build = GaugeMetricFamily("actorgraph_build_info", "1", labels=["version", "numpy"])
        build.add_metric([__version__, np.__version__], 1)
        yield build
        requests = CounterMetricFamily(
            "actorgraph_requests", "Requests that have ended.", labels=[*_LABELS, "outcome"]
        )
        for model in models:
            for outcome in model.statistics.durations:
                requests.add_metric([model.name, model.version, outcome], model.counts[outcome])
        yield requests
        for name, told in (
            ("executions", "Runs of the graph."),
            ("inferences", "Requests in runs."),
        ):
            family = CounterMetricFamily(f"actorgraph_{name}", told, labels=_LABELS)
            for model in models:
                family.add_metric([model.name, model.version], model.counts[name])
            yield family
        for name, told, values in (
            ("requests_inflight", "Requests in runs.", [one.inflight for one in models]),
            ("requests_queued", "Requests that wait.", [one.queued for one in models]),
            ("inflight_limit", "max_inflight", [one.config.max_inflight for one in models]),
            ("queue_limit", "max_queued", [one.config.max_queued for one in models]),
        ):
            gauge = GaugeMetricFamily(f"actorgraph_{name}", told, labels=_LABELS)
            for model, value in zip(models, values, strict=True):
                gauge.add_metric([model.name, model.version], value)
            yield gauge
        yield from self._histograms()

    def _histograms(self) -> Iterator[Any]:
        from prometheus_client.core import HistogramMetricFamily

        def family(name: str, told: str, *labels: str) -> Any:
            return HistogramMetricFamily(f"actorgraph_{name}", told, labels=[*_LABELS, *labels])

        durations = family("request_duration_seconds", "From coming to answer.", "outcome")
        waits = family("queue_duration_seconds", "From coming to run.")
        sizes = family("batch_size", "Rows of a run.")
        for model in self._server.models:
            labels, found = [model.name, model.version], model.statistics
            for outcome, histogram in found.durations.items():
                _add(durations, [*labels, outcome], histogram)
            _add(waits, labels, found.waits)
            _add(sizes, labels, found.sizes)
        yield from (durations, waits, sizes)


def _add(family: Any, labels: list[str], histogram: Histogram) -> None:
    buckets = [(_bound(bound), count) for bound, count in histogram.cumulative()]
    family.add_metric(labels, buckets, histogram.total)


def _bound(bound: float) -> str:
    return "+Inf" if bound == inf else f"{bound:g}"
