"""The CPU: NumPy arrays as they are."""

from __future__ import annotations

import os
from typing import Any, final

import numpy as np

from actorgraph.devices.base import Device

__all__ = ["CPU", "available_cores"]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
