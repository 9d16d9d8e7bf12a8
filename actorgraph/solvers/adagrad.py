"""AdaGrad: steps scaled by all gradients so far."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver, penalised
from actorgraph.solvers._settings import Rate, solver


@final
@solver("AdaGrad(lr=0.1)", "[0.9]")
class AdaGrad(LoopSolver):
    r"""Steps divided by the root of the sum of squared gradients.

    .. math::
        s &\leftarrow s + g^2 \\
        p &\leftarrow p - \frac{\eta}{1 + (t - 1) \eta_d} \frac{g}{\sqrt{s} + \epsilon}

    after J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization", JMLR 2011.
    """

    lr: Rate = 1e-2
    _: KW_ONLY
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.starts = {"total": self.initial_accumulator_value}

    def loop(self) -> Loop:
        lines = "total = total + g * g", "p = p - g / (sqrt(total) + eps) * rate"
        return penalised(self.weight_decay != 0, lines, ("total",), ("eps", "rate"))

    def numbers(self, step: int) -> tuple[float, ...]:
        rate = self.rate / (1.0 + (step - 1) * self.lr_decay)
        return self.weight_decay, self.eps, rate
