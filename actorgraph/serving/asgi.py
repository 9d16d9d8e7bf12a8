"""`asgi`: a server's models as an ASGI application, without a framework.

Routes, errors and extensions are those of the Open Inference Protocol, version 2.  The application
may be mounted in another; it installs no signal handlers and starts no threads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import anyio

from actorgraph.errors import GraphError, shown, text_of
from actorgraph.machines.event_loops import in_trio
from actorgraph.options import flag
from actorgraph.serving import protocol
from actorgraph.serving.access import logged
from actorgraph.serving.config import Config
from actorgraph.serving.disconnects import Receive, cancel_on_disconnect
from actorgraph.serving.errors import (
    ClientGone,
    DeadlineExceeded,
    InvalidInput,
    PayloadTooLarge,
    Unsupported,
)
from actorgraph.serving.metrics import Collector
from actorgraph.serving.model import ServedModel
from actorgraph.serving.routes import (
    JSON,
    Inference,
    Reply,
    Routes,
    Scope,
    as_json,
    complete,
    failure,
    header,
    identified,
    number,
)
from actorgraph.serving.server import Server
from actorgraph.serving.signature import Array
from actorgraph.serving.spans import parent_of

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Admit: TypeAlias = Callable[[Scope], object]

_HEADER_BYTES = b"inference-header-content-length"
_EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


def asgi(
    server: Server, *, admit: Admit | None = None, repository_token: str | None = None,
    registry: Any = None, metrics: bool = True,
) -> App:  # fmt: skip
    """Return an application that serves the models of `server`.

    Models are warmed up when the ASGI host starts its lifespan, and the server is drained when it
    ends.  If you mount the application in another, await ``server.start()`` and
    ``server.drain()`` yourself.

    Parameters
    ----------
    server : Server
    admit : callable, optional
        Called with the scope of each inference request before its body is read.  An error that it
        raises is the answer, such as ``RateLimited("100 a minute")``, whose ``retry_after_s`` may
        be set.
    repository_token : str, optional
        Switches on the routes that load and unload models, for clients that send
        ``Authorization: Bearer TOKEN``.
    registry : CollectorRegistry of prometheus_client, optional
        The application's own.  The server's metrics are registered there, and ``/metrics`` shows
        everything in it.  A registry is for one server.
    metrics : bool
        Whether to serve ``/metrics``; False if something else exposes `registry`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> app = ag.serving.asgi(ag.serving.Server())  # for `uvicorn FILE:app`
    """
    if registry is not None:
        registry.register(Collector(server))
    routes = Routes(server, repository_token, registry, flag("metrics", metrics))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(server, receive, send)
        elif scope["type"] == "http":
            await _Exchange(routes, admit, scope, receive, send).run()
        else:
            await send({"type": "websocket.close", "code": 1000})

    return app  # hosts look whether it is a coroutine function, which a partial is not


async def _lifespan(server: Server, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await server.start()
            except Exception as error:  # noqa: BLE001 - the host reports it
                await send({"type": "lifespan.startup.failed", "message": text_of(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        else:
            await server.drain()
            await server.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return


@dataclass(eq=False, slots=True)
class _Exchange:
    """An HTTP request and its answer."""

    _routes: Routes
    _admit: Admit | None
    _scope: Scope
    _receive: Receive
    _to_client: Send
    _streaming: bool = False

    async def run(self) -> None:
        """Answer, unless the client has left."""
        try:
            reply = await self._reply()
        except ClientGone:
            return
        except GraphError as error:
            reply = failure(error, self._scope)
        except Exception:
            logging.getLogger("actorgraph").exception("a request could not be answered")
            reply = as_json(500, {"error": "internal error", "code": "INTERNAL"})
        if self._streaming:
            if reply is not None:  # an error after the status was sent
                await self._event(reply[2], b"error")
            await self._send(b"")
        elif reply is not None:
            status, headers, body = complete(reply, self._scope)
            await self._begin(status, headers)
            await self._send(b"" if self._scope["method"] == "HEAD" else body)

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._to_client({"type": "http.response.start", "status": status, "headers": headers})

    async def _send(self, body: bytes, more: bool = False) -> None:
        await self._to_client({"type": "http.response.body", "body": body, "more_body": more})

    async def _event(self, data: bytes, kind: bytes | None = None) -> None:
        named = b"" if kind is None else b"event: " + kind + b"\n"
        await self._send(named + b"data: " + data + b"\n\n", more=True)

    # -- inference ------------------------------------------------------------------------------

    async def _reply(self) -> Reply | None:
        """Return the answer; None if it was streamed."""
        route = await self._routes.resolve(self._scope, self._receive_body)
        if not isinstance(route, Inference):
            return route
        with logged("http", self._routes.server, route.name, route.version) as log_fields:
            return await self._infer(route, log_fields)

    async def _infer(self, route: Inference, log_fields: dict[str, Any]) -> Reply | None:
        server = self._routes.server
        if self._admit is not None:
            self._admit(self._scope)
        model = server.taking(route.name, route.version)
        with model.reading():
            body = await self._body(model.config)
            model = server.model(route.name, route.version)  # it may have been reloaded
            parsed, options = self._parse(model, body)
        log_fields |= {"version": model.version, "request_id": options["request_id"]}
        with parent_of(model.config.tracing, self._scope["headers"]):
            if route.streams:
                steps = parsed.parameters.get("max_steps")
                stream = partial(self._stream, model, parsed, {**options, "max_steps": steps})
                return await cancel_on_disconnect(self._receive, stream)
            call = partial(model.infer, parsed.inputs, **options)
            cancels = model.config.on_disconnect == "cancel"
            results = await (cancel_on_disconnect(self._receive, call) if cancels else call())
        return _answer(model, parsed, results)

    def _parse(
        self, model: ServedModel, body: bytes
    ) -> tuple[protocol.ParsedRequest, dict[str, Any]]:
        """Return the parsed body, and the keywords of `ServedModel.infer`."""
        scope = self._scope
        parsed = protocol.parse_body(model, body, number(scope, _HEADER_BYTES))
        timeout_ms = number(scope, b"x-request-timeout-ms")
        identity = header(scope, b"x-request-id")
        return parsed, parsed.keywords(
            None if timeout_ms is None else timeout_ms / 1e3,
            request_id=None if identity is None else identity.decode("latin-1"),
        )

    async def _body(self, limits: Config) -> bytes:
        encoding = header(self._scope, b"content-encoding")
        if encoding not in (None, b"identity"):
            raise InvalidInput(
                f"the content encoding {shown(encoding.decode('latin-1'))} is not supported"
            )
        read, limit_s = self._receive_body(limits.max_request_bytes), limits.request_timeout_s
        try:
            if in_trio():
                with anyio.fail_after(limit_s):
                    return await read
            import asyncio

            async with asyncio.timeout(limit_s):  # a scope of anyio costs several times as much
                return await read
        except TimeoutError:
            late = DeadlineExceeded("the body did not arrive in time (request_timeout_s)")
            late.status = 408  # the client was late
            raise late from None

    async def _receive_body(self, max_bytes: int) -> bytes:
        """Return the body; one whose length is announced as more than `max_bytes` is not read."""
        too_large = PayloadTooLarge(
            f"the body has more than {max_bytes:,} bytes (max_request_bytes)"
        )
        if (number(self._scope, b"content-length") or 0) > max_bytes:
            raise too_large
        chunks, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client left before its body had arrived")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > max_bytes:
                raise too_large
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def _stream(
        self, model: ServedModel, parsed: protocol.ParsedRequest, options: dict[str, Any]
    ) -> None:
        """Send each part as it comes; the next one is computed when the client has taken it."""
        with model.reading():
            if any(parsed.outputs.values()):
                raise Unsupported("streams are JSON only; leave binary_data out")
        async with aclosing(model.stream(parsed.inputs, **options)) as parts:
            async for part in parts:
                data, _ = protocol.answer(model, parsed, part)
                if not self._streaming:  # an error before the first part sets the status
                    await self._begin(200, identified(self._scope, _EVENTS))
                    self._streaming = True
                await self._event(data)
        await self._event(json.dumps({"id": parsed.identity}).encode(), b"end")


def _answer(
    model: ServedModel, parsed: protocol.ParsedRequest, results: Mapping[str, Array]
) -> Reply:
    content, header_bytes = protocol.answer(model, parsed, results)
    if header_bytes is None:
        return 200, [JSON], content
    headers = [(b"content-type", b"application/octet-stream")]
    return 200, [*headers, (_HEADER_BYTES, str(header_bytes).encode())], content
