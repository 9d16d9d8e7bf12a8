"""Serving: models that answer requests, in process and over HTTP.

A `Server` holds models.  Each model bounds its requests, joins them into batches and keeps their
deadlines.  `asgi` makes an application for any HTTP server, `grpc` a gRPC server.
"""

from actorgraph.keywords import all_answering
from actorgraph.serving.asgi import asgi
from actorgraph.serving.building import configured
from actorgraph.serving.config import Config, ServerConfig
from actorgraph.serving.disconnects import cancel_on_disconnect
from actorgraph.serving.errors import (
    ClientGone,
    DeadlineExceeded,
    InvalidInput,
    ModelNotFound,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    ServingError,
    Unauthorized,
    Unsupported,
)
from actorgraph.serving.model import ServedModel
from actorgraph.serving.request import cancelled
from actorgraph.serving.rpc import grpc
from actorgraph.serving.server import Server

__all__ = [
    "ClientGone", "Config", "DeadlineExceeded", "InvalidInput", "ModelNotFound", "NotReady",
    "Overloaded", "PayloadTooLarge", "RateLimited", "ServedModel", "Server", "ServerConfig",
    "ServingError", "Unauthorized", "Unsupported", "asgi", "cancel_on_disconnect", "cancelled",
    "configured", "grpc",
]  # fmt: skip
__dir__ = __all__.copy

all_answering(globals())
