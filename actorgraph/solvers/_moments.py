"""The running moments of a gradient, and the step that `Adam` and `AdamW` make with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from actorgraph.errors import shown
from actorgraph.options import real
from actorgraph.solvers._base import Loop

__all__ = ["ADAM", "ADAM_L2", "ADAM_W", "Moments", "ahead", "checked_settings"]

Array = np.ndarray[Any, np.dtype[Any]]


def checked_settings(
    lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> tuple[float, tuple[float, float], float, float]:
    """Return the settings as floats, or raise `ValueError` where one is out of bounds."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas are {shown(betas)}, expected two numbers from 0 to below 1")
    one, two = [real(f"betas[{i}]", beta, below=1.0) for i, beta in enumerate(betas)]
    return real("lr", lr), (one, two), real("eps", eps), real("weight_decay", weight_decay)


@dataclass(slots=True)
class Moments:
    """Number of steps, moments of the gradient so far, and room for one temporary.

    `other` is the state before, whose arrays the state after takes over.
    """

    step: int
    mean: Array
    variance: Array
    scratch: Array
    other: "Moments | None" = None

    @classmethod
    def of(cls, value: Array) -> "Moments":
        """Return zero moments for a parameter."""
        return cls(0, np.zeros_like(value), np.zeros_like(value), np.empty_like(value))

    def after(self) -> "Moments":
        """Return the moments after the next step, which are still to be written."""
        after = self.other
        if after is None:
            empty = np.empty_like(self.mean), np.empty_like(self.variance)
            after = self.other = Moments(0, *empty, self.scratch, self)
        after.step = self.step + 1
        return after

    def descend(
        self,
        grad: Array,
        current: Array,
        out: Array,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
    ) -> "Moments":
        """Take the gradient in, write the stepped parameter to `out`, return the moments after."""
        after = self.after()
        arrays = (
            grad, self.mean, self.variance, after.mean, after.variance, self.scratch, current, out,
        )  # fmt: skip
        # The real and the imaginary part of a complex parameter are two parameters.
        parts = ("real", "imag") if np.iscomplexobj(out) else ("real",)
        for part in parts:
            _descend(after.step, lr, betas, eps, *(getattr(array, part) for array in arrays))
        return after


_LINES = (
    "mean = mean * beta1 + g * rest1",
    "variance = variance * beta2 + g * g * rest2",
    "p = p - mean / (sqrt(variance) / scale + eps) * rate",
)
_NAMES = ("beta1", "rest1", "beta2", "rest2", "scale", "eps", "rate", "decay")

ADAM, ADAM_L2, ADAM_W = (
    Loop((*first, *_LINES), ("mean", "variance"), _NAMES)
    for first in ((), ("g = g + decay * p",), ("p = p * decay",))
)
"""`Moments.descend`, after nothing, an L2 penalty, or a decay of the parameter."""


def ahead(
    states: Sequence[Moments],
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> tuple[tuple[float, ...], Sequence[Moments]] | None:
    """Return the numbers of the loop and the moments after; None where steps count differently."""
    t = states[0].step + 1
    if any(state.step + 1 != t for state in states):
        return None
    beta1, beta2 = betas
    scale, rate = sqrt(1.0 - beta2**t), lr / (1.0 - beta1**t)
    numbers = beta1, 1.0 - beta1, beta2, 1.0 - beta2, scale, eps, rate, decay
    return numbers, [state.after() for state in states]


def _descend(
    t: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    g: Array,
    m_before: Array,
    v_before: Array,
    m: Array,
    v: Array,
    scratch: Array,
    current: Array,
    out: Array,
) -> None:
    beta1, beta2 = betas
    np.multiply(g, 1.0 - beta1, out=scratch)
    np.multiply(m_before, beta1, out=m)
    m += scratch
    np.multiply(g, g, out=scratch)
    scratch *= 1.0 - beta2
    np.multiply(v_before, beta2, out=v)
    v += scratch
    np.sqrt(v, out=scratch)
    scratch /= sqrt(1.0 - beta2**t)
    scratch += eps
    np.divide(m, scratch, out=scratch)
    scratch *= lr / (1.0 - beta1**t)
    np.subtract(current, scratch, out=out)
