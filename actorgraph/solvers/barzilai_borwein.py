"""Barzilai and Borwein's gradient method: the step length follows from the last step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._gradients import Caller
from actorgraph.solvers._settings import Rate, solver

_LOOP = Loop(
    ("value = p", "grad = g", "p = p - g * length"),
    ("value", "grad"),
    ("length",),
)  # fmt: skip


@final
@solver(
    "BarzilaiBorwein(lr=0.1)", "[0.7]",
    lr="Length of the first step, and where gradients have not changed.",
)  # fmt: skip
class BarzilaiBorwein(LoopSolver):
    r"""Descent with a step length from the last change of all parameters and gradients.

    .. math::
        s = p_t - p_{t-1}, \qquad y = g_t - g_{t-1}, \qquad
        p \leftarrow p - \frac{|s^T y|}{y^T y} g

    with sums over all parameters, after J. Barzilai and J. Borwein, "Two-Point Step Size Gradient
    Methods", IMA Journal of Numerical Analysis 8, 1988, in absolute values.
    """

    lr: Rate = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._length: float | None = None

    def loop(self) -> Loop:
        return _LOOP

    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the length of the step; see `LoopSolver.numbers`."""
        length = self._main._length if isinstance(self._main, BarzilaiBorwein) else None
        return (self.rate if length is None else length,)

    def measure(
        self, slots: Sequence[Any], grads: Sequence[Any], values: Sequence[Any], caller: Caller
    ) -> None:
        """Find the length of the step; see `AbstractSolver.measure`."""
        products = [
            caller.call(place, _changes, value, grad, before["value"], before["grad"])
            for place, (slot, grad, value) in enumerate(zip(slots, grads, values, strict=True))
            if slot.state.step and (before := slot.state.arrays)
        ]
        self._length = None
        if products:
            above, below = caller.read(caller.call(0, _sum, *products)).tolist()
            self._length = abs(above) / below if below else None


def _changes(xp: Any, value: Any, grad: Any, value_before: Any, grad_before: Any) -> Any:
    change = grad - grad_before
    products = xp.vdot(value - value_before, change), xp.vdot(change, change)
    return xp.stack(products).real.astype("float64")


def _sum(xp: Any, *products: Any) -> Any:
    return sum(products)
