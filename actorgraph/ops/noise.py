"""Noise for training: dropout of elements and of channels, `rrelu` and `gumbel_softmax`."""

from __future__ import annotations

from math import sqrt

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.ops._declare import over_axes
from actorgraph.ops._half import machine_epsilon, tiny
from actorgraph.ops.exponential import log
from actorgraph.ops.losses import softmax
from actorgraph.ops.piecewise import leaky_relu
from actorgraph.ops.random import kept, unit_like
from actorgraph.ops.selection import clip, where

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
    "gumbel_softmax", "rrelu",
]  # fmt: skip

_LOWEST = -1.7580993408473766
"""What `selu` gives far below 0."""


def dropout(x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero elements with probability `p` and scale the others by ``1 / (1 - p)``.

    The mask is a node of its own: forward, backward and a repeated run see the same.

    Parameters
    ----------
    x : float node
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.

    Raises
    ------
    ValueError
        `p` is outside of [0, 1].
    """
    return _scaled(x, kept(x, p, training), p)


def _scaled(x: Node, mask: Node | None, p: float) -> Node:
    return x if mask is None else x * (mask * (1 / (1 - p) if p < 1 else 0.0))


def _dropout(axes: int, x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero whole channels with probability `p` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, {places}) or without the batch.
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.
    """
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"dropout{axes}d takes rank {axes + 1} or {axes + 2}, got {x!r}")
    return _scaled(x, kept(x, p, training, x.ndim - axes), p)


dropout1d, dropout2d, dropout3d = over_axes(_dropout, "dropout{n}d")


def _alpha(x: Node, mask: Node | None, p: float) -> Node:
    if mask is None or p == 1:
        return x if mask is None else x * 0.0
    scale = 1 / sqrt((_LOWEST**2 * p + 1) * (1 - p))
    return (x * mask + (1 - mask) * _LOWEST) * scale - scale * p * _LOWEST


def alpha_dropout(x: Node, p: float = 0.5, training: bool = False) -> Node:
    """Set elements to the least value of `selu`, and keep mean 0 and variance 1 by an affine map.

    Parameters are those of `dropout`.  Source: G. Klambauer et al., Self-normalizing neural
    networks, 2017.
    """
    return _alpha(x, kept(x, p, training), p)


def feature_alpha_dropout(x: Node, p: float = 0.5, training: bool = False) -> Node:
    """`alpha_dropout` of whole channels of ``(batch, channels, ...)``."""
    return _alpha(x, kept(x, p, training, 2), p)


def rrelu(x: Node, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Node:
    """`leaky_relu` with a slope drawn for each element from [lower, upper), or else their middle.

    Source: B. Xu et al., Empirical evaluation of rectified activations, 2015.
    """
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    return where(x > 0, x, x * (unit_like(x) * (upper - lower) + lower))


def gumbel_softmax(logits: Node, tau: float = 1.0, *, axis: int = -1) -> Node:
    """Draw almost one-hot vectors with probability ``softmax(logits)``, with a gradient.

    ``softmax((logits + g) / tau)`` for g with Gumbel's distribution; the smaller `tau`, the nearer
    to one-hot.  Source: E. Jang et al., Categorical reparameterization with Gumbel-softmax, 2017.

    Parameters
    ----------
    logits : node
        Float.
    tau : float
        Above 0.
    axis : int
        Along which the result sums to 1.
    """
    least, most = tiny(logits.dtype), 1 - machine_epsilon(logits.dtype)
    unit = clip(unit_like(logits), least, most)
    return softmax((logits - log(-log(unit))) / float(tau), axis)
