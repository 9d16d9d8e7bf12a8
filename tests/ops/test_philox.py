"""Streams of random numbers: right distributions to the tails, and the same bits anywhere."""

import math
from statistics import NormalDist

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.ops.random import PhiloxStream, _gumbel, _log, _quantile, normal_share
from tests._each import each

COUNT = 40_000
NORMAL = NormalDist()


GOLDEN = {
    "uniform": ["0x1.adb85e5416c5ap-1", "0x1.013e5c30dff20p-2"],
    "uniform32": ["0x1.6c5ac00000000p-5", "0x1.adb85e0000000p-1", "0x1.bfe4080000000p-3"],
    "normal": [
        "0x1.fbaf8d3a0569fp-1",
        "-0x1.5762721631153p-1",
        "-0x1.ed3bacf098b4ap-1",
        "0x1.612e24c3c79fcp+0",
    ],
    "normal32": [
        "-0x1.b370fc0000000p+0",
        "0x1.fbaf8e0000000p-1",
        "-0x1.8d9ed60000000p-1",
        "-0x1.5762720000000p-1",
    ],
    "truncated": ["0x1.1840fc7d07590p+0", "0x1.94d7afd2c9d87p+0"],
    "gumbel": ["0x1.bdebfd8d41513p+0", "-0x1.4ae33ca3d1729p-2"],
    "binomial": [23, 37, 27, 28, 31],
}


def hexes(values):
    return [float(value).hex() for value in np.asarray(values).ravel()]


def kolmogorov_distance(values, distribution):
    """The largest distance of the empirical distribution from the wanted one, in sigmas of 1."""
    values = np.sort(np.asarray(values, np.float64).ravel())
    wanted = np.array([distribution(value) for value in values])
    steps = np.arange(values.size + 1) / values.size
    return np.sqrt(values.size) * max(
        np.abs(wanted - steps[1:]).max(), np.abs(wanted - steps[:-1]).max()
    )


# -- formulae ---------------------------------------------------------------------------------


def test_logarithm_is_right_to_three_roundings_down_to_the_smallest_number():
    x = np.concatenate([10.0 ** -np.arange(324), 1 - 2.0 ** -np.arange(1, 53), np.linspace(0.1, 3)])
    x = x[(x > 0) & (x != 1)]
    wanted = np.array([math.log(value) for value in x])
    np.testing.assert_allclose(_log(x), wanted, rtol=7e-16)


def test_quantile_is_that_of_the_normal_distribution_into_both_tails():
    tails = 10.0 ** -np.arange(1, 300)
    p = np.concatenate([np.linspace(0.001, 0.999, 500), tails, 1 - tails[:15]])
    wanted = [NORMAL.inv_cdf(value) for value in p]
    np.testing.assert_allclose(_quantile(p), wanted, rtol=2e-15, atol=1e-16)


def philox_4x64_10(counter, key):
    """The definition of Salmon et al. (2011), in Python's integers."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        low = 2**64 - 1
        c = [right >> 64 ^ c[1] ^ k0, right & low, left >> 64 ^ c[3] ^ k1, left & low]
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & low, k1 + 0xBB67AE8584CAA73B & low
    return c


def test_words_are_those_of_the_definition_of_philox_4x64_10():
    known = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert philox_4x64_10([0, 0, 0, 0], (0, 0)) == known  # the published answer
    blocks = [philox_4x64_10([block, 0, 0, 7], (3, 1)) for block in (1, 2)]
    got = PhiloxStream(3, 1, 7).uniform((8,)) * 2.0**53
    assert got.astype(np.int64).tolist() == [word >> 11 for block in blocks for word in block]


def test_bits_are_these_on_any_computer():
    """What was drawn once is drawn for ever: a change here would break repeated experiments."""
    assert hexes(PhiloxStream(3, 1, 7).uniform((2,))) == GOLDEN["uniform"]
    assert hexes(PhiloxStream(3, 1, 7).uniform((3,), "float32")) == GOLDEN["uniform32"]
    assert hexes(PhiloxStream(3, 1, 7).normal((4,))) == GOLDEN["normal"]
    assert hexes(PhiloxStream(3, 1, 7).normal((4,), "float32")) == GOLDEN["normal32"]
    assert hexes(PhiloxStream(3, 1, 7).truncated_normal((2,), 1.0, 2.0)) == GOLDEN["truncated"]
    assert hexes(PhiloxStream(3, 1, 7).gumbel((2,))) == GOLDEN["gumbel"]
    assert PhiloxStream(3, 1, 7).binomial(100, np.full(5, 0.3)).tolist() == GOLDEN["binomial"]


def test_a_long_draw_starts_like_a_short_one():
    for draw in (PhiloxStream.uniform, PhiloxStream.normal, PhiloxStream.gumbel):
        long, short = (draw(PhiloxStream(1, 2), (size,)) for size in (20_000, 9_000))
        np.testing.assert_array_equal(long[:9_000], short)


# -- distributions ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_pass_kolmogorov_and_smirnov_and_have_the_right_moments(dtype):
    values = PhiloxStream(5, 1).normal((COUNT,), dtype)
    assert values.dtype == dtype
    assert kolmogorov_distance(values, NORMAL.cdf) < 1.63  # exceeded once in a hundred seeds
    for power, wanted in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)))
        assert abs((values.astype(np.float64) ** power).mean() - wanted) < 4 * spread / COUNT**0.5


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-1.0, 0.5), (3.0, 4.0), (-9.0, -8.0)])
def test_truncated_normal_numbers_pass_kolmogorov_and_smirnov(low, high):
    values = PhiloxStream(6, 1).truncated_normal((COUNT,), low, high)
    assert low <= values.min()
    assert values.max() <= high
    sign = 1 if low <= 0 else -1  # of the tail that keeps its digits
    first, last = sorted((normal_share(sign * low), normal_share(sign * high)))

    def share(x):
        below = (normal_share(sign * x) - first) / (last - first)
        return below if sign > 0 else 1 - below

    assert kolmogorov_distance(values, share) < 1.63


def test_gumbel_numbers_pass_kolmogorov_and_smirnov():
    values = PhiloxStream(7, 1).gumbel((COUNT,))
    assert kolmogorov_distance(values, lambda x: math.exp(-math.exp(-x))) < 1.63
    assert np.isfinite(_gumbel(np.array([2.0**-53, 1 - 2.0**-53]))).all()


@each(
    "trials, p",
    [(1, 0.5), (7, 0.3), (64, 0.9), (200, 0.01), (1000, 1 / 3), (100_000, 0.2), (10, 1e-3)],
)
def test_binomial_numbers_have_the_right_moments(trials, p):
    size = 2000 if trials > 10_000 else COUNT
    values = PhiloxStream(8, 1).binomial(trials, np.full(size, p))
    spread = math.sqrt(trials * p * (1 - p))
    assert values.min() >= 0
    assert values.max() <= trials
    assert abs(values.mean() - trials * p) < 4 * spread / size**0.5
    assert abs(values.std() / spread - 1) < (0.15 if spread < 0.2 else 0.04)


def test_binomial_numbers_have_the_right_probabilities():
    values = PhiloxStream(9, 1).binomial(5, np.full(COUNT, 0.3))
    wanted = [math.comb(5, k) * 0.3**k * 0.7 ** (5 - k) for k in range(6)]
    got = np.bincount(values, minlength=6) / COUNT
    np.testing.assert_allclose(got, wanted, atol=4 * 0.5 / COUNT**0.5)


def test_binomial_of_certain_things_is_certain_and_each_number_has_its_own_chance():
    p = np.array([[0.0, 1.0], [0.5, 0.25]])
    values = PhiloxStream(1, 1).binomial(1_000_000, p)
    assert values[0].tolist() == [0, 1_000_000]
    np.testing.assert_allclose(values[1] / 1_000_000, p[1], atol=0.003)
    assert PhiloxStream(1, 1).binomial(0, p).tolist() == [[0, 0], [0, 0]]


def test_probability_that_a_run_finds_wrong_is_an_error_of_the_run():
    g = ag.Graph()
    p = g.input("p", (), "float64")
    drawn = ag.ops.binomial(g, (3,), 4, p)
    wrong = pytest.raises(ag.NodeError, match=r"binomial: p is a probability, got .*1\.5")
    with ag.LispMachine(drawn) as machine, wrong:
        machine.run_sync({"p": 1.5})


def test_far_tails_are_drawn_and_intervals_that_hold_nothing_are_refused():
    drawn = ag.ops.truncated_normal(ag.Graph(), (100,), low=20.0, high=21.0, dtype="float64")
    values = ag.LispMachine(drawn).run_sync()[drawn].value
    assert values.min() >= 20
    assert values.mean() < 20.1
    for low, high in ((38.0, 39.0), (1.0, 1.0), (2.0, -2.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match=r"holds .* of the distribution, and at least 1e-300"):
            ag.ops.truncated_normal(ag.Graph(), (2,), low=low, high=high)
    with pytest.raises(ValueError, match="counts up to 16777216 trials, got .* draw from normal"):
        ag.ops.binomial(ag.Graph(), (2,), 2**25, 0.5)
