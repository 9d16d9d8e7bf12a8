"""gRPC messages of the Open Inference Protocol and of the health checking protocol.

``python docs/generate.py`` compiles them from the ``.proto`` files of this folder.  They are
shipped as descriptions, from which the installed protobuf makes classes, so no generated code has
to fit its version.  The pool is our own, since clients in the same process, such as tritonclient,
register messages of the same names in the global one.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    compiled = files(__name__).joinpath("messages.pb").read_bytes()
    for file in FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Any:
    """Return the class of a message by its full name, such as ``"inference.ModelInferRequest"``."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(name))


def methods(service: str) -> list[Any]:
    """Return the descriptions of a service's methods."""
    return list(_pool().FindServiceByName(service).methods)
