"""Devices: where regions run.  Found by name; the CPU is the default and needs nothing."""

from __future__ import annotations

from actorgraph.devices.base import Device
from actorgraph.devices.cpu import CPU
from actorgraph.errors import GraphError, shown

__all__ = ["CPU", "Device", "get"]


def get(name: str) -> Device:
    """Return the device of that name.

    Raises
    ------
    GraphError
        There is no such device here; the text says what to install.
    """
    if isinstance(name, str) and name == "cpu":
        return CPU()
    if isinstance(name, str) and name.partition(":")[0] == "cuda":
        raise GraphError(
            f"device {shown(name)} is not available: this version runs on the CPU only; use 'cpu'. "
            "Nothing that you install changes that, the extras actorgraph[cuda12] and "
            "actorgraph[cuda13] neither: they bring CuPy for versions to come"
        )
    raise GraphError(f"unknown device {shown(name)}; use 'cpu'")
