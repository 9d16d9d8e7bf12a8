"""`actorgraph bench URL`: an open-loop load test.

Requests start when they are due, whether earlier ones have ended or not, and latencies count from
then, so that they show when a server falls behind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import numpy as np
from anyio.streams.buffered import BufferedByteReceiveStream

from actorgraph.errors import GraphError, shown, text_of

_PERCENTILES = (50, 90, 99, 99.9)
_BROKEN = (
    OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead,
    anyio.DelimiterNotFound, GraphError,
)  # fmt: skip
_MAX_HEADER_BYTES = 1 << 16
_BARS, _WIDTH = 12, 40


@dataclass(slots=True)
class LoadReport:
    """The outcome of a load test."""

    url: str
    rate: float  # requests a second that were due
    duration_s: float = 0.0  # from the first request's start to the last one's end
    statuses: Counter[str] = field(default_factory=Counter)  # "none" without an answer
    times_s: list[float] = field(default_factory=list)  # latencies of answers with 200

    def as_json(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        settings = {"url": self.url, "rate": self.rate, "duration_s": self.duration_s}
        throughput = len(self.times_s) / self.duration_s if self.duration_s else 0.0
        return {
            **settings,
            "statuses": dict(sorted(self.statuses.items())),
            "throughput": throughput,
            "latency_ms": self._percentiles(),
            "histogram": self._histogram(),
        }

    def _percentiles(self) -> dict[str, float]:
        if not self.times_s:
            return {}
        values = np.percentile(self.times_s, [*_PERCENTILES, 100])
        names = (*(f"p{share:g}" for share in _PERCENTILES), "max")
        return {name: float(one) * 1e3 for name, one in zip(names, values, strict=True)}

    def _histogram(self) -> list[tuple[float, int]]:
        """Return the upper bounds of buckets in milliseconds, evenly spaced in log, with counts."""
        if not self.times_s:
            return []
        times_ms = np.maximum(np.array(self.times_s) * 1e3, 1e-6)
        bounds = np.geomspace(times_ms.min() * 0.999, times_ms.max() * 1.001, _BARS + 1)
        counts, _ = np.histogram(times_ms, bounds)
        return [(float(bound), int(n)) for bound, n in zip(bounds[1:], counts, strict=True)]

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        report = self.as_json()
        statuses = ", ".join(f"{status}: {n:,}" for status, n in report["statuses"].items())
        times = ", ".join(f"{name} {one:.3g} ms" for name, one in report["latency_ms"].items())
        most = max((n for _, n in report["histogram"]), default=1)
        return [
            self.url,
            f"{self.rate:g} requests a second were due, {report['throughput']:.1f} were answered",
            statuses,
            times,
            *(
                f"{bound:>10.3g} ms {n:>8,} {'#' * round(_WIDTH * n / most)}"
                for bound, n in report["histogram"]
            ),
        ]


async def bench(
    url: str, *, rate: float, duration_s: float, rows: int = 1, timeout_s: float = 30.0
) -> LoadReport:
    """Send requests to a model over HTTP, `rate` a second for `duration_s`.

    Inputs are ones, and dims that may vary are `rows`.  Requests are given up after `timeout_s`.
    Raises `GraphError` for an invalid URL, or if no model answers there.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or "/v2/models/" not in parts.path:
        raise GraphError(f"expected http://HOST:PORT/v2/models/NAME, got {shown(url)}")
    measured, path = LoadReport(url, rate), parts.path.rstrip("/")
    async with aclosing(_Connections(parts.hostname, parts.port or 80)) as server:
        try:
            with anyio.fail_after(timeout_s):
                status, content = await server.ask("GET", path)
        except (*_BROKEN, TimeoutError) as error:
            raise GraphError(f"nobody answers at {url}: {text_of(error)}") from error
        if status != 200:
            raise GraphError(f"{url} answers with {status}: {shown(content)}")
        body = _body(json.loads(content), rows)

        async def ask(due: float) -> None:
            status = "none"
            with suppress(*_BROKEN), anyio.move_on_after(timeout_s):
                status = str((await server.ask("POST", f"{path}/infer", body))[0])
            measured.statuses[status] += 1
            if status == "200":
                measured.times_s.append(monotonic() - due)

        start = monotonic()
        async with anyio.create_task_group() as tasks:
            for number in range(max(1, round(rate * duration_s))):
                due = start + number / rate
                await anyio.sleep(max(0.0, due - monotonic()))
                tasks.start_soon(ask, due)
        measured.duration_s = monotonic() - start
    return measured


def _body(metadata: Mapping[str, Any], rows: int) -> bytes:
    tensors = []
    for tensor in metadata["inputs"]:
        shape = [rows if dim < 0 else dim for dim in tensor["shape"]]
        value: bool | int = True if tensor["datatype"] == "BOOL" else 1
        data = [value] * int(np.prod(shape))
        tensors.append({**tensor, "shape": shape, "data": data})
    return json.dumps({"inputs": tensors}).encode()


class _Connections:
    """A pool of keep-alive connections to a server, as many as requests at once."""

    def __init__(self, host: str, port: int) -> None:
        self._connect = partial(anyio.connect_tcp, host, port)
        self._host = f"{host}:{port}"
        self._idle: list[anyio.abc.ByteStream] = []

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of an answer."""
        stream: anyio.abc.ByteStream
        stream = self._idle.pop() if self._idle else await self._connect()
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-length: {len(body)}\r\n"
        reusable = False
        try:
            await stream.send(f"{head}\r\n".encode() + body)
            status, content, reusable = await _answer(stream)
        finally:
            if reusable:
                self._idle.append(stream)
            else:
                await anyio.aclose_forcefully(stream)
        return status, content

    async def aclose(self) -> None:
        """Close all."""
        for stream in self._idle:
            await stream.aclose()


async def _answer(stream: anyio.abc.ByteStream) -> tuple[int, bytes, bool]:
    """Return status and body, and whether the connection is reusable."""
    reader = BufferedByteReceiveStream(stream)
    head = await reader.receive_until(b"\r\n\r\n", _MAX_HEADER_BYTES)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in
               (line.partition(":") for line in lines)}  # fmt: skip
    if not headers.get("content-length", "").isdigit():
        raise GraphError("the answer does not say how long it is")
    content = await reader.receive_exactly(int(headers["content-length"]))
    return int(first.split()[1]), content, headers.get("connection", "").lower() != "close"
