"""The log ``actorgraph.access``: a line for each request for inference, with ids for programs.

Nothing is configured here: where the log goes, and whether, is the application's to say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from actorgraph.errors import printable
from actorgraph.serving.errors import ClientGone, ServingError, code_of
from actorgraph.serving.request import PROTOCOL
from actorgraph.serving.server import Server

_LOGGER = logging.getLogger("actorgraph.access")


@contextmanager
def logged(
    protocol: str, server: Server, model: str, version: str | None
) -> Iterator[dict[str, Any]]:
    """Log what becomes of a request inside of the block, with what is put into the dict."""
    PROTOCOL.set(protocol)
    told: dict[str, Any] = {"protocol": protocol, "model": printable(model)}
    if not _LOGGER.isEnabledFor(logging.INFO) or not server.logs(model, version):
        yield told
        return
    began, status, outcome = perf_counter(), 200, "OK"
    try:
        yield told
    except Exception as error:
        status = error.status if isinstance(error, ServingError) else 500
        outcome = code_of(error)
        raise
    except BaseException:
        status, outcome = ClientGone.status, ClientGone.code
        raise
    finally:
        told |= {"status": status, "outcome": outcome, "duration_s": perf_counter() - began}
        line = "%(protocol)s %(model)s %(status)d %(outcome)s in %(duration_s).4f s"
        _LOGGER.info(line, told, extra=told)
