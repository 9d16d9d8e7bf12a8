"""`refusing`: uvicorn's HTTP protocol, which refuses requests on overload before it reads them.

Under overload most requests are refused.  The scope, task and messages that an ASGI host makes for
each of them would take interpreter time from those that are served.

Requests come in bursts: a loop reads from all its connections before it begins a task.  So those
count that were let in and whose tasks have not begun, but not those whose bodies are awaited, which
a client may send as slowly as it likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from actorgraph.serving.access import logged
from actorgraph.serving.errors import Overloaded, ServingError
from actorgraph.serving.request import PROTOCOL
from actorgraph.serving.routes import Inference, Reply, complete, failure, inference_at
from actorgraph.serving.server import Server


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

        refused = False  # the latest request

        def on_headers_complete(self) -> None:
            route = _route(self.url) if self._is_usual() else None
            reply = None if route is None else _refusal(server, route, self.scope, coming[route])
            self.refused = reply is not None
            if reply is None:
                super().on_headers_complete()
                _let_in(coming, route, self.loop)
                return
            status, headers, body = reply
            lines = _lines([*self.server_state.default_headers, *headers])
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
            self.server_state.total_requests += 1

        def _is_usual(self) -> bool:
            """Return whether the reply may be written now, with nothing before or after it."""
            parser, cycle = self.parser, self.cycle
            return (
                (cycle is None or cycle.response_complete)
                and not self.flow.write_paused
                and not self.expect_100_continue
                and parser.get_method() == b"POST"
                and parser.get_http_version() == "1.1"
                and parser.should_keep_alive()
                and not parser.should_upgrade()
            )

        def on_body(self, body: bytes) -> None:
            if not self.refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.refused:
                super().on_message_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.refused and not self.transport.is_closing():
                self._unset_keepalive_if_required()
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    return Refusing


def _refusal(server: Server, route: Inference, scope: Any, coming: int) -> Reply | None:
    """Return the reply to an inference request that is refused now, and count it; else None."""
    if not server.accepting:
        return None
    PROTOCOL.set("http")
    try:
        server.taking(route.name, route.version, coming)
    except Overloaded as error:
        with suppress(Overloaded), logged("http", server, route.name, route.version):
            raise
        return complete(failure(error, scope), scope)
    except ServingError:  # the application reports it
        pass
    return None


@lru_cache(maxsize=256)
def _route(url: bytes) -> Inference | None:
    """Return the inference route of a URL that is a plain path without quoting."""
    return None if b"%" in url or b"?" in url else inference_at(url.decode("latin-1"))


def _let_in(coming: Counter[Inference], route: Inference | None, loop: Any) -> None:
    """Count a request until its task has done its first step, which puts it into the queue."""
    if route is not None:
        coming[route] += 1
        loop.call_soon(_begun, coming, route)


def _begun(coming: Counter[Inference], route: Inference) -> None:
    coming[route] -= 1
    if not coming[route]:
        del coming[route]


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    return [b"%b: %b\r\n" % header for header in headers]
