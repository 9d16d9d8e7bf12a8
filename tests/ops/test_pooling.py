"""Pools: against PyTorch to second order, regressions by name, ties, symbolic dims, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

COMMON = [
    (1, (2, 3, 9), {"kernel_size": 3}),
    (1, (2, 3, 9), {"kernel_size": 4, "stride": 3, "padding": 2, "ceil_mode": True}),
    (1, (3, 9), {"kernel_size": 2}),
    (2, (2, 3, 6, 7), {"kernel_size": (2, 3)}),
    (2, (2, 3, 6, 7), {"kernel_size": 3, "stride": 1, "padding": 1}),
    (2, (2, 2, 7, 8), {"kernel_size": 3, "stride": (3, 2), "padding": (1, 0), "ceil_mode": True}),
    (2, (2, 2, 7, 8), {"kernel_size": 2, "stride": 5, "ceil_mode": True}),
    (2, (2, 6, 7), {"kernel_size": (1, 2)}),
    (3, (2, 2, 4, 5, 6), {"kernel_size": (2, 3, 2), "padding": (1, 0, 1)}),
    (3, (2, 4, 5, 4), {"kernel_size": 2, "stride": (1, 2, 3), "ceil_mode": True}),
]
MAX_ONLY = [
    (1, (2, 3, 11), {"kernel_size": 3, "dilation": 2, "stride": 2, "padding": 1}),
    (2, (2, 2, 7, 8), {"kernel_size": (2, 3), "dilation": (3, 2), "stride": 1, "ceil_mode": True}),
    (3, (1, 2, 5, 4, 5), {"kernel_size": 2, "dilation": (2, 1, 2), "stride": 1}),
]
AVERAGE_ONLY = [
    *((axes, shape, {**more, "count_include_pad": False}) for axes, shape, more in COMMON),
    *((a, x, {**more, "divisor_override": 3}) for a, x, more in COMMON if a > 1),
]


def both(name, settings):
    def ours(x):
        return getattr(ag.ops, name)(x, **settings)

    def theirs(torch, x):
        return getattr(torch.nn.functional, name)(x, **settings)

    return ours, theirs


@pytest.mark.oracle
@each("axes, shape, settings", COMMON + MAX_ONLY)
def test_max_pool_equals_that_of_pytorch_to_second_order(axes, shape, settings):
    compare(*both(f"max_pool{axes}d", settings), draw(shape))


@pytest.mark.oracle
@each("axes, shape, settings", COMMON + AVERAGE_ONLY)
def test_average_pool_equals_that_of_pytorch_to_second_order(axes, shape, settings):
    compare(*both(f"avg_pool{axes}d", settings), draw(shape))


@pytest.mark.oracle
@each("axes, shape, settings", COMMON + MAX_ONLY)
def test_indices_of_a_max_pool_are_those_of_pytorch(axes, shape, settings):
    torch = pytest.importorskip("torch")
    (value,) = draw(shape)
    x = ag.Graph().input("x", shape, "float64")
    pool = getattr(ag.ops, f"max_pool{axes}d")(x, **settings, return_indices=True)
    wanted = getattr(torch.nn.functional, f"max_pool{axes}d")(
        torch.tensor(value), **settings, return_indices=True
    )
    for got, want in zip(evaluate(list(pool), {x: value}), wanted, strict=True):
        np.testing.assert_array_equal(got, want.numpy())


@pytest.mark.oracle
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_adaptive_indices_and_unpooling_are_those_of_pytorch(axes):
    torch = pytest.importorskip("torch")
    (value,) = draw((2, 2, *(5, 4, 3)[:axes]))
    x = ag.Graph().input("x", value.shape, "float64")
    y, indices = getattr(ag.ops, f"adaptive_max_pool{axes}d")(x, 2, return_indices=True)
    pooled = getattr(torch.nn.functional, f"adaptive_max_pool{axes}d")(
        torch.tensor(value), 2, return_indices=True
    )
    for got, want in zip(evaluate([y, indices], {x: value}), pooled, strict=True):
        np.testing.assert_array_equal(got, want.numpy())


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("axes", "settings"),
    [(1, {"kernel_size": 2}), (2, {"kernel_size": (2, 3), "stride": (2, 3), "padding": (1, 1)}),
     (3, {"kernel_size": 2})],
)  # fmt: skip
def test_a_pool_and_what_undoes_it_equal_those_of_pytorch_to_second_order(axes, settings):
    sizes = (4, 9, 6)[:axes]

    def chain(namespace, x):
        y, indices = getattr(namespace, f"max_pool{axes}d")(x, **settings, return_indices=True)
        unpool = getattr(namespace, f"max_unpool{axes}d")
        return unpool(y * y, indices, **settings, output_size=sizes)

    compare(
        lambda x: chain(ag.ops, x),
        lambda torch, x: chain(torch.nn.functional, x),
        draw((2, 2, *sizes)),
    )


FRACTIONAL = [
    (2, (2, 3, 7, 9), {"kernel_size": (2, 3), "output_size": (4, 5)}),
    (2, (3, 6, 6), {"kernel_size": 2, "output_ratio": (0.7, 0.5)}),
    (2, (2, 2, 5, 4), {"kernel_size": 2, "output_size": (1, 3)}),
    (3, (2, 2, 6, 5, 7), {"kernel_size": 2, "output_size": (3, 3, 2)}),
    (3, (2, 5, 4, 6), {"kernel_size": (2, 1, 3), "output_ratio": (0.5, 0.6, 0.4)}),
]


@pytest.mark.oracle
@each("axes, shape, settings", FRACTIONAL)
def test_fractional_pool_equals_that_of_pytorch_to_second_order(axes, shape, settings):
    name = f"fractional_max_pool{axes}d"
    lead = (1, *shape)[-axes - 2 : -axes]
    samples = np.random.default_rng(1).random((*lead, axes))

    def theirs(torch, x):
        f = getattr(torch.nn.functional, name)
        return f(x, **settings, return_indices=True, _random_samples=torch.tensor(samples).to(x))

    def ours(x):
        f = getattr(ag.ops, name)
        return f(x, **settings, return_indices=True, _random_samples=samples)

    compare(lambda x: ours(x).y, lambda torch, x: theirs(torch, x)[0], draw(shape))
    torch = pytest.importorskip("torch")
    (value,) = draw(shape)
    x = ag.Graph().input("x", shape, "float64")
    (got,) = evaluate([ours(x).indices], {x: value})
    np.testing.assert_array_equal(got, theirs(torch, torch.tensor(value))[1].numpy())


def test_fractional_pool_draws_windows_for_each_channel_and_run_by_the_seed():
    def pooled(seed):
        graph = ag.Graph(seed=seed)
        x = graph.input("x", ("batch", 2, 30, 30))
        y = ag.ops.fractional_max_pool2d(x, 1, 9)
        with ag.TapeMachine([y]) as machine:
            return [machine.run_sync({"x": image})[y].value for _ in range(2)]

    image = np.broadcast_to(np.arange(900, dtype="float32").reshape(30, 30), (3, 2, 30, 30))
    first, second = pooled(0)
    assert first.shape == (3, 2, 9, 9)
    planes = first.reshape(6, -1)
    assert all((planes[0] != one).any() for one in planes[1:])
    assert (first != second).any()
    for again, one, other in zip(pooled(0), pooled(1), (first, second), strict=True):
        np.testing.assert_array_equal(again, other)
        assert (one != other).any()
    for along in (planes[0].reshape(9, 9)[0] % 30, planes[0].reshape(9, 9)[:, 0] // 30):
        assert set(np.diff(along[:-1])) == {3, 4}  # 29 / 8 apart
        assert along[-1] == 29  # the last window ends with the axis


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pools_of_many_blocks_equal_those_of_pytorch(name, monkeypatch):
    monkeypatch.setattr("actorgraph.ops._pooling._BLOCK", 100)  # two images of 42
    settings = {"kernel_size": 3, "stride": 2, "padding": 1}
    compare(*both(name, settings), draw((3, 3, 6, 7)))


@pytest.mark.oracle
def test_ties_of_a_max_pool_agree_with_pytorch():
    value = np.round(draw((2, 2, 7, 7))[0])
    compare(*both("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}), [value])


@each("width", [4, 6, 12])
@each("kernel", [1, 2, 3, (2, 3), (4, 1), 4])
@each("padding", [0, "half"])
def test_average_of_ones_is_one_for_every_kernel(kernel, width, padding):
    """Regression: Gorgonia divides by the width of the input instead of the kernel's area."""
    g = ag.Graph()
    x = g.input("x", (1, 2, 4, width), "float64")
    if padding == "half":
        padding = tuple(np.array(kernel) // 2 * np.ones(2, int))
    y = ag.ops.avg_pool2d(x, kernel, stride=1, padding=padding, count_include_pad=False)
    value, tangent = evaluate(
        [y, *tangents([y], {x: g.constant(np.ones(x.shape))})], {x: np.ones(x.shape)}
    )
    np.testing.assert_array_equal(value, np.ones(y.shape))
    np.testing.assert_array_equal(tangent, np.ones(y.shape))


def test_gradient_of_an_average_pool_is_one_over_the_kernels_area():
    """Regression: Gorgonia's gradient divides by the width of the input as well."""
    x = ag.Graph().input("x", (1, 1, 6, 6), "float64")
    (dx,) = ag.gradients(ag.ops.avg_pool2d(x, (2, 3)).sum(), [x])
    (value,) = evaluate(dx, {x: np.zeros((1, 1, 6, 6))})
    np.testing.assert_allclose(value, np.full((1, 1, 6, 6), 1 / 6), rtol=1e-15)


def test_explicit_padding_of_a_max_pool_starts_north_and_west():
    """Regression: Gorgonia's explicit padding starts from the south and the east."""
    x = ag.Graph().input("x", (1, 1, 2, 3), "float64")
    value = np.arange(6.0).reshape(1, 1, 2, 3)
    y = ag.ops.max_pool2d(x, 2, stride=1, padding=((1, 0), (1, 0)))
    (got,) = evaluate(y, {x: value})
    np.testing.assert_array_equal(got[0, 0], [[0, 1, 2], [3, 4, 5]])


def test_global_average_pool_has_a_gradient():
    """Regression: Gorgonia's has none."""
    x = ag.Graph().input("x", (2, 3, 4, 5), "float64")
    y = ag.ops.global_avg_pool(x)
    (dx,) = ag.gradients(y.sum(), [x])
    value, gradient = evaluate([y, dx], {x: np.ones(x.shape)})
    assert y.shape == (2, 3, 1, 1)
    np.testing.assert_allclose(value, 1)
    np.testing.assert_allclose(gradient, 1 / 20)


def test_global_max_pool_is_the_maximum_of_each_channel():
    x = ag.Graph().input("x", (2, 3, 4, 5), "float64")
    (value,) = draw(x.shape)
    (got,) = evaluate(ag.ops.global_max_pool(x), {x: value})
    np.testing.assert_array_equal(got, value.max((2, 3), keepdims=True))


def test_first_of_equal_entries_gets_the_gradient_and_nan_wins():
    x = ag.Graph().input("x", (1, 1, 6), "float64")
    y = ag.ops.max_pool1d(x, 3)
    nodes = [y, *ag.gradients(y.sum(), [x])]
    value, gradient = evaluate(nodes, {x: np.array([[[2, 2, 1, 0, np.nan, np.nan]]])})
    np.testing.assert_array_equal(value, [[[2, np.nan]]])
    np.testing.assert_array_equal(gradient, [[[1, 0, 0, 0, 1, 0]]])


def test_max_pool_of_integers_stays_integer():
    x = ag.Graph().input("x", (1, 1, 4), "int8")
    (value,) = evaluate(
        ag.ops.max_pool1d(x, 2, padding=1), {x: np.array([[[-9, -8, -7, -6]]], "i1")}
    )
    assert value.dtype == np.int8
    np.testing.assert_array_equal(value, [[[-9, -7, -6]]])


@each("ceil_mode", [False, True])
@each("dims", [("n", 2, "h", "w"), (None, 2, None, None)])
@each("name", ["max_pool2d", "avg_pool2d"])
def test_dims_that_only_a_run_knows_give_the_same_to_second_order(name, dims, ceil_mode):
    (value,) = draw((3, 2, 6, 7))
    results = []
    for shape in (dims, value.shape):
        x = ag.Graph().input("x", shape, "float64")
        y = getattr(ag.ops, name)(x, 3, stride=2, padding=1, ceil_mode=ceil_mode)
        (first,) = ag.gradients((y * y * y).sum(), [x])
        results.append(evaluate([y, first, *ag.gradients((first * first).sum(), [x])], {x: value}))
    for symbolic, fixed in zip(*results, strict=True):
        np.testing.assert_allclose(symbolic, fixed, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_same_padding_gives_size_over_stride_windows(size):
    x = ag.Graph().input("x", (1, 1, size), "float64")
    (value,) = draw(x.shape)
    for name in ("max_pool1d", "avg_pool1d"):
        (got,) = evaluate(getattr(ag.ops, name)(x, 3, stride=2, padding="same"), {x: value})
        assert got.shape == (1, 1, -(-size // 2))


def test_pools_keep_float32_and_take_empty_batches():
    x = ag.Graph().input("x", ("n", 1, 4, 4))
    pools = [ag.ops.max_pool2d(x, 2), ag.ops.avg_pool2d(x, 3, stride=1, padding=1)]
    nodes = pools + [ag.gradients(y.sum(), [x])[0] for y in pools]
    for batch in (0, 2):
        values = evaluate(nodes, {x: np.ones((batch, 1, 4, 4), "float32")})
        assert {value.dtype.name for value in values} == {"float32"}


@each(
    "name, shape, settings, text",
    [
        ("max_pool2d", (4, 4), {"kernel_size": 2}, "takes rank 3 or 4"),
        ("max_pool2d", (1, 4, 4), {"kernel_size": 3, "padding": 2}, "more than half of the kernel"),
        ("avg_pool2d", (1, 2, 4), {"kernel_size": 3}, "does not fit in size 2"),
        ("avg_pool1d", (1, 4), {"kernel_size": 0}, "kernel_size is one int >= 1"),
        ("max_pool1d", (1, 4), {"kernel_size": 2, "stride": (1, 1)}, "stride is one int"),
        ("fractional_max_pool2d", (4, 4), {"kernel_size": 2, "output_size": 2}, "takes rank 3 or"),
        ("fractional_max_pool2d", (1, 4, 4), {"kernel_size": 2, "output_size": 4}, "do not fit"),
        ("fractional_max_pool2d", (1, "n", 4), {"kernel_size": 2, "output_size": 2}, "to be ints"),
        ("global_avg_pool", (1, 4), {}, r"takes \(batch, channels, axes\)"),
    ],
)
def test_wrong_pools_are_explained(name, shape, settings, text):
    x = ag.Graph().input("x", shape)
    with pytest.raises(ShapeError, match=text):
        getattr(ag.ops, name)(x, **settings)


def test_averages_want_floats():
    with pytest.raises(GraphTypeError, match="int64 is not a float"):
        ag.ops.avg_pool1d(ag.Graph().input("x", (1, 4), "int64"), 2)
    with pytest.raises(GraphTypeError, match="either output_size or output_ratio"):
        ag.ops.fractional_max_pool2d(ag.Graph().input("x", (1, 4, 4)), 2)
