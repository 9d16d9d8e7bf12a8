"""What every solver shares: which parameters are stepped, their state, and how they are written.

A solver itself is two methods, `init` and `update`, that see arrays only. Guarantees kept here:

- every parameter of a step is validated before the first one is written;
- state follows the graph node where there is one, else the position in the list;
- a node's own `update` decides whether the write is in place (no run in flight reads the
  parameter) or goes to a second array; things without a node are written in place;
- the dtype of a parameter never changes.

Nodes are compared by identity only: `==` on a node builds a graph node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]  # numpy.typing costs 2 ms to import
Write = Callable[[Array, Array], None]
State = TypeVar("State")


class ValueGrad(Protocol):
    """Anything with a value and its gradient: a Dual of a run, or an object of yours.

    A third attribute, ``node``, is used where it exists: it keys the state, and its ``update``
    method, if any, does the write.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> from actorgraph.solvers import SGD
    >>> weight = types.SimpleNamespace(value=np.ones(2), grad=np.ones(2))
    >>> SGD(lr=0.5).step([weight])
    >>> weight.value
    array([0.5, 0.5])
    """

    @property
    def value(self) -> Any:
        """The parameter, a float or complex array."""

    @property
    def grad(self) -> Any:
        """The gradient of the same shape, None where there is none."""


@dataclass(slots=True)
class _Slot(Generic[State]):
    """State of one parameter."""

    node: object  # held, so that its id cannot be given to another node
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    state: State


@dataclass(slots=True, frozen=True)
class _Item(Generic[State]):
    """One parameter of one step, validated."""

    slot: _Slot[State]
    value: Array
    grad: Array


class AbstractSolver(ABC, Generic[State]):
    """A solver: `init` makes the state of one parameter, `update` steps it.

    Subclasses are final and implement these two methods only. A solver is for one thread at a
    time; the parameters it steps may be read by runs in other threads.

    Examples
    --------
    >>> import numpy as np
    >>> from actorgraph.solvers import AbstractSolver
    >>> class SignDescent(AbstractSolver[None]):
    ...     def init(self, value):
    ...         return None
    ...     def update(self, state, grad, current, out):
    ...         np.subtract(current, 0.1 * np.sign(grad), out=out)
    """

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], _Slot[State]] = {}
        self._unkeyed: int | None = None  # number of things without a node, fixed by the first step

    @abstractmethod
    def init(self, value: Array) -> State:
        """Return the state of a parameter before its first step.

        Parameters
        ----------
        value : ndarray
            The parameter; read its shape and dtype, do not keep or write it.

        Returns
        -------
        State
            Whatever `update` needs, in the dtype of the parameter.
        """

    @abstractmethod
    def update(self, state: State, grad: Array, current: Array, out: Array) -> None:
        """Write the stepped parameter to `out` and change `state` in place.

        Parameters
        ----------
        state : State
            What `init` returned for this parameter.
        grad : ndarray
            The gradient, in the shape and dtype of the parameter; read only.
        current : ndarray
            The value to start from.
        out : ndarray
            Where all of the new value goes; it may be `current` itself.
        """

    def step(self, duals: Iterable[ValueGrad]) -> None:
        """Step every parameter once, in place where nobody reads it.

        Parameters
        ----------
        duals : iterable of ValueGrad
            Results of a run with ``backward=True``, or any objects with ``value`` and ``grad``.

        Raises
        ------
        TypeError
            A value is not a writable float or complex array.
        ValueError
            A gradient is missing or has another shape than its value, a parameter is listed
            twice, or the list, a shape or a dtype differs from the steps before. Nothing has
            been written then.

        Examples
        --------
        >>> solver.step([run[W], run[b]])  # doctest: +SKIP
        """
        items = self._validated(list(duals))
        for item in items:
            self._write(item)

    def slots(self, nodes: Iterable[Any]) -> list[_Slot[State]]:
        """Return the state of each parameter node, made where this solver has not seen it.

        For whoever calls `update` by himself, such as a compiled step; `step` goes on with it.
        """
        found = []
        for node in nodes:
            value = node.value
            slot = self._slots.setdefault(
                ("node", id(node)), _Slot(node, value.shape, value.dtype, self.init(value))
            )
            _check_unchanged(slot, value, f"parameter {node.name!r}")
            found.append(slot)
        return found

    def _validated(self, duals: list[ValueGrad]) -> list[_Item[State]]:
        items, unkeyed, fresh = [], 0, {}
        seen: set[tuple[str, int]] = set()
        for position, dual in enumerate(duals):
            node = getattr(dual, "node", None)
            name = _describe(dual, node, position)
            value, grad = _checked(dual, node, name)
            if node is None:
                key = ("position", unkeyed)
                unkeyed += 1
            else:
                key = ("node", id(node))
            if key in seen:
                raise ValueError(f"{name} is listed twice; give each parameter to step once")
            seen.add(key)
            slot = self._slots.get(key)
            if slot is None:
                slot = _Slot(node, value.shape, value.dtype, self.init(value))
                fresh[key] = slot
            _check_unchanged(slot, value, name)
            items.append(_Item(slot, value, grad))
        self._check_length(unkeyed)
        self._slots.update(fresh)
        return items

    def _check_length(self, unkeyed: int) -> None:
        expected = unkeyed if self._unkeyed is None else self._unkeyed
        if unkeyed != expected:
            raise ValueError(
                f"got {unkeyed} parameters without a node, the first step had {expected}; their "
                "state goes by position, so pass the same list each time or make a new solver"
            )
        self._unkeyed = expected

    def _write(self, item: _Item[State]) -> None:
        def write(current: Array, out: Array) -> None:
            self.update(item.slot.state, item.grad, current, out)

        update = getattr(item.slot.node, "update", None)
        if update is None:
            write(item.value, item.value)
        else:
            cast(Callable[[Write], None], update)(write)


def _describe(dual: ValueGrad, node: object, position: int) -> str:
    name = getattr(node, "name", None) or getattr(dual, "name", None)
    return f"parameter {name!r}" if name else f"parameter {position} of the list"


def _checked(dual: ValueGrad, node: object, name: str) -> tuple[Array, Array]:
    value, grad = dual.value, dual.grad
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
    if not value.flags.writeable and getattr(node, "update", None) is None:
        raise TypeError(f"{name} is a read-only array; pass a writable copy")
    return value, grad.astype(value.dtype, copy=False)


def _check_unchanged(slot: _Slot[State], value: Array, name: str) -> None:
    if slot.shape != value.shape or slot.dtype != value.dtype:
        raise ValueError(
            f"{name} is {value.dtype} of shape {value.shape}, at its first step it was "
            f"{slot.dtype} of shape {slot.shape}; make a new solver for a new parameter"
        )
