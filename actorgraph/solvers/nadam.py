"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from math import sqrt
from typing import Any, final

from actorgraph.options import real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import penalised
from actorgraph.solvers._moments import TwoMoments
from actorgraph.solvers._settings import Rate


@final
class NAdam(TwoMoments):
    r"""Adam that looks ahead along the mean.

    .. math::
        \mu_t &= \beta_1 (1 - \tfrac12 0.96^{t \psi}), \qquad M_t = \prod_{i \le t} \mu_i \\
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \\
        v &\leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
        p &\leftarrow p - \eta \frac{\mu_{t+1} m / (1 - M_{t+1}) + (1 - \mu_t) g / (1 - M_t)}
            {\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    after T. Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty.
    momentum_decay : float
        :math:`\psi \ge 0`.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.NAdam(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.894355])
    """

    def __init__(
        self,
        lr: Rate = 2e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        **shared: Any,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay, **shared)
        self.momentum_decay = real("momentum_decay", momentum_decay)
        self._products = [1.0]

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        lines = [
            "mean = mean * beta1 + g * rest1",
            "variance = variance * beta2 + g * g * rest2",
            "p = p - (g * ahead + mean * behind) / (sqrt(variance) / scale + eps)",
        ]
        numbers = ("beta1", "rest1", "beta2", "rest2", "scale", "eps", "ahead", "behind")
        return penalised(self.weight_decay, lines, ("mean", "variance"), numbers)

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        beta1, beta2 = self.betas
        while len(self._products) <= step + 1:
            self._products.append(self._products[-1] * self._momentum(len(self._products)))
        lr, now, then = self.rate, self._momentum(step), self._momentum(step + 1)
        ahead = lr * (1.0 - now) / (1.0 - self._products[step])
        behind = lr * then / (1.0 - self._products[step + 1])
        scale = sqrt(1.0 - beta2**step)
        return (
            self.weight_decay,
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            scale,
            self.eps,
            ahead,
            behind,
        )

    def _momentum(self, step: int) -> float:
        momentum: float = self.betas[0] * (1.0 - 0.5 * 0.96 ** (step * self.momentum_decay))
        return momentum
