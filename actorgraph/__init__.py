"""actorgraph: a concurrent, actor-style executor for differentiable array graphs."""

from functools import partial
from typing import TYPE_CHECKING, Any

from actorgraph import devices, errors, op, ops, rewrite, types
from actorgraph._version import __version__
from actorgraph.autodiff import (
    checkpoint,
    custom_jvp,
    custom_vjp,
    gradients,
    hook_gradient,
    stop_gradient,
)
from actorgraph.devices import device
from actorgraph.dual import Dual
from actorgraph.errors import (
    DeadlockError,
    FeedError,
    GraphError,
    GraphTypeError,
    MachineClosedError,
    MemoryLimitError,
    NodeError,
    RunCancelled,
    ScheduleError,
    ShapeError,
)
from actorgraph.graph import Graph, Node, Parameter
from actorgraph.keywords import all_answering
from actorgraph.rewrite import autocast

if TYPE_CHECKING:
    from actorgraph import data, io, nn, pipeline, serving, solvers, source, testing, trace, train
    from actorgraph.control.functions import (
        cond,
        fori_loop,
        map,  # noqa: A004 - its name in JAX
        scan,
        switch,
        while_loop,
    )
    from actorgraph.machines import ActorMachine, LispMachine, Machine, Run, TapeMachine
    from actorgraph.source.functions import function
    from actorgraph.transforms import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp, vmap

__all__ = [
    "ActorMachine", "DeadlockError", "Dual", "FeedError", "Graph", "GraphError", "GraphTypeError",
    "LispMachine", "Machine", "MachineClosedError", "MemoryLimitError", "Node", "NodeError",
    "Parameter", "Run", "RunCancelled", "ScheduleError", "ShapeError", "TapeMachine", "__version__",
    "autocast", "checkpoint", "cond", "custom_jvp", "custom_vjp", "data", "device", "devices",
    "errors", "fori_loop", "function", "grad", "gradients", "hessian", "hook_gradient", "hvp", "io",
    "jacobian", "jvp", "map", "nn", "ops", "pipeline", "rewrite", "scan", "serving", "solvers",
    "source", "stop_gradient", "switch", "testing", "trace", "train", "types", "value_and_grad",
    "vjp", "vmap", "while_loop",
]  # fmt: skip
__dir__ = __all__.copy

# Imported on first use: building a graph needs none of them.
_MODULES = frozenset(
    ("data", "io", "nn", "pipeline", "serving", "solvers", "source", "testing", "trace", "train")
)
_NAMES = {
    "control.functions": ("cond", "fori_loop", "map", "scan", "switch", "while_loop"),
    "machines": ("ActorMachine", "LispMachine", "Machine", "Run", "TapeMachine"),
    "source.functions": ("function",),
    "transforms": ("grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}


def _late(module: str, *names: str) -> Any:
    from importlib import import_module

    found: Any = import_module(f"{__name__}.{module}")
    return getattr(found, *names) if names else found


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _late(name)
    if name in _WHERE:
        found = globals()[name] = _late(_WHERE[name], name)  # machines are used often
        return found
    array = "a graph takes NumPy arrays: graph.input, graph.parameter or graph.constant"
    raise errors.no_name(__name__, name, __all__, dict.fromkeys(("array", "tensor"), array))


devices.ABOVE |= {
    "experiment": partial(_late, "trace.experiment", "experiment"),
    "calibrated": partial(_late, "trace.experiment", "calibrated"),
}
ops.ABOVE.update(dict.fromkeys(ops.ABOVE, partial(_late, "control.recurrent")))
for _family, _functions in ops.LATE.items():
    op.REGISTRY.late.append(_import := partial(_late, f"ops.{_family}"))
    ops.ABOVE.update(dict.fromkeys(_functions.split(), _import))
all_answering(globals())
