"""`Dual`: a value with its gradient, which actors pass on and solvers read."""

from __future__ import annotations

from abc import ABCMeta
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from actorgraph.graph import Node

from actorgraph.errors import GraphTypeError, printable

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True, eq=False, repr=False)
class Dual(metaclass=ABCMeta):
    """A value with its gradient or tangent.

    Parameters
    ----------
    value : ndarray
        The value of a node in one run.
    grad : ndarray, optional
        The cotangent (reverse mode), of the value's shape and dtype.
    tangent : ndarray, optional
        The tangent (forward mode), of the value's shape and dtype.
    node : Node, optional
        The node whose value it is.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.Dual(2.0, 3.0).grad
    3.0
    """

    value: Array
    grad: Any = None  # not `Array | None`: users would have to assert that it is an array
    tangent: Any = None
    node: Node | None = None

    def __repr__(self) -> str:
        name = "" if self.node is None else f" of {printable(self.node.name)}"
        parts = [f"value={self.value!r}"]
        parts += [f"grad={self.grad!r}"] if self.grad is not None else []
        parts += [f"tangent={self.tangent!r}"] if self.tangent is not None else []
        return f"<Dual{name} {', '.join(parts)}>"

    def __copy__(self) -> Dual:
        return Dual(self.value, self.grad, self.tangent, self.node)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dual:
        parts: tuple[Any, ...] = (self.value, self.grad, self.tangent, self.node)
        return Dual(*[deepcopy(part, memo) for part in parts])

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.node is None:
            return Dual, (self.value, self.grad, self.tangent)
        raise GraphTypeError(
            f"{self._called()} is not pickled: it refers to its graph; send its array, "
            "run[node].value"
        )

    def _called(self) -> str:
        return "a Dual" if self.node is None else f"the Dual of {printable(self.node.name)!r}"

    def __getattr__(self, name: str) -> NoReturn:
        advice = ""
        if name[0] != "_" and hasattr(np.ndarray, name):
            advice = f": a result is a Dual; its array is run[node].value, so .value.{name}"
        raise AttributeError(f"{self._called()} has no {name!r}{advice}")

    def _no_array(self, *_: object, **__: object) -> NoReturn:
        raise GraphTypeError(
            f"{self._called()} is no array: a result is a Dual; its array is run[node].value"
        )

    __array__ = __float__ = __int__ = __complex__ = __getitem__ = _no_array

    def _repr_html_(self) -> str:
        from actorgraph.notebook import of_dual

        return of_dual(self)
