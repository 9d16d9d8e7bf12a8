"""Spots: the places of a table's values in memory, and the axes along which loops traverse them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np


class Unfit(Exception):
    """The step at `position` turned out to have no row."""

    position = 0


class Spot(NamedTuple):
    """The place of a value: number of its base, then offset, shape, strides and size in bytes."""

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def is_flat(self) -> bool:
        """Whether the value is C-contiguous."""
        return _is_contiguous(self.shape, self.strides, self.itemsize)

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + sum([(n - 1) * max(stride, 0) for n, stride in pairs]) + self.itemsize

    @property
    def begin(self) -> int:
        """The offset of the first byte."""
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + sum([(n - 1) * min(stride, 0) for n, stride in pairs])


MOST_EXPANDED = 64
"""Most rows of one step whose operands have more dims than a row can traverse."""


def entry(place: Spot, rank: int, number: int) -> Spot:
    """Return an entry along the first of `rank` stack axes, or `place` itself if it lacks it."""
    if len(place.shape) < rank + 2:
        return place
    shift = number * place.strides[0] if place.shape[0] > 1 else 0
    return place._replace(
        offset=place.offset + shift, shape=place.shape[1:], strides=place.strides[1:]
    )


def in_order(place: Spot, shape: tuple[int, ...]) -> Spot:
    """Return a C-contiguous value in another shape."""
    size = place.itemsize
    if not _is_contiguous(place.shape, place.strides, size):
        raise Unfit
    return place._replace(shape=shape, strides=strides_of(shape, size))


def turned_to(place: Spot, order: Sequence[int]) -> Spot:
    """Return a value with its axes in this order."""
    shape, strides = [tuple([one[axis] for axis in order]) for one in (place.shape, place.strides)]
    return place._replace(shape=shape, strides=strides)


def view_spot(of: Spot, dtype: np.dtype[Any], view: Callable[..., Any]) -> Spot:
    """Return the spot of a view: NumPy makes the view of unread memory of the same layout."""
    if dtype.hasobject:
        raise Unfit  # unread memory has no objects
    begin, end = of.begin, of.end
    raw = np.empty(max(end - begin, 0), np.uint8)
    whole = np.ndarray(of.shape, dtype, raw, of.offset - begin, of.strides)
    found = view(whole)
    if type(found) is not np.ndarray or found.dtype != dtype:
        raise Unfit
    offset = found.ctypes.data - raw.ctypes.data + begin
    place = Spot(of.base, offset, found.shape, found.strides, found.itemsize)
    if place.begin < begin or place.end > end:
        raise Unfit  # a copy
    return place


def in_c_order(place: Spot) -> bool:
    """Return whether NumPy traverses an array in the order of its axes."""
    steps = [step for n, step in zip(place.shape, place.strides, strict=True) if n > 1]
    return steps == sorted(steps, reverse=True) and 0 not in steps and len({*steps}) == len(steps)


@lru_cache(4096)
def strides_of(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array."""
    return tuple([prod(shape[axis + 1 :]) * size for axis in range(len(shape))])


@lru_cache(4096)
def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    wanted = zip(shape, strides, strides_of(shape, size), strict=True)
    return not any(n > 1 and a != b for n, a, b in wanted)


def broadcast(place: Spot, shape: tuple[int, ...]) -> list[int]:
    """Return the strides of a value broadcast to a shape."""
    missing = len(shape) - len(place.shape)
    if missing < 0:
        raise Unfit
    strides = [0] * missing
    for want, have, stride in zip(shape[missing:], place.shape, place.strides, strict=True):
        if have not in (want, 1):
            raise Unfit
        strides.append(0 if have == 1 else stride)
    return strides


Dimension = tuple[int, list[int]]
"""The size of an axis, and the stride of each argument along it."""


def coalesced(shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> list[Dimension]:
    """Return as few dims as possible for the same traversal, outermost first."""
    dims: list[Dimension] = []
    for axis, size in enumerate(shape):
        steps = [one[axis] for one in strides]
        if size == 1:
            continue
        if dims and dims[-1][1] == [size * step for step in steps]:
            dims[-1] = (dims[-1][0] * size, steps)
        else:
            dims.append((size, steps))
    return dims


ONCE: list[Dimension] = []
"""No outer axes: the loop is called once."""


def of_two_axes(outer: Sequence[Dimension], count: int) -> tuple[tuple[int, int], list[list[int]]]:
    """Return the numbers of calls along two axes, and each argument's strides along them."""
    (n, along), (m, inner) = [(1, [0] * count)] * (2 - len(outer)) + [*outer]
    return (n, m), [[*steps] for steps in zip(along, inner, strict=True)]


def expanded(dims: list[Dimension], count: int) -> list[tuple[list[Dimension], list[int]]]:
    """Unroll all but the three innermost dims; return these with the offsets of each row."""
    padded = [*dims] or [(1, [0] * count)]
    outermost, inner = padded[:-3], padded[-3:]
    if prod([size for size, _ in outermost]) > MOST_EXPANDED:
        raise Unfit
    shifts = [[0] * count]
    for size, steps in outermost:
        shifts = [
            [shift + i * step for shift, step in zip(one, steps, strict=True)]
            for one in shifts
            for i in range(size)
        ]
    return [(inner, one) for one in shifts]
