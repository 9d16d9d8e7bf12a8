"""AdaDelta: steps scaled by running means of squared gradients and steps."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver, penalised
from actorgraph.solvers._settings import Rate, solver


@final
@solver("AdaDelta(lr=1.0)", "[0.996838]")
class AdaDelta(LoopSolver):
    r"""Steps in the unit of the parameter, with no learning rate to choose.

    .. math::
        s &\leftarrow \rho s + (1 - \rho) g^2 \\
        d &= \frac{\sqrt{u + \epsilon}}{\sqrt{s + \epsilon}} g \\
        u &\leftarrow \rho u + (1 - \rho) d^2 \\
        p &\leftarrow p - \eta d

    after M. Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.
    """

    lr: Rate = 1.0
    _: KW_ONLY
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0

    def loop(self) -> Loop:
        lines = (
            "square = square * rho + g * g * rest",
            "g = sqrt(moved + eps) / sqrt(square + eps) * g",
            "moved = moved * rho + g * g * rest",
            "p = p - g * rate",
        )
        return penalised(
            self.weight_decay != 0, lines, ("square", "moved"), ("rho", "rest", "eps", "rate")
        )

    def numbers(self, step: int) -> tuple[float, ...]:
        return self.weight_decay, self.rho, 1.0 - self.rho, self.eps, self.rate
