"""Stochastic gradient descent with momentum, Nesterov's momentum, L1 and L2 penalties."""

from collections.abc import Mapping
from functools import cache
from typing import Any, final

from actorgraph.options import flag, real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._settings import Rate, checked_rate


@cache
def _loop(weight_decay: bool, l1: bool, momentum: bool, nesterov: bool) -> Loop:
    lines = ["g = g + weight_decay * p"] if weight_decay else []
    lines += ["g = g + l1 * sign(p)"] if l1 else []
    lines += ["velocity = velocity * momentum + g"] if momentum else []
    if momentum:
        lines.append("g = g + momentum * velocity" if nesterov else "g = velocity")
    arrays = ("velocity",) if momentum else ()
    return Loop((*lines, "p = p - g * lr"), arrays, ("lr", "momentum", "weight_decay", "l1"))


@final
class SGD(LoopSolver):
    r"""Stochastic gradient descent.

    .. math::
        g &\leftarrow g + \lambda p + \lambda_1 \operatorname{sign}(p) \\
        v &\leftarrow \mu v + g \qquad (v = g \text{ at the first step}) \\
        p &\leftarrow p - \eta v \qquad \text{or, with Nesterov, } p - \eta (g + \mu v)

    The form is PyTorch's (``torch.optim.SGD`` with ``dampening=0``): the learning rate multiplies
    the velocity, as in Sutskever, Martens, Dahl and Hinton, "On the importance of initialization
    and momentum in deep learning", ICML 2013, but is not part of it.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    momentum : float
        :math:`\mu`, from 0 (plain descent) to below 1.
    nesterov : bool
        Look ahead along the velocity; needs a momentum.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty of :math:`\lambda p^2 / 2`.
    l1 : float
        :math:`\lambda_1 \ge 0`, a penalty of :math:`\lambda_1 |p|`, whose gradient at 0 is 0; a
        complex sign is :math:`p / |p|`.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0, 2.0]), grad=np.array([1.0, -1.0]))
    >>> ag.solvers.SGD(lr=0.5).step([weight])
    >>> weight.value
    array([0.5, 2.5])
    """

    starts: Mapping[str, float] = {"velocity": -0.0}
    """So that the first velocity is the gradient, also where that is -0.0."""

    by_parts = False

    def __init__(
        self,
        lr: Rate = 1e-2,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr = checked_rate(lr)
        self.momentum = real("momentum", momentum, below=1.0)
        self.nesterov = flag("nesterov", nesterov)
        if nesterov and momentum == 0.0:
            raise ValueError("nesterov=True has no effect with momentum 0; give a momentum")
        self.weight_decay = real("weight_decay", weight_decay)
        self.l1 = real("l1", l1)

    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""
        return _loop(self.weight_decay != 0, self.l1 != 0, self.momentum != 0, self.nesterov)

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the settings; see `LoopSolver.numbers`."""
        return self.rate, self.momentum, self.weight_decay, self.l1
