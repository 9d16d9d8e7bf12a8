"""Devices: where regions run.  They are found by name; the default, the CPU, needs nothing.

``"cpu"`` is the host's processor, ``"cuda:0"`` a GPU.  ``"virtual:0"``, ``"virtual:1"`` and so on
are devices of host threads, which are made when they are first named.  `check` and `adversary` wrap
a device.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from actorgraph.devices.base import MOST_URGENT, Device, Handed, Lane, Placement
from actorgraph.devices.cpu import CPU
from actorgraph.errors import GraphError, shown
from actorgraph.keywords import all_answering

if TYPE_CHECKING:
    from actorgraph.devices.adversarial import Adversary
    from actorgraph.devices.checker import Checked

__all__ = [
    "CPU", "Device", "GPU", "Handed", "Lane", "PLACED", "Placement", "adversary", "calibrated",
    "check", "device", "experiment", "get", "list", "placement",
]  # fmt: skip
__dir__ = __all__.copy

PLACED: ContextVar[Placement | None] = ContextVar("PLACED", default=None)
"""The placement of nodes that are built in this context."""

_MOST_LANES = 64
_known: dict[str, Device] = {"cpu": CPU()}


def get(name: str | Device) -> Device:
    """Return the device of that name; a `Device` is returned as it is.

    Raises
    ------
    GraphError
        If there is no such device here; the text says what to install.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.get("virtual:0")
    <device virtual:0>
    """
    if isinstance(name, Device):
        return name
    known = _known.get(name) if isinstance(name, str) else None
    if known is not None:
        return known
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind == "virtual" and number.isdecimal() and str(int(number)) == number:
        from actorgraph.devices.virtual import Virtual

        return _known.setdefault(name, Virtual(name))
    if kind == "cuda":
        if number.isdecimal() and str(int(number)) == number:
            from actorgraph.devices.cuda import CUDA

            return _known.setdefault(name, CUDA(int(number)))
        raise GraphError(f"device {shown(name)} has no number: write 'cuda:0'")
    raise GraphError(
        f"unknown device {shown(name)}; use 'cpu', 'cuda:0' (a GPU), or 'virtual:0' (host threads)"
    )


def list() -> builtins.list[str]:  # noqa: A001 - what the namespace calls it
    """Return the names of all devices: the CPU, GPUs, and virtual ones that have been named.

    Examples
    --------
    >>> import actorgraph as ag
    >>> "cpu" in ag.devices.list()
    True
    """
    from actorgraph.devices.cuda import count

    return [*dict.fromkeys([*_known, *[f"cuda:{number}" for number in range(count())]])]


def placement(name: Any, lane: Any = None, priority: Any = None) -> Placement:
    """Return a checked placement; a priority is set for the lane from then on.

    Raises
    ------
    GraphError
        If there is no such device, lane or priority, or the lane has another priority.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.placement("virtual:0", lane=1).lane
    1
    """
    target = get(name)
    if lane is not None and not (type(lane) is int and 0 <= lane < _MOST_LANES):
        raise GraphError(f"a lane is a whole number from 0 to {_MOST_LANES - 1}, got {shown(lane)}")
    if priority is not None:
        if not (type(priority) is int and MOST_URGENT <= priority <= 0):
            raise GraphError(
                f"a priority is a whole number from {MOST_URGENT} (first) to 0, got "
                f"{shown(priority)}"
            )
        if lane is None:
            raise GraphError("a priority belongs to a lane: say which, by lane=")
        target.lane(lane, priority)
    return Placement(target, lane)


@contextmanager
def device(
    name: str | Device, lane: int | None = None, priority: int | None = None
) -> Iterator[Device]:
    """Place the nodes that are built inside the `with` block on a device, optionally on a lane.

    A placement is no part of a node's identity: a node that exists already stays where it is.

    Parameters
    ----------
    name : str or Device
    lane : int, optional
    priority : int, optional
        Of that lane on a GPU, for all its users: from -5 (first) to 0.  It must be set before the
        lane is first used.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (3,))
    >>> with ag.device("virtual:0", lane=1):
    ...     y = ag.ops.tanh(x)
    >>> y.placement.device
    <device virtual:0>
    """
    placed = placement(name, lane, priority)
    token = PLACED.set(placed)
    try:
        yield placed.device
    finally:
        PLACED.reset(token)


ABOVE: dict[str, Callable[[], Any]] = {}
"""Late members of this namespace that know machines; the package root registers them."""


def __getattr__(name: str) -> Any:
    if name == "GPU":
        from actorgraph.devices.sim import GPU

        return GPU
    if name in ABOVE:
        return ABOVE[name]()
    raise AttributeError(f"{__name__} has no {name!r}")


def check(name: str | Device) -> Checked:
    """Return the device wrapped in a `checker.Checked`, which finds races and wrong lifetimes.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> checked = ag.devices.check("virtual:0")
    >>> x = ag.Graph().input("x", (3,))
    >>> with ag.ActorMachine([x + 1.0], device=checked, lanes=2) as machine:
    ...     run = machine.run_sync({"x": np.ones(3, "float32")})
    >>> checked.report()
    []
    """
    from actorgraph.devices.checker import Checked

    return Checked(get(name))


def adversary(name: str | Device, seed: int = 0) -> Adversary:
    """Wrap a device in an `adversarial.Adversary`, which runs its work late and in odd orders.

    The seed determines the order; a program that is right there is not right by luck.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.adversary("virtual:0", seed=1).name
    'adversary(virtual:0)'
    """
    from actorgraph.devices.adversarial import Adversary

    return Adversary(get(name), seed)


all_answering(globals())
