"""What every solver shares: which parameters are stepped, their state, and how they are written.

A solver itself is two methods, `init` and `update`, that see arrays only. Guarantees kept here:

- every parameter of a step is validated before the first one is written;
- a step is made for all parameters, or changes neither a parameter nor a state: everything is
  computed into other arrays first, and one `store.switch` decides, wherever an interrupt strikes;
- state follows the graph node where there is one, else the position in the list;
- a node's array is replaced, see `store`; arrays without a node are written;
- the dtype of a parameter never changes.

Nodes are compared by identity only: `==` on a node builds a graph node.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from actorgraph.errors import GraphError
from actorgraph.store import Held, switch

Array = np.ndarray[Any, np.dtype[Any]]  # numpy.typing costs 2 ms to import
State = TypeVar("State")

_TRIES = 8
"""Times that a step begins again where other threads set a parameter meanwhile."""


class ValueGrad(Protocol):
    """Anything with a value and its gradient: a Dual of a run, or an object of yours.

    A third attribute, ``node``, is used where it exists: it keys the state, and where it is a
    parameter of a graph, the parameter is stepped and not the array.

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

    node: Any  # held, so that its id cannot be given to another node
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    state: State
    held: Held | None  # of a parameter of a graph
    second: Array | None = None  # room for the value after a step, where nothing is held

    def room(self) -> Array:
        """Return an array for the value after a step."""
        if self.held is not None:
            return self.held.room()
        if self.second is None:
            self.second = np.empty(self.shape, self.dtype)
        return self.second


@dataclass(slots=True, frozen=True)
class _Item(Generic[State]):
    """One parameter of one step, validated."""

    slot: _Slot[State]
    value: Array
    grad: Array


class Loop(NamedTuple):
    """What `LoopSolver.update` does to one element, as text that a compiler makes fast.

    Attributes
    ----------
    lines : tuple of str
        Assignments to the parameter ``p``, the gradient ``g`` and `arrays`, of these and `numbers`,
        ``sqrt`` and ``sign``; each is rounded to the dtype of the parameter.
    arrays, numbers : tuple of str
        Names of arrays of the state, and of numbers.
    """

    lines: tuple[str, ...]
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]


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
    ...         return state
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
    def update(self, state: State, grad: Array, current: Array, out: Array) -> State:
        """Write the stepped parameter to `out` and return the state after the step.

        Parameters
        ----------
        state : State
            What `init`, or the step before, returned for this parameter.  Leave in it whatever
            decides about the next step: where one parameter fails, all keep the state they had.
        grad : ndarray
            The gradient, in the shape and dtype of the parameter; read only.
        current : ndarray
            The value to start from.
        out : ndarray
            Where all of the new value goes; it may be `current` itself.

        Returns
        -------
        State
            Never None, but where `state` is.  It may take over memory of the state before `state`,
            so that two take turns.
        """

    def step(self, duals: Iterable[ValueGrad]) -> None:
        """Step every parameter once, or change nothing.

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
            twice, or the list, a shape or a dtype differs from the steps before.
        Exception
            What `update` raises. Whatever is raised, Ctrl-C too, parameters and state are as they
            were, or all have been stepped.

        Examples
        --------
        >>> solver.step([run[W], run[b]])  # doctest: +SKIP
        """
        items = self._validated(list(duals))
        slots = [item.slot for item in items]
        grads = [item.grad for item in items]
        for tries_left in reversed(range(_TRIES)):
            values = [
                item.value if item.slot.held is None else item.slot.held.array for item in items
            ]
            outs = [slot.room() for slot in slots]
            states = list(map(self.update, [slot.state for slot in slots], grads, values, outs))
            refused = self.advance(slots, values, outs, states)
            if refused is None:
                return
            if not tries_left:
                raise refused

    def slots(self, nodes: Iterable[Any]) -> list[_Slot[State]]:
        """Return the state of each parameter node, made where this solver has not seen it.

        For whoever calls `update` by himself, such as a compiled step; `step` goes on with it.
        """
        found = []
        for node in nodes:
            value = node.held.array
            slot = self._slots.setdefault(("node", id(node)), self._slot(node, value))
            _check_unchanged(slot, value, f"parameter {node.name!r}")
            found.append(slot)
        return found

    def advance(
        self,
        slots: Sequence[_Slot[State]],
        values: Sequence[Array],
        outs: Sequence[Array],
        states: Sequence[State],
    ) -> GraphError | None:
        """Let all parameters of a step have the values and states that `update` has made.

        Returns what is to be raised where a parameter is another one than that of `values`, as
        somebody has set it; then nothing has changed.

        Raises
        ------
        TypeError
            A state is missing; then nothing has changed.
        """
        changes: list[tuple[Held, Array, Array]] = []
        calls: list[tuple[Any, ...]] = []
        for slot, value, out, state in zip(slots, values, outs, states, strict=True):
            if state is None and slot.state is not None:
                raise TypeError(
                    f"{type(self).__name__}.update returned None, expected the state of the "
                    f"parameter after the step, as {type(slot.state).__name__} before it"
                )
            if slot.held is None:
                calls.append((np.ndarray.__setitem__, value, ..., out))
            else:
                changes.append((slot.held, value, out))
            calls.append((setattr, slot, "state", state))
        found = switch(changes, calls)
        if found is None:
            return None
        name = next(slot.node.name for slot in slots if slot.held is found)
        return GraphError(
            f"parameter {name!r} was set while a step was under way; the step has changed nothing, "
            "repeat it"
        )

    def _slot(self, node: Any, value: Array) -> _Slot[State]:
        held = getattr(node, "held", None)
        return _Slot(node, value.shape, value.dtype, self.init(value), held)

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
                slot = fresh[key] = self._slot(node, value)
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


class LoopSolver(AbstractSolver[State]):
    """A solver whose `update` is a loop over elements, which machines with ``jit=`` compile."""

    @abstractmethod
    def loop(self) -> Loop:
        """Return the present form of `update` as a loop."""

    @abstractmethod
    def ahead(self, states: Sequence[State]) -> tuple[tuple[float, ...], Sequence[State]] | None:
        """Return the numbers of the loop for a step of all `states`, and the states after it.

        The loop reads the arrays of `states` and writes those of the states after.  None where one
        step of all has no numbers in common.
        """


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
    if not value.flags.writeable and getattr(node, "held", None) is None:
        raise TypeError(f"{name} is a read-only array; pass a writable copy")
    return value, grad.astype(value.dtype, copy=False)


def _check_unchanged(slot: _Slot[State], value: Array, name: str) -> None:
    if slot.shape != value.shape or slot.dtype != value.dtype:
        raise ValueError(
            f"{name} is {value.dtype} of shape {value.shape}, at its first step it was "
            f"{slot.dtype} of shape {slot.shape}; make a new solver for a new parameter"
        )
