"""actorgraph: a concurrent, actor-style executor for differentiable array graphs."""

from actorgraph import ops, types
from actorgraph.autodiff import gradients
from actorgraph.dual import Dual
from actorgraph.graph import Graph, Node

__all__ = ["Dual", "Graph", "Node", "gradients", "ops", "types"]
