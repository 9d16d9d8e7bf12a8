"""Devices: where regions run.  Found by name; the CPU is the default and needs nothing."""

from __future__ import annotations

from actorgraph.devices.base import Device
from actorgraph.devices.cpu import CPU
from actorgraph.errors import GraphError

__all__ = ["CPU", "Device", "get"]


def get(name: str) -> Device:
    """Return the device of that name.

    Raises
    ------
    GraphError
        There is no such device here; the text says what to install.
    """
    if name == "cpu":
        return CPU()
    if isinstance(name, str) and name.partition(":")[0] == "cuda":
        raise GraphError(
            f"device {name!r} is not available: this version runs on the CPU only, and CUDA needs "
            "CuPy: pip install 'actorgraph[cuda12]' or 'actorgraph[cuda13]' (see nvidia-smi for "
            "the driver's CUDA version)"
        )
    raise GraphError(f"unknown device {name!r}; use 'cpu'")
