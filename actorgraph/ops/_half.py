"""Floats of two bytes (float16, bfloat16): computed in float32, rounded once; and their limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from actorgraph.ops._scalars import is_half

__all__ = ["machine_epsilon", "through_float32", "tiny"]


def through_float32(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward with arguments of two-byte floats widened and its result narrowed.

    The first array has the result's dtype.  Other dtypes are passed on with their ``out``; who
    knows that there is one of these takes the forward itself, the attribute ``own``.
    """

    @wraps(forward)
    def wide(xp: Any, *arrays: Any, **attrs: Any) -> Any:
        dtype = arrays[0].dtype
        if not is_half(dtype):
            return forward(xp, *arrays, **attrs)
        widened = [x.astype(np.float32) if is_half(x.dtype) else x for x in arrays]
        return forward(xp, *widened, **attrs).astype(dtype)

    wide.own = forward  # type: ignore[attr-defined]
    return wide


def machine_epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a float dtype."""
    return 2.0**-7 if dtype.kind == "V" else float(np.finfo(dtype).eps)


def tiny(dtype: np.dtype[Any]) -> float:
    """Return the smallest normal number of a float dtype; that of bfloat16 is float32's."""
    return float(np.finfo(np.float32 if dtype.kind == "V" else dtype).tiny)
