"""Adamax: Adam with the largest gradient in place of the variance."""

from __future__ import annotations

from typing import Any, final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import penalised
from actorgraph.solvers._moments import TwoMoments
from actorgraph.solvers._settings import Rate


@final
class Adamax(TwoMoments):
    r"""Adam in the infinity norm.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \\
        u &\leftarrow \max(\beta_2 u, |g| + \epsilon) \\
        p &\leftarrow p - \frac{\eta}{1 - \beta_1^t} \frac{m}{u}

    after D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
    section 7.

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
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.Adamax(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.9])
    """

    def __init__(
        self,
        lr: Rate = 2e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay, **shared)

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        lines = [
            "mean = mean * beta1 + g * rest1",
            "largest = maximum(largest * beta2, abs(g) + eps)",
            "p = p - mean / largest * rate",
        ]
        numbers = ("beta1", "rest1", "beta2", "eps", "rate")
        return penalised(self.weight_decay, lines, ("mean", "largest"), numbers)

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        beta1, beta2 = self.betas
        return (
            self.weight_decay,
            beta1,
            1.0 - beta1,
            beta2,
            self.eps,
            self.rate / (1.0 - beta1**step),
        )
