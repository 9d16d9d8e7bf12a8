"""Random draws, counter-based: the same bits on any machine, for any number of workers.

A draw is a pure function of three numbers: the graph's seed, the draw number (given when the op is
built and kept by every rewrite), and the number of the run, which is a leaf of the graph. They are
key and offset of a Philox 4x64 generator, so nothing depends on what was drawn before.  Every call
of a function here is a draw of its own; `machine.run(..., run_number=)` repeats a run.

NumPy gives the generator's words, which J. Salmon et al. (Parallel random numbers: as easy as 1, 2,
3, 2011) define.  Distributions are made of them here, by additions, multiplications, divisions and
roots only, which IEEE 754 rounds in one way: NumPy's own distributions may change, and the last bit
of a logarithm depends on the processor.

- uniform: the upper 53 bits of a word, or 24 of half a word for float32, as a fraction;
- normal: the inverse of the distribution function (M. J. Wichura, Algorithm AS 241, 1988, to about
  1e-16) at the middle of one of 2**52 equal intervals, or 2**32 for float32;
- Gumbel: ``-log(-log(u))`` of such a u;
- binomial: each trial compares a fraction, bit by bit, with p; a word decides one bit of 64 trials.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, sqrt
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Graph, Node
from actorgraph.op import KEPT, Attrs, Op, Sample
from actorgraph.ops._arrays import machine_epsilon, tiny
from actorgraph.ops._declare import over_axes
from actorgraph.ops._rules import as_of, declare, raises
from actorgraph.ops.activations import leaky_relu
from actorgraph.ops.comparison import less
from actorgraph.ops.creation import graph_of
from actorgraph.ops.elementwise import astype, clip, log, where
from actorgraph.ops.indexing import getitem
from actorgraph.ops.losses import softmax
from actorgraph.types import UNKNOWN, Checks, Shape, dtype_of, shape_from

__all__ = [
    "alpha_dropout", "bernoulli", "binomial", "categorical", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "feature_alpha_dropout", "gumbel_softmax", "normal", "rrelu", "truncated_normal",
    "uniform",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]
_BLOCK = 8192
"""Numbers made at a time, so that the steps of a formula find them in the cache."""
_LN2 = 0.6931471805599453

# Coefficients of AS 241, PPND16, the highest power first: in 0.180625 - q^2, in r - 1.6, in r - 5.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0),
)  # fmt: skip
_NEAR_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
     2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    total = x * coefficients[0]
    total += coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    above = _polynomial(coefficients[0], x)
    above /= _polynomial(coefficients[1], x)
    return above


def _log(x: Array) -> Array:
    """Return the logarithm of positive numbers, within two roundings, in the same bits anywhere."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < sqrt(0.5)
    mantissa = np.where(low, mantissa + mantissa, mantissa)
    # log m = 2 atanh s; after s^23 / 23 the series is below a rounding, as s is below 0.172.
    s = (mantissa - 1) / (mantissa + 1)
    series = _polynomial(tuple(2 / n for n in range(21, 0, -2)), s * s)
    series *= s
    series += (exponent - low) * _LN2
    return series


def _quantile(p: Array) -> Array:
    """Return where the standard normal distribution reaches `p`, in (0, 1)."""
    q = p - 0.5
    result = _ratio(_CENTRE, 0.180625 - q * q)
    result *= q
    tail = np.flatnonzero(np.abs(q) > 0.425)
    q = q[tail]
    r = np.sqrt(-_log(np.where(q < 0, p[tail], 1 - p[tail])))
    distance = _ratio(_NEAR_TAIL, r - 1.6)
    far = np.flatnonzero(r > 5)
    distance[far] = _ratio(_FAR_TAIL, r[far] - 5)
    result[tail] = np.copysign(distance, q)
    return result


def _gumbel(p: Array) -> Array:
    return -_log(-_log(p))


def normal_share(x: float) -> float:
    """Return the share of the standard normal distribution below `x`.

    Rounded to twelve digits, so that it does not depend on the C library.
    """
    return float(f"{erfc(-x / sqrt(2)) / 2:.12e}")


class PhiloxStream:
    """Random numbers that follow from three integers of 64 bits.

    - `seed`, `draw`: the key
    - `number`: the stream of this key; two of them are 2**192 words apart

    Examples
    --------
    >>> PhiloxStream(1, 2).uniform((2,), "float64")
    array([0.30931491, 0.35695624])
    """

    def __init__(self, seed: int, draw: int, number: int = 0) -> None:
        key = np.array([seed, draw], np.uint64)
        counter = np.array([0, 0, 0, number % 2**64], np.uint64)
        self._words = np.random.Philox(key=key, counter=counter).random_raw

    def _fractions(self, size: int, bits: int) -> Array:
        """Return unsigned integers of so many bits, one per word, or two per word up to 32."""
        if bits > 32:
            return self._words(size) >> (64 - bits)
        halves = self._words(-(-size // 2)).astype("<u8", copy=False).view("<u4")[:size]
        return halves >> (32 - bits)

    def uniform(self, shape: Any, dtype: str = "float64") -> Array:
        """Return numbers in [0, 1), float32 or float64."""
        bits = 24 if dtype == "float32" else 53
        found = self._fractions(_size(shape), bits).astype(dtype)
        found *= found.dtype.type(2.0**-bits)
        return found.reshape(shape)

    def _inside(self, shape: Any, bits: int, function: Callable[[Array], Array]) -> Array:
        """Return a function of numbers in (0, 1), each the middle of one of 2**bits intervals."""
        found = np.empty(_size(shape))
        for start in range(0, found.size, _BLOCK):
            block = found[start : start + _BLOCK]
            np.add(self._fractions(block.size, bits), 0.5, out=block)
            block *= 2.0**-bits
            block[:] = function(block)
        return found.reshape(shape)

    def normal(self, shape: Any, dtype: str = "float64") -> Array:
        """Return standard normal numbers, float32 or float64."""
        bits = 32 if dtype == "float32" else 52
        return self._inside(shape, bits, _quantile).astype(dtype, copy=False)

    def gumbel(self, shape: Any) -> Array:
        """Return float64 numbers of the standard Gumbel distribution."""
        return self._inside(shape, 52, _gumbel)

    def truncated_normal(self, shape: Any, low: float, high: float) -> Array:
        """Return float64 standard normal numbers in [low, high]."""
        if low > 0:  # Below 0 the shares keep their digits.
            return -self.truncated_normal(shape, -high, -low)
        first = normal_share(low)
        span = normal_share(high) - first

        def within(p: Array) -> Array:
            return _quantile(first + span * p)

        return self._inside(shape, 52, within).clip(low, high)

    def binomial(self, trials: int, p: Array) -> Array:
        """Return the number of successes in so many trials, for each probability in `p`.

        Takes about ``trials / 32`` words a number.
        """
        chances = p.astype(np.float64).ravel()
        sure = chances >= 1
        bits = np.where(sure, 0, chances * 2.0**64).astype(np.uint64)
        wins = np.where(sure, trials, 0)
        left = np.full(chances.size, trials)
        for level in range(63, -1, -1):
            # A trial whose bits so far are those of p is not below p if all others of p are 0.
            rest = bits & np.uint64(2 ** (level + 1) - 1)
            places = np.flatnonzero((left > 0) & (rest > 0))
            if not places.size:
                break
            count = left[places]
            ones = self._heads(count)
            below = rest[places] >> np.uint64(level) == 1
            wins[places] += np.where(below, count - ones, 0)
            left[places] = np.where(below, ones, count - ones)
        return wins.reshape(p.shape)

    def _heads(self, tosses: Array) -> Array:
        """Return how many of so many bits are set."""
        heads = np.zeros_like(tosses)
        if tosses.max() > 64 * tosses.size:
            for place, count in enumerate(tosses // 64):
                heads[place] = np.bitwise_count(self._words(int(count))).sum(dtype=np.int64)
            done = tosses // 64 * 64
            return heads + self._heads(tosses - done) if done.any() else heads
        whole = int(tosses.min()) // 64 * 64
        for _ in range(0, whole, 64):
            heads += np.bitwise_count(self._words(tosses.size))
        for start in range(whole, int(tosses.max()), 64):
            places = np.flatnonzero(tosses > start)
            unused = np.maximum(64 - (tosses[places] - start), 0).astype(np.uint64)
            words = self._words(places.size) >> unused
            heads[places] += np.bitwise_count(words)
        return heads


def _size(shape: Any) -> int:
    return int(np.prod(shape, dtype=np.int64))


_LEAST_HELD = 1e-300
"""What the interval of a truncated normal distribution has to hold."""
_MOST_TRIALS = 2**24
"""A binomial number takes about a 32th of a word for each trial: 4 ms for so many."""


def _floats(xp: Any, draw: Any, shape: Any, dtype: str) -> Any:
    """Return ``draw(shape, dtype)``, also for a dtype that streams do not know."""
    own = dtype if dtype in ("float32", "float64") else "float32"
    return xp.asarray(draw(shape, own)).astype(dtype_of(dtype), copy=False)


def _given_shape(checks: Checks, *shapes: Shape, shape: Shape | None, **_: Any) -> Shape:
    return shapes[1] if shape is None else shape


def _scheme(arity: int, attrs: Attrs) -> str:
    """Return the scheme: the run's number, and where dims are open an array of the shape."""
    like = "a[*t] -> " if arity == 2 else ""
    return f"int64[] -> {like}{attrs['dtype']}[*out]"


def _drawing(
    name: str, scheme: Any, make: Callable[..., Any], attrs: Attrs, doc: str,
    shapes: tuple[tuple[int, ...], ...] = ((),), ends: tuple[float, float] = (-2.0, 2.0),
    **more: Any,
) -> Op:  # fmt: skip
    """Declare a draw, ``make(xp, stream, *inputs, **attrs)``; laws try these attrs."""

    def forward(xp: Any, number: Any, *inputs: Any, seed: int, draw: int, **attrs: Any) -> Any:
        return make(xp, PhiloxStream(seed, draw, int(number)), *inputs, **attrs)

    sample = Sample(shapes, {**attrs, "seed": 1, "draw": 2}, *ends, ints={0: 9})
    if "shape" in attrs:
        more["shape"] = _given_shape
    return declare(name, scheme, forward, samples=(sample,), doc=doc, **{"on_host": (0,), **more})


_CASE: Attrs = {"shape": (3, 4), "dtype": "float64"}
_UNIFORM = _drawing(
    "random_uniform", _scheme,
    lambda xp, stream, *like, shape, dtype: _floats(
        xp, stream.uniform, xp.shape(like[0]) if shape is None else shape, dtype
    ),
    _CASE, "Uniform numbers in [0, 1).", memory=KEPT,
)  # fmt: skip
_NORMAL = _drawing(
    "random_normal", _scheme,
    lambda xp, stream, shape, dtype: _floats(xp, stream.normal, shape, dtype),
    _CASE, "Numbers of the standard normal distribution.", memory=KEPT,
)  # fmt: skip
_TRUNCATED = _drawing(
    "random_truncated_normal", _scheme,
    lambda xp, stream, shape, dtype, **ends: (
        xp.asarray(stream.truncated_normal(shape, **ends)).astype(dtype_of(dtype))
    ),
    {**_CASE, "low": -1.0, "high": 2.0},
    "Numbers of the standard normal distribution between two bounds.",
)  # fmt: skip
_BINOMIAL = _drawing(
    "random_binomial", "int64[] -> f[*t] -> int64[*out]",
    lambda xp, stream, p, trials, shape: xp.asarray(stream.binomial(
        trials, np.broadcast_to(_probability(p, "binomial", np.float64), shape)
    )),
    {"trials": 5, "shape": (3, 4)}, "Numbers of successes in independent trials.",
    ((), (4,)), (0.0, 1.0), vjp=(None, None), on_host=(0, 1),
)  # fmt: skip
# The largest of logits plus Gumbel noise is distributed as softmax(logits).
_CATEGORICAL = _drawing(
    "random_categorical", "int64[] -> f[*t, n] -> int64[*t]",
    lambda xp, stream, logits: (
        xp.argmax(logits + xp.asarray(stream.gumbel(xp.shape(logits))), axis=-1)
    ),
    {}, "Indices drawn by the softmax of logits along the last axis.", ((), (3, 4)),
    vjp=(None, None),
)  # fmt: skip


def _draw(op: Op, graph: Graph, *inputs: Any, **attrs: Any) -> Node:
    attrs = {**attrs, "seed": graph.seed, "draw": graph.next_draw()}
    return graph.apply(op, [graph.run_number, *inputs], attrs)


def _float_name(dtype: Any) -> str:
    name = dtype_of(dtype).name
    if dtype_of(dtype).kind not in "fV":
        raise GraphTypeError(f"random floats need a float dtype, got {name}; convert with .astype")
    return name


def _unit(graph: Graph | Node, shape: Any, dtype: Any) -> Node:
    return _draw(_UNIFORM, graph_of(graph), shape=shape_from(shape), dtype=_float_name(dtype))


@raises(types="The dtype is no float.")
def uniform(
    graph: Graph | Node, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = "float32"
) -> Node:
    """Draw uniform numbers in [low, high).

    Parameters
    ----------
    graph : Graph or node
    shape : tuple
        Dims may be symbols.
    low, high : scalar or node
        Bounds; gradients flow to nodes (the draw is ``low + (high - low) * u``).
    dtype : float dtype
    """
    return _shifted(_unit(graph, shape, dtype), low, high - low)


def _shifted(drawn: Node, by: Any, scale: Any) -> Node:
    """Return ``drawn * scale + by``, without a factor of 1 and a term of 0."""
    drawn = drawn if not isinstance(scale, Node) and scale == 1 else drawn * scale
    return drawn if not isinstance(by, Node) and by == 0 else drawn + by


@as_of(uniform)
def normal(
    graph: Graph | Node, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: Any = "float32"
) -> Node:
    """Draw normal numbers; graph, shape and dtype are those of `uniform`.

    Parameters
    ----------
    mean, std : scalar or node
        Nodes get gradients.
    """
    drawn = _draw(_NORMAL, graph_of(graph), shape=shape_from(shape), dtype=_float_name(dtype))
    return _shifted(drawn, mean, std)


@as_of(normal)
def truncated_normal(
    graph: Graph | Node, shape: Any, mean: Any = 0.0, std: Any = 1.0, *, low: float = -2.0,
    high: float = 2.0, dtype: Any = "float32",
) -> Node:  # fmt: skip
    """Draw numbers of `normal` that lie `low` to `high` standard deviations from the mean.

    By the inverse of the distribution function, so that far tails take no longer.

    Parameters
    ----------
    low, high : float
        Multiples of `std`.

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
        _TRUNCATED, graph_of(graph), shape=shape_from(shape), dtype=_float_name(dtype),
        low=float(low), high=float(high),
    )  # fmt: skip
    return _shifted(drawn, mean, std)


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
    owner = graph_of(graph)
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

    With `lead`, elements that agree in so many leading positions are dropped together.
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


_LOWEST = -1.7580993408473766
"""What `selu` gives far below 0."""


def dropout(x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero elements with probability `p` and scale the others by ``1 / (1 - p)``.

    The mask is a node of its own: forward, backward and a repeated run see the same.

    Parameters
    ----------
    x : node
        Float.
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


@as_of(dropout)
def _dropout(axes: int, x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero whole channels with probability `p` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, {places}) or without the batch.

    Raises
    ------
    ShapeError
        `x` has another rank.
    ValueError
        `p` is outside of [0, 1].
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


@as_of(dropout)
def alpha_dropout(x: Node, p: float = 0.5, training: bool = False) -> Node:
    """Set elements to the least value of `selu`, and keep mean 0 and variance 1 by an affine map.

    A `dropout` for nets of `selu`.  Source: G. Klambauer et al., Self-normalizing neural networks,
    2017.
    """
    return _alpha(x, kept(x, p, training), p)


@as_of(dropout)
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
