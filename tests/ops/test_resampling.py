"""Upsampling, adaptive pools and pixel shuffle: against PyTorch to second order, dims, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

SHAPES = {1: (2, 3, 7), 2: (2, 2, 5, 7), 3: (2, 2, 3, 5, 4)}


@pytest.mark.oracle
@each("kind", ["avg", "max"])
@each(
    "axes, size",
    [
        (1, 3),
        (1, 7),
        (1, 9),
        (1, 1),
        (2, (3, 4)),
        (2, 1),
        (2, (None, 8)),
        (2, 5),
        (3, (2, 5, 3)),
        (3, 2),
    ],
)
def test_adaptive_pool_equals_that_of_pytorch_to_second_order(kind, axes, size):
    name = f"adaptive_{kind}_pool{axes}d"
    compare(
        lambda x: getattr(ag.ops, name)(x, size),
        lambda torch, x: getattr(torch.nn.functional, name)(x, size),
        draw(SHAPES[axes]),
    )


@pytest.mark.oracle
@each(
    "shape, size, mode, corners",
    [
        ((2, 3, 4), 8, "nearest", None),
        ((2, 3, 7), 3, "nearest", None),
        ((1, 2, 3, 4), (6, 12), "nearest", None),
        ((2, 3, 4), 7, "linear", False),
        ((2, 3, 4), 7, "linear", True),
        ((2, 3, 4), 1, "linear", True),
        ((1, 2, 3, 4), (6, 8), "bilinear", False),
        ((1, 2, 3, 4), (6, 8), "bilinear", True),
        ((1, 2, 5, 7), (3, 4), "bilinear", False),
        ((1, 2, 5, 7), (3, 4), "bilinear", True),
        ((1, 1, 2, 3, 2), (4, 5, 3), "trilinear", False),
        ((1, 1, 2, 3, 2), (4, 5, 3), "trilinear", True),
        ((2, 3, 7), 3, "nearest-exact", None),
        ((1, 2, 3, 4), (5, 11), "nearest-exact", None),
        ((1, 2, 5, 7), (3, 9), "area", None),
        ((1, 2, 3, 4), (7, 8), "bicubic", False),
        ((1, 2, 3, 4), (7, 8), "bicubic", True),
        ((1, 2, 5, 7), (3, 4), "bicubic", False),
    ],
)
def test_upsampling_equals_that_of_pytorch_to_second_order(shape, size, mode, corners):
    compare(
        lambda x: ag.ops.upsample(x, size, mode=mode, align_corners=bool(corners)),
        lambda torch, x: torch.nn.functional.interpolate(x, size, mode=mode, align_corners=corners),
        draw(shape),
    )


@pytest.mark.oracle
@each("mode", ["bilinear", "bicubic"])
@each("corners", [False, True])
@each("size", [(3, 4), (12, 5), (5, 7)])
def test_antialiasing_equals_that_of_pytorch(mode, corners, size):
    options = {"mode": mode, "align_corners": corners, "antialias": True}
    compare(
        lambda x: ag.ops.interpolate(x, size, **options),
        lambda torch, x: torch.nn.functional.interpolate(x, size, **options),
        draw((2, 2, 5, 7)),
        second=False,
    )


@pytest.mark.oracle
@each("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@each("scale", [1.7, (0.6, 2.3), (1.2, 2)])
@each("again", [None, True])
def test_factors_that_are_no_integers_equal_those_of_pytorch(mode, scale, again):
    options = {"mode": mode, "scale_factor": scale, "recompute_scale_factor": again}
    compare(
        lambda x: ag.ops.interpolate(x, **options),
        lambda torch, x: torch.nn.functional.interpolate(x, **options),
        draw((2, 2, 5, 7)),
    )


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_nearest_upsampling_repeats_each_entry_and_its_gradient_sums_blocks(scale):
    x = ag.Graph().input("x", (1, 1, 2, 2), "float32")
    y = ag.ops.upsample(x, scale_factor=scale)
    value = np.arange(4, dtype="f4").reshape(1, 1, 2, 2)
    got, gradient = evaluate([y, *ag.gradients(y.sum(), [x])], {x: value})
    np.testing.assert_array_equal(got, value.repeat(scale, 2).repeat(scale, 3))
    np.testing.assert_array_equal(gradient, np.full_like(value, scale**2))


def test_an_infinite_entry_stays_in_its_windows():
    x = ag.Graph().input("x", (1, 1, 6), "float64")
    value = np.array([[[1, 2, 3, 4, 5, np.inf]]])
    got = evaluate([ag.ops.adaptive_avg_pool1d(x, 3), ag.ops.upsample(x, 12)], {x: value})
    np.testing.assert_array_equal(got[0], [[[1.5, 3.5, np.inf]]])
    np.testing.assert_array_equal(got[1], value.repeat(2, 2))


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(2, 8, 2, 3), (8, 2, 3), (1, 18, 1, 2)])
def test_pixel_shuffle_equals_that_of_pytorch_and_unshuffle_undoes_it(shape):
    factor = 3 if 18 in shape else 2
    compare(
        lambda x: ag.ops.pixel_shuffle(x, factor),
        lambda torch, x: torch.nn.functional.pixel_shuffle(x, factor),
        draw(shape),
    )
    compare(
        lambda x: ag.ops.pixel_unshuffle(ag.ops.pixel_shuffle(x, factor), factor) * x,
        lambda torch, x: x * x,
        draw(shape),
    )


@pytest.mark.parametrize("dims", [("n", 4, "h", "w"), (None, 4, None, None)])
def test_sizes_that_only_a_run_knows_give_the_same_to_second_order(dims):
    (value,) = draw((3, 4, 5, 6))
    results = []
    for shape in (dims, value.shape):
        x = ag.Graph().input("x", shape, "float64")
        outputs = [
            ag.ops.adaptive_avg_pool2d(x, 2), ag.ops.adaptive_max_pool2d(x, 4),
            ag.ops.upsample(x, (7, 8), mode="bilinear"), ag.ops.pixel_shuffle(x, 2),
        ]  # fmt: skip
        total = sum((y * y * y).sum() for y in outputs)
        (first,) = ag.gradients(total, [x])
        results.append(
            evaluate([total, first, *ag.gradients((first * first).sum(), [x])], {x: value})
        )
    for symbolic, fixed in zip(*results, strict=True):
        np.testing.assert_allclose(symbolic, fixed, rtol=1e-10)


def test_scaled_sizes_may_be_symbolic():
    x = ag.Graph().input("x", (1, 1, "h", "w"))
    y = ag.ops.upsample(x, scale_factor=(2, 3), mode="bilinear")
    assert [str(dim) for dim in y.shape] == ["1", "1", "2*h", "3*w"]


def test_dtypes_stay():
    g = ag.Graph()
    x, i = g.input("x", (1, 4, 3, 3)), g.input("i", (1, 4, 3, 3), "int8")
    value = np.ones(x.shape, "f4")
    nodes = [
        ag.ops.adaptive_avg_pool2d(x, 2), ag.ops.upsample(x, 4, mode="bilinear"),
        *ag.gradients(ag.ops.upsample(x, 4, mode="bilinear").sum(), [x]),
    ]  # fmt: skip
    assert {got.dtype.name for got in evaluate(nodes, {x: value})} == {"float32"}
    ints = [ag.ops.adaptive_max_pool2d(i, 2), ag.ops.pixel_shuffle(i, 2)]
    assert {got.dtype.name for got in evaluate(ints, {i: value.astype("i1")})} == {"int8"}


@each(
    ("name", "shape", "arguments", "error", "text"),
    [
        ("adaptive_avg_pool2d", (4, 4), (2,), ShapeError, "takes rank 3 or 4"),
        ("adaptive_avg_pool2d", (1, 4, 4), ((1, 2, 3),), ShapeError, "one int or 2 of them"),
        ("adaptive_max_pool1d", (1, 4), (0,), ShapeError, "output_size is one int >= 1"),
        ("adaptive_max_pool1d", (1, 0), (1,), ShapeError, "no entries to choose from"),
        ("adaptive_avg_pool1d", (1, None), (None,), ShapeError, "only a run knows the dim"),
        ("upsample", (1, 1, 4), (8, None, "bilinear"), GraphTypeError, "mode 'bilinear' does not"),
        ("upsample", (1, 1, 4), (8, None, "nearest", True), GraphTypeError, "no meaning"),
        ("upsample", (1, 1, 4), (), GraphTypeError, "takes one of size"),
        ("upsample", (1, 1, 4), (8, 2), GraphTypeError, "takes one of size"),
        ("upsample", (1, 1, 4), (0,), ShapeError, "sizes above 0 have to be known"),
        ("pixel_shuffle", (1, 6, 2, 2), (2,), ShapeError, "no known multiple of 4"),
        ("pixel_shuffle", (4, 2), (2,), ShapeError, "rank 3 or more"),
        ("pixel_unshuffle", (1, 3, 2), (2,), ShapeError, "size 3 is no known multiple of 2"),
    ],
)
def test_wrong_resampling_is_explained(name, shape, arguments, error, text):
    x = ag.Graph().input("x", shape)
    with pytest.raises(error, match=text):
        getattr(ag.ops, name)(x, *arguments)


@pytest.mark.parametrize("shape", [(2, 0, 2, 2), (0, 4, 0, 2)])
def test_pixels_are_shuffled_where_there_are_none(shape):
    n, c, h, w = shape
    x = ag.Graph().input("x", shape, "float32")
    y = ag.ops.pixel_shuffle(x, 2)
    assert y.shape == (n, c // 4, 2 * h, 2 * w)
    assert ag.ops.pixel_unshuffle(y, 2).shape == shape
    for node in (y, *ag.gradients((y * y).sum(), [x])):
        assert evaluate([node], {x: np.zeros(shape, "float32")})[0].shape == node.shape
