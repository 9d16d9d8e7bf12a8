"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._settings import DIRECT_DECAY, Rate, solver

_LION = Loop(
    (
        "p = p * decay - sign(mean * beta1 + g * rest1) * rate",
        "mean = mean * beta2 + g * rest2",
    ),
    ("mean",),
    ("beta1", "rest1", "beta2", "rest2", "decay", "rate"),
)


@final
@solver("Lion(lr=0.1)", "[0.9]", weight_decay=DIRECT_DECAY)
class Lion(LoopSolver):
    r"""Steps of one length, in the direction of the momentum's signs.

    .. math::
        p &\leftarrow p (1 - \eta \lambda)
            - \eta \operatorname{sign}(\beta_1 m + (1 - \beta_1) g) \\
        m &\leftarrow \beta_2 m + (1 - \beta_2) g

    after X. Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
    """

    lr: Rate = 1e-4
    _: KW_ONLY
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def loop(self) -> Loop:
        return _LION

    def numbers(self, step: int) -> tuple[float, ...]:
        (beta1, beta2), lr = self.betas, self.rate
        return beta1, 1.0 - beta1, beta2, 1.0 - beta2, 1.0 - lr * self.weight_decay, lr
