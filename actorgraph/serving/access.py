"""The log ``actorgraph.access``: a line for each request for inference, with ids for programs.

Nothing is configured here: where the log goes, and whether, is the application's to say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from actorgraph.serving.errors import code_of

PROTOCOL = ContextVar("actorgraph_protocol", default="python")
"""By which a request has come."""

_LOGGER = logging.getLogger("actorgraph.access")


@contextmanager
def logged(protocol: str) -> Iterator[dict[str, Any]]:
    """Log what becomes of a request inside of the block, with what is put into the dict."""
    PROTOCOL.set(protocol)
    told: dict[str, Any] = {"protocol": protocol, "model": "?"}
    if not _LOGGER.isEnabledFor(logging.INFO):
        yield told
        return
    began, outcome = perf_counter(), "OK"
    try:
        yield told
    except Exception as error:
        outcome = code_of(error)
        raise
    except BaseException:
        outcome = "CANCELLED"
        raise
    finally:
        told |= {"outcome": outcome, "duration_s": perf_counter() - began}
        line = "%(protocol)s %(model)s %(outcome)s in %(duration_s).4f s"
        _LOGGER.info(line, told, extra=told)
