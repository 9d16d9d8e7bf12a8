"""Adamax: Adam with the largest gradient in place of the variance."""

from __future__ import annotations

from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import penalised
from actorgraph.solvers._moments import TwoMoments
from actorgraph.solvers._settings import Rate, solver


@final
@solver("Adamax(lr=0.1)", "[0.9]")
class Adamax(TwoMoments):
    r"""Adam in the infinity norm.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \\
        u &\leftarrow \max(\beta_2 u, |g| + \epsilon) \\
        p &\leftarrow p - \frac{\eta}{1 - \beta_1^t} \frac{m}{u}

    after D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
    section 7.
    """

    lr: Rate = 2e-3

    def loop(self) -> Loop:
        lines = (
            "mean = mean * beta1 + g * rest1",
            "largest = maximum(largest * beta2, abs(g) + eps)",
            "p = p - mean / largest * rate",
        )
        numbers = ("beta1", "rest1", "beta2", "eps", "rate")
        return penalised(self.weight_decay != 0, lines, ("mean", "largest"), numbers)

    def numbers(self, step: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        rate = self.rate / (1.0 - beta1**step)
        return self.weight_decay, beta1, 1.0 - beta1, beta2, self.eps, rate
