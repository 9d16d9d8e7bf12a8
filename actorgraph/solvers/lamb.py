"""LAMB: AdamW whose step is scaled to the length of each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._moments import TwoMoments
from actorgraph.solvers._settings import Rate

_LOOP = Loop(
    (
        "mean = mean * beta1 + g * rest1",
        "variance = variance * beta2 + g * g * rest2",
        "p = mean / share / (sqrt(variance) / scale + eps) + p * decay",
    ),
    ("mean", "variance"),
    ("beta1", "rest1", "beta2", "rest2", "share", "scale", "eps", "decay", "rate"),
)


@final
class LAMB(TwoMoments):
    r"""Layer-wise adaptive moments, for large batches.

    .. math::
        r &= \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + \lambda p \\
        p &\leftarrow p - \eta \frac{\|p\|}{\|r\|} r

    with the moments of `Adam`, after Y. You et al., "Large Batch Optimization for Deep Learning",
    ICLR 2020; where a norm is 0, their ratio is 1.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`.
    weight_decay : float
        :math:`\lambda \ge 0`.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([3.0, 4.0]), grad=np.array([1.0, 0.0]))
    >>> ag.solvers.LAMB(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([2.5, 4. ])
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(lr, betas=betas, eps=eps, weight_decay=weight_decay, **shared)

    def loop(self) -> Loop:
        """Return the direction as lines; see `LoopSolver.loop`."""
        return _LOOP

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines; see `LoopSolver.numbers`."""
        beta1, beta2 = self.betas
        share, scale = 1.0 - beta1**step, sqrt(1.0 - beta2**step)
        decays = beta1, 1.0 - beta1, beta2, 1.0 - beta2
        return *decays, share, scale, self.eps, self.weight_decay, self.rate

    def whole(self, xp: Any, numbers: Sequence[float], before: Any, after: Any) -> Any:
        """Return the parameter after a step of its length; see `LoopSolver.whole`."""
        length, direction = xp.linalg.norm(before), xp.linalg.norm(after)
        both = (length > 0) & (direction > 0)
        ratio = xp.where(both, length / xp.where(both, direction, 1), 1).astype("float64")
        scale = ratio * numbers[-1]
        if after.dtype.kind != "V":  # of bfloat16, which is rounded at the end
            scale = scale.astype(after.real.dtype)
        return (before - after * scale).astype(after.dtype, copy=False)
