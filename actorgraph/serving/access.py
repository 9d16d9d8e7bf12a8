"""The log ``actorgraph.access``: one line for each inference request, with fields for programs.

Only the application configures where the log goes.
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


def is_logged(server: Server, model: str, version: str | None) -> bool:
    """Return whether requests for a model leave a line in the log."""
    return _LOGGER.isEnabledFor(logging.INFO) and server.logs(model, version)


@contextmanager
def logged(
    protocol: str, server: Server, model: str, version: str | None
) -> Iterator[dict[str, Any]]:
    """Log the outcome of the request in the block, which may add fields to the dict."""
    PROTOCOL.set(protocol)
    log_fields: dict[str, Any] = {"protocol": protocol, "model": printable(model)}
    if not is_logged(server, model, version):
        yield log_fields
        return
    began, status, outcome = perf_counter(), 200, "OK"
    try:
        yield log_fields
    except Exception as error:
        status = error.status if isinstance(error, ServingError) else 500
        outcome = code_of(error)
        raise
    except BaseException:
        status, outcome = ClientGone.status, ClientGone.code
        raise
    finally:
        log_fields |= {"status": status, "outcome": outcome, "duration_s": perf_counter() - began}
        line = "%(protocol)s %(model)s %(status)d %(outcome)s in %(duration_s).4f s"
        _LOGGER.info(line, log_fields, extra=log_fields)
