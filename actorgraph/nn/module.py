"""`Module`: parameters, buffers and modules under one name, and how they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from itertools import chain, count
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from actorgraph import devices
from actorgraph.autodiff.trees import flatten, map_leaves
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, no_name, shown
from actorgraph.graph import Graph
from actorgraph.keywords import Answering, answering
from actorgraph.nn._arrays import run_on_arrays
from actorgraph.node import Node
from actorgraph.parameters import Buffer, Parameter
from actorgraph.store import Held, copies, take
from actorgraph.types import dtype_of

_H = TypeVar("_H", bound=Held)
_T = TypeVar("_T")
Hook = Callable[..., Any]


_PLAIN = frozenset({bool, float, int, str, type(None)})
"""Types of most attributes that are no parts of a module."""

_PLACED = "a machine is placed, not a module: device= of the machine, or with ag.device(...)"
_ELSEWHERE = {
    "cpu": _PLACED,
    "cuda": _PLACED,
    "double": "net.to(dtype='float64')",
    "float": "net.to(dtype='float32')",
    "half": "net.to(dtype='float16')",
    "zero_grad": "gradients never accumulate over runs",
}
"""Attributes of PyTorch's modules, and what has them here."""


class _Building(NamedTuple):
    """The outermost module call in progress."""

    graph: Graph
    paths: dict[int, str]  # of modules, by id


_building: ContextVar[_Building | None] = ContextVar("building", default=None)


@answering
class Module(Answering):
    """A computation with its own parameters; subclass it and write `forward`.

    Parameters, buffers and modules that are attributes, or in lists, tuples and dicts that are,
    belong to the module, under dotted names.  Called on nodes it adds to their graph: its
    parameters as leaves, and what `forward` builds, named by the layers' paths.  Inside of
    `forward` an attribute that is a parameter is the graph's node.  Called on arrays it builds a
    graph, runs it, and returns arrays; the machine is kept for calls of the same mode, dtypes and
    dims but the first.

    Attributes
    ----------
    training : bool
        What dropout and batch norm build: set by `train` and `eval`, for graphs built after.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> class Net(ag.nn.Module):
    ...     def __init__(self):
    ...         self.fc1, self.fc2 = ag.nn.Linear(4, 8), ag.nn.Linear(8, 2)
    ...     def forward(self, x):
    ...         return self.fc2(ag.ops.relu(self.fc1(x)))
    >>> net = Net()
    >>> [name for name, _ in net.named_parameters()]
    ['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias']
    >>> net(np.zeros((3, 4), "float32")).shape
    (3, 2)
    >>> graph = ag.Graph()
    >>> logits = net(graph.input("x", ("batch", 4)))
    >>> graph["fc1.weight"].held is net.fc1.weight
    True
    """

    training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Build the module's nodes from nodes, and return them."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, ...); write one")

    def prepare(self, *args: Any) -> None:
        """Make parameters whose sizes depend on the arguments; called before `forward`."""

    def prepare_for(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Make such parameters for a state with these shapes, by the module's own names."""

    def extra_repr(self) -> str:
        """Return the text of the module's own settings for `repr`."""
        return ""

    # -- calls ----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build nodes, or run on arrays; arguments may be trees of them."""
        leaves, structure = flatten((args, kwargs))
        graph = next((leaf.graph for leaf in leaves if isinstance(leaf, Node)), None)
        if graph is None:
            return run_on_arrays(self, leaves, structure)
        building = _building.get()
        if building is None or building.graph is not graph or id(self) not in building.paths:
            building = _Building(graph, self._paths(graph.outermost))
        token = _building.set(building)
        path = building.paths[id(self)]
        try:
            with graph.scope(path):
                return self._built(graph, path, args, kwargs)
        except (GraphTypeError, ShapeError) as error:
            if hasattr(error, "layer"):
                raise
            named = type(error)(f"{path or 'module'} ({self._header()}): {error}")
            vars(named)["layer"] = path
            raise named from None
        finally:
            _building.reset(token)

    def _built(self, graph: Graph, path: str, args: Any, kwargs: Any) -> Any:
        before, after = self.__dict__.get("_hooks", ({}, {}))
        for hook in tuple(before.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        self.prepare(*args)
        for name, held in (*self.named_parameters(), *self.named_buffers()):
            graph.bind(held, f"{path}.{name}" if path else name)
        result = self.forward(*args, **kwargs)
        for hook in tuple(after.values()):
            changed = hook(self, args, result)
            result = result if changed is None else changed
        return result

    def _paths(self, graph: Graph) -> dict[int, str]:
        """Return a path for each module, with a prefix if another module has taken the names."""
        held = [*self.named_parameters(), *self.named_buffers()]
        word = type(self).__name__.lower()
        for first in chain(("", word), (f"{word}_{number}" for number in count(2))):
            names = {f"{first}.{name}" if first else name: one for name, one in held}
            if all(getattr(graph[name], "held", None) is one for name, one in names.items()
                   if name in graph):  # fmt: skip
                break
        return {
            id(module): ".".join(filter(None, (first, name)))
            for name, module in self.named_modules()
        }

    def register_forward_pre_hook(self, hook: Hook) -> Callable[[], object]:
        """Call ``hook(module, args)`` before `forward`; what it returns replaces the arguments.

        Returns
        -------
        callable
            Removes the hook.
        """
        return self._add_hook(0, hook)

    def register_forward_hook(self, hook: Hook) -> Callable[[], object]:
        """Call ``hook(module, args, result)`` after `forward`, on nodes; it may replace the result.

        Returns
        -------
        callable
            Removes the hook.
        """
        return self._add_hook(1, hook)

    def _add_hook(self, place: int, hook: Hook) -> Callable[[], object]:
        hooks = self.__dict__.setdefault("_hooks", ({}, {}))[place]
        key = object()
        hooks[key] = hook
        return partial(hooks.pop, key, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that copies share; each copy makes its own machines."""
        return {name: value for name, value in vars(self).items() if name != "_machines"}

    # -- members -----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        held = self.__dict__.setdefault("_held", {})
        if any(isinstance(leaf, Held) for leaf in flatten(value)[0]):
            self.__dict__.pop(name, None)
            held[name] = value
            return
        if isinstance(held.get(name), Held) and isinstance(value, (np.ndarray, Node)):
            raise GraphTypeError(
                f"{name} is a {held[name].what}; set its value, module.{name}.value = array, "
                f"or assign an ag.nn.{type(held[name]).__name__}"
            )
        held.pop(name, None)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_held", {})
        if name not in held:
            known = [*held, *self.__dict__, *(one for one in dir(type(self)) if one[0] != "_")]
            raise no_name(type(self).__name__, name, known, _ELSEWHERE)
        building = _building.get()
        if building is None:
            return held[name]
        bind = building.graph.bind

        def bound(leaf: Any) -> Any:
            return bind(leaf) if isinstance(leaf, Held) else leaf

        return map_leaves(bound, held[name])

    def __delattr__(self, name: str) -> None:
        if self.__dict__.get("_held", {}).pop(name, self) is self:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.__dict__.get("_held", ())})

    def _own(self) -> Iterator[tuple[str, Any]]:
        """Yield the parameters, buffers and modules that are attributes or in containers."""
        for name, value in (*self.__dict__.get("_held", {}).items(), *self.__dict__.items()):
            if type(value) not in _PLAIN and name not in ("_held", "_hooks", "_machines"):
                yield from _found(name, value)

    def _all_own(self) -> tuple[Iterable[Module], Iterable[Held]]:
        """Return itself and all modules below, and their parameters and buffers; each once.

        Without names and their order this takes a tenth of the time.
        """
        modules, left = {id(self): self}, [self]
        held: dict[int, Held] = {}
        while left:
            for _, one in left.pop()._own():
                if not isinstance(one, Module):
                    held[id(one)] = one
                elif id(one) not in modules:
                    modules[id(one)] = one
                    left.append(one)
        return modules.values(), held.values()

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Return the modules that belong to it directly, with their names; each once."""
        return _once((name, one) for name, one in self._own() if isinstance(one, Module))

    def children(self) -> Iterator[Module]:
        """Yield the modules that belong to it directly."""
        return (module for _, module in self.named_children())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Yield itself, as "", and all modules below, outer ones first; each once."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [("", self)]
        while stack:
            name, module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module
                below = [(f"{name}.{key}" if name else key, one)
                         for key, one in module.named_children()]  # fmt: skip
                stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """Yield itself and all modules below."""
        return (module for _, module in self.named_modules())

    def _named(self, *kinds: type[_H]) -> Iterator[tuple[str, _H]]:
        """Return parameters or buffers of these kinds, module by module; each once."""
        return _once(self._all_named(*kinds))

    def _all_named(self, *kinds: type[_H]) -> Iterator[tuple[str, _H]]:
        """Yield parameters or buffers of these kinds, module by module, under all their names."""
        for path, module in self.named_modules():
            own = [*module._own()]
            for kind in kinds:
                for name, value in own:
                    if isinstance(value, kind):
                        yield f"{path}.{name}" if path else name, value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield all parameters with dotted names, in PyTorch's order; a tied one once."""
        return self._named(Parameter)

    def parameters(self) -> list[Parameter]:
        """Return all parameters."""
        return [held for _, held in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """Yield all buffers with dotted names."""
        return self._named(Buffer)

    def buffers(self) -> list[Buffer]:
        """Return all buffers."""
        return [held for _, held in self.named_buffers()]

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Call a function with every module, inner ones first, and return the module."""
        for module in reversed([*self.modules()]):
            function(module)
        return self

    def train(self, mode: bool = True) -> Self:
        """Let graphs built from now on train (or not), and return the module."""
        for module in self.modules():
            object.__setattr__(module, "training", bool(mode))
        return self

    def eval(self) -> Self:
        """Let graphs built from now on evaluate: no dropout, running statistics."""
        return self.train(False)

    def to(self, dtype: Any = None, device: Any = None) -> Self:
        """Convert float parameters and buffers to another dtype, and return the module.

        They are new objects: graphs that were built before go on with the old ones.
        """
        if device is not None:
            devices.get(device)
        if dtype is None:
            return self
        if isinstance(dtype, str) and dtype.partition(":")[0] in ("cpu", "cuda", "mps", "virtual"):
            raise GraphTypeError(f"to takes a dtype first, got {dtype!r}; {_PLACED}")
        target = dtype_of(dtype)
        if target.kind not in "fcV":
            raise GraphTypeError(f"a module is converted to a float dtype, got {target.name}")
        new: dict[int, Held] = {}

        def converted(leaf: Any) -> Any:
            if not isinstance(leaf, Held) or leaf.dtype.kind not in "fcV" or leaf.dtype == target:
                return leaf
            if id(leaf) not in new:
                new[id(leaf)] = type(leaf)(leaf.present().astype(target))
                new[id(leaf)].name = leaf.name
            return new[id(leaf)]

        for module in [*self.modules()]:
            for name, value in [*module.__dict__.get("_held", {}).items()]:
                setattr(module, name, map_leaves(converted, value))
        return self

    # -- state ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of all parameters and buffers by name, as PyTorch names and orders them."""
        return {name: np.array(held.present()) for name, held in self._named(Parameter, Buffer)}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load the values of a state: all of them or none.

        Parameters
        ----------
        state : mapping of str to array
            Such as `state_dict` returns; floats are rounded to the dtype of what takes them.  A
            tied weight may go by any of its names, or all.
        strict : bool
            False passes over missing and unexpected names.

        Raises
        ------
        GraphError
            Names are missing, unexpected, or of another shape or kind; the module is unchanged.
        """
        if not isinstance(state, Mapping):
            raise GraphError(f"a state is a mapping of name to array, got {shown(state)}")
        given = {name: _array_of(name, value) for name, value in state.items()}
        shapes: dict[str, dict[str, Any]] = {"": {k: value.shape for k, value in given.items()}}
        for name, value in given.items():
            for dot in [place for place, letter in enumerate(name) if letter == "."]:
                shapes.setdefault(name[:dot], {})[name[dot + 1 :]] = value.shape
        for path, module in self.named_modules():
            module.prepare_for(shapes.get(path, {}))
        known = dict(self._named(Parameter, Buffer))
        first = {id(held): name for name, held in known.items()}
        names = {name: first[id(held)] for name, held in self._all_named(Parameter, Buffer)}
        given = {names.get(name, name): value for name, value in given.items()}
        wrong = [
            f"{name} is {given[name].dtype}{list(given[name].shape)}, "
            f"expected {held.dtype}{list(held.shape)}"
            for name, held in known.items()
            if name in given
            if given[name].shape != held.shape
            or not np.can_cast(given[name].dtype, held.dtype, "same_kind")
        ]
        odd = {"missing": known.keys() - given, "unexpected": given.keys() - known}
        wrong_names = [
            f"{what} are {', '.join(sorted(names))}" for what, names in odd.items() if names
        ] if strict else []  # fmt: skip
        if wrong_names or wrong:
            raise GraphError(
                f"the state does not fit {type(self).__name__}: {'; '.join([*wrong_names, *wrong])}"
            )
        take(copies([(held, given[name]) for name, held in known.items() if name in given]))

    # -- display -----------------------------------------------------------------------------------

    def _header(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def __repr__(self) -> str:
        lines = [
            f"  ({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self.named_children()
        ]
        head = self._header()
        return "\n".join([f"{head[:-1]}", *lines, ")"]) if lines else head

    def summary(self, *inputs: Any) -> Any:
        """Return a table of layers: kind, shape of the result, parameters and flops.

        Parameters
        ----------
        *inputs : array or tuple of int
            What the module would be called on, or float32 arrays of these shapes.

        Examples
        --------
        >>> import actorgraph as ag
        >>> print(ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.ReLU()).summary((3, 4)))
        layer  kind        shape   parameters  flops
        0      Linear      (3, 8)          40    216
        1      ReLU        (3, 8)           0     24
        total  Sequential  (3, 8)          40    240
        """
        from actorgraph.nn._summary import ModuleSummary

        return ModuleSummary(self, inputs)


def _once(pairs: Iterable[tuple[str, _T]]) -> Iterator[tuple[str, _T]]:
    """Yield objects with names, each under its first name only."""
    seen: set[int] = set()
    for name, one in pairs:
        if id(one) not in seen:
            seen.add(id(one))
            yield name, one


def _array_of(name: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except (TypeError, RuntimeError) as error:  # PyTorch's, of dtypes or with gradients
        raise GraphError(
            f"{name} of the state makes no array: {error}; of a tensor give tensor.detach().float()"
        ) from error


def _found(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters, buffers and modules in a value, with dotted names."""
    if isinstance(value, (Held, Module)):
        yield name, value
    elif type(value) in (list, tuple):
        for place, part in enumerate(value):
            yield from _found(f"{name}.{place}", part)
    elif type(value) is dict:
        for key, part in value.items():
            yield from _found(f"{name}.{key}", part)
