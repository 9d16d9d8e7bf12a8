"""RMSProp: steps scaled by a running mean of squared gradients."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver, penalised
from actorgraph.solvers._settings import Rate, solver


@final
@solver("RMSProp(lr=0.1)", "[0.]")
class RMSProp(LoopSolver):
    r"""Steps divided by the root of a running mean of squared gradients.

    .. math::
        s &\leftarrow \alpha s + (1 - \alpha) g^2 \\
        m &\leftarrow \alpha m + (1 - \alpha) g \qquad \text{(centered)} \\
        v &\leftarrow \mu v + \frac{g}{\sqrt{s - m^2} + \epsilon} \\
        p &\leftarrow p - \eta v

    after T. Tieleman and G. Hinton, lecture 6.5 of "Neural Networks for Machine Learning", 2012;
    centered after A. Graves, "Generating Sequences With Recurrent Neural Networks", 2013.
    """

    lr: Rate = 1e-2
    _: KW_ONLY
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def loop(self) -> Loop:
        lines = ["square = square * alpha + g * g * rest"]
        lines += ["mean = mean * alpha + g * rest"] if self.centered else []
        root = "sqrt(square - mean * mean)" if self.centered else "sqrt(square)"
        lines += [f"g = g / ({root} + eps)"]
        lines += ["velocity = velocity * momentum + g", "g = velocity"] if self.momentum else []
        arrays = ["square", *(["mean"] if self.centered else [])]
        arrays += ["velocity"] if self.momentum else []
        return penalised(
            self.weight_decay != 0, (*lines, "p = p - g * rate"), tuple(arrays),
            ("alpha", "rest", "eps", "momentum", "rate"),
        )  # fmt: skip

    def numbers(self, step: int) -> tuple[float, ...]:
        return self.weight_decay, self.alpha, 1.0 - self.alpha, self.eps, self.momentum, self.rate
