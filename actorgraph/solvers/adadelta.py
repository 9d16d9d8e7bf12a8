"""AdaDelta: steps scaled by running means of squared gradients and steps."""

from __future__ import annotations

from typing import Any, final

from actorgraph.options import real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver, penalised
from actorgraph.solvers._settings import Rate, checked_rate


@final
class AdaDelta(LoopSolver):
    r"""Steps in the unit of the parameter, with no learning rate to choose.

    .. math::
        s &\leftarrow \rho s + (1 - \rho) g^2 \\
        d &= \frac{\sqrt{u + \epsilon}}{\sqrt{s + \epsilon}} g \\
        u &\leftarrow \rho u + (1 - \rho) d^2 \\
        p &\leftarrow p - \eta d

    after M. Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    rho : float
        Decay of the means, from 0 to below 1.
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
    >>> ag.solvers.AdaDelta(lr=1.0).step([weight])
    >>> weight.value.round(6)
    array([0.996838])
    """

    def __init__(
        self,
        lr: Rate = 1.0,
        *,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr, self.rho, self.eps = (
            checked_rate(lr),
            real("rho", rho, below=1.0),
            real("eps", eps),
        )
        self.weight_decay = real("weight_decay", weight_decay)

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        lines = [
            "square = square * rho + g * g * rest",
            "g = sqrt(moved + eps) / sqrt(square + eps) * g",
            "moved = moved * rho + g * g * rest",
            "p = p - g * rate",
        ]
        return penalised(
            self.weight_decay, lines, ("square", "moved"), ("rho", "rest", "eps", "rate")
        )

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        return self.weight_decay, self.rho, 1.0 - self.rho, self.eps, self.rate
