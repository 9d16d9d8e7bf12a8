"""AdaGrad: steps scaled by all gradients so far."""

from __future__ import annotations

from typing import Any, final

from actorgraph.options import real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver, penalised
from actorgraph.solvers._settings import Rate, checked_rate


@final
class AdaGrad(LoopSolver):
    r"""Steps divided by the root of the sum of squared gradients.

    .. math::
        s &\leftarrow s + g^2 \\
        p &\leftarrow p - \frac{\eta}{1 + (t - 1) \eta_d} \frac{g}{\sqrt{s} + \epsilon}

    after J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization", JMLR 2011.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    lr_decay : float
        :math:`\eta_d \ge 0`.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty.
    initial_accumulator_value : float
        What :math:`s` starts with.
    eps : float
        :math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.AdaGrad(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.9])
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        *,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr, self.lr_decay, self.eps = (
            checked_rate(lr),
            real("lr_decay", lr_decay),
            real("eps", eps),
        )
        self.weight_decay = real("weight_decay", weight_decay)
        start = real("initial_accumulator_value", initial_accumulator_value)
        self.initial_accumulator_value = start
        self.starts = {"total": start}

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        lines = ["total = total + g * g", "p = p - g / (sqrt(total) + eps) * rate"]
        return penalised(self.weight_decay, lines, ("total",), ("eps", "rate"))

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        rate = self.rate / (1.0 + (step - 1) * self.lr_decay)
        return self.weight_decay, self.eps, rate
