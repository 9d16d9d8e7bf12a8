"""`asgi`: a server's models as an application of ASGI, without a framework.

Routes, errors and extensions are those of the Open Inference Protocol, version 2.  The application
may be mounted in another; it installs no signal handlers and starts no threads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any, TypeAlias

import anyio

from actorgraph._version import __version__
from actorgraph.errors import GraphError, NodeError, shown
from actorgraph.serving import protocol
from actorgraph.serving.errors import (
    InvalidInput,
    ModelNotFound,
    NotReady,
    PayloadTooLarge,
    ServingError,
    Unsupported,
)
from actorgraph.serving.metrics import exposition
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server

__all__ = ["asgi"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Reply: TypeAlias = tuple[int, Headers, bytes]

_JSON = (b"content-type", b"application/json")
_HEADER_BYTES = b"inference-header-content-length"
_EXTENSIONS = ["binary_tensor_data", "schedule_policy", "parameters"]
_LIVE = ("v2/health/live", "livez", "healthz")
_READY = ("v2/health/ready", "readyz")


class _Gone(Exception):
    """The client has left: nobody is there to be answered."""


def asgi(server: Server, *, admit: Callable[[Scope], object] | None = None) -> App:
    """Return an application that serves the models of `server`.

    When a host of ASGI ends its lifespan the server is drained; whoever mounts the application
    awaits ``server.drain()`` instead.

    Parameters
    ----------
    server : Server
    admit : callable, optional
        Called with the scope of each request for inference before its body is read; what it
        raises is the answer, such as ``RateLimited("100 a minute")``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> app = ag.serving.asgi(ag.serving.Server())  # for `uvicorn FILE:app`
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _serve(server, admit, scope, receive, send)

    return app  # hosts look whether it is a coroutine function, which a partial is not


async def _serve(
    server: Server,
    admit: Callable[[Scope], object] | None,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(server, receive, send)
    elif scope["type"] == "http":
        try:
            status, headers, body = await _reply(server, admit, scope, receive)
        except _Gone:
            return
        if scope["method"] == "HEAD":
            body = b""
        identity = _header(scope, b"x-request-id")
        if identity is not None:
            headers.append((b"x-request-id", identity))
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": 1000})


async def _lifespan(server: Server, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await server.drain()
            await server.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _reply(
    server: Server, admit: Callable[[Scope], object] | None, scope: Scope, receive: Receive
) -> Reply:
    try:
        found = _looked_up(server, scope)
        if not isinstance(found, ServedModel):
            return found
        if admit is not None:
            admit(scope)
        return await _infer(server, found, scope, receive)
    except GraphError as error:
        return _failure(error, scope)
    except _Gone:
        raise
    except Exception:
        logging.getLogger("actorgraph").exception("a request could not be answered")
        return _json(500, {"error": "internal error", "code": "INTERNAL"})


# -- routes -------------------------------------------------------------------------------------


def _looked_up(server: Server, scope: Scope) -> Reply | ServedModel:
    """Return the answer to a request, or the model that is asked to infer."""
    path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")).strip("/")
    method, parts = scope["method"], path.split("/")
    asked = method in ("GET", "HEAD")
    match parts:
        case ["v2"] if asked:
            found = {"name": "actorgraph", "version": __version__, "extensions": _EXTENSIONS}
            return _json(200, found)
        case _ if path in _LIVE and asked:
            return _json(200, {"live": True})
        case _ if path in _READY and asked:
            return _readiness({"live": server.ready, "ready": server.ready}, scope)
        case ["metrics"] if asked:
            return exposition(server)
        case ["v2", "models", name, *rest]:
            return _of_model(server, name, rest, scope)
    return _no_route(scope, known=path in ("v2", "metrics", *_LIVE, *_READY))


def _of_model(server: Server, name: str, rest: list[str], scope: Scope) -> Reply | ServedModel:
    asked = scope["method"] in ("GET", "HEAD")
    version = None
    if len(rest) > 1 and rest[0] == "versions":
        version, rest = rest[1], rest[2:]
    if rest not in ([], ["ready"], ["infer"]):
        return _no_route(scope, known=False)
    model = server.model(name, version)
    if rest == ["infer"]:
        return model if scope["method"] == "POST" else _no_route(scope, allow=b"POST")
    if not asked:
        return _no_route(scope)
    if rest:
        return _readiness({"name": name, "ready": server.ready and model.ready}, scope)
    versions = server.versions(name) if version is None else [version]
    return _json(200, protocol.metadata(model, versions))


def _readiness(found: dict[str, Any], scope: Scope) -> Reply:
    if found["ready"]:
        return _json(200, found)
    _, headers, _ = _failure(NotReady("the server is stopping"), scope)
    return 503, headers, json.dumps(found).encode()


def _no_route(scope: Scope, *, known: bool = True, allow: bytes = b"GET, HEAD") -> Reply:
    if known:
        why = f"{scope['method']} is not allowed here, only {allow.decode()}"
        return _json(405, {"error": why, "code": "METHOD_NOT_ALLOWED"}, [(b"allow", allow)])
    return _failure(ModelNotFound(f"there is nothing at {shown(scope['path'])}"), scope)


# -- inference ----------------------------------------------------------------------------------


async def _infer(server: Server, model: ServedModel, scope: Scope, receive: Receive) -> Reply:
    if not server.ready:
        raise NotReady("the server takes no more requests: it is stopping")
    encoding = _header(scope, b"content-encoding")
    if encoding not in (None, b"identity"):
        raise Unsupported(f"bodies with the content encoding {shown(encoding)} are not read")
    body = await _body(scope, receive, model.config.max_request_bytes)
    asked = protocol.read(model, body, _number(scope, _HEADER_BYTES))
    within = [asked.timeout_s] if asked.timeout_s is not None else []
    timeout_ms = _number(scope, b"x-request-timeout-ms")
    if timeout_ms is not None:
        within.append(timeout_ms / 1e3)
    identity = _header(scope, b"x-request-id")
    call = partial(
        model.infer, asked.inputs, deadline_s=min(within, default=None), priority=asked.priority,
        request_id=asked.identity if identity is None else identity.decode("latin-1"),
    )  # fmt: skip
    cancels = model.config.on_disconnect == "cancel"
    results = await (_unless_gone(receive, call) if cancels else call())
    content, header_bytes = protocol.answer(model, asked, results)
    if header_bytes is None:
        return 200, [_JSON], content
    headers = [(b"content-type", b"application/octet-stream")]
    return 200, [*headers, (_HEADER_BYTES, str(header_bytes).encode())], content


async def _body(scope: Scope, receive: Receive, most: int) -> bytes:
    """Return the body, of at most so many bytes: one that says to be longer is not even read."""
    too_large = PayloadTooLarge(f"the body has more than {most:,} bytes (max_request_bytes)")
    if (_number(scope, b"content-length") or 0) > most:
        raise too_large
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise too_large
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _unless_gone(receive: Receive, call: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of a call, which is cancelled when the client leaves.

    The body has been read, so the next message tells that the client has left.  The error leaves
    the task group by itself, not in a group.
    """
    ended: list[Any] = []
    failed: list[Exception] = []

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            ended.append(await call())
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not ended:
        raise _Gone
    return ended[0]


# -- headers and answers ------------------------------------------------------------------------


def _header(scope: Scope, name: bytes) -> bytes | None:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return next((value for key, value in headers if key.lower() == name), None)


def _number(scope: Scope, name: bytes) -> int | None:
    value = _header(scope, name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidInput(f"the header {name.decode()} is a whole number, got {shown(value)}")
    return int(value)


def _json(status: int, content: object, headers: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    return status, [_JSON, *headers], json.dumps(content).encode()


def _failure(error: GraphError, scope: Scope) -> Reply:
    content, headers, status = {"error": str(error), "code": "INTERNAL"}, Headers(), 500
    if isinstance(error, ServingError):
        status, content["code"] = error.status, error.code
        if error.retry_after_s is not None:
            headers.append((b"retry-after", str(error.retry_after_s).encode()))
        if isinstance(error, NotReady) and scope.get("http_version", "1.1").startswith("1"):
            headers.append((b"connection", b"close"))
    elif isinstance(error, NodeError):
        content |= {"code": "NODE_ERROR", "node": error.node}
    return _json(status, content, headers)
