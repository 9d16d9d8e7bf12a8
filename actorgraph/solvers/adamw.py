"""AdamW: Adam whose weight decay does not go through the moments."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from actorgraph.solvers._base import Loop, LoopSolver
from actorgraph.solvers._moments import ADAM_W, Moments, ahead, checked_settings

__all__ = ["AdamW"]

Array = np.ndarray[Any, np.dtype[Any]]


@final
class AdamW(LoopSolver[Moments]):
    r"""Adam with decoupled weight decay.

    .. math::
        p \leftarrow (1 - \eta \lambda) p

    and then the step of `Adam` from there, after I. Loshchilov and F. Hutter, "Decoupled Weight
    Decay Regularization", ICLR 2019, in PyTorch's form: the decay is scaled by the learning rate.

    Parameters
    ----------
    lr : float
        Learning rate :math:`\eta \ge 0`.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, as in `Adam`.
    weight_decay : float
        :math:`\lambda \ge 0`.

    Raises
    ------
    ValueError
        A setting is out of its bounds.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> from actorgraph.solvers import AdamW
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> AdamW(lr=0.1, weight_decay=0.5).step([weight])
    >>> weight.value.round(6)
    array([0.85])
    """

    def __init__(
        self,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__()
        checked = checked_settings(lr, betas, eps, weight_decay)
        self.lr, self.betas, self.eps, self.weight_decay = checked

    def init(self, value: Array) -> Moments:
        """Return zero moments; see `AbstractSolver.init`."""
        return Moments.of(value)

    def update(self, state: Moments, grad: Array, current: Array, out: Array) -> Moments:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        np.multiply(current, 1.0 - self.lr * self.weight_decay, out=out)
        return state.descend(grad, out, out, lr=self.lr, betas=self.betas, eps=self.eps)

    def loop(self) -> Loop:
        """Return `update` as a loop; see `LoopSolver.loop`."""
        return ADAM_W

    def ahead(
        self, states: Sequence[Moments]
    ) -> tuple[tuple[float, ...], Sequence[Moments]] | None:
        """Return the settings and counts; see `LoopSolver.ahead`."""
        return ahead(states, self.lr, self.betas, self.eps, 1.0 - self.lr * self.weight_decay)
