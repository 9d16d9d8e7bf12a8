"""Adam: steps scaled by running estimates of the first two moments of the gradient."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, final

import numpy as np

from actorgraph.solvers._base import AbstractSolver

__all__ = ["Adam"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class _State:
    step: int
    mean: Array
    variance: Array
    scratch: Array


@final
class Adam(AbstractSolver[_State]):
    r"""Adam with bias correction.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g \\
        v &\leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
        p &\leftarrow p - \frac{\eta}{1 - \beta_1^t}
            \frac{m}{\sqrt{v} / \sqrt{1 - \beta_2^t} + \epsilon}

    after D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
    algorithm 1; :math:`\epsilon` is added after the bias correction, as PyTorch does. The real
    and the imaginary part of a complex parameter are two parameters.

    Parameters
    ----------
    lr : float
        Learning rate :math:`\eta \ge 0`.
    betas : tuple of two floats
        Decay of the two moments, each from 0 to below 1.
    eps : float
        :math:`\epsilon \ge 0`, keeps the step finite where the gradient vanishes.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> from actorgraph.solvers import Adam
    >>> weight = types.SimpleNamespace(value=np.array([1.0]), grad=np.array([3.0]))
    >>> Adam(lr=0.1).step([weight])
    >>> weight.value.round(6)
    array([0.9])
    """

    def __init__(
        self, lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__()
        if not (lr >= 0.0 and eps >= 0.0):
            raise ValueError(f"lr is {lr} and eps is {eps}, expected numbers of at least 0")
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas are {betas}, expected two numbers from 0 to below 1")
        self.lr = float(lr)
        self.betas = (float(betas[0]), float(betas[1]))
        self.eps = float(eps)

    def init(self, value: Array) -> _State:
        """Return zero moments; see `AbstractSolver.init`."""
        return _State(0, np.zeros_like(value), np.zeros_like(value), np.empty_like(value))

    def update(self, state: _State, grad: Array, current: Array, out: Array) -> None:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        state.step += 1
        arrays = (grad, state.mean, state.variance, state.scratch, current, out)
        if np.iscomplexobj(out):
            self._step(state.step, *(array.real for array in arrays))
            self._step(state.step, *(array.imag for array in arrays))
        else:
            self._step(state.step, *arrays)

    def _step(
        self, t: int, g: Array, m: Array, v: Array, scratch: Array, current: Array, out: Array
    ) -> None:
        beta1, beta2 = self.betas
        np.multiply(g, 1.0 - beta1, out=scratch)
        m *= beta1
        m += scratch
        np.multiply(g, g, out=scratch)
        scratch *= 1.0 - beta2
        v *= beta2
        v += scratch
        np.sqrt(v, out=scratch)
        scratch /= sqrt(1.0 - beta2**t)
        scratch += self.eps
        np.divide(m, scratch, out=scratch)
        scratch *= self.lr / (1.0 - beta1**t)
        np.subtract(current, scratch, out=out)
