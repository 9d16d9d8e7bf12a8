"""Random draws, counter-based: the same bits on any machine, for any number of workers.

A draw is a pure function of three numbers: the graph's seed, the number of the draw (given when
the op is built and kept ever after), and the number of the run, which is a leaf of the graph.
They key and offset a Philox 4x64 generator, so nothing depends on what was drawn before; what is
made of its words stands in `_philox` and depends on no library.  Every call of a function here is
a draw of its own; `machine.run(..., run_number=)` repeats a run.

The functions take a graph, or a node for its graph, first.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Graph, Node
from actorgraph.op import KEPT, Attrs, Op, Sample
from actorgraph.ops._declare import over_axes
from actorgraph.ops._docs import raises
from actorgraph.ops._half import machine_epsilon, tiny
from actorgraph.ops._philox import PhiloxStream, normal_share
from actorgraph.ops._rules import declare
from actorgraph.ops.activations import leaky_relu
from actorgraph.ops.casting import astype
from actorgraph.ops.comparison import less
from actorgraph.ops.exponential import log
from actorgraph.ops.indexing import getitem
from actorgraph.ops.losses import softmax
from actorgraph.ops.selection import clip, where
from actorgraph.types import UNKNOWN, Checks, Shape, dtype_of, shape_from

__all__ = [
    "alpha_dropout", "bernoulli", "binomial", "categorical", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "feature_alpha_dropout", "gumbel_softmax", "normal", "rrelu", "truncated_normal",
    "uniform",
]  # fmt: skip

_LEAST_HELD = 1e-300
"""What the interval of a truncated normal distribution has to hold."""
_MOST_TRIALS = 2**24
"""A binomial number takes about a 32th of a word for each trial: 4 ms for so many."""


def _floats(xp: Any, draw: Any, shape: Any, dtype: str) -> Any:
    """Return what ``draw(shape, dtype)`` gives, in a dtype that streams may not know."""
    own = dtype if dtype in ("float32", "float64") else "float32"
    return xp.asarray(draw(shape, own)).astype(dtype_of(dtype), copy=False)


def _given_shape(checks: Checks, *shapes: Shape, shape: Shape | None, **_: Any) -> Shape:
    return shapes[1] if shape is None else shape


def _scheme(arity: int, attrs: Attrs) -> str:
    """Return the scheme: the run's number, and where dims are open an array of the shape."""
    like = "a[*t] -> " if arity == 2 else ""
    return f"int64[] -> {like}{attrs['dtype']}[*out]"


def _uniform_forward(
    xp: Any, number: Any, *like: Any, shape: Any, dtype: str, seed: int, draw: int
) -> Any:
    shape = xp.shape(like[0]) if shape is None else shape
    return _floats(xp, PhiloxStream(seed, draw, int(number)).uniform, shape, dtype)


def _normal_forward(xp: Any, number: Any, *, shape: Any, dtype: str, seed: int, draw: int) -> Any:
    return _floats(xp, PhiloxStream(seed, draw, int(number)).normal, shape, dtype)


def _truncated_forward(
    xp: Any, number: Any, *, shape: Any, dtype: str, low: float, high: float, seed: int, draw: int
) -> Any:
    values = PhiloxStream(seed, draw, int(number)).truncated_normal(shape, low, high)
    return xp.asarray(values).astype(dtype_of(dtype))


def _binomial_forward(
    xp: Any, number: Any, p: Any, *, trials: int, shape: Any, seed: int, draw: int
) -> Any:
    chances = np.broadcast_to(_probability(p, "binomial", np.float64), shape)
    return xp.asarray(PhiloxStream(seed, draw, int(number)).binomial(trials, chances))


def _categorical_forward(xp: Any, number: Any, logits: Any, *, seed: int, draw: int) -> Any:
    # The largest of logits plus Gumbel noise is distributed as softmax(logits).
    noise = PhiloxStream(seed, draw, int(number)).gumbel(xp.shape(logits))
    return xp.argmax(logits + xp.asarray(noise), axis=-1)


_CASE = {"shape": (3, 4), "dtype": "float64", "seed": 1, "draw": 2}
_UNIFORM = declare(
    "random_uniform", _scheme, _uniform_forward, shape=_given_shape,
    samples=(Sample(((),), _CASE, ints={0: 9}),), memory=KEPT, on_host=(0,),
    doc="Uniform numbers in [0, 1).",
)  # fmt: skip
_NORMAL = declare(
    "random_normal", _scheme, _normal_forward, shape=_given_shape,
    samples=(Sample(((),), _CASE, ints={0: 9}),), memory=KEPT, on_host=(0,),
    doc="Numbers of the standard normal distribution.",
)  # fmt: skip
_TRUNCATED = declare(
    "random_truncated_normal", _scheme, _truncated_forward, shape=_given_shape,
    samples=(Sample(((),), {**_CASE, "low": -1.0, "high": 2.0}, ints={0: 9}),),
    on_host=(0,), doc="Numbers of the standard normal distribution between two bounds.",
)  # fmt: skip
_BINOMIAL = declare(
    "random_binomial", "int64[] -> f[*t] -> int64[*out]", _binomial_forward, shape=_given_shape,
    vjp=(None, None),
    samples=(
        Sample(
            ((), (4,)), {"trials": 5, "shape": (3, 4), "seed": 1, "draw": 2}, 0.0, 1.0, ints={0: 9},
        ),
    ),
    on_host=(0, 1), doc="Numbers of successes in independent trials.",
)  # fmt: skip
_CATEGORICAL = declare(
    "random_categorical", "int64[] -> f[*t, n] -> int64[*t]", _categorical_forward,
    vjp=(None, None), samples=(Sample(((), (3, 4)), {"seed": 1, "draw": 2}, ints={0: 9}),),
    on_host=(0,), doc="Indices drawn by the softmax of logits along the last axis.",
)  # fmt: skip


def _graph_of(graph: Graph | Node) -> Graph:
    if isinstance(graph, Node):
        return graph.graph
    if isinstance(graph, Graph):
        return graph
    raise GraphTypeError(f"a random op needs a graph or a node first, got {graph!r}")


def _draw(op: Op, graph: Graph, *inputs: Any, **attrs: Any) -> Node:
    attrs = {**attrs, "seed": graph.seed, "draw": graph.next_draw()}
    return graph.apply(op, [graph.run_number, *inputs], attrs)


def _float_name(dtype: Any) -> str:
    name = dtype_of(dtype).name
    if dtype_of(dtype).kind not in "fV":
        raise GraphTypeError(f"random floats need a float dtype, got {name}; convert with .astype")
    return name


def _unit(graph: Graph | Node, shape: Any, dtype: Any) -> Node:
    return _draw(_UNIFORM, _graph_of(graph), shape=shape_from(shape), dtype=_float_name(dtype))


@raises(types="The dtype is no float.")
def uniform(
    graph: Graph | Node, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = "float32"
) -> Node:
    """Draw uniform numbers in [low, high).

    Parameters
    ----------
    graph : Graph or Node
    shape : tuple
        Dims may be symbols.
    low, high : scalar or node
        Bounds; gradients flow to nodes (the draw is ``low + (high - low) * u``).
    dtype : float dtype

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.uniform(ag.Graph(), (2, 3)).shape
    (2, 3)
    """
    drawn = _unit(graph, shape, dtype)
    if not (isinstance(low, Node) or isinstance(high, Node)) and high - low == 1:
        return _shifted(drawn, low)
    return _shifted(drawn * (high - low), low)


def _shifted(drawn: Node, by: Any) -> Node:
    return drawn if not isinstance(by, Node) and by == 0 else drawn + by


def normal(
    graph: Graph | Node, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: Any = "float32"
) -> Node:
    """Draw normal numbers; gradients flow to `mean` and `std`, parameters as in `uniform`."""
    drawn = _draw(_NORMAL, _graph_of(graph), shape=shape_from(shape), dtype=_float_name(dtype))
    scaled = drawn if not isinstance(std, Node) and std == 1 else drawn * std
    return _shifted(scaled, mean)


def truncated_normal(
    graph: Graph | Node,
    shape: Any,
    mean: Any = 0.0,
    std: Any = 1.0,
    *,
    low: float = -2.0,
    high: float = 2.0,
    dtype: Any = "float32",
) -> Node:
    """Draw normal numbers that lie between `low` and `high` standard deviations from the mean.

    By the inverse of the distribution function, so that far tails take no longer.

    Raises
    ------
    ValueError
        The interval is empty, or so far out (beyond 37) that its share is no number.
    """
    held = abs(normal_share(-abs(low)) - normal_share(-abs(high))) if low * high > 0 else 1.0
    if not (low < high and held >= _LEAST_HELD):
        raise ValueError(
            f"truncated_normal: [{low}, {high}] holds {held if low < high else 0:.1g} of the "
            f"distribution, and at least {_LEAST_HELD} is needed"
        )
    drawn = _draw(
        _TRUNCATED, _graph_of(graph), shape=shape_from(shape), dtype=_float_name(dtype),
        low=float(low), high=float(high),
    )  # fmt: skip
    scaled = drawn if not isinstance(std, Node) and std == 1 else drawn * std
    return _shifted(scaled, mean)


def bernoulli(graph: Graph | Node, shape: Any, p: Any = 0.5, dtype: Any = "bool") -> Node:
    """Draw True, or 1 in `dtype`, with probability `p` (a number, array or node); no gradient."""
    if not isinstance(p, Node):
        p = _probability(p, "bernoulli", np.float32)
    unit = _unit(graph, shape, p.dtype)
    drawn = less(unit, p)
    return drawn if dtype_of(dtype).kind == "b" else astype(drawn, dtype)


def binomial(graph: Graph | Node, shape: Any, trials: int, p: Any) -> Node:
    """Draw int64 numbers of successes in `trials` trials of probability `p`; no gradient.

    Exact, at a cost that grows with `trials`, which is 2**24 at most.
    """
    owner = _graph_of(graph)
    if not 0 <= trials <= _MOST_TRIALS:
        raise ValueError(
            f"binomial: a number of trials is not negative, got {trials!r}"
            if trials < 0
            else f"binomial counts up to {_MOST_TRIALS} trials, got {trials!r}; draw from normal "
            "with mean trials * p and variance trials * p * (1 - p) instead"
        )
    given = p if isinstance(p, Node) else owner.constant(_probability(p, "binomial", np.float64))
    return _draw(_BINOMIAL, owner, given, trials=int(trials), shape=shape_from(shape))


def _probability(p: Any, what: str, dtype: Any) -> np.ndarray[Any, Any]:
    probability = np.asarray(p, dtype)
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError(f"{what}: p is a probability, got {p!r}")
    return probability


def categorical(logits: Node) -> Node:
    """Draw an int64 index along the last axis with probability ``softmax(logits)``; no gradient."""
    return _draw(_CATEGORICAL, logits.graph, logits)


def kept(x: Node, p: float, training: bool, lead: int | None = None) -> Node | None:
    """Return 1 where an element of `x` stays and 0 where it is dropped; None: all stay.

    With `lead` all elements that agree in the first so many positions share a fate.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is a probability, got {p!r}")
    if not training or p == 0:
        return None
    if lead is not None:
        x = getitem(x, (slice(None),) * lead + (slice(1),) * (x.ndim - lead))
    unit = unit_like(x)
    return astype(less(p, unit) if p < 1 else less(unit, 0.0), x.dtype)


def unit_like(x: Node) -> Node:
    """Draw floats in [0, 1) in the shape of `x`, also where only a run knows it."""
    if UNKNOWN in x.dims:
        return _draw(_UNIFORM, x.graph, x, shape=None, dtype=_float_name(x.dtype))
    return _draw(_UNIFORM, x.graph, shape=x.dims, dtype=_float_name(x.dtype))


# -- noise ------------------------------------------------------------------------------------


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
