"""What a served model answers instead of a result, each with its status code of HTTP."""

from __future__ import annotations

import hmac
from typing import ClassVar

from actorgraph.errors import FeedError, GraphError, MachineClosedError, NodeError


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
    why : str or None
        Why a request was not begun: ``"queue_full"``, ``"cost"``, ``"draining"`` or ``"expired"``.

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


class InvalidInput(ServingError, ValueError):
    """The inputs do not fit the model, or what was sent cannot be read.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.InvalidInput.status, ag.serving.InvalidInput.code
    (400, 'INVALID_ARGUMENT')
    """

    status, code = 400, "INVALID_ARGUMENT"


class Unauthorized(ServingError):
    """The client has not shown the token that is asked for.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.Unauthorized.status, ag.serving.Unauthorized.code
    (401, 'UNAUTHENTICATED')
    """

    status, code = 401, "UNAUTHENTICATED"


class ModelNotFound(ServingError):
    """There is no such model, or no such version of it.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.ModelNotFound.status, ag.serving.ModelNotFound.code
    (404, 'NOT_FOUND')
    """

    status, code = 404, "NOT_FOUND"


class PayloadTooLarge(ServingError):
    """The inputs have more bytes than the model takes.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.PayloadTooLarge.status, ag.serving.PayloadTooLarge.code
    (413, 'PAYLOAD_TOO_LARGE')
    """

    status, code = 413, "PAYLOAD_TOO_LARGE"


class RateLimited(ServingError):
    """The client has used up what it may ask; raised by hooks of the user's.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.RateLimited.status, ag.serving.RateLimited.code
    (429, 'RATE_LIMITED')
    """

    status, code, retry_after_s = 429, "RATE_LIMITED", 1


class ClientGone(ServingError):
    """The client has left, so its request was cancelled; nobody reads the answer.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.ClientGone.status, ag.serving.ClientGone.code
    (499, 'CANCELLED')
    """

    status, code = 499, "CANCELLED"


class Unsupported(ServingError):
    """What is asked for is not served.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.Unsupported.status, ag.serving.Unsupported.code
    (501, 'UNIMPLEMENTED')
    """

    status, code = 501, "UNIMPLEMENTED"


class Overloaded(ServingError):
    """Too many requests wait, so this one was not taken, or had to go for a newer one.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.Overloaded.status, ag.serving.Overloaded.code
    (503, 'OVERLOADED')
    """

    status, code, retry_after_s, why = 503, "OVERLOADED", 1, "queue_full"


class NotReady(ServingError):
    """The server is stopping, or has stopped.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.NotReady.status, ag.serving.NotReady.code
    (503, 'UNAVAILABLE')
    """

    status, code, retry_after_s, why = 503, "UNAVAILABLE", 1, "draining"


class DeadlineExceeded(ServingError, TimeoutError):
    """The deadline was over before the result was there.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.serving.DeadlineExceeded.status, ag.serving.DeadlineExceeded.code
    (504, 'DEADLINE_EXCEEDED')
    """

    status, code = 504, "DEADLINE_EXCEEDED"


def check_token(shown: bytes | None, token: str | None) -> None:
    """Raise `Unauthorized` unless ``Bearer TOKEN`` was shown, where there is a token."""
    wanted = f"Bearer {token}".encode()
    if token is None or not hmac.compare_digest(shown or b"", wanted):
        raise Unauthorized("models are loaded and unloaded by who shows the token only")


def code_of(error: BaseException) -> str:
    """Return an error as a word, for programs."""
    if isinstance(error, ServingError):
        return error.code
    return "NODE_ERROR" if isinstance(error, NodeError) else "INTERNAL"


def as_served(error: BaseException) -> BaseException:
    """Return what a client is told: an inner model's answer as what it is."""
    if isinstance(error, MachineClosedError):
        return NotReady(f"the model's machine was closed: {error}")
    if isinstance(error, FeedError):
        return InvalidInput(str(error))
    cause: BaseException | None = error
    while isinstance(cause, NodeError):
        cause = cause.__cause__
    return cause if isinstance(cause, ServingError) else error
