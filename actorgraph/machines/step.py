"""`Step`: gradients and the solver's update in one call, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, final

import numpy as np

from actorgraph.dual import Dual
from actorgraph.errors import GraphError, shown
from actorgraph.graph import Node, topological_order
from actorgraph.keywords import refusal
from actorgraph.lower.cuts import sequential
from actorgraph.machines.compiled import Compiled
from actorgraph.machines.feeds import mode_of
from actorgraph.machines.inline import Inline
from actorgraph.machines.life import SYNC_US, current_errors
from actorgraph.machines.plan import Plan
from actorgraph.machines.reader import Collected, Reader
from actorgraph.node import Parameter
from actorgraph.node_actor import blamed
from actorgraph.runs import AbstractRun

if TYPE_CHECKING:
    from actorgraph.machines.base import Machine
    from actorgraph.machines.run import Run
    from actorgraph.solvers import AbstractSolver

Array = np.ndarray[Any, Any]
Check = Callable[[Mapping[Node, Dual]], object]
"""Takes the outputs of a step before its update, and stops it by raising."""


@final
class Step:
    """A training step of a machine as a function of the feeds; see `Machine.compile_step`.

    All gradients are computed before a parameter changes.  New values are written to other arrays,
    and all parameters and states of the solver switch at once: see `store`.
    """

    def __init__(
        self, machine: Machine, solver: AbstractSolver[Any], check: Check | None = None
    ) -> None:
        from actorgraph.solvers import AbstractSolver, LoopSolver  # rarely needed

        if not isinstance(solver, AbstractSolver):
            raise GraphError(
                f"compile_step takes a solver such as ag.solvers.SGD(lr=0.1), got {shown(solver)}"
            )
        parameters = [node for node in machine.wrt if isinstance(node, Parameter)]
        foreign = [node for node in machine.wrt if not isinstance(node, Parameter)]
        if foreign or not parameters:
            problem = f"{foreign[0]!r} is none" if foreign else "it has none"
            raise GraphError(f"a step updates parameters, so wrt must list only these: {problem}")
        outputs = set(topological_order(machine.outputs.values()))
        for one, _, on in machine.graph.assignments:
            if isinstance(one, Parameter) and on in outputs:
                raise GraphError(f"{on!r} steps {one.name!r} already: every run is a step")
        self._machine, self._solver, self._check = machine, solver, check
        self._parameters = parameters
        self._slots, solver.helped = solver.slots(parameters), machine.workers > 1
        if "wait" in (machine.jit, machine.native) and isinstance(solver, LoopSolver):
            solver.await_code(self._slots)
        mode, _ = mode_of(machine.graph, machine.outputs, True, None)
        self._plan: Plan | None = None  # gradients and update in one program
        if machine._batches is None and machine._placing is None:
            whole = machine._compiled(mode)
            updating = _Updating(whole, parameters, self.update, check)
            inline = Inline(whole, keeps_derivatives=False)
            self._plan = Plan(whole, sequential, collect=updating.collect, inline=inline)
            self._plan.name = "step"
            machine._step_plans.add(self._plan)
        self._on_devices: Any = None
        if machine._placing is not None:
            from actorgraph.machines.device_step import DeviceStep  # rarely needed

            self._on_devices = DeviceStep(solver, parameters, self._slots, machine._placing)
        self._under_way: dict[str, object] = {}  # {"step": its token}

    def __repr__(self) -> str:
        return f"<Step of {self._machine!r} by {type(self._solver).__name__}>"

    def __call__(
        self, feeds: Mapping[Any, Any] | None = None, *, run_number: int | None = None,
        **unknown: Never,
    ) -> Run:  # fmt: skip
        """Step once and return the ended run, whose outputs are those before the update.

        Blocks the calling thread, which works as one of the workers.

        Parameters
        ----------
        feeds : dict
            As in `Machine.run`.
        run_number : int, optional
            As in `Machine.run`.

        Returns
        -------
        Run
            Read outputs from it; gradients are not available.

        Raises
        ------
        FeedError, NodeError, GraphError
            As `Machine.run_sync`; also if another step is under way, or a parameter was set
            meanwhile.  No parameter has changed then.
        """
        if unknown:
            raise refusal(self.run, (), unknown)
        machine, token = self._machine, object()
        try:
            self._begin(token)
            machine.refuse_blocking("a step", "await step.run(...)")
            limited = machine.max_bytes is not None
            plan, number = self._plan, None
            inline = plan and plan.compiled.allows_direct and not plan.compiled.waits
            if plan and inline and not machine._actors_only and not limited:
                run = machine._prepare(feeds, self._seeds, None, 0, run_number, None, plan)
                if self._inline(run) and run.core.run_directly(run):
                    run._raise_if_failed()
                    return run
                number = run.number
            # With the same number, as random draws must not depend on placement.
            fetch = self._fetch
            run = machine._prepare(
                feeds, self._seeds, None, 0, run_number, None, number=number, fetch=fetch
            )  # fmt: skip
            ahead = self._ahead(run)
            machine._run_now(run)
            self._update_from(run, ahead)
            return run
        finally:  # without calls, which Ctrl-C could interrupt
            if "step" in self._under_way and self._under_way["step"] is token:
                del self._under_way["step"]

    def _inline(self, run: Run) -> bool:
        """Return whether the calling thread computes the step directly, as it would a run."""
        machine = self._machine
        if machine._one_task or machine.workers == 1 or machine._small(run):
            return True
        usual = machine._known(run.plan.compiled.mode)
        known = usual.bind(run.binding.symbols)  # runs of the machine have measured it
        return usual.sequential is not None and known.run_us < SYNC_US

    async def run(
        self, feeds: Mapping[Any, Any] | None = None, *, run_number: int | None = None,
        **unknown: Never,
    ) -> Run:  # fmt: skip
        """Step once; only the update blocks the event loop.  See `__call__`."""
        if unknown:
            raise refusal(self.run, (), unknown)
        token = object()
        try:
            self._begin(token)
            machine = self._machine
            run = machine._prepare(feeds, self._seeds, None, 0, run_number, None, fetch=self._fetch)
            ahead = self._ahead(run)
            await machine._run_soon(run)
            self._update_from(run, ahead)
            return run
        finally:  # without calls, which Ctrl-C could interrupt
            if "step" in self._under_way and self._under_way["step"] is token:
                del self._under_way["step"]

    @property
    def _seeds(self) -> Any:
        """The `backward=` of runs: True, or the loss seeded by the solver's loss scale."""
        if self._solver.loss_scale is None:
            return True
        loss = next(iter(self._machine.outputs.values()))
        with np.errstate(over="ignore"):  # the solver halves a scale that is too large
            return {loss: np.asarray(self._solver.scale).astype(loss.dtype)}

    @property
    def _fetch(self) -> bool | Literal["values"]:
        """The `fetch=` of runs: gradients stay on devices if the step is done there."""
        return "values" if self._on_devices is not None and self._on_devices.fits else True

    def _begin(self, token: object) -> None:
        if self._under_way.setdefault("step", token) is not token:
            raise GraphError(
                "another step of this machine and solver is under way; await it first, or in "
                "threads take a lock around each step"
            )

    def _ahead(self, run: Run) -> _Ahead | None:
        """Return an `_Ahead` if lanes can step parameters during the run, else None."""
        apart = self._solver.is_separable and current_errors() is None
        machine = self._machine
        if machine._batches is None or machine._placing is not None or not apart:
            return None
        return _Ahead(self._solver, self._parameters, self._slots, run)

    def _update_from(self, run: Run, ahead: _Ahead | None) -> None:
        """Update by the gradients of a run, and reduce its results to those of a direct step."""
        nodes = self._machine.outputs.values()
        outputs = {node: Dual(run.duals[node].value, None, None, node) for node in nodes}
        if self._check is not None:
            self._check(outputs)
        if run.plan.compiled.mode.fetch is True:
            self._update_on_host(run, ahead)
        else:
            self._on_devices(run)
        run.duals = outputs

    def _update_on_host(self, run: Run, ahead: _Ahead | None) -> None:
        duals = [run[node] for node in self._parameters]
        try:
            values, grads = [dual.value for dual in duals], [dual.grad for dual in duals]
            if ahead is None:
                self.update(values, grads)
            else:
                ahead.finish(values, grads)
        except MemoryError as error:
            raise blamed(run.plan.compiled.joint, None, None, error) from error

    def update(self, values: Sequence[Array], grads: Sequence[Array]) -> None:
        """Apply the solver: update parameters and states by values and gradients."""
        refused = self._solver.apply(self._slots, grads, values)
        if refused is not None:
            raise refused


class _Ahead:
    """Steps parameters whose gradients are complete, while the run goes on.

    It sets `on_sum` of a pipeline's run that is not started.  New values are in other arrays until
    `finish` switches all at once.
    """

    def __init__(
        self, solver: AbstractSolver[Any], parameters: Sequence[Node], slots: Sequence[Any],
        run: Run,
    ) -> None:  # fmt: skip
        self._solver, self._slots, self._run = solver, slots, run
        compiled = run.plan.compiled
        joint = compiled.joint
        self._leaves = [compiled.leaf_index[joint.values[node]] for node in parameters]
        self._places: dict[int, list[int]] = {}
        for place, node in enumerate(parameters):
            if node in joint.derivatives:
                self._places.setdefault(joint.derivatives[node].id, []).append(place)
        self._stepped: dict[int, tuple[Array, Any]] = {}
        self._failure: Exception | None = None
        run.on_sum = self._step

    def _step(self, number: int, grad: Any) -> None:
        """Step the parameters with this gradient; each gradient comes from one lane."""
        try:
            for place in self._places.get(number, ()):
                self._stepped[place] = self._one(place, self._run.values[self._leaves[place]], grad)
        except Exception as error:  # noqa: BLE001 - an error of the solver, which `finish` raises
            self._failure = error

    def _one(self, place: int, value: Array, grad: Any) -> tuple[Array, Any]:
        slots = [self._slots[place]]
        prepared = self._solver.prepared(slots, [grad], [value])
        out = slots[0].room()
        assert prepared is not None  # only solvers that are not separable skip steps
        return out, self._solver.updated((slots, prepared, [value], [out]))[0]

    def finish(self, values: Sequence[Array], grads: Sequence[Array]) -> None:
        """Step the other parameters, then switch all of them at once, or none."""
        if self._failure is not None:
            raise self._failure
        stepped = [
            self._stepped.get(place) or self._one(place, value, grad)
            for place, (value, grad) in enumerate(zip(values, grads, strict=True))
        ]
        outs, states = [out for out, _ in stepped], [state for _, state in stepped]
        refused = self._solver.advance(self._slots, values, outs, states)
        if refused is not None:
            raise refused


class _Updating:
    """Collects a run by updating the parameters; only its outputs remain.

    Meanwhile the program of the direct run is not reused, so gradients may be in its buffers.
    `update` takes values and gradients of the parameters; `check` takes the Duals of the outputs
    before.
    """

    def __init__(
        self, compiled: Compiled, parameters: Sequence[Node],
        update: Callable[[Sequence[Array], Sequence[Array]], None], check: Check | None,
    ) -> None:  # fmt: skip
        self._reader = Reader(compiled, compiled.outputs.values(), derivatives=False)
        self._update, self._check = update, check
        joint, result_of = compiled.joint, compiled.result_of
        slopes = [joint.derivatives.get(node) for node in parameters]
        self._values = [compiled.leaf_index[joint.values[node]] for node in parameters]
        self._slopes = [result_of[slope] for slope in slopes if slope in result_of]
        # Gradients that no task computes: a leaf, or zero.
        self._others = [(i, one) for i, one in enumerate(slopes) if one not in result_of]

    def collect(self, run: AbstractRun) -> Collected:
        """Return the Duals of the outputs, after the update."""
        duals, assigned = self._reader.collect(run)
        if self._check is not None:
            self._check(duals)
        results, leaves = run.results, run.leaves
        values = [leaves[leaf] for leaf in self._values]
        grads = [results[place] for place in self._slopes]
        for i, other in self._others:
            grads.insert(
                i,
                np.zeros_like(values[i]) if other is None else self._reader.leaf_value(run, other),
            )
        self._update(values, grads)
        return duals, assigned
