"""Stand-ins for what a machine returns: a parameter node and its Dual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actorgraph.parameters import Parameter


class FakeParameter:
    """A trainable leaf. As with real nodes, `==` builds something instead of comparing."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.held = Parameter(value)

    @property
    def value(self) -> Any:
        """The array to read."""
        return self.held.value

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a solver must not compare nodes with ==")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise AssertionError("a solver must not ask for the truth of a node")


@dataclass
class FakeDual:
    """A value with its gradient; without a node it is stepped in place."""

    value: Any
    grad: Any
    node: Any = None


def dual_of(parameter: FakeParameter, grad: Any) -> FakeDual:
    """Return what a run would give for the parameter."""
    return FakeDual(parameter.value, grad, parameter)
