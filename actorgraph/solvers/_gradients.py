"""Scaling, sums and clipping of gradients before a step, for arrays of the host and of devices.

Each piece is a function of an array module and of arrays, called where the arrays are (`Caller`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any, Protocol

import numpy as np


class Caller(Protocol):
    """Computes with gradients where they are; on devices all results are new arrays."""

    on_host: bool

    def call(self, place: int, work: Callable[..., Any], *operands: Any) -> Any:
        """Return ``work(xp, *operands)``, computed where the parameter at `place` is."""

    def read(self, value: Any) -> np.ndarray[Any, Any]:
        """Wait for an array and return it on the host."""

    def wait(self, values: Sequence[Any]) -> None:
        """Wait for arrays."""


class _Host:
    on_host = True

    def call(self, place: int, work: Callable[..., Any], *operands: Any) -> Any:
        return work(np, *operands)

    def read(self, value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value)

    def wait(self, values: Sequence[Any]) -> None:
        pass


HOST: Caller = _Host()


def are_finite(caller: Caller, grads: Sequence[Any]) -> bool:
    """Return whether all elements of all gradients are finite."""
    flags = [caller.call(place, _is_finite, grad) for place, grad in enumerate(grads)]
    return bool(caller.read(caller.call(0, _all, *flags)))


def added(caller: Caller, totals: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
    """Return the sums of gradients so far and these, all new arrays."""
    return [
        caller.call(place, _copied, grad)
        if total is None
        else caller.call(place, _sum, total, grad)
        for place, (total, grad) in enumerate(zip(totals, grads, strict=True))
    ]


def scaled(
    caller: Caller, grads: Sequence[Any], share: float | None, bound: float | None = None
) -> list[Any]:
    """Return gradients times a share, their elements within a bound."""
    work = partial(_scaled, share=share, bound=bound)
    return [caller.call(place, work, grad) for place, grad in enumerate(grads)]


def norm_factor(xp: Any, grads: Sequence[Any], bound: float) -> Any:
    """Return the factor, at most 1, that brings the norm of all gradients to a bound."""
    return _factor(xp, *[_square(xp, grad) for grad in grads], bound=bound)


def clipped(
    caller: Caller, grads: Sequence[Any], share: float | None, value: float | None,
    norm: float | None,
) -> Sequence[Any]:  # fmt: skip
    """Return gradients times a share, with elements and then their norm brought within bounds."""
    if share is not None or value is not None:
        grads = scaled(caller, grads, share, value)
    if norm is not None:
        squares = [caller.call(place, _square, grad) for place, grad in enumerate(grads)]
        factor = caller.call(0, partial(_factor, bound=norm), *squares)
        if not (caller.on_host and factor == 1.0):
            grads = [caller.call(place, _times, grad, factor) for place, grad in enumerate(grads)]
    return grads


def _is_finite(xp: Any, grad: Any) -> Any:
    return xp.isfinite(grad).all()


def _all(xp: Any, *flags: Any) -> Any:
    return reduce(and_, flags, np.True_)


def _copied(xp: Any, grad: Any) -> Any:
    return xp.array(grad)


def _sum(xp: Any, total: Any, grad: Any) -> Any:
    return total + grad


def _scaled(xp: Any, grad: Any, share: float | None, bound: float | None) -> Any:
    grad = grad if share is None else grad * share
    if bound is None:
        return grad
    if grad.dtype.kind != "c":
        return grad.clip(-bound, bound)
    return grad.real.clip(-bound, bound) + 1j * grad.imag.clip(-bound, bound)


def _square(xp: Any, grad: Any) -> Any:
    return xp.vdot(grad, grad).real.astype("float64")


def _factor(xp: Any, *squares: Any, bound: float) -> Any:
    return xp.minimum(1.0, bound / (xp.sqrt(sum(squares)) + 1e-6))


def _times(xp: Any, grad: Any, factor: Any) -> Any:
    return grad * factor.astype(grad.real.dtype)
