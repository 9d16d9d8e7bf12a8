"""LAMB: AdamW whose step is scaled to the length of each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from math import sqrt
from typing import Any, final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._moments import DECAYS, MOMENTS, TwoMoments
from actorgraph.solvers._settings import DIRECT_DECAY, solver

_LAMB = Loop(
    (
        *MOMENTS,
        "p = mean / share / (sqrt(variance) / scale + eps) + p * decay",
    ),
    ("mean", "variance"),
    (*DECAYS, "share", "scale", "eps", "decay", "rate"),
)


@final
@solver("LAMB(lr=0.1)", "[2.5, 4. ]", "[3.0, 4.0]", "[1.0, 0.0]", weight_decay=DIRECT_DECAY)
class LAMB(TwoMoments):
    r"""Layer-wise adaptive moments, for large batches.

    .. math::
        r &= \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + \lambda p \\
        p &\leftarrow p - \eta \frac{\|p\|}{\|r\|} r

    with the moments of `Adam`, after Y. You et al., "Large Batch Optimization for Deep Learning",
    ICLR 2020; where a norm is 0, their ratio is 1.
    """

    _: KW_ONLY
    eps: float = 1e-6

    def loop(self) -> Loop:
        """Return the direction as lines; see `LoopSolver.loop`."""
        return _LAMB

    def numbers(self, step: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        share, scale = 1.0 - beta1**step, sqrt(1.0 - beta2**step)
        return *self.decays, share, scale, self.eps, self.weight_decay, self.rate

    def whole(self, xp: Any, numbers: Sequence[float], before: Any, after: Any) -> Any:
        """Return the parameter after a step of its length; see `LoopSolver.whole`."""
        length, direction = xp.linalg.norm(before), xp.linalg.norm(after)
        both = (length > 0) & (direction > 0)
        ratio = xp.where(both, length / xp.where(both, direction, 1), 1).astype("float64")
        scale = ratio * numbers[-1]
        if after.dtype.kind != "V":  # of bfloat16, which is rounded at the end
            scale = scale.astype(after.real.dtype)
        return (before - after * scale).astype(after.dtype, copy=False)
