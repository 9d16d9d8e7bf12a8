"""Random functions agree with SciPy's distributions, and given what was drawn with PyTorch."""

from functools import partial

import numpy as np
import pytest

import actorgraph as ag
from tests.ops._compare import draw
from tests.ops._oracle import Row, compare, torch

stats = pytest.importorskip("scipy.stats")

pytestmark = pytest.mark.oracle

COUNT = 20_000
LEAST = 1e-3
"""The smallest probability of a sample by which a distribution is still believed."""
LOGITS = np.log([0.1, 0.6, 0.3])


def run(nodes, feeds):
    """Evaluate in the first run of a machine: what is drawn there is always the same."""
    with ag.TapeMachine(nodes, wrt=[]) as machine:
        found = machine.run_sync(feeds, run_number=0)
        return [found[node].value for node in nodes]


# -- distributions --------------------------------------------------------------------------------

CONTINUOUS = {
    "uniform": (lambda g: ag.ops.uniform(g, (COUNT,), -1.0, 3.0, "float64"), stats.uniform(-1, 4)),
    "normal": (lambda g: ag.ops.normal(g, (COUNT,), 1.0, 2.0, "float64"), stats.norm(1, 2)),
    "truncated_normal": (
        lambda g: ag.ops.truncated_normal(
            g, (COUNT,), 1.0, 2.0, low=-1.0, high=0.5, dtype="float64"
        ),
        stats.truncnorm(-1, 0.5, 1, 2),
    ),
    "rrelu": (
        lambda g: ag.ops.rrelu(ag.ops.full(g, (COUNT,), -1.0, "float64"), 0.1, 0.3, training=True),
        stats.uniform(-0.3, 0.2),
    ),
}
ONES = (COUNT, 1, 1)
DISCRETE = {
    "bernoulli": (lambda g: ag.ops.bernoulli(g, (COUNT,), 0.3), stats.bernoulli(0.3)),
    "binomial": (lambda g: ag.ops.binomial(g, (COUNT,), 4, 0.3), stats.binom(4, 0.3)),
    "categorical": (
        lambda g: ag.ops.categorical(g.constant(np.tile(LOGITS, (COUNT, 1)))),
        stats.rv_discrete(values=(range(3), np.exp(LOGITS))),
    ),
    "gumbel_softmax": (
        lambda g: ag.ops.argmax(
            ag.ops.gumbel_softmax(g.constant(np.tile(LOGITS, (COUNT, 1))), 0.5), 1
        ),
        stats.rv_discrete(values=(range(3), np.exp(LOGITS))),
    ),
    **{
        name: (
            lambda g, name=name, shape=shape: (
                getattr(ag.ops, name)(ag.ops.ones(g, shape), 0.3, training=True) > 0
            ).reshape(-1),
            stats.bernoulli(0.7),
        )
        for name, shape in {
            "dropout": (COUNT,), "alpha_dropout": (COUNT,), "dropout1d": (COUNT, 1),
            "dropout2d": ONES, "dropout3d": (*ONES, 1), "feature_alpha_dropout": (*ONES, 1),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_have_the_distribution_of_scipy(name):
    make, wanted = CONTINUOUS[name]
    (values,) = run([make(ag.Graph(seed=5))], {})
    assert stats.kstest(values, wanted.cdf).pvalue > LEAST


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_have_the_probabilities_of_scipy(name):
    make, wanted = DISCRETE[name]
    (values,) = run([make(ag.Graph(seed=5))], {})
    places, counts = np.unique(values, return_counts=True)
    assert stats.chisquare(counts, COUNT * wanted.pmf(places.astype(int))).pvalue > LEAST


# -- given what was drawn -------------------------------------------------------------------------

LEAST_OF_SELU = -1.7580993408473766


def dropped(y, t):
    """PyTorch's rule: a kept element over the chance that it is kept."""
    return t * (y != 0) / 0.7


def alpha_dropped(y, t):
    scale = (0.7 * (1 + 0.3 * LEAST_OF_SELU**2)) ** -0.5
    shift = -scale * LEAST_OF_SELU * 0.3
    mask = (y - (scale * LEAST_OF_SELU + shift)).abs() > 1e-6
    return scale * torch.where(mask, t, LEAST_OF_SELU) + shift


def shifted(y, mean, std):
    return mean + std * ((y - mean) / std).detach()


def stretched(y, low, high):
    return low + (high - low) * ((y - low) / (high - low)).detach()


def softmax_of_sum(y, t):
    """The softmax of the logits and of the noise that the draw tells, up to a constant."""
    return torch.softmax((t + (0.5 * torch.log(y) - t).detach()) / 0.5, -1)


def graph_first(f, **more):
    return lambda *xs: f(xs[0], (3, 4), *xs, dtype=xs[0].dtype, **more)


CHANNELS = (3, 4, 2, 2, 2)
GIVEN = {
    **{
        name: (partial(getattr(ag.ops, name), p=0.3, training=True), theirs, shape)
        for name, theirs, shape in (
            ("dropout", dropped, CHANNELS), ("dropout1d", dropped, CHANNELS[:3]),
            ("dropout2d", dropped, CHANNELS[:4]), ("dropout3d", dropped, CHANNELS),
            ("alpha_dropout", alpha_dropped, CHANNELS),
            ("feature_alpha_dropout", alpha_dropped, CHANNELS),
        )
    },
    "gumbel_softmax": (partial(ag.ops.gumbel_softmax, tau=0.5), softmax_of_sum, (3, 4)),
    "normal": (graph_first(ag.ops.normal), shifted, (3, 1), (4,)),
    "rrelu": (
        partial(ag.ops.rrelu, training=True),
        lambda y, t: torch.where(t > 0, t, t * (y / t).detach()), (3, 4),
    ),
    "truncated_normal": (graph_first(ag.ops.truncated_normal), shifted, (3, 1), (4,)),
    "uniform": (graph_first(ag.ops.uniform), stretched, (3, 1), (4,)),
}  # fmt: skip
DRAWN = {*CONTINUOUS, *DISCRETE}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", GIVEN)
def test_given_the_draw_a_function_agrees_with_pytorch(name, dtype):
    ours, theirs, *shapes = GIVEN[name]
    values = draw(*shapes, low=0.2, high=2.0) if len(shapes) > 1 else draw(*shapes)
    graph = ag.Graph()
    xs = [graph.input(f"x{k}", v.shape, dtype) for k, v in enumerate(values)]
    feeds = dict(zip(xs, (v.astype(dtype) for v in values), strict=True))
    (drawn,) = run([ours(*xs)], feeds)
    assert 0 < np.mean(drawn == drawn.flat[0]) < 1
    compare(Row(ours, partial(theirs, torch.tensor(drawn)), values), dtype, run)
