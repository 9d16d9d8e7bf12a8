"""What a device is: an array module and the way of arrays to and from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

__all__ = ["Device"]


class Device(ABC):
    """An array module with lanes; on the CPU a lane is a worker thread."""

    name: str

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array module that op rules receive."""

    @abstractmethod
    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a host array as an array of this device; no copy where it is one already."""

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return an array of this device as a NumPy array, when it is complete."""

    def __repr__(self) -> str:
        return f"<device {self.name}>"
