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
from contextlib import asynccontextmanager, suppress
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


class Load:
    """Requests over connections that are kept, with nothing between the socket and the count.

    It takes a tenth of what a task for each request does: what it asks for is the server's.

    Attributes
    ----------
    times : dict of status to list of float
        Seconds of the answers, from when their requests were due.
    """

    def __init__(self, port: int, asked: bytes) -> None:
        self._port, self._asked = port, asked
        self._idle: list[_Caller] = []
        self._busy, self._end = 0, 0.0
        self._over: asyncio.Future[None] | None = None
        self.times: dict[int, list[float]] = {}

    async def closed(self, clients: int, for_s: float) -> float:
        """Have clients ask one request after the other; return how long it took."""
        await self.connected(clients)
        start = time.perf_counter()
        self._end = start + for_s
        for caller in self._idle[:clients]:
            self._ask(caller, time.perf_counter())
        self._idle = self._idle[clients:]
        await self._ended()
        return time.perf_counter() - start

    async def opened(self, rate: float, for_s: float) -> float:
        """Ask so often a second, whether it keeps up or not; return how long it took."""
        start = due = time.perf_counter()
        self._end = 0.0
        while due < start + for_s:
            if (left_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(left_s)
            await self.connected(1)
            self._ask(self._idle.pop(), due)
            due += 1 / rate
        await self._ended()
        return time.perf_counter() - start

    def answered(self, caller: _Caller, status: int) -> None:
        """Note an answer, 0 for none, and ask again where the clients go on."""
        now = time.perf_counter()
        self.times.setdefault(status, []).append(now - caller.due)
        self._busy -= 1
        if status and now < self._end:
            self._ask(caller, now)
        elif status:
            self._idle.append(caller)
        if not self._busy and self._over is not None:
            self._over.set_result(None)

    def lost(self, caller: _Caller) -> None:
        """Do without a connection that the server has closed."""
        if caller in self._idle:  # for as long as servers keep one
            self._idle.remove(caller)
        else:
            self.answered(caller, 0)

    def _ask(self, caller: _Caller, due: float) -> None:
        caller.due = due
        self._busy += 1
        caller.transport.write(self._asked)

    async def connected(self, clients: int) -> None:
        """Have so many connections to ask by."""
        loop = asyncio.get_running_loop()
        while len(self._idle) < clients:
            _, made = await loop.create_connection(lambda: _Caller(self), "127.0.0.1", self._port)
            self._idle.append(made)

    async def _ended(self) -> None:
        if self._busy:
            self._over = asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self._over, _START_S)
            self._over = None

    def close(self) -> None:
        """Close all connections."""
        for caller in self._idle:
            caller.transport.close()


class _Caller(asyncio.Protocol):
    """A connection of a `Load`; a request at a time."""

    def __init__(self, load: Load) -> None:
        self._load, self._received = load, b""
        self.transport: Any = None
        self.due = 0.0

    def connection_made(self, transport: Any) -> None:
        """Keep where to write."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Count the answer when all is there."""
        self._received = data = self._received + data
        head = data.find(b"\r\n\r\n")
        if head < 0:
            return
        at = data.find(b"content-length: ", 0, head) + 16
        if len(data) >= head + 4 + int(data[at : data.find(b"\r", at)]):
            self._received = b""
            self._load.answered(self, int(data[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        """Tell that no answer will come."""
        self._load.lost(self)


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
    port: int, asked: bytes, connections: int = 0
) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    """Give what asks, by as many connections as there are requests at once.

    So many are made before: to make one takes as long as some requests.
    """
    loop, idle, made = asyncio.get_running_loop(), list[Connection](), list[Connection]()

    async def connect() -> None:
        _, new = await loop.create_connection(Connection, "127.0.0.1", port)
        made.append(new)
        idle.append(new)

    async def ask() -> bytes:
        while idle and idle[-1].transport.is_closing():  # for as long as servers keep one
            idle.pop()
        if not idle:
            await connect()
        connection = idle.pop()
        status, body = await connection.ask(asked)
        idle.append(connection)
        if status != 200:
            raise ValueError(f"{status} {body[:200]!r}")
        return body

    try:
        for _ in range(connections):
            await connect()
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
    """A server of `benchmarks._serve_peers`, from its start to its end.

    Meanwhile this process has Linux's policy for batches: it gets the same share of the cores, but
    waking it does not interrupt the server.  Else each answer that a server writes gives its core
    to the clients, in the middle of the write, which clients of another machine cannot do.
    """

    def __init__(self, system: str, model: str) -> None:
        self.port = _free_port()
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks._serve_peers"]
        self._process = subprocess.Popen(
            [*command, system, model, str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        _schedule("SCHED_BATCH")

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

    def cores_s(self) -> float:
        """Return how long it has held a core, and what it has started with it."""
        told = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Return how much memory it holds."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self) -> None:
        """End it and what it has started."""
        _schedule("SCHED_OTHER")
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(5.0)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def _schedule(policy: str) -> None:
    """Set this process's policy, where there are any."""
    if hasattr(os, policy):
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))


def _free_port() -> int:
    """Return a free port whose next one, which ours use for gRPC, is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
            with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 1)):
                return port


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
