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

    Attributes
    ----------
    kernels : list
        Kernels of the nodes that depend on symbols; programs index it.
    heavy : tuple of bool
        Per task: whether a turn is worth another worker.
    predicted_us : float
        All steps together.
    claims : dict
        What a run claims of `max_bytes`, by whether it may use buffers.
    direct_turns, direct_seconds : int, float
        Direct runs, and how long they took together.
    direct_latest : deque of float
        Seconds of the latest of them.
    direct : dict
        The whole as functions of the leaves' values that nobody runs at the moment, by whether
        they write into buffers; see `Inline.take`.
    """

    symbols: Mapping[str, int]
    kernels: list[Any]
    heavy: tuple[bool, ...]
    predicted_us: float
    claims: dict[bool, Claim] = field(default_factory=dict)
    direct: dict[bool, list[Direct]] = field(default_factory=dict)
    direct_turns: int = 0
    direct_seconds: float = 0.0
    direct_latest: deque[float] = field(default_factory=partial(deque, maxlen=LATEST))
