"""Streams of random numbers that are the same on any computer, from the words of Philox 4x64-10.

NumPy gives the words, which J. Salmon et al. (Parallel random numbers: as easy as 1, 2, 3, 2011)
define; what becomes of them is written here, with additions, multiplications, divisions and roots
only, which IEEE 754 rounds in one way.  Not so NumPy's own distributions, which may change, and
logarithms, whose last bit depends on the processor.

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

__all__ = ["PhiloxStream", "normal_share"]

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

    To twelve digits only, so that it does not depend on the computer's library.
    """
    return float(f"{erfc(-x / sqrt(2)) / 2:.12e}")


class PhiloxStream:
    """Random numbers that follow from three integers of 64 bits.

    Parameters
    ----------
    seed, draw : int
        The key.
    number : int, optional
        The stream of this key; two of them are 2**192 words apart.

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
            # Who drew the bits of p so far, and has none of them to come, is not below p.
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
