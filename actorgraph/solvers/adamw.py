"""AdamW: Adam that decays the parameter, not the gradient."""

from __future__ import annotations

from math import sqrt
from typing import Any, final

from actorgraph.options import flag
from actorgraph.solvers._base import Loop
from actorgraph.solvers._moments import TwoMoments
from actorgraph.solvers._settings import Rate
from actorgraph.solvers.adam import adam


@final
class AdamW(TwoMoments):
    r"""Adam with decoupled weight decay.

    .. math::
        p \leftarrow (1 - \eta \lambda) p

    and then the step of `Adam` from there, after I. Loshchilov and F. Hutter, "Decoupled Weight
    Decay Regularization", ICLR 2019, in PyTorch's form: the decay is scaled by the learning rate.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, as in `Adam`.
    weight_decay : float
        :math:`\lambda \ge 0`.
    amsgrad : bool
        As in `Adam`.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.AdamW(lr=0.1, weight_decay=0.5).step([weight])
    >>> weight.value.round(6)
    array([0.85])
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay, **shared)
        self.amsgrad = flag("amsgrad", amsgrad)

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        return adam("p = p * decay", self.amsgrad)

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        beta1, beta2 = self.betas
        lr = self.rate
        scale, rate, decay = (
            sqrt(1.0 - beta2**step),
            lr / (1.0 - beta1**step),
            1.0 - lr * self.weight_decay,
        )
        return beta1, 1.0 - beta1, beta2, 1.0 - beta2, scale, self.eps, rate, decay
