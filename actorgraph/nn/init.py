"""Initial values of weights: functions that return NumPy arrays.

Each call draws other numbers, the layers of `actorgraph.nn` among them; `manual_seed` starts them
anew.  A call that is given a `seed` has its numbers from that alone.  They are those of
`actorgraph.ops`' random draws, so that no library changes them.

Scaled initialisers keep the variance of what flows through a layer: forward by the fan in, the
number of products in each sum, and backward by the fan out.  `fans` reads both off the shape of a
weight.  Glorot is also known as Xavier, He as Kaiming, by the authors' first names.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from itertools import count
from math import prod, sqrt
from typing import Any, Concatenate, ParamSpec, TypeAlias

import numpy as np
from numpy.typing import NDArray

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.keywords import all_answering
from actorgraph.ops._declare import variant
from actorgraph.ops.random import PhiloxStream
from actorgraph.options import whole
from actorgraph.types import dtype_of

__all__ = [
    "constant", "fans", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "lecun_normal", "lecun_uniform", "manual_seed", "normal", "ones", "orthogonal", "uniform",
    "zeros",
]  # fmt: skip
__dir__ = __all__.copy

Array = NDArray[Any]
Shape = tuple[int, ...]
_MODES = ("fan_in", "fan_out", "fan_avg")


_seeds = count()


def manual_seed(seed: int) -> None:
    """Let what is drawn from here on, for layers too, follow from a seed.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.manual_seed(7)
    >>> first, other = ag.nn.init.normal((2,)), ag.nn.Linear(2, 2).weight.value
    >>> ag.nn.manual_seed(7)
    >>> bool((ag.nn.init.normal((2,)) == first).all())
    True
    >>> bool((ag.nn.Linear(2, 2).weight.value == other).all())
    True
    """
    global _seeds
    # Far apart, so that the layers of two seeds have none in common.
    _seeds = count(whole("seed", seed) % 2**31 * 2**32)


def _checked(shape: Any, dtype: Any) -> tuple[Shape, np.dtype[Any]]:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ShapeError(f"the shape of a weight is made of ints of at least 0, got {shape!r}")
    float_dtype = dtype_of(dtype)
    if float_dtype.kind not in "fV":
        raise GraphTypeError(f"weights are floats, got dtype {float_dtype.name}")
    return tuple(map(int, sizes)), float_dtype


def _stream(seed: int | None) -> PhiloxStream:
    if seed is None:
        seed = next(_seeds)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise GraphError(f"a seed is an int in [0, 2**64), got {seed!r}")
    # Graphs number their draws from 0: the last number is no draw of theirs.
    return PhiloxStream(int(seed), 2**64 - 1)


def _wide(dtype: np.dtype[Any]) -> str:
    """Return the dtype in which numbers are drawn."""
    return dtype.name if dtype.name in ("float32", "float64") else "float32"


def zeros(shape: Any, dtype: Any = "float32") -> Array:
    """Return zeros, as for biases.

    Parameters
    ----------
    shape : tuple of int
    dtype : float dtype

    Raises
    ------
    ShapeError, GraphTypeError
        The shape is none, or the dtype no float.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.init.zeros((2,))
    array([0., 0.], dtype=float32)
    """
    return constant(shape, 0.0, dtype)


def ones(shape: Any, dtype: Any = "float32") -> Array:
    """Return ones, as for scales of a normalisation; parameters as those of `zeros`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.init.ones((2,))
    array([1., 1.], dtype=float32)
    """
    return constant(shape, 1.0, dtype)


def constant(shape: Any, value: float, dtype: Any = "float32") -> Array:
    """Return an array of one value; other parameters as those of `zeros`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.init.constant((2,), 0.5)
    array([0.5, 0.5], dtype=float32)
    """
    sizes, float_dtype = _checked(shape, dtype)
    return np.full(sizes, value, float_dtype)


def uniform(
    shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = "float32", *,
    seed: int | None = None,
) -> Array:  # fmt: skip
    """Return uniform numbers in [low, high).

    Parameters
    ----------
    shape : tuple of int
    low, high : float
    dtype : float dtype
    seed : int, optional
        In [0, 2**64); default the next one, see `manual_seed`.

    Raises
    ------
    ShapeError, GraphTypeError, GraphError
        The shape is none, the dtype no float, the seed no such int.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.init.uniform((2, 3), -1.0, 1.0, seed=4).shape
    (2, 3)
    """
    sizes, float_dtype = _checked(shape, dtype)
    values = _stream(seed).uniform(sizes, _wide(float_dtype))
    values *= high - low
    values += low
    return values.astype(float_dtype, copy=False)


def normal(
    shape: Any, mean: float = 0.0, std: float = 1.0, dtype: Any = "float32", *,
    seed: int | None = None,
) -> Array:  # fmt: skip
    """Return normal numbers; other parameters and errors as those of `uniform`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.init.normal((2, 3), std=0.1).shape
    (2, 3)
    """
    sizes, float_dtype = _checked(shape, dtype)
    values = _stream(seed).normal(sizes, _wide(float_dtype))
    values *= std
    values += mean
    return values.astype(float_dtype, copy=False)


# -- by fans ----------------------------------------------------------------------------------


def fans(shape: Any) -> tuple[int, int]:
    """Return fan in and fan out of a weight.

    Parameters
    ----------
    shape : tuple of int
        (in, out) of the weight of ``x @ W``; (features, channels / groups, *kernel) of a
        convolution, where each counts once per entry of the kernel.  PyTorch's linear layers keep
        (out, in), so that there the two change places.

    Returns
    -------
    fan in, fan out : int

    Raises
    ------
    ShapeError
        There are fewer than two dims.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.init.fans((784, 100)), ag.nn.init.fans((16, 3, 5, 5))
    ((784, 100), (75, 400))
    """
    sizes, _ = _checked(shape, "float32")
    if len(sizes) < 2:
        raise ShapeError(f"fans are those of weights of at least two dims, got shape {sizes}")
    if len(sizes) == 2:
        return sizes
    kernel = prod(sizes[2:])
    return sizes[1] * kernel, sizes[0] * kernel


def _std(shape: Any, gain: float, mode: str) -> float:
    """Return the deviation that keeps the variance."""
    if mode not in _MODES:
        raise GraphError(f"mode is one of {', '.join(_MODES)}, got {mode!r}")
    fan_in, fan_out = fans(shape)
    fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
    return gain / sqrt(max(fan, 1))


def _spread(normal_ones: bool, shape: Any, std: float, dtype: Any, seed: int | None) -> Array:
    """Return numbers of a deviation: normal ones, or uniform ones around 0."""
    if normal_ones:
        return normal(shape, 0.0, std, dtype, seed=seed)
    bound = sqrt(3) * std
    return uniform(shape, -bound, bound, dtype, seed=seed)


_P = ParamSpec("_P")
_Drawn: TypeAlias = Callable[_P, Array]


def _drawn(
    rule: Callable[Concatenate[bool, _P], Array], name: str
) -> tuple[_Drawn[_P], _Drawn[_P]]:
    """Return the function of uniform and that of normal numbers; a bool tells the rule which."""
    kinds = (False, "uniform", "within sqrt(3) times"), (True, "normal", "of a deviation of")
    first, second = (
        variant(rule, is_normal, name, {"{kind}": kind, "{width}": width})
        for is_normal, kind, width in kinds
    )
    for drawn in (first, second):
        call = f">>> ag.nn.init.{drawn.__name__}((2, 3)).shape\n(2, 3)\n"
        text = cleandoc(drawn.__doc__ or "")
        drawn.__doc__ = f"{text}\n\nExamples\n--------\n>>> import actorgraph as ag\n{call}"
    return first, second


def _glorot(
    normal_ones: bool, shape: Any, gain: float = 1.0, dtype: Any = "float32", *,
    seed: int | None = None,
) -> Array:  # fmt: skip
    """Return {kind} numbers {width} ``gain * sqrt(2 / (fan in + fan out))``.

    Source: X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward
    neural networks, 2010.  PyTorch's ``xavier_{kind}_``.

    Parameters
    ----------
    shape : tuple of int
        As in `fans`.
    gain : float
        Factor; 5 / 3 suits tanh.
    dtype, seed
        As in `uniform`; so are errors, and a shape of fewer than two dims is one.
    """
    return _spread(normal_ones, shape, _std(shape, gain, "fan_avg"), dtype, seed)


glorot_uniform, glorot_normal = _drawn(_glorot, "glorot_{kind}")


def _he(
    normal_ones: bool, shape: Any, negative_slope: float = 0.0, mode: str = "fan_in",
    dtype: Any = "float32", *, seed: int | None = None,
) -> Array:  # fmt: skip
    """Return {kind} numbers {width} ``sqrt(2 / ((1 + negative_slope**2) * fan))``.

    Source: K. He et al., Delving deep into rectifiers, 2015.  PyTorch's ``kaiming_{kind}_``.

    Parameters
    ----------
    shape : tuple of int
        As in `fans`.
    negative_slope : float
        Of the leaky ReLU that follows; 0 is ReLU.
    mode : {"fan_in", "fan_out", "fan_avg"}
        Whether the variance is kept forward, backward or about both.
    dtype, seed
        As in `glorot_uniform`.
    """
    std = _std(shape, sqrt(2 / (1 + negative_slope**2)), mode)
    return _spread(normal_ones, shape, std, dtype, seed)


he_uniform, he_normal = _drawn(_he, "he_{kind}")


def _lecun(
    normal_ones: bool, shape: Any, dtype: Any = "float32", *, seed: int | None = None
) -> Array:
    """Return {kind} numbers {width} ``sqrt(1 / fan in)``; normal ones are what selu asks for.

    Source: Y. LeCun et al., Efficient backprop, 1998.  Parameters and errors as those of
    `glorot_uniform`.
    """
    return _spread(normal_ones, shape, _std(shape, 1.0, "fan_in"), dtype, seed)


lecun_uniform, lecun_normal = _drawn(_lecun, "lecun_{kind}")


def orthogonal(
    shape: Any, gain: float = 1.0, dtype: Any = "float32", *, seed: int | None = None
) -> Array:
    """Return `gain` times orthonormal rows or columns, whichever are fewer.

    From the QR decomposition of normal numbers, with the signs that make it uniform over such
    matrices; its last bits depend on LAPACK.  Dims behind the first count as one.  Source: A. Saxe
    et al., Exact solutions to the nonlinear dynamics of learning in deep linear neural networks,
    2013.

    Parameters
    ----------
    shape : tuple of int
        At least two dims.
    gain : float
        Factor.
    dtype, seed
        As in `uniform`; so are errors, and a shape of fewer than two dims is one.

    Examples
    --------
    >>> import actorgraph as ag
    >>> w = ag.nn.init.orthogonal((3, 2), dtype="float64", seed=1)
    >>> (w.T @ w).round(6)
    array([[1., 0.],
           [0., 1.]])
    """
    sizes, float_dtype = _checked(shape, dtype)
    if len(sizes) < 2:
        raise ShapeError(f"orthogonal weights have at least two dims, got shape {sizes}")
    rows, columns = sizes[0], prod(sizes[1:])
    drawn = _stream(seed).normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    q *= np.copysign(gain, np.diagonal(r))
    return (q if rows >= columns else q.T).reshape(sizes).astype(float_dtype)


all_answering(globals())
