"""Adam: steps scaled by running estimates of the first two moments of the gradient."""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any, final

from actorgraph.options import flag
from actorgraph.solvers._base import Loop
from actorgraph.solvers._moments import TwoMoments
from actorgraph.solvers._settings import Rate


@cache
def adam(before: str, amsgrad: bool) -> Loop:
    """Return the step after a first line that is an L2 penalty, a decay, or none."""
    largest = ["largest = maximum(largest, variance)"] if amsgrad else []
    lines = [
        *([before] if before else []),
        "mean = mean * beta1 + g * rest1",
        "variance = variance * beta2 + g * g * rest2",
        *largest,
        f"p = p - mean / (sqrt({'largest' if amsgrad else 'variance'}) / scale + eps) * rate",
    ]
    numbers = ("beta1", "rest1", "beta2", "rest2", "scale", "eps", "rate", "decay")
    return Loop(tuple(lines), ("mean", "variance", *(["largest"] if amsgrad else [])), numbers)


@final
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
    and the imaginary part of a complex parameter are two parameters.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty that goes through the moments; `AdamW` decays the
        parameter itself.
    amsgrad : bool
        Take the largest :math:`v` so far: S. Reddi, S. Kale, S. Kumar, "On the Convergence of Adam
        and Beyond", ICLR 2018.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.Adam(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.9])
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay, **shared)
        self.amsgrad = flag("amsgrad", amsgrad)

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        return adam("g = g + decay * p" if self.weight_decay else "", self.amsgrad)

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        beta1, beta2 = self.betas
        scale, rate = sqrt(1.0 - beta2**step), self.rate / (1.0 - beta1**step)
        return beta1, 1.0 - beta1, beta2, 1.0 - beta2, scale, self.eps, rate, self.weight_decay
