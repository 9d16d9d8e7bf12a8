"""Adam: steps scaled by running estimates of the first two moments of the gradient."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from actorgraph.solvers._base import Loop, LoopSolver
from actorgraph.solvers._moments import ADAM, ADAM_L2, Moments, ahead, checked_settings

__all__ = ["Adam"]

Array = np.ndarray[Any, np.dtype[Any]]


@final
class Adam(LoopSolver[Moments]):
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
    lr : float
        Learning rate :math:`\eta \ge 0`.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty that goes through the moments; `AdamW` decays the
        parameter itself.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> from actorgraph.solvers import Adam
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> Adam(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.9])
    """

    def __init__(
        self,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        checked = checked_settings(lr, betas, eps, weight_decay)
        self.lr, self.betas, self.eps, self.weight_decay = checked

    def init(self, value: Array) -> Moments:
        """Return zero moments; see `AbstractSolver.init`."""
        return Moments.of(value)

    def update(self, state: Moments, grad: Array, current: Array, out: Array) -> Moments:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        if self.weight_decay:
            grad = grad + self.weight_decay * current
        return state.descend(grad, current, out, lr=self.lr, betas=self.betas, eps=self.eps)

    def loop(self) -> Loop:
        """Return `update` as a loop; see `LoopSolver.loop`."""
        return ADAM_L2 if self.weight_decay else ADAM

    def ahead(
        self, states: Sequence[Moments]
    ) -> tuple[tuple[float, ...], Sequence[Moments]] | None:
        """Return the settings and counts; see `LoopSolver.ahead`."""
        return ahead(states, self.lr, self.betas, self.eps, self.weight_decay)
