"""Structural keys: all that the text of a program depends on, by number.

`lower.program` makes keys, `lower.text` writes code from them; equal keys share one code.  Values
have numbers: first those that come in, then those of the steps; constants count down from -1.
"""

from __future__ import annotations

from typing import NamedTuple


class StepKey(NamedTuple):
    """The call of a kernel: its number, those of its operands, and flags."""

    kernel: int
    operands: tuple[int, ...]
    how: int


class CallKey(NamedTuple):
    """The call of a part: operands, number of results, whether it writes into given arrays."""

    operands: tuple[int, ...]
    results: int
    writes: bool


BOUND = 1
"""Flag: the step's kernel depends on the run's symbols."""
LONG = 2
"""Flag: the program tests before the step whether the run is dead."""
AWAITED = 4
"""Flag: the kernel waits, and is yielded instead of called."""
BUFFERED = 8
"""Flag: the step writes into the turn's buffers."""
LEAVING = 16
"""Flag: the step writes into an array that leaves the turn."""
INTO = BUFFERED | LEAVING
"""Flags of steps that write into a given array."""
BY_NAME = 32
"""Flag: the kernel takes its output array as the keyword ``out``."""
OVER = 64
"""Flag: the step overwrites its first operand."""
OWN = 128
"""Flag: the kernel is a user's, called in a copy of the context of the run's caller."""

GIVES_RUN = 256
"""Flag: the kernel takes the run, before the operands."""


class TaskKey(NamedTuple):
    """The key of a task.

    A port is the number of values of a bundle, or -1 for a message with one value or a trigger.
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
    """The key of a plain function of values.

    A part (`is_part`) takes the run and its output arrays as well.  If it consists of parts itself,
    `sizes` are the numbers of arrays of those that write.
    """

    leaves: int
    steps: tuple[StepKey | CallKey, ...]
    results: tuple[int, ...]
    is_part: bool = False
    sizes: tuple[int, ...] | None = None


class LoopKey(NamedTuple):
    """The key of a loop.

    Leaves are, in this order: the position, the captures of the body (and constants that it
    returns), the carries, the elements.  `results` are the carries after an iteration, then the
    stacked values.  `tested` is the number of operands of the test besides the carries, None
    without a test.  Saved and stacked values are written into arrays if `stored`, else passed to
    functions.
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
