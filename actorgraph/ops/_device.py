"""What ops do in another way where arrays are not NumPy's: CuPy lacks it, or is silently wrong.

On NumPy each is the call that it stands for.  On a device nothing here looks at a value, but for
`by_host`: who launches does not wait, and what is launched can be captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from actorgraph.devices.base import Check, pending

__all__ = ["by_host", "combine_at", "in_range", "largest", "raise_if", "running", "smallest"]


def raise_if(xp: Any, bad: Any, kind: type[Exception], text: str, of: Any = None) -> None:
    """Raise where `bad` holds; the text may have ``{}`` for the least and the largest entry `of`.

    On a device the flag and these numbers travel with the value of the job, and with all that is
    made of it; the run fails when one of these is fetched.
    """
    if xp is not np or bad:
        numbers = () if of is None else (of.min(), of.max())
        if xp is np:
            raise kind(text.format(*numbers))
        pending.checks.append(Check(bad, kind, text, numbers))


def in_range(xp: Any, indices: Any, size: int) -> None:
    """Raise `IndexError` where indices are out of range on a device; NumPy looks by itself."""
    if xp is not np and indices.size:
        bad = ((indices < -size) | (indices >= size)).any()
        text = f"an index from {{}} to {{}} is out of bounds for dim {size}"
        raise_if(xp, bad, IndexError, text, indices)


def largest(xp: Any, x: Any, axis: Any, keepdims: bool, initial: Any) -> Any:
    """Return ``maximum.reduce(x, axis, keepdims=keepdims, initial=initial)``."""
    return _extreme(xp, "maximum", x, axis, keepdims, initial)


def smallest(xp: Any, x: Any, axis: Any, keepdims: bool, initial: Any) -> Any:
    """Return ``minimum.reduce(x, axis, keepdims=keepdims, initial=initial)``."""
    return _extreme(xp, "minimum", x, axis, keepdims, initial)


def _extreme(xp: Any, name: str, x: Any, axis: Any, keepdims: bool, initial: Any) -> Any:
    if xp is np:
        return getattr(np, name).reduce(x, axis=axis, keepdims=keepdims, initial=initial)
    start = x.dtype.type(initial)
    if not x.size:
        return xp.full_like(x.sum(axis=axis, keepdims=keepdims), start)
    found = getattr(x, name[:3])(axis=axis, keepdims=keepdims)
    return getattr(xp, name)(found, start)


def running(xp: Any, name: str, x: Any, axis: int, dtype: Any = None) -> Any:
    """Return ``ufunc.accumulate(x, axis, dtype)`` of an associative ufunc."""
    if xp is np:
        return getattr(np, name).accumulate(x, axis=axis, dtype=dtype)
    ufunc, step = getattr(xp, name), 1
    x = x if dtype is None else x.astype(dtype, copy=False)
    lead = (slice(None),) * axis
    while step < x.shape[axis]:
        later = ufunc(x[(*lead, slice(None, -step))], x[(*lead, slice(step, None))])
        x = xp.concatenate([x[(*lead, slice(None, step))], later], axis)
        step *= 2
    return x


def combine_at(xp: Any, name: str | None, out: Any, places: Any, values: Any) -> None:
    """Do ``ufunc.at(out, places, values)``, all of rank 1; without a name write the last value.

    On a device it is free of atomics, so that the bits do not differ from run to run: values are
    sorted by place, and combined by a segmented scan that doubles its stride.
    """
    if xp is np:
        if name is None:
            out[places] = values
        else:
            getattr(np, name).at(out, places, values)
        return
    if not places.size:
        return
    count = values.shape[0]
    places = xp.where(places < 0, places + out.shape[0], places)
    order = xp.argsort(places, kind="stable")
    places, values = places[order], values[order]
    step = 1
    while name is not None and step < count:
        alike = places[step:] == places[:-step]
        both = getattr(xp, name)(values[:-step], values[step:])
        values = xp.concatenate([values[:step], xp.where(alike, both, values[step:])])
        step *= 2
    is_last = xp.ones(count, bool)
    is_last[:-1] = places[1:] != places[:-1]
    # What is not the last of its place goes behind the end: no place is written to twice.
    room = xp.concatenate([out, xp.zeros(count, out.dtype)])
    into = xp.where(is_last, places, out.shape[0] + xp.arange(count))
    room[into] = values if name is None else getattr(xp, name)(room[into], values)
    out[...] = room[: out.shape[0]]


def by_host(xp: Any, function: Callable[..., Any], *arrays: Any) -> Any:
    """Return what a function of NumPy arrays gives that a device's library lacks; it waits."""
    return xp.asarray(function(*[x.get() if hasattr(x, "get") else x for x in arrays]))
