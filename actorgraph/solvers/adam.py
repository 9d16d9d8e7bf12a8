"""Adam: steps scaled by running estimates of the first two moments of the gradient."""

from __future__ import annotations

from dataclasses import KW_ONLY
from math import sqrt
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._moments import TwoMoments, adam_loop
from actorgraph.solvers._settings import solver


@final
@solver("Adam(lr=0.1)", "[0.9]")
class Adam(TwoMoments):
    r"""Adam with bias correction.

    .. math::
        g &\leftarrow g + \lambda p \\
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \\
        v &\leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
        p &\leftarrow p - \frac{\eta}{1 - \beta_1^t}
            \frac{m}{\sqrt{v} / \sqrt{1 - \beta_2^t} + \epsilon}

    after D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
    algorithm 1; :math:`\epsilon` is added after the bias correction, as PyTorch does. The real
    and the imaginary part of a complex parameter are two parameters.  `AdamW` decays the parameter
    itself.
    """

    _: KW_ONLY
    amsgrad: bool = False

    def loop(self) -> Loop:
        return adam_loop("g = g + decay * p" if self.weight_decay else "", self.amsgrad)

    def numbers(self, step: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        scale, rate = sqrt(1.0 - beta2**step), self.rate / (1.0 - beta1**step)
        return *self.decays, scale, self.eps, rate, self.weight_decay
