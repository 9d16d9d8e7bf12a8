"""`TwoMoments`: what solvers have in common that estimate two moments of the gradient."""

from __future__ import annotations

from typing import Any

from actorgraph.options import real
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._settings import Rate, checked_betas, checked_rate


class TwoMoments(LoopSolver):
    """A solver with a rate, the decays of two moments, a small number and a decay of weights."""

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr, self.betas, self.eps = checked_rate(lr), checked_betas(betas), real("eps", eps)
        self.weight_decay = real("weight_decay", weight_decay)
