"""What a served model answers instead of a result, each with its status code of HTTP."""

from __future__ import annotations

from typing import ClassVar

from actorgraph.errors import GraphError

__all__ = [
    "DeadlineExceeded", "InvalidInput", "ModelNotFound", "NotReady", "Overloaded",
    "PayloadTooLarge", "RateLimited", "ServingError", "Unsupported",
]  # fmt: skip


class ServingError(GraphError):
    """Root of what a server answers on purpose.

    Attributes
    ----------
    status : int
        The status code of HTTP.
    code : str
        The same as a word, for programs.
    retry_after_s : int or None
        When it is worth to ask again.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL"
    retry_after_s: ClassVar[int | None] = None


class InvalidInput(ServingError, ValueError):
    """The inputs do not fit the model, or what was sent cannot be read."""

    status, code = 400, "INVALID_ARGUMENT"


class ModelNotFound(ServingError):
    """There is no such model, or no such version of it."""

    status, code = 404, "NOT_FOUND"


class PayloadTooLarge(ServingError):
    """The inputs have more bytes than the model takes."""

    status, code = 413, "PAYLOAD_TOO_LARGE"


class RateLimited(ServingError):
    """The client has used up what it may ask; raised by hooks of the user's."""

    status, code, retry_after_s = 429, "RATE_LIMITED", 1


class Unsupported(ServingError):
    """What is asked for is not served."""

    status, code = 501, "UNIMPLEMENTED"


class Overloaded(ServingError):
    """Too many requests wait, so this one was not taken, or had to go for a newer one."""

    status, code, retry_after_s = 503, "OVERLOADED", 1


class NotReady(ServingError):
    """The server is stopping, or has stopped."""

    status, code, retry_after_s = 503, "UNAVAILABLE", 1


class DeadlineExceeded(ServingError, TimeoutError):
    """The deadline was over before the result was there."""

    status, code = 504, "DEADLINE_EXCEEDED"
