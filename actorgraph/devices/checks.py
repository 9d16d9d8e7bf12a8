"""Checks: errors in values of a device, which are raised when the host reads these values."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, final


class Failed(Exception):
    """The exception of a job, with its node; every job that needs the value fails with it."""

    def __init__(self, node: Any, inputs: tuple[str, ...], device: str, cause: BaseException):
        super().__init__(node, inputs, device, cause)
        self.node, self.inputs, self.device, self.cause = node, inputs, device, cause


@final
@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A condition on values that is only evaluated when the host reads the result.

    ``kind(text.format(*numbers))`` is raised then, if it is violated.
    """

    bad: Any  # array of rank 0: whether the values violate it
    kind: type[Exception]
    text: str
    numbers: tuple[Any, ...] = ()
    # The node, its inputs and the device of the job.
    where: tuple[Any, tuple[str, ...], str] | None = None

    def raised(self) -> None:
        """Raise if the condition is violated; `bad` must be on the host."""
        if self.bad:
            error = self.kind(self.text.format(*self.numbers))
            raise error if self.where is None else Failed(*self.where, error)


class _Pending(threading.local):
    def __init__(self) -> None:
        self.checks: list[Check] = []


pending = _Pending()
"""The checks of the job that runs in this thread."""
