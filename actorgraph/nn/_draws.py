"""First values of layers: drawn as PyTorch draws them, each with the next seed."""

from __future__ import annotations

from itertools import count
from typing import Any

from actorgraph.nn import init
from actorgraph.options import whole
from actorgraph.parameters import Parameter

__all__ = ["filled", "manual_seed", "normal", "uniform"]

_seeds = count()


def manual_seed(seed: int) -> None:
    """Let the layers that are made from here on start with the values that follow from a seed.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.manual_seed(7)
    >>> first = ag.nn.Linear(2, 2).weight.value
    >>> ag.nn.manual_seed(7)
    >>> bool((ag.nn.Linear(2, 2).weight.value == first).all())
    True
    """
    global _seeds
    # Far apart, so that the layers of two seeds have none in common.
    _seeds = count(whole("seed", seed) % 2**31 * 2**32)


def uniform(shape: tuple[int, ...], bound: float, dtype: Any) -> Parameter:
    """Return a parameter drawn from [-bound, bound)."""
    return Parameter(init.uniform(shape, -bound, bound, dtype, seed=next(_seeds)))


def normal(shape: tuple[int, ...], dtype: Any) -> Parameter:
    """Return a parameter of standard normal numbers."""
    return Parameter(init.normal(shape, dtype=dtype, seed=next(_seeds)))


def filled(shape: tuple[int, ...], value: float, dtype: Any) -> Parameter:
    """Return a parameter of one number."""
    return Parameter(init.constant(shape, value, dtype))
