"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from dataclasses import KW_ONLY
from math import sqrt
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import penalised
from actorgraph.solvers._moments import DECAYS, MOMENTS, TwoMoments
from actorgraph.solvers._settings import Rate, solver


@final
@solver("NAdam(lr=0.1)", "[0.894355]")
class NAdam(TwoMoments):
    r"""Adam that looks ahead along the mean.

    .. math::
        \mu_t &= \beta_1 (1 - \tfrac12 0.96^{t \psi}), \qquad M_t = \prod_{i \le t} \mu_i \\
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \\
        v &\leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
        p &\leftarrow p - \eta \frac{\mu_{t+1} m / (1 - M_{t+1}) + (1 - \mu_t) g / (1 - M_t)}
            {\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    after T. Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016.
    """

    lr: Rate = 2e-3
    _: KW_ONLY
    momentum_decay: float = 4e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._products = [1.0]

    def loop(self) -> Loop:
        lines = (
            *MOMENTS,
            "p = p - (g * ahead + mean * behind) / (sqrt(variance) / scale + eps)",
        )
        numbers = (*DECAYS, "scale", "eps", "ahead", "behind")
        return penalised(self.weight_decay != 0, lines, ("mean", "variance"), numbers)

    def numbers(self, step: int) -> tuple[float, ...]:
        while len(self._products) <= step + 1:
            self._products.append(self._products[-1] * self._momentum(len(self._products)))
        lr, now, then = self.rate, self._momentum(step), self._momentum(step + 1)
        ahead = lr * (1.0 - now) / (1.0 - self._products[step])
        behind = lr * then / (1.0 - self._products[step + 1])
        scale = sqrt(1.0 - self.betas[1] ** step)
        return self.weight_decay, *self.decays, scale, self.eps, ahead, behind

    def _momentum(self, step: int) -> float:
        momentum: float = self.betas[0] * (1.0 - 0.5 * 0.96 ** (step * self.momentum_decay))
        return momentum
