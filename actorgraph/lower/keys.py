"""Structural keys: all that the text of a program depends on, by number; equal keys share code."""

from __future__ import annotations

from typing import NamedTuple


class StepKey(NamedTuple):
    """A call: the number of its kernel, of its operands, and how it is made: flags."""

    kernel: int
    operands: tuple[int, ...]
    how: int


class CallKey(NamedTuple):
    """A call of a part of the steps: what it is given, how many values it returns, if it writes."""

    operands: tuple[int, ...]
    results: int
    writes: bool


BOUND = 1
"""A step's kernel depends on the run's symbols."""
LONG = 2
"""Before the step the program looks whether the run is still wanted."""
AWAITED = 4
"""No worker calls the kernel."""
BUFFERED = 8
"""The step writes into memory of the turn."""
LEAVING = 16
"""The step writes into an array that leaves the turn."""
INTO = BUFFERED | LEAVING
"""The step writes into what it is given."""
BY_NAME = 32
"""The kernel takes the array that it writes to by name."""
OVER = 64
"""The step writes over its first operand."""
OWN = 128
"""The kernel is a user's, called in the context of the run's caller."""

GIVES_RUN = 256
"""The kernel is given the run, before the operands."""


class TaskKey(NamedTuple):
    """All that the text of a task depends on, so that tasks of one key share their code.

    Values have numbers: first those that the ports bring, then those of the steps; constants count
    down from -1.  A port is the number of values of a bundle, or -1 for a message with one value (a
    trigger has it for nothing).
    """

    ports: tuple[int, ...]
    steps: tuple[StepKey | CallKey, ...]
    sends: tuple[int, ...]
    bundles: tuple[tuple[int, ...], ...]
    exclusive: tuple[int, ...]
    results: tuple[int, ...]
    preferred: int
    credited_in: tuple[int, ...]
    credited_out: tuple[int, ...]


class DirectKey(NamedTuple):
    """All that the text of a direct program depends on, see `TaskKey`.

    Or of a part of a task's steps, which is given the run and the arrays that it writes into.  If
    it is in parts itself, `sizes` are how many arrays each of these that writes is given.
    """

    leaves: int
    steps: tuple[StepKey | CallKey, ...]
    results: tuple[int, ...]
    is_part: bool = False
    sizes: tuple[int, ...] | None = None


class LoopKey(NamedTuple):
    """All that the text of a loop depends on, see `TaskKey`.

    Leaves are: the position, what the body captures (and constants that it returns), the carries,
    the elements.  `results` are the carries after an iteration, then what is stacked.
    `tested` is how many operands the test has besides the carries, None where there is no test.
    What is saved and stacked is written into arrays where it is `stored`, else handed on.
    """

    captured: int
    carries: int
    elements: int
    steps: tuple[StepKey | CallKey, ...]
    results: tuple[int, ...]
    saved: tuple[int, ...]
    indexed: bool
    tested: int | None
    stored: bool = False
