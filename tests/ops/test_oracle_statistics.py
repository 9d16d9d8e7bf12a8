"""Statistics, order and reductions at places are PyTorch's and JAX's, to second order."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

INDEX = np.array([[0, 2, 0, 1], [1, 1, 1, 1], [2, 0, 2, 0]])
MASK = np.array([[True, False, True, True], [False, True, False, False], [True] * 4])
HOLES = np.array([[1.5, np.nan, -0.5, 2.5], [np.nan, np.nan, 0.25, np.nan], [3, 1, 2, 0.5]])
REDUCTIONS = ["sum", "mean", "prod", "amax", "amin"]
LENGTHS = np.array([2, 1, 3])


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_reduce_is_that_of_pytorch(reduce, axis, include_self):
    compare(
        lambda x, src: ag.ops.scatter_reduce(
            x, axis, INDEX, src, reduce, include_self=include_self
        ),
        lambda t, x, src: x.scatter_reduce(
            axis, t.tensor(INDEX), src, reduce, include_self=include_self
        ),
        draw((3, 4), (3, 4)),
    )


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS[1:])
def test_index_reduce_is_that_of_pytorch(reduce, include_self):
    index = np.array([0, 3, 3, 0, 0])
    compare(
        lambda x, src: ag.ops.index_reduce(x, 1, index, src, reduce, include_self=include_self),
        lambda t, x, src: x.index_reduce(
            1, t.tensor(index), src, reduce, include_self=include_self
        ),
        draw((3, 4), (3, 5)),
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_segment_reduce_is_that_of_pytorch(reduce, by):
    given = {by: LENGTHS if by == "lengths" else np.array([0, *np.cumsum(LENGTHS)])}
    compare(
        lambda x: ag.ops.segment_reduce(x, reduce, **given),
        lambda t, x: torch.segment_reduce(
            x, reduce, axis=0, **{by: t.tensor(value) for by, value in given.items()}
        ),
        draw((6, 2)),
        second=False,
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_segment_of_nothing_is_that_of_pytorch(reduce):
    (value,) = draw((3, 2))
    lengths = np.array([1, 0, 2])
    x = ag.Graph().input("x", (3, 2), "float64")
    (got,) = evaluate([ag.ops.segment_reduce(x, reduce, lengths=lengths)], {x: value})
    wanted = torch.segment_reduce(
        torch.tensor(value), reduce, lengths=torch.tensor(lengths), axis=0
    )
    np.testing.assert_allclose(got, wanted.numpy())


@pytest.mark.parametrize("zeros", [[0], [0, 1], [1, 4], [0, 1, 2, 3]], ids=str)
def test_product_at_a_place_has_its_gradient_where_factors_are_zero(zeros):
    """Against PyTorch's product over an axis, which is right there to second order."""
    (values,) = draw((2, 4))
    values.reshape(-1)[zeros] = 0
    index = np.repeat(np.arange(2), 4)

    def ours(x):
        return ag.ops.index_reduce(
            ag.ops.zeros(x, (2,), x.dtype), 0, index, x.reshape(-1), "prod", include_self=False
        )

    compare(ours, lambda t, x: t.prod(x, 1), [values])


@pytest.mark.parametrize("source", [(12,), (3, 5)])
@pytest.mark.parametrize("mask", [MASK, MASK[0]], ids=["whole", "row"])
def test_masked_scatter_is_that_of_pytorch(mask, source):
    compare(
        lambda x, src: ag.ops.masked_scatter(x, mask, src),
        lambda t, x, src: x.masked_scatter(t.tensor(mask), src),
        draw((3, 4), source),
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extreme_is_that_of_pytorch(name, axis):
    compare(
        lambda x: getattr(ag.ops, name)(x, axis)[0],
        lambda t, x: getattr(t, name)(x, axis)[0],
        draw((3, 4)),
        second=False,
    )
    for value in (HOLES, np.array([[1.0, 1, 0, 1, 2, 2], [3, 3, 4, 4, 5, 5]])):
        x = ag.Graph().input("x", value.shape, "float64")
        got = evaluate(getattr(ag.ops, name)(x, axis), {x: value})
        for mine, theirs in zip(got, getattr(torch, name)(torch.tensor(value), axis), strict=True):
            np.testing.assert_array_equal(mine, theirs.numpy())


@pytest.mark.parametrize("axis", [0, 1])
def test_mode_is_that_of_pytorch(axis):
    value = np.random.default_rng(0).integers(0, 3, (5, 9)).astype("float64")
    compare(
        lambda x: ag.ops.mode(x, axis)[0],
        lambda t, x: t.mode(x, axis)[0],
        [value],
        second=False,
    )


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantile_and_its_gradient_are_those_of_pytorch(name, method):
    values = draw((3, 4)) if name == "quantile" else [HOLES]
    for axis, q in ((1, [0.2, 0.9]), (0, [0.5]), (None, [0.37])):
        compare(
            lambda x, axis=axis, q=q: getattr(ag.ops, name)(x, q, axis, method=method),
            lambda t, x, axis=axis, q=q: getattr(t, name)(
                x, t.tensor(q, dtype=x.dtype), axis, interpolation=method
            ),
            values,
            second=False,
        )


@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanmedian"])
def test_what_passes_over_nan_has_the_gradient_of_pytorch(name):
    # Odd numbers of values: of two in the middle PyTorch takes the lower.
    value = np.array([[1.5, np.nan, 2.0, -1], [0.5, 1, 3, np.nan]])

    def theirs(t, x):
        found = getattr(t, name)(x, 1)
        return found[0] if name == "nanmedian" else found

    compare(lambda x: getattr(ag.ops, name)(x, 1), theirs, [value], second=False)


def test_nan_that_wins_a_maximum_gets_the_gradient_as_in_pytorch():
    value = np.array([1.0, np.nan, 2.0])
    for name in ("max", "min", "median"):
        compare(
            getattr(ag.ops, name),
            lambda t, x, name=name: getattr(t, name)(x),
            [value],
            second=False,
        )


JAX = {
    "interp": (lambda f, x: f.interp(x[2] / 3, x[0, 2:] * 0 + _ramp(2), x[2, 2:])),
    "histogram": (lambda f, x: f.histogram(x[2] / 4, 3, (0, 1), weights=x[2])[0]),
}


def _ramp(count):
    return np.linspace(0, 1, count)


@pytest.mark.parametrize("name", JAX)
def test_function_and_its_gradient_are_those_of_jax(name):
    jax = pytest.importorskip("jax")
    call = JAX[name]
    with jax.enable_x64(True):
        theirs = lambda x: (call(jax.numpy, x) ** 2).sum()  # noqa: E731 - one use
        value = np.where(np.isnan(HOLES) & (name == "histogram"), 1, HOLES)
        wanted = jax.value_and_grad(theirs)(value)
    x = ag.Graph().input("x", value.shape, "float64")
    y = (call(np, x) ** 2).sum()
    got = evaluate([y, *ag.gradients(y, [x])], {x: value})
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-9)
    np.testing.assert_allclose(got[1], wanted[1], rtol=1e-9, atol=1e-12)
