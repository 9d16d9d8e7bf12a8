"""Checks: what jobs find wrong, which is told when somebody waits for their values."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any


class Failed(Exception):
    """What a job has raised, with the node that it was for; all that needs its value fails so."""

    def __init__(self, node: Any, inputs: tuple[str, ...], device: str, cause: BaseException):
        super().__init__(node, inputs, device, cause)
        self.node, self.inputs, self.device, self.cause = node, inputs, device, cause


@dataclass(frozen=True, eq=False)
class Check:
    """What an op wants to know of values, which only who waits for them can tell.

    Attributes
    ----------
    bad : array of rank 0
        Whether the value is none.
    kind, text, numbers
        What is raised then: ``kind(text.format(*numbers))``.
    where : (Node, tuple of str, str), optional
        The node, its inputs and the device of the job.
    """

    bad: Any
    kind: type[Exception]
    text: str
    numbers: tuple[Any, ...] = ()
    where: tuple[Any, tuple[str, ...], str] | None = None

    def raised(self) -> None:
        """Raise where the flag, which is the host's here, is set."""
        if self.bad:
            error = self.kind(self.text.format(*self.numbers))
            raise error if self.where is None else Failed(*self.where, error)


class _Pending(threading.local):
    def __init__(self) -> None:
        self.checks: list[Check] = []


pending = _Pending()
"""What ops have checked in the job that runs in this thread."""
