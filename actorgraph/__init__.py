"""actorgraph: a concurrent, actor-style executor for differentiable array graphs."""

from actorgraph import data, errors, ops, solvers, types
from actorgraph._version import __version__
from actorgraph.autodiff import gradients
from actorgraph.dual import Dual
from actorgraph.errors import (
    DeadlockError,
    FeedError,
    GraphError,
    GraphTypeError,
    MachineClosedError,
    NodeError,
    RunCancelled,
    ShapeError,
)
from actorgraph.graph import Graph, Node, Parameter
from actorgraph.machines import ActorMachine, LispMachine, Machine, Run, TapeMachine

__all__ = [
    "ActorMachine", "DeadlockError", "Dual", "FeedError", "Graph", "GraphError", "GraphTypeError",
    "LispMachine", "Machine", "MachineClosedError", "Node", "NodeError", "Parameter", "Run",
    "RunCancelled", "ShapeError", "TapeMachine", "__version__", "data", "errors", "gradients",
    "ops", "solvers", "types",
]  # fmt: skip
