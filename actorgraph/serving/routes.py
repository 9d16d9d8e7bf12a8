"""HTTP requests and replies in ASGI's terms; answers all requests but inference."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from actorgraph.errors import GraphError, NodeError, shown
from actorgraph.serving import about, protocol
from actorgraph.serving.errors import (
    InvalidInput,
    ModelNotFound,
    NotReady,
    ServingError,
    Unauthorized,
    check_token,
    code_of,
)
from actorgraph.serving.metrics import exposition
from actorgraph.serving.openapi import openapi
from actorgraph.serving.server import Server

Scope: TypeAlias = MutableMapping[str, Any]
"""ASGI's: method, path and headers of a request."""

Read: TypeAlias = Callable[[int], Awaitable[bytes]]
"""Returns the body of a request; takes the most bytes that it may have."""

Headers: TypeAlias = list[tuple[bytes, bytes]]
Reply: TypeAlias = tuple[int, Headers, bytes]
"""Status, headers, body."""

_MAX_BYTES = 64 << 20  # of a body that is not for a model
_HEADERS = "actorgraph.headers"  # key of a scope: its headers by name

JSON = (b"content-type", b"application/json")
"""A header."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of a name, which is in lower case as ASGI requires."""
    headers: dict[bytes, bytes] | None = scope.get(_HEADERS)
    if headers is None:  # cached, for several are looked up
        headers = scope[_HEADERS] = dict([*scope["headers"]][::-1])
    return headers.get(name)


def number(scope: Scope, name: bytes) -> int | None:
    """Return a header that is a whole number, or raise `InvalidInput`."""
    value = header(scope, name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        text = shown(value.decode("latin-1"))
        raise InvalidInput(f"the header {name.decode()} has to be a whole number, got {text}")
    return int(value)


def as_json(status: int, content: object, headers: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    """Return an answer in JSON."""
    return status, [JSON, *headers], json.dumps(content).encode()


def failure(error: GraphError, scope: Scope) -> Reply:
    """Return the answer for an error."""
    content, status = {"error": str(error), "code": code_of(error)}, 500
    headers: Headers = []
    if isinstance(error, ServingError):
        status = error.status
        if error.retry_after_s is not None:
            headers.append((b"retry-after", str(error.retry_after_s).encode()))
        if isinstance(error, NotReady) and scope.get("http_version", "1.1").startswith("1"):
            headers.append((b"connection", b"close"))
        if isinstance(error, Unauthorized):
            headers.append((b"www-authenticate", b"Bearer"))
    elif isinstance(error, NodeError):
        content["node"] = error.node
    return as_json(status, content, headers)


def identified(scope: Scope, headers: Headers) -> Headers:
    """Return the headers of an answer, with the client's own id of its request."""
    identity = header(scope, b"x-request-id")
    return [*headers, *([] if identity is None else [(b"x-request-id", identity)])]


def complete(reply: Reply, scope: Scope) -> Reply:
    """Return a reply with its remaining headers."""
    status, headers, body = reply
    length = (b"content-length", str(len(body)).encode())
    return status, identified(scope, [*headers, length]), body


# -- routes -------------------------------------------------------------------------------------

_LIVE = ("v2/health/live", "livez", "healthz")
_READY = ("v2/health/ready", "readyz")
_HTML = [(b"content-type", b"text/html; charset=utf-8")]


@dataclass(frozen=True, slots=True)
class Inference:
    """A request for one answer of a model, or for a stream of them."""

    name: str
    version: str | None
    streams: bool


def inference_at(path: str) -> Inference | None:
    """Return the inference route at a path, if it is one."""
    match path.strip("/").split("/"):
        case ["v2", "models", name, ("infer" | "infer_stream") as word]:
            return Inference(name, None, word == "infer_stream")
        case ["v2", "models", name, "versions", version, ("infer" | "infer_stream") as word]:
            return Inference(name, version, word == "infer_stream")
    return None


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a server."""

    server: Server
    repository_token: str | None = None  # needed for loading; None switches it off
    registry: Any = None  # of prometheus-client; None for a new one at each scrape
    has_metrics: bool = True

    @property
    def has_repository(self) -> bool:
        """Whether clients may load and unload models."""
        return self.repository_token is not None

    async def resolve(self, scope: Scope, read: Read) -> Reply | Inference:
        """Return the reply to a request, or its inference route; refusals raise.

        Only the repository's requests have their bodies read here.
        """
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")).strip("/")
        inference = inference_at(path)
        if inference is not None:
            if scope["method"] == "POST":
                return inference
            self.server.model(inference.name, inference.version)
            return _not_allowed(scope, b"POST")
        match path.split("/"):
            case ["v2", "models", name, *rest] if (name, rest) != ("stats", []):
                return self._of_model(name, rest, scope)
            case ["v2", "repository", *rest] if self.has_repository:
                return await self._of_repository(rest, scope, read)
        reply_to = _GET_ROUTES.get(path)
        if reply_to is None or (path == "metrics" and not self.has_metrics):
            raise ModelNotFound(f"there is nothing at {shown(scope['path'])}")
        return reply_to(self, scope) if _is_get(scope) else _not_allowed(scope)

    def _of_model(self, name: str, rest: list[str], scope: Scope) -> Reply:
        server, version = self.server, None
        if len(rest) > 1 and rest[0] == "versions":
            version, rest = rest[1], rest[2:]
        if rest not in ([], ["ready"], ["stats"], ["config"]):
            raise ModelNotFound(f"there is nothing at {shown(scope['path'])}")
        model = server.model(name, version)
        if not _is_get(scope):
            return _not_allowed(scope)
        match rest:
            case ["ready"]:
                return _readiness({"name": name, "ready": server.is_ready(model)}, scope)
            case ["stats"]:
                return as_json(200, about.statistics([model]))
            case ["config"]:
                return as_json(200, about.configuration(model))
        versions = server.versions(name) if version is None else [version]
        return as_json(200, protocol.metadata(model, versions))

    async def _of_repository(self, rest: list[str], scope: Scope, read: Read) -> Reply:
        if rest != ["index"] and (
            len(rest) != 3 or rest[0] != "models" or rest[2] not in ("load", "unload")
        ):
            raise ModelNotFound(f"there is nothing at {shown(scope['path'])}")
        if scope["method"] != "POST":
            return _not_allowed(scope, b"POST")
        check_token(header(scope, b"authorization"), self.repository_token)
        body = protocol.json_object(await read(_MAX_BYTES) or b"{}")
        if rest == ["index"]:
            return as_json(200, self.server.index(ready=body.get("ready") is True))
        _, name, word = rest
        call = self.server.load if word == "load" else self.server.unload
        await protocol.change_repository(name, call, protocol.parameters_of(body))
        return as_json(200, {})


def _is_get(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD")


def _not_allowed(scope: Scope, allow: bytes = b"GET, HEAD") -> Reply:
    why = f"{scope['method']} is not allowed here, only {allow.decode()}"
    return as_json(405, {"error": why, "code": "METHOD_NOT_ALLOWED"}, [(b"allow", allow)])


def _readiness(content: dict[str, Any], scope: Scope) -> Reply:
    if content["ready"]:
        return as_json(200, content)
    _, headers, _ = failure(NotReady("the server is starting or stopping"), scope)
    return 503, headers, json.dumps(content).encode()


def _openapi(routes: Routes, scope: Scope) -> Reply:
    options = {"repository": routes.has_repository, "metrics": routes.has_metrics}
    return as_json(200, openapi(routes.server, scope.get("root_path", ""), **options))


_GET_ROUTES: dict[str, Callable[[Routes, Scope], Reply]] = {
    "": lambda routes, scope: (200, [*_HTML], about.page(routes.server)),
    "v2": lambda routes, _: as_json(200, about.extensions(routes.has_repository)),
    "v2/models/stats": lambda routes, _: as_json(200, about.statistics(routes.server.models)),
    "config": lambda routes, _: as_json(200, about.settings(routes.server)),
    "metrics": lambda routes, _: exposition(routes.server, routes.registry),
    **dict.fromkeys(("openapi.json", "v2/docs"), _openapi),
    **dict.fromkeys(_LIVE, lambda routes, _: as_json(200, {"live": True})),
    **dict.fromkeys(
        _READY, lambda to, at: _readiness({"live": True, "ready": to.server.ready}, at)
    ),
}
"""Replies about the server and all its models, by path."""
