"""What `actorgraph serve FILE.py:function` does: serve by uvicorn and gRPC, until a signal.

The order of the end: not ready, a delay in which balancers see it, no new requests, what was taken
is answered within the grace, the rest is refused, ports and models are closed.
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
from actorgraph.serving.metrics import process_registry, told_at
from actorgraph.serving.refusing import refusing
from actorgraph.serving.rpc import grpc
from actorgraph.serving.server import Server

_LOGGER = logging.getLogger("actorgraph")
_LAST_WORDS_S = 0.5
_OBJECTS = 20_000
"""New ones after which cycles are looked for."""
_NICE = 5
"""How far threads that compute stand back: the loop has to refuse what is too much at once."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to serve.

    Where it is supervised other processes listen at the same ports, and the end of the standard
    input ends this one, as a signal does.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    metrics_port: int | None = None  # None for the port of HTTP
    drain_delay_s: float | None = None  # None for the server's own, or what Kubernetes needs
    access_log: bool = True  # False goes before the config of models
    supervised: bool = False

    def delay_s(self, server: Server) -> float:
        """Return for how long requests are taken when the server is not ready any more."""
        for given in (self.drain_delay_s, server.config.drain_delay_s):
            if given is not None:
                return given
        # Balancers need a while to look elsewhere.
        return 5.0 if "KUBERNETES_SERVICE_HOST" in os.environ else 0.0


def server_of(target: str, config: ConfigFile | None = None) -> Server:
    """Return the server that the function of a target returns, or one of its outputs.

    Outputs are served under the function's name.  Models are warmed up, outputs by the feeds that
    come with them, so that what cannot run is told before a port is open.
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
    """Write what the library logs to standard error, as uvicorn does."""
    if all(isinstance(one, logging.NullHandler) for one in _LOGGER.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s:     %(message)s"))
        _LOGGER.addHandler(handler)
        _LOGGER.setLevel(logging.INFO)


def _spare_collections() -> None:
    """Have the collector of cycles look rarely, and never at what is there now.

    It holds the loop: 50 ms for modules and models, and each batch of requests would call it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, 10, 50)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(host: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket at an address, which other processes may use too where it is shared."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Without its protocol loops do not see that it is TCP, and leave Nagle's algorithm on.
        found = socket.socket(family, kind, proto)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found.bind(address)
        except BaseException:
            found.close()
            raise
        return found
    except OSError as error:
        raise GraphError(f"cannot serve at {host}:{port}: {error.strerror or error}") from error


def serve(server: Server, endpoint: Endpoint, directory: Directory | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C: requests that were taken are answered, new ones get 503.

    The second signal ends at once.  Where the environment has ``ACTORGRAPH_REPOSITORY_TOKEN``,
    models may be loaded and unloaded by who shows it.  What is not installed, and a port that
    cannot be had, is a `GraphError`.
    """
    try:
        import uvicorn
    except ImportError:
        server.close()
        raise GraphError(
            'serving needs uvicorn; install it with: pip install "actorgraph[serve]"'
        ) from None

    class QuietUvicorn(uvicorn.Server):
        """Leaves the signals to us: it would close the port before anybody knows."""

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
            telling = told_at(endpoint.host, endpoint.metrics_port, registry)
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
            except SystemExit:  # uvicorn has told why
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
        await anyio.wait_readable(sys.stdin.fileno())  # nothing is written: it is the end
        os.kill(os.getpid(), signal.SIGTERM)

    async def _end(self) -> None:
        await self._server.drain(delay_s=self._endpoint.delay_s(self._server))
        grace_s = max((one.config.shutdown_grace_s for one in self._server.models), default=1.0)
        # Who reads slowly has so long to take what is answered.
        until = monotonic() + grace_s
        if self._rpc is not None:
            await self._rpc.stop(grace_s)
        self._http.config.timeout_graceful_shutdown = max(1, ceil(until - monotonic()))
        self._http.should_exit = True

    async def _end_at_once(self, number: int) -> None:
        """Refuse what is not answered, and leave: a node that blocks is not waited for."""
        _LOGGER.warning("the second signal: what was taken is refused")
        for model in self._server.models:
            model.stop()
        await anyio.sleep(_LAST_WORDS_S)
        os._exit(128 + number)
