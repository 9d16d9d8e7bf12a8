"""What every solver shares: which parameters are stepped, their state, and how they are written.

A solver itself is two methods, `init` and `update`, that see arrays only. Guarantees kept here:

- every parameter of a step is validated before the first one is written;
- a step changes all parameters, or neither a parameter nor a state: everything is computed into
  other arrays first, and one `store.switch` commits it, wherever an interrupt strikes;
- state is keyed by the `Held` of a parameter, whichever graph's node shows it, else by the node,
  else by the position in the list;
- the array of a `Held` is replaced, see `store`; arrays without a node are written in place;
- the dtype of a parameter never changes.

Nodes are compared by identity only: `==` on a node builds a graph node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, NamedTuple

import numpy as np

from actorgraph.errors import GraphError, shown
from actorgraph.keywords import Answering, answering
from actorgraph.solvers._gradients import HOST, Caller, added, are_finite, clipped, scaled
from actorgraph.solvers._settings import check_settings
from actorgraph.solvers._slots import (
    Array,
    Away,
    Slot,
    State,
    Stepped,
    ValueGrad,
    bare,
    check_unchanged,
    checked,
    described,
)  # fmt: skip
from actorgraph.store import PROMISES, Held, present, switch
from actorgraph.warned import ERRORS

_TOTAL = "accumulated gradients"
"""Their name in the state that `state_dict` returns for a parameter."""

LEAST_SCALE = 2.0**-24
"""The smallest loss scale: gradients that are infinite here are infinite at every scale."""

_TRIES = 8
"""How often a step is tried again when another thread has set a parameter meanwhile."""


def _without_parameters(init: Any) -> Any:
    """Return an `__init__` that explains what to do when it gets parameters, as in PyTorch."""

    @wraps(init)
    def refusing(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and isinstance(args[0], (list, tuple, dict, Held, Iterator)):
            raise TypeError(
                f"{type(self).__name__} got {shown(args[0], 60)}: a solver takes no parameters, "
                "solver.step([run[w], ...]) is given those to step"
            )
        init(self, *args, **kwargs)
        if not hasattr(self, "_slots"):
            raise TypeError(
                f"{type(self).__name__}.__init__ has to call super().__init__(), which sets what "
                "every solver has"
            )

    return refusing


class Loop(NamedTuple):
    """What a `LoopSolver` does to one element, as text that can be compiled.

    Attributes
    ----------
    lines : tuple of str
        Assignments to the parameter ``p``, the gradient ``g`` and `arrays`, of these and `numbers`,
        ``sqrt``, ``abs``, ``sign`` and ``maximum``; each operation is rounded to the dtype of the
        parameter.
    arrays, numbers : tuple of str
        Names of arrays of the state, and of numbers.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.solvers.SGD(lr=0.1).loop().lines
    ('p = p - g * lr',)
    """

    lines: tuple[str, ...]
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]


class OneCall(NamedTuple):
    """A step of all parameters as calls of machine code or ufuncs, which cannot fail.

    Together the calls, C functions and their arguments, write the new values and states.  `report`
    is called after them and warns of floating-point errors.
    """

    calls: list[tuple[Any, ...]]
    report: Callable[[], None]


@answering
@dataclass(kw_only=True, eq=False, repr=False)
class AbstractSolver(Answering, ABC, Generic[State]):
    """A solver: `init` makes the state of one parameter, `update` steps it.

    Subclasses are final and implement these two methods only. A solver is for one thread at a
    time; the parameters it steps may be read by runs in other threads.

    Parameters
    ----------
    clip_norm : float, optional
        Scale all gradients of a step down together, where their norm is larger.
    clip_value : float, optional
        Bring each element of a gradient into [-clip_value, clip_value] first.
    skip_nonfinite : bool
        Leave out steps with an infinite gradient or NaN: nothing changes, the step does not count.
    accumulate : int
        Step once for so many calls, by the mean of their gradients.
    batch_size : float
        What gradients are divided by, where a loss is a sum over so many rows.
    loss_scale : float, optional
        What the loss is multiplied by at first, and gradients are divided by, so that those of
        float16 do not vanish; 2.0**16 is usual.  Compiled steps see to it; otherwise run with
        ``backward={loss: solver.scale}``.  A step with an infinite gradient or NaN changes nothing
        but the scale, which is halved.
    growth_interval : int
        So many steps without one double the scale.

    Attributes
    ----------
    scale : float
        That of the loss of the next step.
    steps : int
        Steps that were made; a function for a learning rate gets it.
    accumulated : int
        Calls whose gradients wait for the next step.
    away : bool
        Whether states may be on devices.
    helped : bool
        Whether other threads may help with a large step; a compiled step of one worker says no.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> class SignDescent(AbstractSolver[None]):
    ...     def init(self, value):
    ...         return None
    ...     def update(self, state, grad, current, out):
    ...         np.subtract(current, 0.1 * np.sign(grad), out=out)
    ...         return state
    """

    lr: Any = field(init=False)
    clip_norm: float | None = None
    clip_value: float | None = None
    skip_nonfinite: bool = False
    accumulate: int = 1
    batch_size: float = 1.0
    loss_scale: float | None = None
    growth_interval: int = 2000

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _without_parameters(cls.__init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        check_settings(self)
        self.scale = 1.0 if self.loss_scale is None else self.loss_scale
        self.scaled = 0  # steps since the scale has changed
        self.steps = self.accumulated = 0
        self._slots: dict[tuple[str, int], Slot[State]] = {}
        self._latest: Sequence[Slot[State]] = ()  # of the last step, if all hold a parameter
        self._unkeyed: int | None = None  # number of values without a node, fixed by the first step
        self._groups: dict[int, tuple[Any, AbstractSolver[State]]] = {}  # by the id of their key
        self._main: AbstractSolver[State] = self  # of a group: the solver that counts the steps
        self._loaded: dict[str, Any] = {}  # states of parameters that no step has had yet
        self.away, self.helped = False, True
        self._in_graph: Any = None

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
        if not hasattr(duals, "__iter__"):  # a dual, or a run
            given = shown(duals, 60)
            raise TypeError(f"step takes a list of duals, [run[W], run[b]], not {given}")
        duals = list(duals)
        slots, values, grads = self._repeated(duals) or self._validated(duals)
        for _ in range(_TRIES):
            if PROMISES.given:
                values = [present(value) for value in values]
            refused = self.apply(slots, grads, values)
            if refused is None:
                return
            values = [
                value if slot.held is None else slot.held.array
                for slot, value in zip(slots, values, strict=True)
            ]
        assert refused is not None
        raise refused

    def apply(
        self, slots: Sequence[Slot[State]], grads: Sequence[Array], values: Sequence[Array]
    ) -> GraphError | None:
        """Step parameters by their gradients, all at once; return what `advance` returns.

        For callers that have `slots` and no duals, such as a compiled step.
        """
        prepared = self.prepared(slots, grads, values)
        if prepared is None:
            return None
        outs = [slot.room() for slot in slots]
        given = slots, prepared, values, outs
        one_call = self.in_one_call(given)
        if one_call is None:
            states = self.updated(given, self.helped)
            return self.advance(slots, values, outs, states)
        state = ERRORS.get()
        try:
            refused = self.advance(slots, values, outs, None, one_call.calls)
        except BaseException:
            ERRORS.set(state)  # one of the calls before it has set another one
            raise
        if refused is None:
            one_call.report()
        return refused

    def in_one_call(self, given: Stepped[State]) -> OneCall | None:
        """Return the work of `updated` as calls that cannot fail, or None if there are none."""
        return None

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        lr: Any = self.lr
        return float(lr(self._main.steps)) if callable(lr) else lr

    def prepared(
        self, slots: Sequence[Slot[State]], grads: Sequence[Any], values: Sequence[Any],
        caller: Caller = HOST,
    ) -> Sequence[Any] | None:  # fmt: skip
        """Return the clipped gradients of a step, or None if this call makes no step."""
        if self._in_graph is not None:
            raise GraphError(
                f"{self!r} is in a graph: each run of {self._in_graph.step!r} is a step"
            )
        if caller.on_host:
            self.come_home()
        scaling = self.loss_scale is not None
        if self.skip_nonfinite or scaling:
            if not are_finite(caller, grads):
                switch((), self._rescaled(max(self.scale / 2, LEAST_SCALE)) if scaling else ())
                return None
            if self.scale != 1:
                grads = scaled(caller, grads, 1 / self.scale)
        if self.accumulate > 1:
            # New arrays: an interrupt leaves the sums so far as they were.
            grads = added(caller, [slot.total for slot in slots], grads)
            if self.accumulated + 1 < self.accumulate:
                caller.wait(grads)
                calls = [(setattr, slot, "total", total) for slot, total in zip(slots, grads)]
                count = setattr, self, "accumulated", self.accumulated + 1
                switch((), [*calls, count, *self._grown()])
                return None
        parts = self.accumulate * self.batch_size
        share = None if parts == 1 else 1 / parts
        grads = clipped(caller, grads, share, self.clip_value, self.clip_norm)
        self.measure(slots, grads, values, caller)
        return grads

    def measure(
        self, slots: Sequence[Any], grads: Sequence[Any], values: Sequence[Any], caller: Caller
    ) -> None:
        """Look at all parameters and gradients before the step."""

    def _rescaled(self, scale: float) -> list[tuple[Any, ...]]:
        """Return the calls that set the loss scale."""
        return [(setattr, self, "scale", scale), (setattr, self, "scaled", 0)]

    def _grown(self) -> list[tuple[Any, ...]]:
        """Return the calls that count a step whose gradients were finite."""
        if self.loss_scale is None:
            return []
        if self.scaled + 1 < self.growth_interval:
            return [(setattr, self, "scaled", self.scaled + 1)]
        return self._rescaled(2 * self.scale)

    def come_home(self) -> None:
        """Move all states to the host."""
        if self.away:
            for slot in self._slots.values():
                if isinstance(slot.state, Away):
                    slot.state = slot.state.home(slot.solver, slot.shape, slot.dtype)
                if hasattr(slot.total, "fetch"):
                    slot.total = slot.total.fetch()
            self.away = False

    def updated(self, given: Stepped[State], shared: bool = False) -> list[State]:
        """Write the stepped parameters and return the states after the step.

        Other threads may help where it is `shared`.
        """
        states = self.by_lines(given, shared)
        if states is not None:
            return states
        return [
            slot.solver.update(slot.state, grad, value, out)
            for slot, grad, value, out in zip(*given, strict=True)
        ]

    def by_lines(self, given: Stepped[State], shared: bool) -> list[State] | None:
        """Step all parameters together, as `updated` does, or return None if that cannot be."""
        return None

    def as_graph(self, loss: Any, parameters: Iterable[Any] | None = None) -> Any:
        """Return a node whose runs are steps: gradients and updates are nodes of the loss's graph.

        Any machine runs them, with the bits of `step`; one run follows the other.  States are
        buffers of the graph from then on, which `state_dict` reads and `load_state_dict` sets.
        Learning rates may be functions of the step, other settings are those of this moment.

        Parameters
        ----------
        loss : node
            A scalar.
        parameters : iterable of nn.Parameter or node, optional
            Default all that the loss depends on.

        Returns
        -------
        Node
            The number of steps made after a run that computes it.  Others change nothing.

        Raises
        ------
        GraphError
            The solver's step is more than the lines of a `Loop`, or it is in a graph already.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> g = ag.Graph()
        >>> w = g.parameter("w", np.ones(2))
        >>> loss = (w**2).sum()
        >>> step = ag.solvers.SGD(lr=0.25).as_graph(loss)
        >>> with ag.TapeMachine([loss, step]) as machine:
        ...     [float(machine.run_sync()[loss].value) for _ in range(3)]
        [2.0, 0.5, 0.125]
        """
        if self._in_graph is not None:
            raise GraphError(f"{self!r} is in a graph already; make another solver")
        from actorgraph.solvers._graph import InGraph  # few need it

        self._in_graph = InGraph(self, loss, parameters)
        return self._in_graph.step

    def add_group(self, parameters: Iterable[Any], **settings: Any) -> None:
        """Step some parameters with other settings, such as no decay of biases.

        Parameters
        ----------
        parameters : iterable of nn.Parameter or node
        **settings
            What the constructor takes, where it differs.

        Examples
        --------
        >>> import actorgraph as ag
        >>> net = ag.nn.Linear(4, 2)
        >>> solver = ag.solvers.AdamW(1e-3)
        >>> solver.add_group([net.bias], weight_decay=0.0)
        """
        given = {name: getattr(self, name) for name in self._defaults()} | settings
        group = type(self)(**given)
        group._main = self
        for parameter in parameters:
            key = getattr(parameter, "held", parameter)
            self._groups[id(key)] = key, group
            slot = self._slots.get(("key", id(key)))
            if slot is not None:
                slot.solver = group

    @property
    def is_separable(self) -> bool:
        """Whether a parameter is stepped by its own gradient alone, so before others' are known."""
        whole = self.clip_norm is not None or self.skip_nonfinite or self.accumulate > 1
        whole = whole or self.loss_scale is not None
        return not whole and type(self).measure is AbstractSolver.measure

    def __repr__(self) -> str:
        settings = [
            f"{name}={getattr(self, name)!r}"
            for name, default in self._defaults().items()
            if name == "lr" or getattr(self, name, default) != default
        ]
        return f"<{' '.join([type(self).__name__, *settings])}, {self.steps} steps>"

    def _defaults(self) -> dict[str, Any]:
        """Return the settings and their defaults, those that all solvers share last."""
        from inspect import signature

        own = signature(type(self)).parameters.values()
        named = {one.name: one.default for one in own if one.kind is not one.VAR_KEYWORD}
        shared = signature(AbstractSolver).parameters.values()
        return named | {one.name: one.default for one in shared} if named else named

    def pack(self, state: State) -> dict[str, Any]:
        """Return a state as arrays and numbers by name, for `state_dict`."""
        raise GraphError(f"{type(self).__name__} does not say how its state is saved; write pack")

    def unpack(self, state: State, packed: Mapping[str, Any]) -> State:
        """Return the state that `pack` packed; `state` is a fresh one of the same parameter."""
        raise GraphError(f"{type(self).__name__} does not say how its state is read; write unpack")

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to resume: the number of steps, and each parameter's state by name.

        Settings are not part of it.
        """
        states: dict[str, Any] = {}
        self.come_home()
        if self._in_graph is not None:
            self._in_graph.pull()
        for slot in self._slots.values():
            packed = self.pack(slot.state)
            packed |= {} if slot.total is None else {_TOTAL: slot.total}
            states[bare(slot.name)] = {
                name: np.copy(one) if isinstance(one, np.ndarray) else one
                for name, one in packed.items()
            }
        if len(states) < len(self._slots):
            raise GraphError("two parameters of the solver have one name; states go by name")
        states = {**self._loaded, **states}  # those of parameters that no step has had yet
        counts: dict[str, float] = {"steps": self.steps, "accumulated": self.accumulated}
        if self.loss_scale is not None:
            counts |= {"scale": self.scale, "scaled": self.scaled}
        return {"solver": type(self).__name__, **counts, "states": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; parameters that no step has had yet take theirs at their first step.

        Raises
        ------
        GraphError
            It is the state of another kind of solver, or of other parameters; nothing changes.
            Of parameters that no step has had yet the first step finds it.
        """
        if not isinstance(state, Mapping) or not {"solver", "steps", "states"} <= state.keys():
            raise GraphError(f"expected what state_dict() has returned, got {shown(state)}")
        if state["solver"] != type(self).__name__:
            raise GraphError(
                f"the state is that of {shown(state['solver'])}, not of {type(self).__name__}"
            )
        self.come_home()
        slots = {bare(slot.name): slot for slot in self._slots.values()}
        loaded, steps = dict(state["states"]), int(state["steps"])
        if slots and slots.keys() != loaded.keys():
            odd = sorted(slots.keys() ^ loaded.keys())
            raise GraphError(f"the state is that of other parameters: {', '.join(odd)}")
        restored = {name: self._restored(name, slot.shape, slot.state, loaded[name])
                for name, slot in slots.items()}  # fmt: skip
        for name, slot in slots.items():
            slot.state, slot.total = restored[name], loaded[name].get(_TOTAL)
        self._loaded = {} if slots else loaded
        self.steps, self.accumulated = steps, int(state.get("accumulated", 0))
        self.scale, self.scaled = float(state.get("scale", self.scale)), int(state.get("scaled", 0))
        if self._in_graph is not None:
            self._in_graph.push()

    def _restored(self, name: str, shape: tuple[int, ...], state: State, packed: Any) -> State:
        try:
            wrong = [one for one in packed.values() if np.ndim(one) and np.shape(one) != shape]
            if wrong:
                raise ValueError(f"an array of shape {wrong[0].shape}, expected {shape}")
            return self.unpack(state, packed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GraphError(f"the state of {name!r} does not fit: {error}") from error

    def slots(self, nodes: Iterable[Any]) -> list[Slot[State]]:
        """Return the slot of each parameter node; a new parameter gets one.

        For callers of `update`, such as a compiled step; `step` continues with the same slots.
        """
        slots = []
        for node in nodes:
            value = node.held.array
            key = ("key", id(node.held))
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = self._slot(node.held, f"parameter {node.name!r}", value)
            check_unchanged(slot, value, f"parameter {node.name!r}")
            slots.append(slot)
        return slots

    def advance(
        self, slots: Sequence[Slot[State]], values: Sequence[Array], outs: Sequence[Array],
        states: Sequence[State] | None, first: Sequence[tuple[Any, ...]] = (),
    ) -> GraphError | None:  # fmt: skip
        """Commit the values and states of a step for all parameters.

        `states` is None where the calls in `first` write values and states themselves.

        Returns the error to raise if somebody has set a parameter, so that it is no longer the one
        in `values`; then nothing has changed.

        Raises
        ------
        TypeError
            A state is missing; then nothing has changed.
        """
        changes: list[tuple[Held, Array, Array]] = []
        calls = [*first, (setattr, self, "steps", self.steps + 1), *self._grown()]
        if self.accumulated:
            calls.append((setattr, self, "accumulated", 0))
            calls += [(setattr, slot, "total", None) for slot in slots]
        for slot, value, out in zip(slots, values, outs, strict=True):
            if slot.held is None:
                calls.append((np.ndarray.__setitem__, value, ..., out))
                calls.append((setattr, slot, "second", out))
            else:
                changes.append((slot.held, value, out))
        for slot, state in zip(slots, states or (), strict=False):
            if state is None and slot.state is not None:
                raise TypeError(
                    f"{type(self).__name__}.update returned None, expected the state of the "
                    f"parameter after the step, as {type(slot.state).__name__} before it"
                )
            calls.append((setattr, slot, "state", state))
        changed = switch(changes, calls)
        if changed is None:
            return None
        name = next(slot.name for slot in slots if slot.held is changed)
        return GraphError(
            f"{name} was set while a step was under way; the step has changed nothing, repeat it"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a solver that was copied or pickled, with its parameters."""
        self.__dict__.update(state)
        self._slots = {
            (kind, id(slot.key) if kind == "key" else place): slot
            for (kind, place), slot in self._slots.items()
        }
        self._groups = {id(key): (key, group) for key, group in self._groups.values()}

    def _slot(self, key: Any, name: str, value: Array) -> Slot[State]:
        held = key if isinstance(key, Held) else None
        solver = self._groups[id(key)][1] if id(key) in self._groups else self
        state, total = solver.init(value), None
        if self._loaded:
            packed = self._loaded.get(bare(name))
            if packed is None:
                raise GraphError(
                    f"the state that was loaded has no {name}; it has "
                    f"{', '.join(self._loaded)}; load it into a solver of the same model"
                )
            state = self._restored(name, value.shape, state, packed)
            total = packed.get(_TOTAL)
        return Slot(
            key, name, solver, value.shape, value.dtype, value.size, state, held, total=total
        )  # fmt: skip

    def _repeated(
        self, duals: Sequence[Any]
    ) -> tuple[Sequence[Slot[State]], list[Array], list[Array]] | None:
        """Return what `_validated` does for results of the parameters of the last step, or None."""
        slots, values, grads = self._latest, [], []
        if not slots or len(slots) != len(duals):
            return None
        try:
            for slot, dual in zip(slots, duals, strict=True):
                held, grad = dual.node.held, dual.grad
                array = held.array
                if held is not slot.held or type(grad) is not np.ndarray:
                    return None
                if grad.dtype is not slot.dtype or grad.shape != slot.shape:
                    return None
                values.append(array)
                grads.append(grad)
        except AttributeError:  # other objects than results
            return None
        return slots, values, grads

    def _validated(
        self, duals: list[ValueGrad]
    ) -> tuple[list[Slot[State]], list[Array], list[Array]]:
        """Return slots, values and gradients of the parameters, all checked."""
        slots, values, grads, unkeyed, fresh = [], [], [], 0, {}
        seen: set[tuple[str, int]] = set()
        for position, dual in enumerate(duals):
            node = dual if isinstance(dual, Held) else getattr(dual, "node", None)
            keyed = getattr(node, "held", node)
            if keyed is None:
                key = ("position", unkeyed)
                unkeyed += 1
            else:
                key = ("key", id(keyed))
            slot = self._slots.get(key)
            if slot is None or key in seen or not slot.fits(dual):
                name = described(dual, node, position)
                value, grad = checked(dual, keyed, name)
                if key in seen:
                    raise ValueError(f"{name} is listed twice; give each parameter to step once")
                if slot is None:
                    slot = fresh[key] = self._slot(keyed, name, value)
                check_unchanged(slot, value, name)
            else:
                value, grad = dual.value if slot.held is None else slot.held.array, dual.grad
            seen.add(key)
            slots.append(slot)
            values.append(value)
            grads.append(grad)
        self._check_length(unkeyed)
        self._slots.update(fresh)
        self._latest = slots if all(slot.held is not None for slot in slots) else ()
        return slots, values, grads

    def _check_length(self, unkeyed: int) -> None:
        expected = unkeyed if self._unkeyed is None else self._unkeyed
        if unkeyed != expected:
            raise ValueError(
                f"got {unkeyed} parameters without a node, the first step had {expected}; their "
                "state goes by position, so pass the same list each time or make a new solver"
            )
        self._unkeyed = expected
