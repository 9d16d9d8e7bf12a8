"""`actorgraph serve FILE.py:function`: serves over HTTP (uvicorn) and gRPC until a signal.

Shutdown in order: not ready; a delay in which balancers see it; no new requests; admitted requests
are answered within the grace period, the rest refused; ports and models are closed.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import util
from math import ceil
from time import monotonic
from typing import Any

import anyio

from actorgraph._target import function_of, outputs_and_feeds_of
from actorgraph.errors import GraphError
from actorgraph.scheduler import make_threads_nice
from actorgraph.serving.asgi import asgi
from actorgraph.serving.building import configured, declared
from actorgraph.serving.config import ConfigFile
from actorgraph.serving.directory import Directory
from actorgraph.serving.metrics import metrics_endpoint, process_registry
from actorgraph.serving.refusing import refusing
from actorgraph.serving.rpc import grpc
from actorgraph.serving.server import Server

_LOGGER = logging.getLogger("actorgraph")
_LAST_WORDS_S = 0.5
_OBJECTS = 20_000
"""New objects after which the garbage collector runs."""
_NICE = 5
"""Niceness of threads that compute: on overload the event loop must stay able to refuse."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to serve.

    If supervised, other processes listen at the same ports, and the end of standard input ends this
    process as a signal does.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    metrics_port: int | None = None  # None for the HTTP port
    drain_delay_s: float | None = None  # None for the server's own, or what Kubernetes needs
    access_log: bool = True  # False overrides the config of models
    supervised: bool = False

    def delay_s(self, server: Server) -> float:
        """Return how long requests are still taken after the server has stopped being ready."""
        for delay_s in (self.drain_delay_s, server.config.drain_delay_s):
            if delay_s is not None:
                return delay_s
        # Balancers notice with a delay.
        return 5.0 if "KUBERNETES_SERVICE_HOST" in os.environ else 0.0


def server_of(target: str, config: ConfigFile | None = None) -> Server:
    """Return the server that a target's function returns, or one that serves its outputs.

    Outputs are served under the function's name, and their feeds are the example.  Models are
    warmed up here, so that one that cannot run is reported before a port is open.
    """
    function = function_of(target)
    returned, own = function(), declared(function)
    if isinstance(returned, Server):
        if config is not None or own:
            raise GraphError(f"{target} returns a Server, which has its own config: Server(config)")
        server = returned
    else:
        outputs, feeds = outputs_and_feeds_of(target, returned, "a Server, or (outputs, feeds)")

        @configured(**own)
        def make() -> tuple[Any, Any]:
            return outputs, feeds

        try:
            server = Server(config)
            server.add(target.rpartition(":")[2], make)
        except (TypeError, ValueError) as error:
            raise GraphError(str(error)) from error
    try:
        anyio.run(server.start)
    except BaseException:
        server.close()
        raise
    return server


def show_log() -> None:
    """Write the library's log to standard error, as uvicorn does."""
    if all(isinstance(one, logging.NullHandler) for one in _LOGGER.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s:     %(message)s"))
        _LOGGER.addHandler(handler)
        _LOGGER.setLevel(logging.INFO)


def _spare_collections() -> None:
    """Have the garbage collector run rarely, and skip all objects that exist now.

    It stops the event loop: 50 ms for modules and models, at almost every batch of requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, 10, 50)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(host: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket bound to an address; other processes may bind it too if it is shared."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Without `proto`, event loops do not recognise TCP, and leave Nagle's algorithm on.
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
        return listener
    except OSError as error:
        raise GraphError(f"cannot serve at {host}:{port}: {error.strerror or error}") from error


def serve(server: Server, endpoint: Endpoint, directory: Directory | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C: admitted requests are answered, new ones get 503.

    A second signal exits at once.  If the environment has ``ACTORGRAPH_REPOSITORY_TOKEN``, clients
    with that token may load and unload models.  Raises `GraphError` if a library is missing or a
    port cannot be opened.
    """
    try:
        import uvicorn
    except ImportError:
        server.close()
        raise GraphError(
            'serving needs uvicorn; install it with: pip install "actorgraph[serve]"'
        ) from None

    class QuietUvicorn(uvicorn.Server):
        """Leaves signals to us: it would close the port before balancers know."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                _spare_collections()
                at = _address(endpoint.host, port.getsockname()[1])
                _LOGGER.info("HTTP at http://%s", at)

    show_log()
    registry, alone = process_registry(), endpoint.metrics_port is not None
    token = os.environ.get("ACTORGRAPH_REPOSITORY_TOKEN") or None
    config = uvicorn.Config(
        asgi(server, repository_token=token, registry=registry, metrics=not alone),
        http=refusing(server), lifespan="on", host=endpoint.host, port=endpoint.port,
        access_log=False, log_level="warning", proxy_headers=False, server_header=False,
    )  # fmt: skip
    if not endpoint.access_log:  # said after uvicorn's config, which switches all loggers on
        logging.getLogger("actorgraph.access").disabled = True
    with ExitStack() as stack:
        port = stack.enter_context(bound(endpoint.host, endpoint.port, shared=endpoint.supervised))
        if endpoint.metrics_port is not None:
            telling = metrics_endpoint(endpoint.host, endpoint.metrics_port, registry)
            at = _address(endpoint.host, stack.enter_context(telling))
            _LOGGER.info("metrics at http://%s/metrics", at)
        make_threads_nice(_NICE)
        run = _Serving(server, endpoint, token, QuietUvicorn(config)).run
        fast = {"use_uvloop": util.find_spec("uvloop") is not None}
        anyio.run(run, port, directory, backend_options=fast)


@dataclass
class _Serving:
    """A server, its ports, and how they end."""

    _server: Server
    _endpoint: Endpoint
    _token: str | None
    _http: Any
    _rpc: Any = None

    async def run(self, port: socket.socket, directory: Directory | None) -> None:
        """Serve until a signal."""
        async with self._speaking_grpc(), anyio.create_task_group() as tasks:
            if directory is not None and self._server.config.reload_mode == "watch":
                tasks.start_soon(directory.watch)
            tasks.start_soon(self._end_by_signals)
            if self._endpoint.supervised:
                tasks.start_soon(self._end_with_parent)
            try:
                await self._http.serve([port])
            except SystemExit:  # uvicorn has logged why
                pass
            tasks.cancel_scope.cancel()
        await self._server.aclose()
        _LOGGER.info("ended")

    @asynccontextmanager
    async def _speaking_grpc(self) -> AsyncIterator[None]:
        endpoint = self._endpoint
        if endpoint.grpc_port is None:
            yield
            return
        options = [("grpc.so_reuseport", int(endpoint.supervised))]
        self._rpc = grpc(self._server, repository_token=self._token, options=options)
        at = _address(endpoint.host, endpoint.grpc_port)
        try:
            port = self._rpc.add_insecure_port(at)
        except RuntimeError as error:
            raise GraphError(f"cannot serve gRPC at {at}; is the port in use?") from error
        await self._rpc.start()
        _LOGGER.info("gRPC at %s", _address(endpoint.host, port))
        try:
            yield
        finally:
            await self._rpc.stop(None)

    async def _end_by_signals(self) -> None:
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                asked = False
                async for number in signals:
                    if asked:
                        await self._end_at_once(number)
                    tasks.start_soon(self._end)
                    asked = True

    async def _end_with_parent(self) -> None:
        await anyio.wait_readable(sys.stdin.fileno())  # readable only at its end
        os.kill(os.getpid(), signal.SIGTERM)

    async def _end(self) -> None:
        await self._server.drain(delay_s=self._endpoint.delay_s(self._server))
        grace_s = max((one.config.shutdown_grace_s for one in self._server.models), default=1.0)
        # Slow readers have this long to take their answers.
        until = monotonic() + grace_s
        if self._rpc is not None:
            await self._rpc.stop(grace_s)
        self._http.config.timeout_graceful_shutdown = max(1, ceil(until - monotonic()))
        self._http.should_exit = True

    async def _end_at_once(self, number: int) -> None:
        """Refuse the remaining requests and exit, without waiting for ops that block."""
        _LOGGER.warning("second signal: the remaining requests are refused")
        for model in self._server.models:
            model.stop()
        await anyio.sleep(_LAST_WORDS_S)
        os._exit(128 + number)
