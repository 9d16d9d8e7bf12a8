"""Barzilai and Borwein's gradient method: the step length follows from the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from actorgraph.solvers._base import AbstractSolver
from actorgraph.solvers._settings import Rate, checked_rate

__all__ = ["BarzilaiBorwein"]

Array = np.ndarray[Any, np.dtype[Any]]
_Before = tuple[Array, Array] | None


@final
class BarzilaiBorwein(AbstractSolver[_Before]):
    r"""Descent with a step length from the last change of all parameters and gradients.

    .. math::
        s = p_t - p_{t-1}, \qquad y = g_t - g_{t-1}, \qquad
        p \leftarrow p - \frac{|s^T y|}{y^T y} g

    with sums over all parameters, after J. Barzilai and J. Borwein, "Two-Point Step Size Gradient
    Methods", IMA Journal of Numerical Analysis 8, 1988, in absolute values.

    Parameters
    ----------
    lr : float or callable
        Length of the first step, and where gradients have not changed.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0]))
    >>> solver = ag.solvers.BarzilaiBorwein(lr=0.01)
    >>> for _ in range(2):  # a parabola needs two steps
    ...     weight.grad = 3 * weight.value
    ...     solver.step([weight])
    >>> bool(abs(weight.value) < 1e-12)
    True
    """

    def __init__(self, lr: Rate = 1e-3, **shared: Any) -> None:
        super().__init__(**shared)
        self.lr = checked_rate(lr)
        self._length: float | None = None

    def init(self, value: Array) -> _Before:
        """Return None: there was no step yet; see `AbstractSolver.init`."""
        return None

    def prepared(
        self, slots: Sequence[Any], grads: Sequence[Array], values: Sequence[Array]
    ) -> Sequence[Array] | None:
        """Find the length of the step; see `AbstractSolver.prepared`."""
        found = super().prepared(slots, grads, values)
        above = below = 0.0
        for slot, grad, value in zip(slots, found or (), values, strict=False):
            if slot.state is not None:
                change = grad - slot.state[1]
                above += float(np.vdot(value - slot.state[0], change).real)
                below += float(np.vdot(change, change).real)
        self._length = abs(above) / below if below else None
        return found

    def update(self, state: _Before, grad: Array, current: Array, out: Array) -> _Before:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        length = self._main._length if isinstance(self._main, BarzilaiBorwein) else None
        before = current.copy(), grad.copy()
        np.subtract(current, grad * (self.rate if length is None else length), out=out)
        return before

    def pack(self, state: _Before) -> dict[str, Any]:
        """Return the last parameter and gradient; see `AbstractSolver.pack`."""
        return {} if state is None else {"value": state[0], "grad": state[1]}

    def unpack(self, state: _Before, packed: Mapping[str, Any]) -> _Before:
        """Return a state of them; see `AbstractSolver.unpack`."""
        return (np.array(packed["value"]), np.array(packed["grad"])) if packed else None
