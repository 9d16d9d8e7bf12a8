"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from actorgraph.errors import GraphTypeError, shown
from actorgraph.nn.module import Module


def _checked(module: Any) -> Module:
    if not isinstance(module, Module):
        raise GraphTypeError(
            f"expected a module, got {shown(module)}; Lambda makes one of a function"
        )
    return module


class ModuleDict(Module):
    """Modules by name, which is part of the names of their parameters.

    Parameters
    ----------
    modules : mapping of str to Module
    """

    def __init__(self, modules: Mapping[str, Module] = {}) -> None:
        self.entries: dict[str, Module] = {}
        for name, module in modules.items():
            self[name] = module

    def _own(self) -> Iterator[tuple[str, Any]]:
        return iter(self.entries.items())

    def __getitem__(self, name: str) -> Module:
        return self.entries[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.entries[name] = _checked(module)

    def __delitem__(self, name: str) -> None:
        del self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self.entries.keys()

    def values(self) -> Iterable[Module]:
        """Return the modules."""
        return self.entries.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Return the names with the modules."""
        return self.entries.items()


class ModuleList(Module):
    """Modules in order, under the names "0", "1" and so on.

    Parameters
    ----------
    modules : iterable of Module
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.entries = [*map(_checked, modules)]

    def _own(self) -> Iterator[tuple[str, Any]]:
        return ((str(place), module) for place, module in enumerate(self.entries))

    def __getitem__(self, place: Any) -> Any:
        entry = self.entries[place]
        return entry if isinstance(entry, Module) else type(self)(entry)

    def __setitem__(self, place: int, module: Module) -> None:
        self.entries[place] = _checked(module)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        self.entries.append(_checked(module))

    def extend(self, modules: Iterable[Module]) -> None:
        """Add modules at the end."""
        self.entries.extend(map(_checked, modules))


class Sequential(ModuleDict):
    """Modules one after another, each called on what the one before returns.

    Parameters
    ----------
    *modules : Module
        Named "0", "1" and so on; or one mapping, which names them.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.ReLU())
    Sequential(
      (0): Linear(in_features=4, out_features=8)
      (1): ReLU()
    )
    """

    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            super().__init__(modules[0])
        else:
            super().__init__({str(place): module for place, module in enumerate(modules)})

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.entries[key]
        entry = [*self.entries.values()][key]
        return Sequential(*entry) if isinstance(key, slice) else entry

    def __iter__(self) -> Iterator[Any]:
        return iter(self.entries.values())

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        self[str(len(self.entries))] = module

    def forward(self, *args: Any) -> Any:
        for module in self.entries.values():
            args = (module(*args),)
        return args[0] if len(args) == 1 else args


class Lambda(Module):
    """A function as a module.

    Parameters
    ----------
    function : callable
        Takes and returns nodes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))
