"""Clients of `benchmarks.serve`: connections of HTTP that are kept, and gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

_START_S = 90.0


class Connection(asyncio.Protocol):
    """One of HTTP/1.1; a request at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep where to write."""
        self.transport = transport

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Answer when all is there."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        size = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        if not size.strip().isdigit():
            self._answer.set_exception(ValueError(f"no length: {head!r}"))
        elif len(body) >= int(size):
            self._received = b""
            self._answer.set_result((int(head.split(b" ", 2)[1]), body))

    def connection_lost(self, error: Exception | None) -> None:
        """Tell who waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(str(error)))


def request(path: str, body: bytes, kind: str, *headers: str) -> bytes:
    """Return the bytes of a request."""
    lines = [
        f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {kind}", *headers,
        f"content-length: {len(body)}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + body


def peers_request(name: str, row: Any) -> bytes:
    """Return what a peer is asked: raw bytes, or JSON where it reads nothing else."""
    if name == "LitServe":
        flat = json.dumps({"x": row.ravel().tolist()})
        return request("/predict", flat.encode(), "application/json")
    if name == "BentoML":
        return request("/predict", json.dumps({"x": row.tolist()}).encode(), "application/json")
    return request("/", row.tobytes(), "application/octet-stream")


def our_request(row: Any, *, binary: bool) -> bytes:
    """Return what we are asked, as tritonclient does it or in JSON."""
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": list(row.shape)}
    path = "/v2/models/net/infer"
    if not binary:
        content = {"inputs": [tensor | {"data": row.ravel().tolist()}]}
        return request(path, json.dumps(content).encode(), "application/json")
    tensor["parameters"] = {"binary_data_size": row.nbytes}
    content = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(content).encode()
    size = f"inference-header-content-length: {len(head)}"
    return request(path, head + row.tobytes(), "application/octet-stream", size)


@asynccontextmanager
async def over_http(
    port: int, asked: bytes, *, statuses: bool = False
) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Give what asks, by as many connections as there are requests at once.

    It returns the body of an answer, which has to be 200, or else the status of any.
    """
    loop, idle, made = asyncio.get_running_loop(), list[Connection](), list[Connection]()

    async def ask() -> Any:
        if not idle:
            _, new = await loop.create_connection(Connection, "127.0.0.1", port)
            made.append(new)
            idle.append(new)
        connection = idle.pop()
        status, body = await connection.ask(asked)
        idle.append(connection)
        if status != 200 and not statuses:
            raise ValueError(f"{status} {body[:200]!r}")
        return status if statuses else body

    try:
        yield ask
    finally:
        for one in made:
            one.transport.close()


@asynccontextmanager
async def over_grpc(port: int, row: Any) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Give what asks, by one channel."""
    from grpc import aio

    from actorgraph.serving.messages import message

    asked = message("inference.ModelInferRequest")(model_name="net")
    asked.inputs.add(name="x", datatype="FP32", shape=row.shape)
    asked.raw_input_contents.append(row.tobytes())
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=type(asked).SerializeToString,
            response_deserializer=message("inference.ModelInferResponse").FromString,
        )

        async def ask() -> Any:
            return await call(asked)

        yield ask


class Process:
    """A server of `benchmarks._serve_peers`, from its start to its end."""

    def __init__(self, system: str, model: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks._serve_peers"]
        self._process = subprocess.Popen(
            [*command, system, model, str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    async def answers(self, asked: bytes) -> str:
        """Wait until it answers; return why it never does, or nothing."""
        end, why = time.monotonic() + _START_S, ""
        while time.monotonic() < end and self._process.poll() is None:
            try:
                async with over_http(self.port, asked) as ask:
                    await asyncio.wait_for(ask(), 5.0)
                return ""
            except (OSError, ValueError, TimeoutError) as error:
                why = str(error)[:200] or type(error).__name__
                await asyncio.sleep(0.3)
        return why or "it has ended"

    def resident_mb(self) -> float:
        """Return how much memory it holds."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self) -> None:
        """End it and what it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(5.0)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def check(found: Any, wanted: Any) -> None:
    """Raise unless an answer is of ten numbers, or ends with those that are wanted."""
    if not isinstance(found, bytes):
        row = np.frombuffer(found.raw_output_contents[0], "float32")
    elif found[:1] in (b"{", b"[") and b'"binary' not in found:
        told = json.loads(found)
        if isinstance(told, dict):
            told = told["y"] if "y" in told else told["outputs"][0]["data"]
        row = np.array(told, "float32").ravel()
    else:
        row = np.frombuffer(found[-40:], "float32")
    assert row.shape == (10,), found
    if wanted is not None:
        np.testing.assert_allclose(row, wanted.ravel(), rtol=1e-3, atol=1e-4)
