"""`LispMachine`: interprets the graph node by node.  It defines the right answer.

It builds the same joint graph as the other machines and applies one kernel after another in build
order: no regions, no programs, no order to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, final

from actorgraph.channels import Channel
from actorgraph.graph import Node
from actorgraph.lower.cuts import Costs, Cut
from actorgraph.lower.joint import Joint
from actorgraph.lower.regions import Region, TaskSpec
from actorgraph.lower.text import last_uses
from actorgraph.machines.base import Machine
from actorgraph.node_actor import Dead, Task, fail
from actorgraph.op import CONSTANT

__all__ = ["LispMachine"]

Log = Callable[[Node, Any], None]


@final
class LispMachine(Machine):
    """Run a graph sequentially, as the reference for all machines.

    Parameters
    ----------
    outputs, wrt, watch, max_in_flight, ...
        As `Machine`; `fuse` has no meaning here, `workers` only for parts of large products.
    log : callable, optional
        ``log(node, value)`` is called after every node, in order; for the nodes of a derivative
        with a node that belongs to no graph of the user and says in `owner` whose it is; so are
        rewritten forms (``exact=False``), which have no owner.
    """

    _one_task = True
    __signature__: ClassVar[Signature]

    def __init__(self, outputs: Any, *, log: Log | None = None, **options: Any) -> None:
        super().__init__(outputs, **options)
        self._log = log

    def _cut(self) -> Cut:
        return _whole

    def _interpreter(self) -> Callable[..., Any]:
        return partial(_interpret, log=self._log)


_OF_ALL = signature(Machine)
_LOG = Parameter("log", Parameter.KEYWORD_ONLY, default=None, annotation="Log | None")
LispMachine.__signature__ = _OF_ALL.replace(parameters=[*_OF_ALL.parameters.values(), _LOG])


def _whole(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """The whole, interpreted node by node."""
    steps = list(joint.order)
    return [TaskSpec(0, Region(0, steps), "forward", steps)] if steps else []


def _interpret(
    task: Task, ports: list[Channel], kernels: list[Any], *, log: Log | None
) -> Generator[Task | None, Any, None]:
    """Do what a generated program does, as a loop over the steps."""
    spec = task.spec
    brought = [[node.id for node in port.nodes] for port in spec.ports]
    fixed = {
        part.id: part.attrs["value"]
        for step in spec.steps
        for part in step.inputs
        if part.op is CONSTANT
    }
    uses = [(step.id, *[part.id for part in step.inputs]) for step in spec.steps]
    unused_after = last_uses(uses, [node.id for node, _ in spec.results])
    messages: Any
    inputs: Any
    values: Any
    outgoing: Any
    yield None
    while True:
        empty = next((port.messages for port in ports if not port.messages), None)
        if empty is not None:
            task.wait = empty
            yield None
            continue
        messages = [port.popper()() for port in ports]
        run = messages[0].run
        parked = False
        try:
            values = dict(fixed)
            for leaves, message in zip(brought, messages, strict=True):
                values.update(zip(leaves, message if leaves[1:] else [message.value], strict=False))
            for step, kernel, unused in zip(spec.steps, kernels, unused_after, strict=True):
                inputs = [values[part.id] for part in step.inputs]
                task.step = step, inputs
                if run.dead is not None:
                    raise Dead
                kernel = run.kernels[kernel] if isinstance(kernel, int) else kernel
                if step.op.blocking:
                    values[step.id] = kernel(*inputs)
                else:
                    reply = run.call_async(task, kernel, tuple(inputs))
                    while not reply:
                        task.wait = reply
                        parked = True
                        yield None
                        parked = False
                    values[step.id] = reply.pop()()
                if log is not None:
                    log(_for_user(task, step), values[step.id])
                for number in unused:
                    del values[number]
            outgoing = [values[node.id] for node, _ in spec.results]
        except BaseException as error:
            if parked:
                raise  # the machine was dropped, and the coroutine is closed where it waits
            outgoing = [fail(task, error, *messages)] * len(spec.results)
        task.step = None
        for (_, index), message in zip(spec.results, outgoing, strict=True):
            run.deliver(index, message)
        task.wait = ports[0].messages
        # A parked frame must not keep the arrays of the last run alive.
        messages = values = inputs = outgoing = run = message = kernel = None
        yield None


def _for_user(task: Task, step: Node) -> Node:
    """Return the user's own node for a step of the forward pass that is not a rewritten form."""
    assert task.joint is not None
    source = task.joint.source(step)
    return step if step.owner is not None or step.op is not source.op else source
