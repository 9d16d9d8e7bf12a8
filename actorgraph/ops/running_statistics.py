"""Batch normalisation that keeps running statistics in buffers."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node
from actorgraph.node import Buffer
from actorgraph.ops._docs import raises
from actorgraph.ops.normalisation import batch_norm

__all__ = ["running_batch_norm"]


@raises(types="The statistics are no buffers, or `momentum` is outside of [0, 1].")
def running_batch_norm(
    x: Node,
    scale: Any,
    bias: Any,
    running_mean: Buffer,
    running_var: Buffer,
    *,
    training: bool,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Node:
    """Normalise each channel by the batch in training, by running statistics in evaluation.

    In training every run that computes the result ends by moving the buffers towards the batch's
    mean and unbiased variance, ``running = (1 - momentum) running + momentum batch``, as PyTorch
    does.  Runs commit in the order of their numbers; each has read the statistics at its start,
    so of runs in flight together the last one's counts.  A failed run changes nothing.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...).
    scale, bias : node, array or None
        One entry per channel.
    running_mean, running_var : Buffer
        One entry per channel; usually zeros and ones at first.
    training : bool
        Build two nodes, one for each, where both are wanted.
    momentum, eps : float

    Returns
    -------
    Node
        Of the shape of `x`.
    """
    for buffer in (running_mean, running_var):
        if not isinstance(buffer, Buffer):
            raise GraphTypeError(
                f"running statistics are buffers, got {buffer!r}; make them with graph.buffer(...)"
            )
    if not 0 <= momentum <= 1:
        raise GraphTypeError(f"momentum is in [0, 1], got {momentum!r}")
    if not training:
        return batch_norm(x, scale=scale, bias=bias, mean=running_mean, var=running_var, eps=eps).y
    y, mean, var = batch_norm(x, scale=scale, bias=bias, eps=eps)
    for buffer, batch in ((running_mean, mean), (running_var, var)):
        x.graph.assign(buffer, buffer * (1 - momentum) + batch * momentum, on=y)
    return y
