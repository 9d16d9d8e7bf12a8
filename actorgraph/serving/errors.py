"""The errors that a server answers with, each with its HTTP status code."""

from __future__ import annotations

import hmac
from typing import ClassVar

from actorgraph.errors import FeedError, GraphError, MachineClosedError, NodeError


class ServingError(GraphError):
    """Root of the errors that a server answers with.

    Attributes
    ----------
    status : int
        The HTTP status code.
    code : str
        The same as a word, for programs.
    retry_after_s : int or None
        Seconds after which to try again.
    why : str or None
        Why a request was not started: ``"queue_full"``, ``"cost"``, ``"draining"`` or
        ``"expired"``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.ServingError.status, ag.serving.ServingError.code
    (500, 'INTERNAL')
    """

    reference = "AG111"
    status: int = 500
    code: ClassVar[str] = "INTERNAL"
    retry_after_s: int | None = None
    why: str | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            name = f"ag.serving.{cls.__name__}"
            cls._add_example(f"{name}.status, {name}.code", (cls.status, cls.code))


class InvalidInput(ServingError, ValueError):
    """The inputs do not fit the model, or the request cannot be parsed."""

    status, code = 400, "INVALID_ARGUMENT"


class Unauthorized(ServingError):
    """The client did not send the required token."""

    status, code = 401, "UNAUTHENTICATED"


class ModelNotFound(ServingError):
    """There is no such model, or no such version of it."""

    status, code = 404, "NOT_FOUND"


class PayloadTooLarge(ServingError):
    """The inputs have more bytes than the model takes."""

    status, code = 413, "PAYLOAD_TOO_LARGE"


class RateLimited(ServingError):
    """The client has used up its quota; raised by users' `admit` hooks."""

    status, code, retry_after_s = 429, "RATE_LIMITED", 1


class ClientGone(ServingError):
    """The client has left, so its request was cancelled; nobody reads the answer."""

    status, code = 499, "CANCELLED"


class Unsupported(ServingError):
    """The server does not support what the request asks for."""

    status, code = 501, "UNIMPLEMENTED"


class Overloaded(ServingError):
    """Too many requests wait, so this one was refused, or shed for a newer one."""

    status, code, retry_after_s, why = 503, "OVERLOADED", 1, "queue_full"


class NotReady(ServingError):
    """The server is stopping, or has stopped."""

    status, code, retry_after_s, why = 503, "UNAVAILABLE", 1, "draining"


class DeadlineExceeded(ServingError, TimeoutError):
    """The deadline passed before the result was ready."""

    status, code = 504, "DEADLINE_EXCEEDED"


def check_token(authorization: bytes | None, token: str | None) -> None:
    """Raise `Unauthorized` unless the header is ``Bearer TOKEN``; without a token, always."""
    expected = f"Bearer {token}".encode()
    if token is None or not hmac.compare_digest(authorization or b"", expected):
        raise Unauthorized("loading and unloading models needs the token")


def code_of(error: BaseException) -> str:
    """Return the word for an error, for programs."""
    if isinstance(error, ServingError):
        return error.code
    return "NODE_ERROR" if isinstance(error, NodeError) else "INTERNAL"


def as_served(error: BaseException) -> BaseException:
    """Return the error to send to a client: an inner model's `ServingError` as it is."""
    if isinstance(error, MachineClosedError):
        return NotReady(f"the model's machine was closed: {error}")
    if isinstance(error, FeedError):
        return InvalidInput(str(error))
    cause: BaseException | None = error
    while isinstance(cause, NodeError):
        cause = cause.__cause__
    return cause if isinstance(cause, ServingError) else error
