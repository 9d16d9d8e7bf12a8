"""Stochastic gradient descent with momentum, Nesterov's momentum, L1 and L2 penalties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np

from actorgraph.options import flag, real
from actorgraph.solvers._base import Loop, LoopSolver
from actorgraph.solvers._settings import Rate, checked_rate

__all__ = ["SGD"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class _State:
    scratch: Array
    velocity: Array | None = None  # None without momentum and before the first step
    rate: tuple[float | None, Any] = (None, None)  # as a float, and in the dtype of the parameter
    other: "_State | None" = None  # the state before, whose velocity the state after takes over

    def after(self) -> "_State":
        """Return the state after, with room for its velocity."""
        if self.other is None:
            self.other = _State(self.scratch, other=self)
        if self.other.velocity is None:
            self.other.velocity = np.empty_like(self.scratch)
        return self.other

    def take_rate(self, lr: float) -> Any:
        """Return the learning rate in the dtype of the parameter."""
        known, rate = self.rate
        if known != lr:
            rate = np.asarray(lr, self.scratch.dtype)
            self.rate = lr, rate
        return rate


@cache
def _loop(weight_decay: bool, l1: bool, momentum: bool, nesterov: bool) -> Loop:
    lines = ["g = g + weight_decay * p"] if weight_decay else []
    lines += ["g = g + l1 * sign(p)"] if l1 else []
    lines += ["velocity = velocity * momentum + g"] if momentum else []
    if momentum:
        lines.append("g = g + momentum * velocity" if nesterov else "g = velocity")
    arrays = ("velocity",) if momentum else ()
    return Loop((*lines, "p = p - g * lr"), arrays, ("lr", "momentum", "weight_decay", "l1"))


@final
class SGD(LoopSolver[_State]):
    r"""Stochastic gradient descent.

    .. math::
        g &\leftarrow g + \lambda p + \lambda_1 \operatorname{sign}(p) \\
        v &\leftarrow \mu v + g \qquad (v = g \text{ at the first step}) \\
        p &\leftarrow p - \eta v \qquad \text{or, with Nesterov, } p - \eta (g + \mu v)

    The form is PyTorch's (``torch.optim.SGD`` with ``dampening=0``): the learning rate multiplies
    the velocity, as in Sutskever, Martens, Dahl and Hinton, "On the importance of initialization
    and momentum in deep learning", ICML 2013, but is not part of it.

    Parameters
    ----------
    lr : float or callable
        Learning rate :math:`\eta \ge 0`, or a function of the number of steps before.
    momentum : float
        :math:`\mu`, from 0 (plain descent) to below 1.
    nesterov : bool
        Look ahead along the velocity; needs a momentum.
    weight_decay : float
        :math:`\lambda \ge 0`, an L2 penalty of :math:`\lambda p^2 / 2`.
    l1 : float
        :math:`\lambda_1 \ge 0`, a penalty of :math:`\lambda_1 |p|`, whose gradient at 0 is 0; a
        complex sign is :math:`p / |p|`.
    **shared
        Settings of all solvers, see `AbstractSolver`.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.array([1.0, 2.0]), grad=np.array([1.0, -1.0]))
    >>> ag.solvers.SGD(lr=0.5).step([weight])
    >>> weight.value
    array([0.5, 2.5])
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.lr = checked_rate(lr)
        self.momentum = real("momentum", momentum, below=1.0)
        self.nesterov = flag("nesterov", nesterov)
        if nesterov and momentum == 0.0:
            raise ValueError("nesterov=True has no effect with momentum 0; give a momentum")
        self.weight_decay = real("weight_decay", weight_decay)
        self.l1 = real("l1", l1)

    def init(self, value: Array) -> _State:
        """Return a state with room for one temporary; see `AbstractSolver.init`."""
        return _State(np.empty_like(value))

    def update(self, state: _State, grad: Array, current: Array, out: Array) -> _State:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        if self.weight_decay:
            grad = grad + self.weight_decay * current
        if self.l1:
            grad = grad + self.l1 * np.sign(current)
        if self.momentum:
            state, grad = self._accelerated(state, grad)
        # A 0-d array of the dtype costs 0.25 us less than a Python scalar.
        np.multiply(grad, state.take_rate(self.rate), state.scratch)
        np.subtract(current, state.scratch, out)
        return state

    def _accelerated(self, state: _State, grad: Array) -> tuple[_State, Array]:
        """Return the state after and the direction of the step."""
        after = state.after()
        velocity = after.velocity
        assert velocity is not None
        if state.velocity is None:
            np.copyto(velocity, grad)
        else:
            np.multiply(state.velocity, self.momentum, velocity)
            velocity += grad
        return after, grad + self.momentum * velocity if self.nesterov else velocity

    def loop(self) -> Loop:
        """Return `update` as a loop; see `LoopSolver.loop`."""
        return _loop(self.weight_decay != 0, self.l1 != 0, self.momentum != 0, self.nesterov)

    def ahead(self, states: Sequence[_State]) -> tuple[tuple[float, ...], Sequence[_State]]:
        """Return the settings; a velocity that is not there yet is 0."""
        if self.momentum:
            for state in states:
                if state.velocity is None:
                    state.velocity = np.zeros_like(state.scratch)
            states = [state.after() for state in states]
        return (self.rate, self.momentum, self.weight_decay, self.l1), states

    def pack(self, state: _State) -> dict[str, Any]:
        """Return the velocity, if there is one; see `AbstractSolver.pack`."""
        return {} if state.velocity is None else {"velocity": state.velocity}

    def unpack(self, state: _State, packed: Mapping[str, Any]) -> _State:
        """Return a state of the velocity; see `AbstractSolver.unpack`."""
        if "velocity" in packed:
            state.velocity = np.array(packed["velocity"]).astype(state.scratch.dtype)
        return state
