"""The CPU: NumPy arrays as they are."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from actorgraph.devices.base import Device

__all__ = ["CPU"]


@final
class CPU(Device):
    """The host's processor; BLAS runs on one thread while workers live."""

    name = "cpu"

    @property
    def xp(self) -> Any:
        """NumPy."""
        return np

    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the array itself."""
        return array

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself, a scalar as a 0-d array."""
        return np.asarray(array)
