"""`refusing`: uvicorn's HTTP protocol, which refuses requests on overload before it reads them.

Under overload most requests are refused, and whatever that costs is taken from those that are
served: each holds the interpreter.  So a request is refused before uvicorn parses it and makes a
scope, a task and messages.  Clients send the same head again and again; what a head says is
remembered by its bytes, and httptools parses those that are new.

Requests come in bursts: a loop reads from all its connections before it begins a task.  So those
count that were let in and whose tasks have not begun, but not those whose bodies are awaited, which
a client may send as slowly as it likes.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from actorgraph.serving.access import is_logged, logged
from actorgraph.serving.errors import ModelNotFound, Overloaded
from actorgraph.serving.request import PROTOCOL
from actorgraph.serving.routes import Inference, complete, failure, inference_at
from actorgraph.serving.server import Server

_END = b"\r\n\r\n"
_HEAD_BYTES = 4096
"""Longer heads are left to the application, and are not remembered."""


def refusing(server: Server) -> Any:
    """Return uvicorn's ``http=`` argument: a class, or "auto" without httptools.

    It answers inference requests of the usual form that find the queue full; all others go on to
    the application.
    """
    coming: Counter[Inference] = Counter()  # by all connections
    try:
        from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
    except ImportError:
        return "auto"

    class Refusing(HttpToolsProtocol):
        """Refuses some requests by itself, and drops their bodies."""

        _within = False  # a request that its parser reads, or the connection's last one
        _to_drop = 0  # bytes of the body of a refused request that have not come

        def data_received(self, data: bytes) -> None:
            dropped, data = data[: self._to_drop], data[self._to_drop :]
            self._to_drop -= len(dropped)
            if data:
                end = data.find(_END, 0, _HEAD_BYTES) + len(_END)
                head = usual_head(data[:end]) if self._is_free() else None
                left = -1 if head is None else end + head.body_bytes - len(data)
                answer = b""
                if head is not None and left >= 0:
                    answer = _refusal(server, head, coming[head.route])
                if not answer:
                    super().data_received(data)
                    if head is not None:
                        _let_in(coming, head.route, self.loop)
                    return
                added = [b"%b: %b\r\n" % one for one in self.server_state.default_headers]
                self.transport.write(b"".join([STATUS_LINE[Overloaded.status], *added, answer]))
                self.server_state.total_requests += 1
                self._to_drop = left
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

        def _is_free(self) -> bool:
            """Return whether an answer may be written now, with nothing before it."""
            answered = self.cycle is None or self.cycle.response_complete
            return answered and not self._within and not self.flow.write_paused

        def on_message_begin(self) -> None:
            self._within = True
            super().on_message_begin()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._within = not self.parser.should_keep_alive() or self.parser.should_upgrade()

    return Refusing


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of an inference request of the usual form."""

    route: Inference
    body_bytes: int
    identity: bytes | None  # the client's own


class _Parsed:
    """What httptools reports of bytes."""

    def __init__(self) -> None:
        self.urls: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self.on_url = self.urls.append
        self.body: list[bytes] = []
        self.on_body = self.body.append

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        self.complete = True


@lru_cache(maxsize=256)
def usual_head(text: bytes) -> _Head | None:
    """Return what a head says; None if it is no head, or of a request that is not refused here."""
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

    found = _Parsed()
    parser = HttpRequestParser(found)
    try:
        parser.feed_data(text)
    except (HttpParserError, HttpParserUpgrade):
        return None
    headers, size = found.headers, found.headers.get(b"content-length", b"")
    if not (
        found.complete
        and not found.body  # the parser sees the end of the head where we do
        and len(found.urls) == 1
        and size.isdigit()
        and not headers.keys() & {b"expect", b"transfer-encoding"}
        and parser.get_method() == b"POST"
        and parser.get_http_version() == "1.1"
        and parser.should_keep_alive()
        and not parser.should_upgrade()
    ):
        return None
    (url,) = found.urls
    route = None if b"%" in url or b"?" in url else inference_at(url.decode("latin-1"))
    if route is None:
        return None
    return _Head(route, int(size), headers.get(b"x-request-id"))


def _refusal(server: Server, head: _Head, coming: int) -> bytes:
    """Return the answer to a request that is refused now, and count it; b"" if it is not."""
    route = head.route
    try:
        model = server.model(route.name, route.version)
    except ModelNotFound:  # the application reports it
        return b""
    error = model.refusal(coming) if server.accepting else None
    if error is None:
        return b""
    PROTOCOL.set("http")
    model.refused(error)
    if is_logged(server, route.name, route.version):
        with suppress(Overloaded), logged("http", server, route.name, route.version):
            raise error
    return _answer(str(error), head.identity)


@lru_cache(maxsize=256)
def _answer(text: str, identity: bytes | None) -> bytes:
    """Return the application's answer to a request that is too many, but for its first line."""
    scope = {"headers": [] if identity is None else [(b"x-request-id", identity)]}
    _, headers, body = complete(failure(Overloaded(text), scope), scope)
    return b"".join([*[b"%b: %b\r\n" % one for one in headers], b"\r\n", body])


def _let_in(coming: Counter[Inference], route: Inference, loop: Any) -> None:
    """Count a request until its task has done its first step, which puts it into the queue."""
    coming[route] += 1
    loop.call_soon(_begun, coming, route)


def _begun(coming: Counter[Inference], route: Inference) -> None:
    coming[route] -= 1
    if not coming[route]:
        del coming[route]
