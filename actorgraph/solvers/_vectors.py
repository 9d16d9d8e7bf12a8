"""All parameters as one vector, where the gradients are: on the host, or on a lane of a device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np

from actorgraph.devices.base import Device, Handed, Lane
from actorgraph.devices.checks import Failed
from actorgraph.solvers._slots import Array
from actorgraph.store import Held, copies, present, promise, promised, take


@final
class LaneVector:
    """A vector on a device with the arithmetic that L-BFGS needs; scalars come to the host."""

    __array_ufunc__ = None  # NumPy's scalars leave the operator to this class

    def __init__(self, value: Handed, lane: Lane) -> None:
        self.value, self.lane = value, lane

    def __add__(self, other: LaneVector) -> LaneVector:
        return self.made(operator.add, other)

    def __sub__(self, other: LaneVector) -> LaneVector:
        return self.made(operator.sub, other)

    def __mul__(self, number: float) -> LaneVector:
        return self.made(partial(operator.mul, float(number)))

    __rmul__ = __mul__

    def __neg__(self) -> LaneVector:
        return self.made(operator.neg)

    def __abs__(self) -> LaneVector:
        return self.made(operator.abs)

    def __matmul__(self, other: LaneVector) -> float:
        return float(self.made(operator.matmul, other).fetch())

    def sum(self) -> float:
        """Return the sum of the elements."""
        return float(self.made(operator.methodcaller("sum")).fetch())

    def fetch(self) -> Array:
        """Return the vector on the host."""
        with _causes():
            return self.value.fetch()

    def made(self, work: Callable[..., Any], *others: LaneVector) -> LaneVector:
        """Return ``work`` of this vector and others, on the lane."""
        operands = [one.value for one in (self, *others)]
        return LaneVector(self.lane.launch(work, operands, name="L-BFGS"), self.lane)


Vector: TypeAlias = "Array | LaneVector"


def lane_of(grads: Sequence[Any]) -> Lane | None:
    """Return the lane for a vector of these gradients, None for the host."""
    return next((grad.lane.device.lane(0) for grad in grads if isinstance(grad, Handed)), None)


def gathered(arrays: Sequence[Any], lane: Lane | None) -> Vector:
    """Join arrays of the host or of devices to one vector."""
    if lane is None:
        flat = [np.asarray(present(one)).ravel() for one in arrays]  # `np.matrix` keeps two axes
        return np.concatenate(flat) if flat else np.empty(0)
    operands = [_on(lane.device, one) for one in arrays]
    value = lane.launch(partial(_joined, lane.device.xp), operands, name="L-BFGS")
    return LaneVector(value, lane)


def at(vector: Vector, lane: Lane | None) -> Vector:
    """Return a vector on a lane, or on the host."""
    if isinstance(vector, LaneVector):
        if vector.lane is lane:
            return vector
        vector = vector.fetch()
    return vector if lane is None else LaneVector(lane.device.bring(vector), lane)


def largest(vector: Vector) -> float:
    """Return the largest absolute value of a vector."""
    if isinstance(vector, LaneVector):
        return float(vector.made(_largest).fetch())
    return float(_largest(vector))


@contextmanager
def _causes() -> Iterator[None]:
    """Raise the cause of a failed job itself: the job belongs to no node."""
    try:
        yield
    except Failed as error:
        raise error.cause from None


def complete(values: Sequence[Handed]) -> None:
    """Wait for values, or raise why one failed; afterwards all count as checked."""
    by_device: dict[Device, list[Handed]] = {}
    for value in values:
        by_device.setdefault(value.lane.device, []).append(value)
    ends = [
        device.lane("out").launch(_nothing, own, name="values are there", record=True, leaves=True)
        for device, own in by_device.items()
    ]
    for end in ends:
        assert end.event is not None
        end.event.block()
    for end in ends:
        end.result()
    for value in values:
        value.cell.checks = ()


def _nothing(*arrays: Any) -> np.ndarray[Any, Any]:
    return np.zeros(())


def put(places: Sequence[tuple[Array, Held | None]], vector: Vector) -> None:
    """Write the parts of a vector to their places: those of graphs all at one moment."""
    arrays = [array for array, _ in places]
    held = [one for _, one in places if one is not None]
    if isinstance(vector, LaneVector) and len(held) == len(places):
        parts, start = [], 0
        for array in arrays:
            work = partial(_part, start, array.size, array.shape, array.dtype)
            parts.append(vector.made(work).value)
            start += array.size
        with _causes():
            complete(parts)
        rooms = [one.room() for one in held]
        for room, part in zip(rooms, parts, strict=True):
            promise(room, part)
        take([*zip(held, rooms, strict=True)])
        return
    whole: Any = at(vector, None)
    start, values = 0, []
    for array, one in places:  # writing casts
        piece = whole[start : start + array.size].reshape(array.shape)
        start += array.size
        if one is None:
            array[...] = piece
        else:
            values.append((one, piece))
    take(copies(values))


def _on(device: Device, value: Any) -> Handed:
    if isinstance(value, np.ndarray):
        there = promised(value)
        value = value if there is None else there
    return (
        value if isinstance(value, Handed) and value.lane.device is device else device.bring(value)
    )


def _joined(xp: Any, *arrays: Any) -> Any:
    return xp.concatenate([one.ravel() for one in arrays])


def _largest(array: Any) -> Any:
    return abs(array).max() if array.size else array.sum()


def _part(start: int, size: int, shape: tuple[int, ...], dtype: Any, vector: Any) -> Any:
    return vector[start : start + size].reshape(shape).astype(dtype)
