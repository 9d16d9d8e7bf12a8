"""`InGraph`: a solver's step as nodes, whose states are buffers that runs assign.

The lines of a `Loop` are computed by ops, in the order and with the bits of NumPy.  The numbers of
a step are an op that asks the solver, so that a learning rate may be any function of the step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial, reduce
from operator import and_
from typing import Any, final

import numpy as np

from actorgraph import ops
from actorgraph.autodiff import gradients
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, shown
from actorgraph.graph import Node, topological_order
from actorgraph.node import Buffer, Parameter, as_nodes
from actorgraph.solvers._base import LEAST_SCALE, AbstractSolver, Loop
from actorgraph.solvers._formula import OPERATORS, Arrays, LoopSolver
from actorgraph.solvers._gradients import norm_factor
from actorgraph.solvers._slots import Slot
from actorgraph.store import copies, take

Values = dict[str, Node]


@final
class InGraph:
    """Holds the state of a solver whose step is in a graph.

    It steps the parameters `wrt`, default all that the scalar `loss` depends on.  A run that
    computes the node `step` makes a step; its value is the number of steps made.
    """

    def __init__(self, solver: AbstractSolver[Any], loss: Node, wrt: Iterable[Any] | None) -> None:
        nodes = _parameters(loss, wrt)
        self._solver, self._graph = solver, loss.graph
        self._slots = slots = solver.slots(nodes)
        for slot in slots:
            if not getattr(slot.solver, "has_loop", False) or (
                type(solver).measure is not AbstractSolver.measure
            ):
                raise GraphError(
                    f"a step of {type(solver).__name__} is more than lines of arithmetic on "
                    "elements, so it cannot be in a graph; use machine.compile_step(solver)"
                )
        self._loops = [slot.solver.loop() for slot in slots]
        self._ages = [slot.state.step - solver.steps for slot in slots]
        self._buffers: dict[str, Buffer] = {}
        self._after: dict[Node, Node] = {}  # values of buffers and parameters after a run
        with loss.graph.building():
            self.step = self._written(loss, nodes)
            for variable, value in self._after.items():
                assert isinstance(variable, (Buffer, Parameter))
                loss.graph.assign(variable, value, self.step)

    # -- states -------------------------------------------------------------------------------

    def pull(self) -> None:
        """Copy the state from the buffers to the solver."""
        arrays = self._graph.store.arrays  # all of one moment
        values = {name: np.array(arrays[buffer.place]) for name, buffer in self._buffers.items()}
        solver = self._solver
        for place, slot in enumerate(self._slots):
            own = {name: values[f"{place} {name}"] for name in self._loops[place].arrays}
            slot.state = Arrays(int(values["steps"]) + self._ages[place], own)
            slot.total = values.get(f"{place} total") if values.get("accumulated") else None
        for name in _COUNTS:
            if name in values:
                setattr(solver, name, type(getattr(solver, name))(values[name]))

    def push(self) -> None:
        """Copy the state from the solver to the buffers; raise `GraphError` if it misfits."""
        if self._ages != [slot.state.step - self._solver.steps for slot in self._slots]:
            raise GraphError(
                "parameters joined at other steps; load the state before as_graph(...)"
            )
        values = {name: getattr(self._solver, name) for name in _COUNTS}
        for place, slot in enumerate(self._slots):
            values |= {f"{place} {name}": array for name, array in slot.state.arrays.items()}
            values[f"{place} total"] = 0 if slot.total is None else slot.total
        take(copies([(buffer.held, values[name]) for name, buffer in self._buffers.items()]))

    def _buffer(self, key: str, name: str, value: Any) -> Buffer:
        free = f"{type(self._solver).__name__.lower()}.{name}"
        while free in self._graph:
            free += "_"
        node = self._graph.buffer(free, value)
        self._buffers[key] = node
        return node

    def _count(self, name: str, value: Any) -> Buffer:
        return self._buffer(name, name, np.asarray(value))

    # -- nodes --------------------------------------------------------------------------------

    def _written(self, loss: Node, nodes: Sequence[Parameter]) -> Node:
        solver, after = self._solver, self._after
        steps = self._count("steps", np.int64(solver.steps))
        scaling = solver.loss_scale is not None
        scale = self._count("scale", solver.scale) if scaling else None
        seeds = None if scale is None else [scale.astype(loss.dtype)]
        grads = gradients(loss, nodes, seeds)
        finite = None
        if solver.skip_nonfinite or scaling:
            finite = reduce(and_, [ops.isfinite(grad).all() for grad in grads])
        if scale is not None and finite is not None:
            grads = [grad * (1.0 / scale).astype(grad.dtype) for grad in grads]
            self._rescaled(scale, finite)
        due = finite
        if solver.accumulate > 1:
            count = self._count("accumulated", np.int64(solver.accumulated))
            full = count + 1 >= solver.accumulate
            due = full if finite is None else full & finite
            grads = self._accumulated(grads, nodes, count, finite)
            self._set(count, ops.where(full, 0, count + 1), finite)
        if solver.accumulate > 1 or solver.batch_size != 1:
            share = 1 / (solver.accumulate * solver.batch_size)
            grads = [grad * share for grad in grads]
        grads = self._clipped(grads)
        numbers: dict[Any, Node] = {}
        for place, (slot, node, grad) in enumerate(zip(self._slots, nodes, grads, strict=True)):
            loop = self._loops[place]
            slot.solver.complete(slot.state, loop.arrays, node.held.present())
            key = id(slot.solver), self._ages[place]
            if key not in numbers:
                ask = ops.opaque(
                    partial(_numbers, slot.solver, self._ages[place]), shape=(len(loop.numbers),),
                    dtype="float64", name=f"{type(solver).__name__.lower()}_numbers",
                )  # fmt: skip
                numbers[key] = ask(steps)
            named = {name: numbers[key][at] for at, name in enumerate(loop.numbers)}
            before: Values = {"p": node, "g": grad}
            for name in loop.arrays:
                array = slot.state.arrays[name]
                before[name] = self._buffer(f"{place} {name}", f"{node.name}.{name}", array)
            stepped = _stepped(loop, before, named, slot)
            if not slot.solver.is_lines:
                whole = ops.opaque(partial(_whole, slot.solver), name="whole_step")
                stepped["p"] = whole(node, stepped["p"], numbers[key])
            for name in ("p", *loop.arrays):
                self._set(before[name], stepped[name], due)
        self._set(steps, steps + 1, due)
        return after[steps]

    def _set(self, variable: Node, value: Node, where: Node | None) -> None:
        self._after[variable] = value if where is None else ops.where(where, value, variable)

    def _rescaled(self, scale: Node, finite: Node) -> None:
        scaled = self._count("scaled", np.int64(self._solver.scaled))
        full = scaled + 1 >= self._solver.growth_interval
        grown = ops.where(full, 2.0 * scale, scale)
        self._after[scale] = ops.where(finite, grown, ops.maximum(scale / 2.0, LEAST_SCALE))
        self._after[scaled] = ops.where(finite & ~full, scaled + 1, 0)

    def _accumulated(
        self, grads: Sequence[Node], nodes: Sequence[Node], count: Node, finite: Node | None
    ) -> list[Node]:
        sums = []
        for place, (grad, node, slot) in enumerate(zip(grads, nodes, self._slots, strict=True)):
            kept = np.zeros(slot.shape, slot.dtype) if slot.total is None else slot.total
            total = self._buffer(f"{place} total", f"{node.name}.total", kept)
            summed = ops.where(count > 0, total + grad, grad)
            self._set(total, summed, finite)
            sums.append(summed)
        return sums

    def _clipped(self, grads: Sequence[Node]) -> list[Node]:
        bound, whole = self._solver.clip_value, self._solver.clip_norm
        if bound is not None:
            grads = [_by_parts(partial(ops.clip, low=-bound, high=bound), grad) for grad in grads]
        if whole is not None:
            factor = ops.opaque(
                partial(_factor, whole), shape=(), dtype="float64", name="norm_factor"
            )
            share = factor(*grads)
            grads = [grad * share.astype(grad.dtype) for grad in grads]
        return [*grads]


_COUNTS = ("steps", "accumulated", "scale", "scaled")
"""Attributes of a solver that are one number each."""


def _parameters(loss: Any, wrt: Iterable[Any] | None) -> list[Parameter]:
    """Return the nodes to step, or raise `GraphError` if they cannot be stepped."""
    if not isinstance(loss, Node):
        raise GraphTypeError(f"as_graph takes the node of a loss, got {shown(loss)}")
    if loss.ndim or loss.dtype.kind not in "fV":
        raise ShapeError(f"the loss is {loss!r}, expected a real scalar; take its .mean()")
    listed = topological_order([loss]) if wrt is None else as_nodes(wrt, loss.graph)
    nodes = [node for node in listed if isinstance(node, Parameter) and node.dtype.kind in "fcV"]
    wrong = [node for node in listed if node not in {*nodes}] if wrt is not None else []
    if wrong or not nodes:
        what = f"{wrong[0]!r} is none" if wrong else f"{loss!r} depends on none"
        raise GraphTypeError(f"a solver steps parameters: {what}")
    stepped = {node for node, _, _ in loss.graph.assignments}
    twice = [node for place, node in enumerate(nodes) if node in stepped | {*nodes[:place]}]
    if twice:
        raise GraphError(f"{twice[0]!r} would be stepped twice in a run")
    return nodes


def _factor(bound: float, *grads: Any) -> Any:
    return norm_factor(np, grads, bound)


def _numbers(solver: LoopSolver, offset: int, steps: Any) -> Any:
    """Return the numbers of the lines for the step that follows `steps` others."""
    then = copy(solver)
    then._main, then.steps = then, int(steps)
    return np.array(then.numbers(int(steps) + offset + 1))


def _whole(solver: LoopSolver, before: Any, after: Any, numbers: Any) -> Any:
    return solver.whole(np, numbers.tolist(), before, after)


def _stepped(loop: Loop, values: Values, numbers: Values, slot: Slot[Any]) -> Values:
    """Return the parameter and the arrays of its state after the lines."""
    if slot.dtype.kind != "c" or not slot.solver.by_parts:
        return _computed(loop, values, numbers, slot.dtype)
    real = np.empty(0, slot.dtype).real.dtype
    parts = [
        _computed(loop, {name: part(one) for name, one in values.items()}, numbers, real)
        for part in (ops.real, ops.imag)
    ]
    return {name: _joined(parts[0][name], parts[1][name], slot.dtype) for name in values}


def _by_parts(function: Callable[[Node], Node], node: Node) -> Node:
    if node.dtype.kind != "c":
        return function(node)
    return _joined(function(ops.real(node)), function(ops.imag(node)), node.dtype)


def _joined(real: Node, imag: Node, dtype: Any) -> Node:
    def join(real: Any, imag: Any) -> Any:
        out = np.empty(real.shape, dtype)
        out.real, out.imag = real, imag
        return out

    return ops.opaque(join, dtype=dtype, name="complex_of")(real, imag)


def _computed(loop: Loop, values: Values, numbers: Values, dtype: Any) -> Values:
    """Return all values after the lines; their numbers are rounded to the dtype, as NumPy does."""
    values = dict(values)

    def written(part: ast.expr) -> Any:
        names = {one.id for one in ast.walk(part) if isinstance(one, ast.Name)}
        if names <= numbers.keys():
            number = eval(compile(ast.Expression(part), "<solver>", "eval"), {}, dict(numbers))
            return number.astype(dtype) if isinstance(number, Node) else number
        if isinstance(part, ast.Name):
            return values[part.id]
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            function: Any = getattr(ops, part.func.id)
            return function(*map(written, part.args))
        assert isinstance(part, ast.BinOp)
        return getattr(ops, OPERATORS[type(part.op)])(written(part.left), written(part.right))

    for line in ast.parse("\n".join(loop.lines)).body:
        assert isinstance(line, ast.Assign)
        assert isinstance(line.targets[0], ast.Name)
        values[line.targets[0].id] = written(line.value)
    return values
