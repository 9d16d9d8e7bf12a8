"""RAdam: Adam that warms up by itself."""

from __future__ import annotations

from math import sqrt
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import penalised
from actorgraph.solvers._moments import DECAYS, MOMENTS, TwoMoments
from actorgraph.solvers._settings import solver


@final
@solver("RAdam(lr=0.1)", "[0.7]")
class RAdam(TwoMoments):
    r"""Adam whose scaling waits until its variance is known.

    .. math::
        \rho_\infty &= \frac{2}{1 - \beta_2} - 1, \qquad
            \rho_t = \rho_\infty - \frac{2 t \beta_2^t}{1 - \beta_2^t} \\
        p &\leftarrow p - \frac{\eta}{1 - \beta_1^t} m \cdot
            \begin{cases}
                r_t \sqrt{1 - \beta_2^t} / (\sqrt{v} + \epsilon) & \rho_t > 5 \\
                1
            \end{cases} \\
        r_t^2 &= \frac{(\rho_t - 4)(\rho_t - 2) \rho_\infty}
            {(\rho_\infty - 4)(\rho_\infty - 2) \rho_t}

    after L. Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", ICLR 2020.
    """

    def loop(self) -> Loop:
        lines = (
            *MOMENTS,
            "p = p - mean * (plain + scaled / (sqrt(variance) + eps))",
        )
        numbers = (*DECAYS, "eps", "plain", "scaled")
        return penalised(self.weight_decay != 0, lines, ("mean", "variance"), numbers)

    def numbers(self, step: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        rate, rest = self.rate / (1.0 - beta1**step), 1.0 - beta2**step
        limit = 2.0 / (1.0 - beta2) - 1.0
        length = limit - 2.0 * step * beta2**step / rest
        plain, scaled = rate, 0.0
        if length > 5.0:
            above = (length - 4.0) * (length - 2.0) * limit
            below = (limit - 4.0) * (limit - 2.0) * length
            plain, scaled = 0.0, rate * sqrt(above / below) * sqrt(rest)
        return self.weight_decay, *self.decays, self.eps, plain, scaled
