"""RAdam: Adam that warms up by itself."""

from __future__ import annotations

from math import sqrt
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import penalised
from actorgraph.solvers._moments import TwoMoments


@final
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

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon > 0`.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.RAdam(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.7])
    """

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        lines = [
            "mean = mean * beta1 + g * rest1",
            "variance = variance * beta2 + g * g * rest2",
            "p = p - mean * (plain + scaled / (sqrt(variance) + eps))",
        ]
        numbers = ("beta1", "rest1", "beta2", "rest2", "eps", "plain", "scaled")
        return penalised(self.weight_decay, lines, ("mean", "variance"), numbers)

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        beta1, beta2 = self.betas
        rate, rest = self.rate / (1.0 - beta1**step), 1.0 - beta2**step
        limit = 2.0 / (1.0 - beta2) - 1.0
        length = limit - 2.0 * step * beta2**step / rest
        plain, scaled = rate, 0.0
        if length > 5.0:
            above = (length - 4.0) * (length - 2.0) * limit
            below = (limit - 4.0) * (limit - 2.0) * length
            plain, scaled = 0.0, rate * sqrt(above / below) * sqrt(rest)
        return self.weight_decay, beta1, 1.0 - beta1, beta2, 1.0 - beta2, self.eps, plain, scaled
