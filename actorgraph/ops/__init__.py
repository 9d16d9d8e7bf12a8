"""The ops: functions on nodes, and the operators of `Node`."""

from __future__ import annotations

from actorgraph.node import Node
from actorgraph.ops import arithmetic
from actorgraph.ops.arithmetic import add, divide, multiply, neg, subtract
from actorgraph.ops.broadcasting import broadcast_to, expand_dims, reshape, squeeze, sum  # noqa: A004
from actorgraph.ops.exponential import exp, tanh

__all__ = [
    "add", "broadcast_to", "divide", "exp", "expand_dims", "multiply", "neg", "reshape", "squeeze",
    "subtract", "sum", "tanh",
]  # fmt: skip


def _attach() -> None:
    def reflected(function):
        return lambda self, other: function(other, self)

    for name, function in (("add", add), ("sub", subtract), ("mul", multiply), ("truediv", divide)):
        setattr(Node, f"__{name}__", lambda self, other, f=function: f(self, other))
        setattr(Node, f"__r{name}__", reflected(function))
    Node.__neg__ = lambda self: neg(self)
    Node.sum = sum
    Node.reshape = reshape


_attach()
