"""Initial parameters of layers, from PyTorch's distributions."""

from __future__ import annotations

from typing import Any

from actorgraph.nn import init
from actorgraph.parameters import Parameter


def uniform(shape: tuple[int, ...], bound: float, dtype: Any) -> Parameter:
    """Return a parameter drawn from [-bound, bound)."""
    return Parameter(init.uniform(shape, -bound, bound, dtype))


def filled(shape: tuple[int, ...], value: float, dtype: Any) -> Parameter:
    """Return a parameter of one number."""
    return Parameter(init.constant(shape, value, dtype))
