"""Checks of what solvers are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorgraph.errors import shown
from actorgraph.options import real

Rate = float | Callable[[int], float]
"""A learning rate: a number, or a function of the number of steps before."""


def checked_rate(lr: Any) -> Rate:
    """Return a learning rate, or raise `ValueError`."""
    return lr if callable(lr) else real("lr", lr)


def checked_betas(betas: Any) -> tuple[float, float]:
    """Return two decays of moments as floats, or raise `ValueError`."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas are {shown(betas)}, expected two numbers from 0 to below 1")
    one, two = [real(f"betas[{i}]", beta, below=1.0) for i, beta in enumerate(betas)]
    return one, two
