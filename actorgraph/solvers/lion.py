"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from typing import Any, final

from actorgraph.options import real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._settings import Rate, checked_betas, checked_rate

_LOOP = Loop(
    (
        "p = p * decay - sign(mean * beta1 + g * rest1) * rate",
        "mean = mean * beta2 + g * rest2",
    ),
    ("mean",),
    ("beta1", "rest1", "beta2", "rest2", "decay", "rate"),
)


@final
class Lion(LoopSolver):
    r"""Steps of one length, in the direction of the momentum's signs.

    .. math::
        p &\leftarrow p (1 - \eta \lambda)
            - \eta \operatorname{sign}(\beta_1 m + (1 - \beta_1) g) \\
        m &\leftarrow \beta_2 m + (1 - \beta_2) g

    after X. Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    weight_decay : float
        :math:`\lambda \ge 0`, of the parameter itself.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.Lion(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.9])
    """

    def __init__(
        self,
        lr: Rate = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr, self.betas = checked_rate(lr), checked_betas(betas)
        self.weight_decay = real("weight_decay", weight_decay)

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        return _LOOP

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        (beta1, beta2), lr = self.betas, self.rate
        return beta1, 1.0 - beta1, beta2, 1.0 - beta2, 1.0 - lr * self.weight_decay, lr
