"""`Away`: the state of a parameter that is stepped on a device, and stays there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Away(NamedTuple):
    """A state whose arrays are on a device.

    Attributes
    ----------
    shell : state
        That of a parameter without elements: what a state has beside arrays.
    arrays : mapping
        By name what has a ``fetch()``.
    """

    shell: Any
    arrays: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Number of steps."""
        return int(self.shell.step)

    def home(self, solver: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return it as the state of a parameter on the host."""
        fetched = {name: one.fetch() for name, one in self.arrays.items()}
        return solver.unpack(
            solver.init(np.empty(shape, dtype)), {**solver.pack(self.shell), **fetched}
        )

    @classmethod
    def emptied(cls, solver: Any, state: Any, dtype: np.dtype[Any]) -> tuple[Any, dict[str, Any]]:
        """Return the shell of a state on the host, and its arrays."""
        packed = solver.pack(state)
        arrays = {name: one for name, one in packed.items() if isinstance(one, np.ndarray)}
        empty = np.empty(0, dtype)
        shell = solver.unpack(solver.init(empty), {**packed, **dict.fromkeys(arrays, empty)})
        return shell, arrays
