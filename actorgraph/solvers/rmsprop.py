"""RMSProp: steps scaled by a running mean of squared gradients."""

from __future__ import annotations

from typing import Any, final

from actorgraph.options import flag, real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver, penalised
from actorgraph.solvers._settings import Rate, checked_rate


@final
class RMSProp(LoopSolver):
    r"""Steps divided by the root of a running mean of squared gradients.

    .. math::
        s &\leftarrow \alpha s + (1 - \alpha) g^2 \\
        m &\leftarrow \alpha m + (1 - \alpha) g \qquad \text{(centered)} \\
        v &\leftarrow \mu v + \frac{g}{\sqrt{s - m^2} + \epsilon} \\
        p &\leftarrow p - \eta v

    after T. Tieleman and G. Hinton, lecture 6.5 of "Neural Networks for Machine Learning", 2012;
    centered after A. Graves, "Generating Sequences With Recurrent Neural Networks", 2013.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    alpha : float
        Decay of the means, from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty.
    momentum : float
        :math:`\mu`, from 0 to below 1.
    centered : bool
        Divide by the root of the variance.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> ag.solvers.RMSProp(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.])
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr, self.alpha, self.eps = (
            checked_rate(lr),
            real("alpha", alpha, below=1.0),
            real("eps", eps),
        )
        self.weight_decay = real("weight_decay", weight_decay)
        self.momentum, self.centered = (
            real("momentum", momentum, below=1.0),
            flag("centered", centered),
        )

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        lines = ["square = square * alpha + g * g * rest"]
        lines += ["mean = mean * alpha + g * rest"] if self.centered else []
        root = "sqrt(square - mean * mean)" if self.centered else "sqrt(square)"
        lines += [f"g = g / ({root} + eps)"]
        lines += ["velocity = velocity * momentum + g", "g = velocity"] if self.momentum else []
        arrays = ["square", *(["mean"] if self.centered else [])]
        arrays += ["velocity"] if self.momentum else []
        return penalised(
            self.weight_decay, [*lines, "p = p - g * rate"], tuple(arrays),
            ("alpha", "rest", "eps", "momentum", "rate"),
        )  # fmt: skip

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        return self.weight_decay, self.alpha, 1.0 - self.alpha, self.eps, self.momentum, self.rate
