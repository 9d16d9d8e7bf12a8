"""Requests and answers of HTTP, as ASGI has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, MutableMapping
from typing import Any, TypeAlias

from actorgraph.errors import GraphError, NodeError, shown
from actorgraph.serving.errors import InvalidInput, NotReady, ServingError, Unauthorized, code_of

Scope: TypeAlias = MutableMapping[str, Any]
"""Of ASGI: what is known of a request before its body."""

Headers: TypeAlias = list[tuple[bytes, bytes]]
Reply: TypeAlias = tuple[int, Headers, bytes]
"""Status, headers, body."""

_HEADERS = "actorgraph.headers"  # of a scope: by name, as they were read

JSON = (b"content-type", b"application/json")
"""A header."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header of a name in lower case, as hosts of ASGI have them all."""
    headers: dict[bytes, bytes] | None = scope.get(_HEADERS)
    if headers is None:  # several are asked for
        headers = scope[_HEADERS] = dict([*scope["headers"]][::-1])
    return headers.get(name)


def number(scope: Scope, name: bytes) -> int | None:
    """Return a header that is a whole number, or raise `InvalidInput`."""
    value = header(scope, name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidInput(f"the header {name.decode()} is a whole number, got {shown(value)}")
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
