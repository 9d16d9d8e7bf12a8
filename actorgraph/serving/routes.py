"""Which path of HTTP asks for what: all but inference is answered here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actorgraph.errors import shown
from actorgraph.serving import about, protocol
from actorgraph.serving.errors import ModelNotFound, NotReady, check_token
from actorgraph.serving.metrics import exposition
from actorgraph.serving.openapi import openapi
from actorgraph.serving.replies import Reply, Scope, as_json, failure, header
from actorgraph.serving.server import Server

_LIVE = ("v2/health/live", "livez", "healthz")
_READY = ("v2/health/ready", "readyz")
_HTML = [(b"content-type", b"text/html; charset=utf-8")]


@dataclass(frozen=True, slots=True)
class Inference:
    """A model that is asked, for one answer or for a stream of them."""

    name: str
    version: str | None
    streams: bool


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a server.

    Attributes
    ----------
    server : Server
    repository_token : str or None
        What loads and unloads models have to show; None switches them off.
    """

    server: Server
    repository_token: str | None = None

    async def found(self, scope: Scope) -> Reply | Inference:
        """Return the answer to a request, or what it asks of a model.

        Raises
        ------
        ServingError
            There is nothing at the path, or what is there refuses.
        """
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")).strip("/")
        match path.split("/"):
            case ["v2", "models", name, *rest] if (name, rest) != ("stats", []):
                return self._of_model(name, rest, scope)
            case ["v2", "repository", *rest] if self.repository_token is not None:
                return await self._of_repository(rest, scope)
        tell = _TELLING.get(path)
        if tell is None:
            raise ModelNotFound(f"there is nothing at {shown(scope['path'])}")
        return tell(self, scope) if _asks(scope) else _not_allowed(scope)

    def _of_model(self, name: str, rest: list[str], scope: Scope) -> Reply | Inference:
        server, version = self.server, None
        if len(rest) > 1 and rest[0] == "versions":
            version, rest = rest[1], rest[2:]
        match rest:
            case [("infer" | "infer_stream") as word]:
                if scope["method"] != "POST":
                    server.model(name, version)
                    return _not_allowed(scope, b"POST")
                return Inference(name, version, word == "infer_stream")
            case [] | ["ready" | "stats" | "config"]:
                model = server.model(name, version)
            case _:
                raise ModelNotFound(f"there is nothing at {shown(scope['path'])}")
        if not _asks(scope):
            return _not_allowed(scope)
        match rest:
            case ["ready"]:
                return _readiness({"name": name, "ready": server.ready and model.ready}, scope)
            case ["stats"]:
                return as_json(200, about.statistics([model]))
            case ["config"]:
                return as_json(200, about.configuration(model))
        versions = server.versions(name) if version is None else [version]
        return as_json(200, protocol.metadata(model, versions))

    async def _of_repository(self, rest: list[str], scope: Scope) -> Reply:
        if rest != ["index"] and (
            len(rest) != 3 or rest[0] != "models" or rest[2] not in ("load", "unload")
        ):
            raise ModelNotFound(f"there is nothing at {shown(scope['path'])}")
        if scope["method"] != "POST":
            return _not_allowed(scope, b"POST")
        check_token(header(scope, b"authorization"), self.repository_token)
        if rest == ["index"]:
            return as_json(200, self.server.index())
        _, name, word = rest
        await (self.server.load(name) if word == "load" else self.server.unload(name))
        return as_json(200, {})


def _asks(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD")


def _not_allowed(scope: Scope, allow: bytes = b"GET, HEAD") -> Reply:
    why = f"{scope['method']} is not allowed here, only {allow.decode()}"
    return as_json(405, {"error": why, "code": "METHOD_NOT_ALLOWED"}, [(b"allow", allow)])


def _readiness(found: dict[str, Any], scope: Scope) -> Reply:
    if found["ready"]:
        return as_json(200, found)
    _, headers, _ = failure(NotReady("the server is starting or stopping"), scope)
    return 503, headers, json.dumps(found).encode()


def _openapi(routes: Routes, scope: Scope) -> Reply:
    comes_and_goes = routes.repository_token is not None
    return as_json(
        200, openapi(routes.server, scope.get("root_path", ""), repository=comes_and_goes)
    )


_TELLING: dict[str, Callable[[Routes, Scope], Reply]] = {
    "": lambda routes, scope: (200, [*_HTML], about.page(routes.server)),
    "v2": lambda routes, _: as_json(200, about.extensions(routes.repository_token is not None)),
    "v2/models/stats": lambda routes, _: as_json(200, about.statistics(routes.server.models)),
    "metrics": lambda routes, _: exposition(routes.server),
    "openapi.json": _openapi,
    **dict.fromkeys(_LIVE, lambda routes, _: as_json(200, {"live": True})),
    **dict.fromkeys(
        _READY, lambda to, at: _readiness({"live": True, "ready": to.server.ready}, at)
    ),
}
"""What is told of the server and all its models, by path."""
