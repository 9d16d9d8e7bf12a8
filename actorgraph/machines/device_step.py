"""`DeviceStep`: the solver's step where the gradients are; parameters and states stay on devices.

Each parameter is stepped by one job on the lane of its gradient, which writes new arrays: those
before are as they were until all are there, and one switch lets all take their places.  The host's
array of a parameter is filled when somebody asks for it (`store.present`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, final

import numpy as np

from actorgraph.devices import Device, Handed, Lane
from actorgraph.graph import Node
from actorgraph.lower.residents import Residents
from actorgraph.node_actor import blamed
from actorgraph.solvers import AbstractSolver, LoopSolver
from actorgraph.solvers._away import Away
from actorgraph.solvers._base import clipped
from actorgraph.solvers._formula import Arrays, stepped
from actorgraph.store import promise

if TYPE_CHECKING:
    from actorgraph.machines.run import Run

__all__ = ["DeviceStep"]


@final
class DeviceStep:
    """Steps parameters by the gradients of a run that has left them on devices.

    Parameters
    ----------
    solver : AbstractSolver
    parameters : sequence of Node
    slots : sequence
        Of the solver, for each of them.
    placing : Residents
    """

    def __init__(
        self,
        solver: AbstractSolver[Any],
        parameters: Sequence[Node],
        slots: Sequence[Any],
        placing: Residents,
    ) -> None:
        self._solver, self._placing = solver, placing
        self._parameters, self._slots = parameters, slots

    @property
    def fits(self) -> bool:
        """Whether the solver's settings let a parameter be stepped without a look at values."""
        solver = self._solver
        return (
            isinstance(solver, LoopSolver)
            and type(solver).prepared is AbstractSolver.prepared
            and not solver.skip_nonfinite
            and solver.loss_scale is None
            and solver._in_graph is None
            and solver.accumulate == 1
            and all(map(_has_loop, self._slots))
        )

    def __call__(self, run: Run) -> None:
        """Step all parameters, or none.

        Raises
        ------
        NodeError
            A job has failed; nothing has changed then.
        GraphError
            A parameter was set meanwhile.
        """
        joint = run.plan.compiled.joint
        values = [run.duals[node].value for node in self._parameters]
        nodes = [joint.values[node] for node in self._parameters]
        placing = self._placing
        homes = [
            self._at_home(placing.resident(node, value), run.duals[node].grad)
            for node, value in zip(self._parameters, values, strict=True)
        ]
        grads = [
            self._prepared(lane, grad, node)
            for (lane, _, grad), node in zip(homes, nodes, strict=True)
        ]
        factors = self._factors(grads)
        made: list[Handed] = []
        after: list[Away] = []
        for slot, (lane, value, _), grad, node in zip(
            self._slots, homes, grads, nodes, strict=True
        ):
            new, state = self._launched(slot, lane, value, grad, factors, node)
            made.append(new)
            after.append(state)
        try:
            _wait_for(made)
        except Exception as error:
            raise blamed(joint, None, None, error) from error
        outs = [slot.room() for slot in self._slots]
        for out, new in zip(outs, made, strict=True):
            promise(out, new)
        self._solver.away = True
        refused = self._solver.advance(self._slots, values, outs, after)
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

    def _prepared(self, lane: Lane, grad: Handed, node: Node) -> Handed:
        solver = self._solver
        if solver.batch_size == 1 and solver.clip_value is None:
            return grad
        share = None if solver.batch_size == 1 else 1 / solver.batch_size
        work = partial(_scaled, share, solver.clip_value)
        return lane.launch(work, [grad], name=f"{node.name} (clip)", node=node)

    def _factors(self, grads: Sequence[Handed]) -> Callable[[Device], Handed] | None:
        """Return what gives a device the factor by which ``clip_norm`` scales all gradients."""
        bound = self._solver.clip_norm
        if bound is None:
            return None
        lane = grads[0].lane
        squares = [
            _on(
                lane.device,
                one.lane.launch(partial(_square, one.lane.device.xp), [one], name="norm"),
            )
            for one in grads
        ]
        factor = lane.launch(partial(_factor, lane.device.xp, bound), squares, name="norm")
        on: dict[Device, Handed] = {}

        def on_device(device: Device) -> Handed:
            return on.setdefault(device, on.get(device) or _on(device, factor))

        return on_device

    def _launched(
        self,
        slot: Any,
        lane: Lane,
        value: Handed,
        grad: Handed,
        factors: Callable[[Device], Handed] | None,
        node: Node,
    ) -> tuple[Handed, Away]:
        """Launch the step of one parameter; return its value to be, and its state."""
        solver, loop, device = slot.solver, slot.solver.loop(), lane.device
        state = slot.state
        if isinstance(state, Away) and any(
            one.lane.device is not device for one in state.arrays.values()
        ):
            state = state.home(solver, slot.shape, slot.dtype)
        if isinstance(state, Away):
            shell, before = state
        else:
            shell, arrays = Away.emptied(solver, state, slot.dtype)
            nothing = np.zeros(slot.shape, slot.dtype)
            before = {name: device.bring(arrays.get(name, nothing)) for name in loop.arrays}
        numbers = solver.numbers(shell.step + 1)
        next_shell = Arrays(shell.step + 1, shell.arrays)
        operands = [value, grad, *[before[name] for name in loop.arrays]]
        if factors is not None:
            operands.append(factors(device))
        work = partial(_stepped, device.xp, loop, numbers, factors is not None)
        made = lane.launch(work, operands, name=f"{node.name} (step)", node=node)
        new, *left = [
            lane.launch(itemgetter(place), [made], name="part", node=node, fresh=False)
            for place in range(1 + len(loop.arrays))
        ]
        return new, Away(next_shell, dict(zip(loop.arrays, left, strict=True)))


def _has_loop(slot: Any) -> bool:
    """Return whether a parameter's step is the lines of a loop, and nothing beside them."""
    solver = slot.solver
    return bool(solver.is_loop and (slot.dtype.kind != "c" or solver.by_parts))


def _on(device: Device, value: Handed) -> Handed:
    return value if value.lane.device is device else device.bring(value)


def _scaled(share: float | None, bound: float | None, grad: Any) -> Any:
    grad = grad if share is None else grad * share
    return grad if bound is None else clipped(grad, bound)


def _square(xp: Any, grad: Any) -> Any:
    return xp.vdot(grad, grad).real.astype("float64")


def _factor(xp: Any, bound: float, *squares: Any) -> Any:
    return xp.minimum(1.0, bound / (xp.sqrt(sum(squares)) + 1e-6))


def _stepped(
    xp: Any, loop: Any, numbers: Sequence[float], scaled: bool, value: Any, grad: Any, *others: Any
) -> tuple[Any, ...]:
    if scaled:
        *others, factor = others  # type: ignore[assignment]
        grad = grad * factor.astype(value.real.dtype)
    return stepped(xp, loop, numbers, value, grad, others)


def _nothing(*arrays: Any) -> np.ndarray[Any, Any]:
    return np.zeros(())


def _wait_for(values: Sequence[Handed]) -> None:
    """Return when values are there, or raise why one is not; they are known to hold then."""
    by_device: dict[Device, list[Handed]] = {}
    for one in values:
        by_device.setdefault(one.lane.device, []).append(one)
    ends = [
        device.lane("out").launch(_nothing, made, name="end of a step", record=True, leaves=True)
        for device, made in by_device.items()
    ]
    for end in ends:
        assert end.event is not None
        end.event.block()
    for end in ends:
        end.result()
    for one in values:
        one.cell.checks = ()
