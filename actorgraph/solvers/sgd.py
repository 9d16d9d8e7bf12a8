"""Stochastic gradient descent with momentum, Nesterov's momentum, L1 and L2 penalties."""

from dataclasses import KW_ONLY
from functools import cache
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._settings import Rate, solver


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
@solver("SGD(lr=0.5)", "[0.5, 2.5]", "[1.0, 2.0]", "[1.0, -1.0]")
class SGD(LoopSolver):
    r"""Stochastic gradient descent.

    .. math::
        g &\leftarrow g + \lambda p + \lambda_1 \operatorname{sign}(p) \\
        v &\leftarrow \mu v + g \qquad (v = g \text{ at the first step}) \\
        p &\leftarrow p - \eta v \qquad \text{or, with Nesterov, } p - \eta (g + \mu v)

    The form is PyTorch's (``torch.optim.SGD`` with ``dampening=0``): the learning rate multiplies
    the velocity, as in Sutskever, Martens, Dahl and Hinton, "On the importance of initialization
    and momentum in deep learning", ICML 2013, but is not part of it.
    """

    lr: Rate = 1e-2
    _: KW_ONLY
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    l1: float = 0.0

    by_parts = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov=True has no effect with momentum 0; give a momentum")
        # So that the first velocity is the gradient, also where that is -0.0.
        self.starts = {"velocity": -0.0}

    def loop(self) -> Loop:
        return _loop(self.weight_decay != 0, self.l1 != 0, self.momentum != 0, self.nesterov)

    def numbers(self, step: int) -> tuple[float, ...]:
        return self.rate, self.momentum, self.weight_decay, self.l1
