"""The state of one parameter (`Slot`), also on a device (`Away`), and checks of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from actorgraph.options import is_masked
from actorgraph.store import Held

Array = np.ndarray[Any, np.dtype[Any]]  # numpy.typing costs 2 ms to import
State = TypeVar("State")


class ValueGrad(Protocol):
    """Anything with a value and its gradient: a Dual of a run, or an object of yours.

    A third attribute, ``node``, is used where it exists: it keys the state, and where it is a
    parameter of a graph, the parameter is stepped and not the array.  A `nn.Parameter` whose
    ``grad`` is set is one, too.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> weight = types.SimpleNamespace(value=np.ones(2), grad=np.ones(2))
    >>> ag.solvers.SGD(lr=0.5).step([weight])
    >>> weight.value
    array([0.5, 0.5])
    """

    @property
    def value(self) -> Any:
        """The parameter, a float or complex array."""

    @property
    def grad(self) -> Any:
        """The gradient, of the same shape, or None."""


@dataclass(slots=True)
class Slot(Generic[State]):
    """State of one parameter."""

    key: Any  # kept, so that its id cannot be given to another one
    name: str
    solver: Any  # whose settings it is stepped with
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    state: State
    held: Held | None  # of a parameter of a graph
    second: Array | None = None  # room for the value after a step, where nothing is held
    total: Any = None  # of the gradients that the next step accumulates

    def fits(self, dual: ValueGrad) -> bool:
        """Return whether value and gradient have the type, shape and dtype of the first step."""
        grad = dual.grad
        if type(grad) is not np.ndarray or grad.dtype != self.dtype or grad.shape != self.shape:
            return False
        if self.held is not None:
            return True
        value = dual.value
        same = type(value) is np.ndarray and value.dtype == self.dtype
        return same and value.shape == self.shape and value.flags.writeable

    def room(self) -> Array:
        """Return an array for the value after a step; nobody else uses it."""
        if self.held is not None:
            return self.held.room()
        room, self.second = self.second, None
        return np.empty(self.shape, self.dtype) if room is None else room


Stepped: TypeAlias = tuple[Sequence[Slot[State]], Sequence[Array], Sequence[Array], Sequence[Array]]
"""Slots, gradients, values and outputs of the parameters of a step."""


class Away(NamedTuple):
    """A state whose arrays are on a device.

    `shell` is the state of a parameter without elements: what a state has beside arrays.  `arrays`
    has by name what has a ``fetch()``.
    """

    shell: Any
    arrays: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Number of steps."""
        return int(self.shell.step)

    def home(self, solver: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return the state on the host."""
        fetched = {name: array.fetch() for name, array in self.arrays.items()}
        return solver.unpack(
            solver.init(np.empty(shape, dtype)), {**solver.pack(self.shell), **fetched}
        )

    @classmethod
    def emptied(cls, solver: Any, state: Any, dtype: np.dtype[Any]) -> tuple[Any, dict[str, Any]]:
        """Return a state on the host without its arrays, and the arrays."""
        packed = solver.pack(state)
        arrays = {name: value for name, value in packed.items() if isinstance(value, np.ndarray)}
        empty = np.empty(0, dtype)
        shell = solver.unpack(solver.init(empty), {**packed, **dict.fromkeys(arrays, empty)})
        return shell, arrays


def described(dual: ValueGrad, node: object, position: int) -> str:
    """Return the name of a parameter for messages."""
    name = getattr(node, "name", None) or getattr(dual, "name", None)
    return f"parameter {name!r}" if name else f"parameter {position} of the list"


def bare(name: str) -> str:
    """Return a name in text, ``parameter 'w'`` or ``parameter 3 of the list``, without the word."""
    return name.removeprefix("parameter ").removesuffix(" of the list").strip("'\"")


def checked(dual: ValueGrad, keyed: object, name: str) -> tuple[Array, Array]:
    """Return value and gradient of a parameter, or raise if they do not fit."""
    value = keyed.array if isinstance(keyed, Held) else dual.value
    grad = dual.grad
    if is_masked(value) or is_masked(grad):
        raise TypeError(
            f"{name} or its gradient is a masked array, whose mask would be lost; use .filled(...)"
        )
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fcV":
        got = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(
            f"{name} has a value of {got}, expected a float or complex ndarray; "
            "keep integers out of the list or convert them with .astype"
        )
    if grad is None:
        raise ValueError(
            f"{name} has no gradient; run with backward=True and name the parameter in wrt="
        )
    grad = np.asarray(grad)
    if grad.shape != value.shape:
        raise ValueError(
            f"{name} has a gradient of shape {grad.shape}, expected {value.shape} as its value; "
            "sum the gradient over the axes that were broadcast"
        )
    if grad.dtype.kind == "c" and value.dtype.kind == "f":
        raise TypeError(
            f"{name} is {value.dtype} but its gradient is {grad.dtype}; "
            "take the real part of the gradient"
        )
    if not value.flags.writeable and not isinstance(keyed, Held):
        raise TypeError(f"{name} is a read-only array; pass a writable copy")
    # Of a subclass `reshape` and `vdot` may mean something else, and NumPy's `stack` of `np.matrix`
    # writes behind the end of its result.
    return np.asarray(value), grad.astype(value.dtype, copy=False)


def check_unchanged(slot: Slot[State], value: Array, name: str) -> None:
    """Raise `ValueError` where a parameter is not of the shape and dtype of its first step."""
    if slot.shape != value.shape or slot.dtype != value.dtype:
        raise ValueError(
            f"{name} is {value.dtype} of shape {value.shape}, at its first step it was "
            f"{slot.dtype} of shape {slot.shape}; make a new solver for a new parameter"
        )
