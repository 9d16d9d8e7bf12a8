"""Serving: models that answer requests, in process and over HTTP.

A `Server` holds models.  Each takes requests within bounds, joins them into batches, and keeps
deadlines; `asgi` gives them to any server of HTTP.
"""

from actorgraph.serving.asgi import asgi
from actorgraph.serving.config import Config
from actorgraph.serving.errors import (
    DeadlineExceeded,
    InvalidInput,
    ModelNotFound,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    ServingError,
    Unsupported,
)
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server

__all__ = [
    "Config", "DeadlineExceeded", "InvalidInput", "ModelNotFound", "NotReady", "Overloaded",
    "PayloadTooLarge", "RateLimited", "ServedModel", "Server", "ServingError", "Unsupported",
    "asgi",
]  # fmt: skip
