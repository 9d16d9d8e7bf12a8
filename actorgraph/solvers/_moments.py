"""`TwoMoments`: the part that solvers with two moments of the gradient share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._settings import Rate

DECAYS = "beta1", "rest1", "beta2", "rest2"
MOMENTS = "mean = mean * beta1 + g * rest1", "variance = variance * beta2 + g * g * rest2"
"""The lines of both moments, and the names of the numbers that `TwoMoments.decays` returns."""


@dataclass(eq=False, repr=False)
class TwoMoments(LoopSolver):
    """A solver with the decays of two moments."""

    lr: Rate = 1e-3
    _: KW_ONLY
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    @property
    def decays(self) -> tuple[float, float, float, float]:
        """The numbers of `MOMENTS`."""
        beta1, beta2 = self.betas
        return beta1, 1.0 - beta1, beta2, 1.0 - beta2


@cache
def adam_loop(before: str, amsgrad: bool) -> Loop:
    """Return the step with a first line that is an L2 penalty, a decay, or none."""
    largest = ["largest = maximum(largest, variance)"] if amsgrad else []
    lines = [
        *([before] if before else []),
        *MOMENTS,
        *largest,
        f"p = p - mean / (sqrt({'largest' if amsgrad else 'variance'}) / scale + eps) * rate",
    ]
    numbers = (*DECAYS, "scale", "eps", "rate", "decay")
    return Loop(tuple(lines), ("mean", "variance", *(["largest"] if amsgrad else [])), numbers)
