"""AdamW: Adam that decays the parameter, not the gradient."""

from __future__ import annotations

from dataclasses import KW_ONLY
from math import sqrt
from typing import final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._moments import TwoMoments, adam_loop
from actorgraph.solvers._settings import DIRECT_DECAY, solver


@final
@solver("AdamW(lr=0.1, weight_decay=0.5)", "[0.85]", weight_decay=DIRECT_DECAY)
class AdamW(TwoMoments):
    r"""Adam with decoupled weight decay.

    .. math::
        p \leftarrow (1 - \eta \lambda) p

    and then the step of `Adam` from there, after I. Loshchilov and F. Hutter, "Decoupled Weight
    Decay Regularization", ICLR 2019, in PyTorch's form: the decay is scaled by the learning rate.
    """

    _: KW_ONLY
    weight_decay: float = 1e-2
    amsgrad: bool = False

    def loop(self) -> Loop:
        return adam_loop("p = p * decay", self.amsgrad)

    def numbers(self, step: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        lr, scale = self.rate, sqrt(1.0 - beta2**step)
        rate, decay = lr / (1.0 - beta1**step), 1.0 - lr * self.weight_decay
        return *self.decays, scale, self.eps, rate, decay
