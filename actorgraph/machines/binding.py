"""`Binding`: what follows from the sizes of a run, once for each set of dims."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from actorgraph.machines.claim import Claim
from actorgraph.node_actor import LATEST

Direct: TypeAlias = Callable[..., list[Any]]
"""A direct program, which one thread at a time may call."""


@dataclass(slots=True)
class Binding:
    """What follows from the dims of a run: kernels, and predictions for placement.

    `direct` has the whole as functions of the leaves' values that nobody runs at the moment, by
    the `Inline` that they are of and whether they write into buffers; see `Inline.take`.
    """

    symbols: Mapping[str, int]
    kernels: list[Any]  # of the nodes that depend on symbols; programs index it
    heavy: tuple[bool, ...]  # per task: whether a turn is worth another worker
    predicted_us: float  # all steps together
    fed_bytes: int  # what a run is fed
    is_large: bool  # whether feeds or results are so large that `Tally` counts them
    # What a run claims of `max_bytes`, by whether it may use buffers.
    claims: dict[bool, Claim] = field(default_factory=dict)
    direct: dict[int, list[Direct]] = field(default_factory=dict)
    direct_turns: int = 0
    direct_seconds: float = 0.0  # of all direct runs together, then of the latest
    direct_latest: deque[float] = field(default_factory=partial(deque, maxlen=LATEST))
