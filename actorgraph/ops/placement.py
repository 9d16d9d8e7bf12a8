"""`to_device`: a value on another device.

The op is the identity, placed on the device that it names; transfers are inserted later, by where
nodes run (`lower.placing`).
"""

from __future__ import annotations

from actorgraph.devices import Device, placement
from actorgraph.graph import Node, build
from actorgraph.op import Memory, Op
from actorgraph.ops._rules import declare, on

__all__ = ["to_device"]


_TO_DEVICE: Op = declare(
    "to_device", "a[*s] -> a[*s]", lambda xp, x, *, device: x,
    vjp=(lambda ct, y, x, device: ct,), jvp=lambda tans, y, x, device: tans[0],
    cost=lambda shapes, result, attrs: 1, samples=(on((3, 4), device="cpu"),),
    memory=Memory(is_view=True),
)  # fmt: skip


def to_device(x: Node, device: str | Device, lane: int | None = None) -> Node:
    """Return `x` on a device, perhaps for one of its lanes; gradients go back to where `x` is.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (2,))
    >>> y = ag.ops.to_device(x, "virtual:0") * 2.0
    >>> with ag.ActorMachine([y]) as machine:
    ...     machine.run_sync({"x": np.ones(2, "float32")})[y].value
    array([2., 2.], dtype=float32)
    """
    where = placement(device, lane)
    name = where.device.name if lane is None else f"{where.device.name} lane {lane}"
    moved = build(_TO_DEVICE, x, device=name)
    moved.graph.placements[moved.id] = where
    return moved
