"""Checking the options of a machine on rewriting, compiling and devices."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from actorgraph.devices import Device, get
from actorgraph.errors import GraphError, shown
from actorgraph.lower.cuts import one_per_node
from actorgraph.options import NATIVE, flag, has_llvmlite, positive
from actorgraph.rewrite import Pass, chosen

if TYPE_CHECKING:
    from actorgraph.lower.placing import Placing


def _check_flag_or_wait(what: str, value: object) -> None:
    if not isinstance(value, bool) and not (isinstance(value, str) and value == "wait"):
        raise ValueError(f"{what} must be False, True or 'wait', got {shown(value)}")


def checked_jit(jit: bool | str, exact: bool) -> bool | str:
    """Return `jit`, or raise if `exact` forbids it or machine code cannot be made."""
    _check_flag_or_wait("jit", jit)
    if jit and exact:
        raise GraphError("jit may change last bits; ask for it with exact=False")
    if jit:
        from actorgraph.devices import structs

        why_not = structs.callable_from_python()
        if why_not is not None:
            raise GraphError(f"jit={jit!r} needs machine code: {why_not}")
    return jit


def checked_native(native: bool | str | None) -> bool | str:
    """Return whether steps run as tables, or raise if that is asked for without llvmlite."""
    asked = os.environ.get(NATIVE, "")
    if native is None:
        return asked != "0" and has_llvmlite() and (asked if asked == "wait" else True)
    _check_flag_or_wait("native", native)
    if native and not has_llvmlite():
        raise GraphError(f"native={native!r} needs llvmlite: pip install 'actorgraph[native]'")
    return False if asked == "0" else native


def checked_passes(
    requested: Iterable[Pass | str] | Pass | str | None, exact: bool
) -> tuple[Pass, ...]:
    """Return the chosen passes, default all; if `exact`, only those that change no bits.

    Raises `GraphError` if one that was named is unknown, or changes bits against `exact`.
    """
    passes = chosen(requested)
    changing = [one for one in passes if one.changes_bits]
    if exact and changing and requested is not None:
        raise GraphError(f"{changing[0]!r} may change bits; ask for it with exact=False")
    return tuple([one for one in passes if not (exact and one.changes_bits)])


_NO_JIT = "jit compiles for the CPU; on other devices leave it out"


def checked_devices(requested: Any, jit: bool | str) -> list[Device]:
    """Return devices by their names, or raise `GraphError`."""
    if isinstance(requested, (str, Device)):
        raise GraphError(f"devices= takes a list of devices, got {shown(requested)}; device= one")
    devices = [get(one) for one in requested]
    if not devices:
        raise GraphError("devices=[] names no device")
    if jit and not all(one.is_host for one in devices):
        raise GraphError(_NO_JIT)
    return devices


def placed(
    machine: Any, requested: Any, lanes: int, captured: bool
) -> tuple[Device, Placing | None]:
    """Return the first device, and the placement of a machine's nodes if not all run on the host.

    Raises `GraphError` if there is no such device or lane, or `jit` cannot compile for it.
    """
    graph, jit = machine.graph, machine.jit
    lanes, captured = positive("lanes", lanes), flag("captured", captured)
    together = machine._interpreter is None and machine._cut() is not one_per_node
    exact = machine.exact if together and not machine.watch else None
    devices = checked_devices(requested, jit)
    if not graph.placements and all(one.is_host for one in devices):
        return devices[0], None
    from actorgraph.lower.placing import Placing  # late: rarely needed

    placing = Placing.of(graph, devices, lanes, captured and together, exact)
    if placing is not None and jit:
        raise GraphError(_NO_JIT)
    return devices[0], placing
