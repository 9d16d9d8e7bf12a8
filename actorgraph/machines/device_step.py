"""`DeviceStep`: the solver's step on devices; parameters and states stay there.

Each parameter is stepped by one job on the lane of its gradient, which writes new arrays.  When all
jobs are done, one switch makes all new arrays current.  The host's array of a parameter is filled
when it is read (`store.present`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, final

import numpy as np

from actorgraph.devices import Device, Handed, Lane
from actorgraph.devices.base import Cell
from actorgraph.devices.checks import Failed
from actorgraph.graph import Node
from actorgraph.lower.residents import Residents
from actorgraph.node_actor import blamed
from actorgraph.solvers import AbstractSolver, LoopSolver
from actorgraph.solvers._formula import Arrays, stepped
from actorgraph.solvers._slots import Away
from actorgraph.solvers._vectors import complete
from actorgraph.store import promise

if TYPE_CHECKING:
    from actorgraph.machines.run import Run


@final
class DeviceStep:
    """Steps parameters, each with its slot of the solver, by gradients on devices."""

    def __init__(
        self, solver: AbstractSolver[Any], parameters: Sequence[Node], slots: Sequence[Any],
        placing: Residents,
    ) -> None:  # fmt: skip
        self._solver, self._placing = solver, placing
        self._parameters, self._slots = parameters, slots

    @property
    def fits(self) -> bool:
        """Whether each parameter's step is elementwise, by the lines of a `LoopSolver`."""
        return isinstance(self._solver, LoopSolver) and all(
            slot.solver.has_loop for slot in self._slots
        )

    def __call__(self, run: Run) -> None:
        """Step all parameters, or none if a job fails or a parameter was set meanwhile."""
        joint, solver = run.plan.compiled.joint, self._solver
        before = [run.duals[node].value for node in self._parameters]
        nodes = [joint.values[node] for node in self._parameters]
        homes = [
            self._at_home(self._placing.resident(node, value), run.duals[node].grad)
            for node, value in zip(self._parameters, before, strict=True)
        ]
        caller = _OnLanes([lane for lane, _, _ in homes], nodes)
        values, grads = [value for _, value, _ in homes], [grad for _, _, grad in homes]
        solver.away = True
        for slot, lane in zip(self._slots, caller.lanes, strict=True):
            _take_along(slot, lane.device)
        try:
            prepared = solver.prepared(self._slots, grads, values, caller)
            if prepared is None:
                return
            made = [
                self._launched(caller, place, value, grad)
                for place, (value, grad) in enumerate(zip(values, prepared, strict=True))
            ]
            complete([new for new, _ in made])
        except Failed as error:
            raise blamed(joint, None, None, error) from error.cause
        outs = [slot.room() for slot in self._slots]
        for out, (new, _) in zip(outs, made, strict=True):
            promise(out, new)
        refused = solver.advance(self._slots, before, outs, [state for _, state in made])
        if refused is not None:
            raise refused

    def _at_home(self, brought: Any, grad: Any) -> tuple[Lane, Handed, Handed]:
        """Return the lane of a gradient, and parameter and gradient on its device."""
        if isinstance(grad, Handed):
            device = grad.lane.device
            lane = device.lane(0) if grad.lane is device.lane("in") else grad.lane
        else:
            others = [one for one in (*brought.on, *self._placing.used) if one and not one.is_host]
            lane = others[0].lane(0)
            grad = lane.device.bring(grad)
        return lane, self._placing.bring(brought, lane.device, None), grad

    def _launched(
        self, caller: _OnLanes, place: int, value: Handed, grad: Handed
    ) -> tuple[Handed, Away]:
        """Launch the step of one parameter; return its new value and its new state."""
        slot, lane, node = self._slots[place], caller.lanes[place], caller.nodes[place]
        state, names = slot.state, slot.solver.loop().arrays
        numbers = slot.solver.numbers(state.step + 1)
        work = partial(stepped, solver=slot.solver, numbers=numbers)
        made = caller.call(place, work, value, grad, *[state.arrays[name] for name in names])
        new, *left = [
            lane.launch(itemgetter(part), [made], name="part", node=node, fresh=False)
            for part in range(1 + len(names))
        ]
        shell = Arrays(state.step + 1, state.shell.arrays)
        return new, Away(shell, dict(zip(names, left, strict=True)))


class _OnLanes:
    """Calls functions for each parameter on the lane of its gradient."""

    on_host = False

    def __init__(self, lanes: Sequence[Lane], nodes: Sequence[Node]) -> None:
        self.lanes, self.nodes = lanes, nodes
        self._copies: dict[tuple[Device, Cell], Handed] = {}

    def call(self, place: int, work: Callable[..., Any], *operands: Any) -> Handed:
        lane, node = self.lanes[place], self.nodes[place]
        given = [self._on(lane.device, one) for one in operands]
        name = f"{node.name} (step)"
        work = partial(work, lane.device.xp)
        return lane.launch(work, given, name=name, node=node)

    def _on(self, device: Device, value: Any) -> Handed:
        if not isinstance(value, Handed):
            return device.bring(value)
        if value.lane.device is device:
            return value
        key = device, value.cell
        return self._copies.setdefault(key, self._copies.get(key) or device.bring(value))

    def read(self, value: Handed) -> np.ndarray[Any, Any]:
        return value.fetch()

    wait = staticmethod(complete)


def _take_along(slot: Any, device: Device) -> None:
    """Move the solver's state of a parameter to a device."""
    solver, state = slot.solver, slot.state
    names = solver.loop().arrays
    if isinstance(state, Away):
        there = all(one.lane.device is device for one in state.arrays.values())
        if there and state.arrays.keys() >= {*names}:
            return
        state = state.home(solver, slot.shape, slot.dtype)
    shell, arrays = Away.emptied(solver, state, slot.dtype)
    nothing = np.zeros(slot.shape, slot.dtype)
    slot.state = Away(shell, {name: device.bring(arrays.get(name, nothing)) for name in names})
