"""`LispMachine`: interprets the graph node by node.  It defines the right answer.

It builds the same joint graph as the other machines, and calls one kernel after another in build
order: there are no regions and no programs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, final

from actorgraph.graph import Node
from actorgraph.lower.cuts import Costs, Cut
from actorgraph.lower.joint import Joint
from actorgraph.lower.regions import Region, TaskSpec
from actorgraph.lower.text import last_uses
from actorgraph.machines.base import Machine
from actorgraph.machines.calling import Steps
from actorgraph.node_actor import Dead, Task
from actorgraph.op import CONSTANT

if TYPE_CHECKING:
    from actorgraph.machines.run import Run

Log = Callable[[Node, Any], None]


@final
class LispMachine(Machine):
    """Run a graph sequentially, as the reference for all machines.

    Parameters
    ----------
    outputs, wrt, watch, max_in_flight, ...
        As `Machine`; `fuse` has no effect, `workers` only for parts of large products.
    log : callable, optional
        ``log(node, value)`` is called after every node, in order.  A node of a derivative belongs
        to a private graph, and its `owner` is the forward node.  So does a rewritten form
        (``exact=False``), which has no owner.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (3,))
    >>> with ag.LispMachine([(x * x).sum()], wrt=[x]) as machine:
    ...     run = machine.run_sync({"x": np.arange(3, dtype="float32")}, backward=True)
    >>> run[x].grad
    array([0., 2., 4.], dtype=float32)
    """

    _one_task = True
    __signature__: ClassVar[Signature]

    def __init__(self, outputs: Any, *, log: Log | None = None, **options: Any) -> None:
        self._interpreter, self._calls_back = partial(_interpreted, log=log), log is not None
        super().__init__(outputs, **options)

    def _cut(self) -> Cut:
        return _whole


_OF_ALL = signature(Machine)
_LOG = Parameter("log", Parameter.KEYWORD_ONLY, default=None, annotation="Log | None")
LispMachine.__signature__ = _OF_ALL.replace(parameters=[*_OF_ALL.parameters.values(), _LOG])


def _whole(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """The whole, interpreted node by node."""
    steps = list(joint.order)
    return [TaskSpec(0, Region(0, steps), "forward", steps)] if steps else []


def _interpreted(
    task: Task, kernels: list[Any], to_device: Callable[[Any], Any], *, log: Log | None
) -> Steps:
    """Return the `Steps` of a task, which call one kernel after another."""
    spec = task.spec
    received, outputs = [node.id for node in spec.received], spec.outputs
    fixed = {
        part.id: to_device(part)
        for step in spec.steps
        for part in step.inputs
        if part.op is CONSTANT
    }
    uses = [(step.id, *[part.id for part in step.inputs]) for step in spec.steps]
    unused_after = last_uses(uses, [node.id for node in outputs])
    turns = [
        (step, kernel, [part.id for part in step.inputs], _is_plain(step, kernel), unused)
        for step, kernel, unused in zip(spec.steps, kernels, unused_after, strict=True)
    ]

    def steps(run: Run, out: Any, *given: Any) -> Generator[Any, Any, list[Any]]:
        values = {**fixed, **dict(zip(received, given, strict=True))}
        del given
        value_of = values.__getitem__
        for step, kernel, operands, plain, unused in turns:
            inputs = [*map(value_of, operands)]
            task.step = step, inputs
            if run.dead is not None:
                raise Dead
            if plain:
                values[step.id] = kernel(*inputs)
            else:
                kernel = run.kernels[kernel] if isinstance(kernel, int) else kernel
                if step.op.waits:
                    try:
                        values[step.id] = yield kernel, tuple(inputs)
                    finally:
                        task.step = step, inputs  # other runs may have set it meanwhile
                elif step.op.checked:
                    assert run.context is not None
                    values[step.id] = run.context.copy().run(kernel, *inputs)
                elif step.op.kernel is not None:
                    values[step.id] = kernel(run, *inputs)
                else:
                    values[step.id] = kernel(*inputs)
            if log is not None:
                log(_for_user(task, step), values[step.id])
            for number in unused:
                del values[number]
        return [values[node.id] for node in outputs]

    return steps


def _is_plain(step: Node, kernel: Any) -> bool:
    """Return whether a step is nothing but its kernel's call on its operands."""
    return not (isinstance(kernel, int) or step.op.waits or step.op.calls_others)


def _for_user(task: Task, step: Node) -> Node:
    """Return the user's node of a forward step, but a rewritten form, or a derivative, itself."""
    assert task.joint is not None
    source = task.joint.source(step)
    return step if step.owner is not None or step.op is not source.op else source
