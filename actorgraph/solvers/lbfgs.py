"""L-BFGS: steps by an approximate inverse of the matrix of second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from math import sqrt
from typing import Any, final

import numpy as np

from actorgraph.devices.base import Handed
from actorgraph.errors import GraphError, shown
from actorgraph.keywords import answering
from actorgraph.options import choice, positive, real
from actorgraph.solvers._base import Loop
from actorgraph.solvers._formula import Arrays, LoopSolver, updated
from actorgraph.solvers._vectors import LaneVector, at, gathered, lane_of, largest, put
from actorgraph.store import Held

Objective = Callable[[Any], tuple[float, Any]]


@answering
@final
class LBFGS:
    r"""Limited-memory BFGS.

    .. math::
        p \leftarrow p - \eta H g

    where :math:`H` follows from the last changes of parameters and gradients, after D. Liu and
    J. Nocedal, "On the limited memory BFGS method for large scale optimization", Mathematical
    Programming 45, 1989; the line search is that of J. Nocedal and S. Wright, "Numerical
    Optimization", 2006, algorithms 3.5 and 3.6, with cubic interpolation, as PyTorch does.

    Sums of vectors are computed as the steps of other solvers are, by machine code where there is
    some; products are BLAS's.

    Parameters
    ----------
    lr : float
    max_iter : int
        Iterations a step.
    max_eval : int, optional
        Calls of the closure a step; default ``max_iter * 5 // 4``.
    tolerance_grad, tolerance_change : float
        Where a step ends early.
    history_size : int
        Changes that are remembered.
    line_search_fn : "strong_wolfe", optional
        None: steps of the length `lr`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0, 5.0]), grad=None)
    >>> def closure():
    ...     weight.grad = np.array([2.0, 20.0]) * weight.value
    ...     return float((np.array([1.0, 10.0]) * weight.value**2).sum())
    >>> loss = ag.solvers.LBFGS(line_search_fn="strong_wolfe").step([weight], closure)
    >>> loss, bool(np.abs(weight.value).max() < 1e-3)
    (251.0, True)
    """

    def __init__(
        self, lr: float = 1.0, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        self.lr, self.max_iter = real("lr", lr), positive("max_iter", max_iter)
        self.max_eval = max_iter * 5 // 4 if max_eval is None else positive("max_eval", max_eval)
        self.tolerance_grad = real("tolerance_grad", tolerance_grad)
        self.tolerance_change = real("tolerance_change", tolerance_change)
        self.history_size = positive("history_size", history_size)
        if line_search_fn is not None:
            choice("line_search_fn", line_search_fn, ("strong_wolfe",))
        self.line_search_fn = line_search_fn
        self.steps = 0
        # Changes of gradients, changes of parameters, and the product of both.
        self._changes: list[tuple[Any, Any, float]] = []
        self._scale = 1.0
        self._direction: Any | None = None
        self._grad: Any | None = None
        self._length = self.lr

    def step(self, duals: Iterable[Any], closure: Callable[[], Any]) -> float:
        """Step all parameters up to `max_iter` times, and return the loss before.

        Parameters
        ----------
        duals : iterable
            `nn.Parameter`, or objects with ``value`` and ``grad``, whose arrays are written.
        closure : callable
            Refreshes ``grad`` of all and returns the loss.

        Raises
        ------
        Exception
            What the closure raises; then parameters are as they were before the step.
        """
        duals = list(duals)
        loss = float(np.asarray(closure()))
        slopes = [_slope(dual) for dual in duals]
        lane = lane_of(slopes)
        with ExitStack() as stack:
            if lane is not None:
                lane.device.retain()
                stack.callback(lane.device.release)
            self._take_along(lane)
            start = gathered([array for array, _ in _places(duals)], lane)

            def evaluated(point: Any) -> tuple[float, Any]:
                put(_places(duals), point)
                loss = float(np.asarray(closure()))
                return loss, gathered([_slope(dual) for dual in duals], lane)

            try:
                end = self._found(evaluated, start, loss, gathered(slopes, lane))
                put(_places(duals), end)
            except BaseException:
                put(_places(duals), start)
                raise
        return loss

    def as_graph(self, loss: Any, parameters: Iterable[Any] | None = None) -> Any:
        """Refuse: a step calls the closure a number of times that no graph can express."""
        raise GraphError("a step of LBFGS calls its closure as often as it takes; use step(...)")

    def _take_along(self, lane: Any) -> None:
        """Move the remembered vectors to where those of the step are."""
        self._changes = [(at(one, lane), at(two, lane), both) for one, two, both in self._changes]
        if self._direction is not None and self._grad is not None:
            self._direction, self._grad = at(self._direction, lane), at(self._grad, lane)

    def _found(self, evaluated: Objective, point: Any, loss: float, grad: Any) -> Any:
        """Return the point where a step ends; it starts from a point with its loss and gradient."""
        calls = 1
        for iteration in range(1, self.max_iter + 1):
            if largest(grad) <= self.tolerance_grad:
                break
            direction = self._direct(grad)
            self.steps += 1
            length = self.lr
            if self.steps == 1:
                length = min(1.0, 1.0 / float(abs(grad).sum())) * self.lr
            slope = float(grad @ direction)
            self._grad, before = grad, loss
            if slope > -self.tolerance_change:
                break
            if self.line_search_fn is None:
                called = 1
            else:
                search = _Search(evaluated, point, direction, self.tolerance_change)
                loss, grad, length, called = search.run(length, loss, grad, slope)
            point = _less(point, -length, direction)
            if self.line_search_fn is None:
                if iteration == self.max_iter:
                    self._length = length
                    break
                loss, grad = evaluated(point)
            self._length = length
            calls += called
            done = largest(grad) <= self.tolerance_grad
            small = largest(direction * length) <= self.tolerance_change
            if calls >= self.max_eval or done or small:
                break
            if abs(loss - before) < self.tolerance_change:
                break
        return point

    def _direct(self, grad: Any) -> Any:
        """Remember the last change and return the direction of the next step."""
        if self._direction is None or self._grad is None:
            self._direction = -grad
            return self._direction
        change, moved = grad - self._grad, self._direction * self._length
        curvature = float(change @ moved)
        if curvature > 1e-10:
            self._changes = [*self._changes, (change, moved, curvature)][-self.history_size :]
            self._scale = curvature / float(change @ change)
        found, shares = -grad, []
        for change, moved, curvature in reversed(self._changes):
            shares.append(float(moved @ found) / curvature)
            found = _less(found, shares[-1], change, found)
        found = found * self._scale
        for (change, moved, curvature), share in zip(self._changes, shares[::-1], strict=True):
            found = _less(found, float(change @ found) / curvature - share, moved, found)
        self._direction = found
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to resume."""
        self._take_along(None)
        return {
            "solver": "LBFGS", "steps": self.steps, "scale": self._scale, "length": self._length,
            "direction": self._direction, "grad": self._grad,
            "changes": [(one, two) for one, two, _ in self._changes],
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state.

        Raises
        ------
        GraphError
            It is that of another solver.
        """
        if not isinstance(state, Mapping) or state.get("solver") != "LBFGS":
            raise GraphError(f"expected the state of an LBFGS solver, got {shown(state)}")
        self.steps, self._scale = state["steps"], state["scale"]
        self._length, self._direction = state["length"], state["direction"]
        self._grad = state["grad"]
        self._changes = [(one, two, float(one @ two)) for one, two in state["changes"]]


@final
class _Less(LoopSolver):
    """``p - g * share``, as the step of a solver."""

    by_parts = False

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def loop(self) -> Loop:
        return _LESS

    def numbers(self, step: int) -> tuple[float, ...]:
        return (self.share,)


_LESS = Loop(("p = p - g * share",), (), ("share",))


def _less(vector: Any, share: float, other: Any, out: Any = None) -> Any:
    """Return ``vector - share * other``; it may be written to `out`."""
    if isinstance(vector, LaneVector):
        return vector - share * other
    out = np.empty_like(vector) if out is None else out
    updated([(_Less(share), Arrays(0, {}), other, vector, out)], True)
    return out


class _Search:
    """The search for a point on a line where the strong Wolfe conditions hold."""

    def __init__(self, evaluated: Objective, point: Any, direction: Any, least: float) -> None:
        self.evaluated, self.point, self.direction, self.least = evaluated, point, direction, least
        self.calls = 0

    def at(self, length: float) -> tuple[float, float, Any, float]:
        """Return the length, and the loss, gradient and slope along the line there."""
        self.calls += 1
        loss, grad = self.evaluated(_less(self.point, -length, self.direction))
        return length, loss, grad, float(grad @ self.direction)

    def run(
        self, length: float, loss: float, grad: Any, slope: float
    ) -> tuple[float, Any, float, int]:
        """Return loss, gradient and length of the point found, and the number of calls made."""
        start = before = (0.0, loss, grad, slope)
        enough, flat, most = 1e-4, 0.9, 25
        span = largest(self.direction)
        now = self.at(length)
        bracket = None
        for tried in range(most):
            if now[1] > loss + enough * now[0] * slope or (tried and now[1] >= before[1]):
                bracket = [before, now]
                break
            if abs(now[3]) <= -flat * slope:
                return now[1], now[2], now[0], self.calls
            if now[3] >= 0:
                bracket = [before, now]
                break
            low, high = now[0] + 0.01 * (now[0] - before[0]), now[0] * 10
            length = _cubic(before, now, low, high)
            before, now = now, self.at(length)
        else:
            tried = most
            bracket = [start, now]
        stuck = False
        order = _by_loss(bracket)  # low, high
        while tried < most:
            if abs(bracket[1][0] - bracket[0][0]) * span < self.least:
                break
            length = _cubic(bracket[0], bracket[1])
            low, high = sorted((bracket[0][0], bracket[1][0]))
            margin = 0.1 * (high - low)
            if min(high - length, length - low) < margin:
                if stuck or length >= high or length <= low:
                    near_high = abs(length - high) < abs(length - low)
                    length = high - margin if near_high else low + margin
                    stuck = False
                else:
                    stuck = True
            else:
                stuck = False
            now = self.at(length)
            tried += 1
            best, worst = order
            if now[1] > loss + enough * now[0] * slope or now[1] >= bracket[best][1]:
                bracket[worst] = now
                order = _by_loss(bracket)
            else:
                if abs(now[3]) <= -flat * slope:
                    bracket[best] = now
                    break
                if now[3] * (bracket[worst][0] - bracket[best][0]) >= 0:
                    bracket[worst] = bracket[best]
                bracket[best] = now
        best_point = bracket[order[0]]
        return best_point[1], best_point[2], best_point[0], self.calls


def _cubic(
    one: tuple[Any, ...], other: tuple[Any, ...], low: float | None = None,
    high: float | None = None,
) -> float:  # fmt: skip
    """Return the minimum, within bounds, of the cubic through two points with their slopes."""
    (x1, f1, _, g1), (x2, f2, _, g2) = one, other
    bounds = sorted((x1, x2)) if low is None or high is None else [low, high]
    first = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = first**2 - g1 * g2
    if square < 0:
        return float(sum(bounds) / 2)
    root = sqrt(square)
    if x1 <= x2:
        minimum = x2 - (x2 - x1) * ((g2 + root - first) / (g2 - g1 + 2 * root))
    else:
        minimum = x1 - (x1 - x2) * ((g1 + root - first) / (g1 - g2 + 2 * root))
    return float(min(max(minimum, bounds[0]), bounds[1]))


def _by_loss(bracket: list[tuple[float, float, Any, float]]) -> tuple[int, int]:
    """Return the indices of the lower and of the higher loss."""
    return (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)


def _places(duals: Iterable[Any]) -> list[tuple[Any, Held | None]]:
    """Return the arrays of parameters, each with its `Held` if a graph has bound it."""
    nodes = [dual if isinstance(dual, Held) else getattr(dual, "node", None) for dual in duals]
    keys = [getattr(node, "held", node) for node in nodes]
    return [
        (held.array, held) if isinstance(held, Held) else (dual.value, None)
        for dual, held in zip(duals, keys, strict=True)
    ]


def _slope(dual: Any) -> Any:
    if dual.grad is None:
        raise GraphError(f"{dual!r} has no gradient after the closure; it has to set .grad")
    return dual.grad if isinstance(dual.grad, Handed) else np.asarray(dual.grad)
