"""Which ops have rows as their kernels do: these ask for no number (`lower.traced`)."""

from __future__ import annotations

from collections.abc import Mapping

from actorgraph.graph import Node
from actorgraph.op import Op
from actorgraph.tiles import CUT_FLOPS
from actorgraph.types import bind_shape

TRACED = frozenset(
    (
        "avg_pool clip concatenate conv conv_transpose conv_weight cross_entropy "
        "cross_entropy_of_logs cross_entropy_pull cross_entropy_pull_of_logs cube digamma "
        "divide_by_size divide_or_zero elu embedding embedding_adjoint entr erf erfc erfcx "
        "erfinv exponentials gelu gelu_tanh getitem_adjoint hardshrink hardsigmoid hardswish "
        "hardtanh inverse_deviation leaky_relu lgamma log_floored log_ndtr "
        "log_of_rest_floored log_softmax logit logsigmoid logsumexp logsumexp_of_exponentials "
        "logsumexp_pull logsumexp_pull_of_exponentials max max_pool max_pool_places mean min "
        "mish ndtr ndtri norm one_hot one_unless_nan pad pool_put prelu relu rsqrt sigmoid "
        "silu sinc slices softmax softplus softshrink softsign stack standardize "
        "standardize_pull std tanhshrink threshold var where where_positive xlog1py xlogy"
    ).split()
)
"""Ops whose kernels are traced."""


def is_traceable(op: Op) -> bool:
    """Return whether the kernels of an op are traced."""
    return op.name in TRACED and not op.checked


def may_be_traced(step: Node, symbols: Mapping[str, int]) -> bool:
    """Return whether the kernel of a step may be traced, and takes no so long that it is cut."""
    if not is_traceable(step.op) or step.dtype.char not in "?fdil":
        return False
    if step.op.name == "getitem_adjoint":
        return len(step.inputs) == 1
    if step.op.name == "norm":
        return bool(step.attrs["p"])
    if step.op.name in ("max", "min"):
        return len(step.attrs["axis"]) == 1
    shapes = tuple([bind_shape(part.dims, symbols, 1) for part in step.inputs])
    result = bind_shape(step.dims, symbols, 1)
    return not step.op.in_blas or step.op.flops(shapes, result, step.attrs) < CUT_FLOPS
