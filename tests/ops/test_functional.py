"""Ops of PyTorch's functional namespace that are made of others: against PyTorch, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

INTS = np.random.default_rng(3).integers(0, 3, (2, 3))
SIGNS = np.array([1.0, -1.0, 1.0])
THETA = ((2, 2, 3),)

# Name, shapes that are drawn, options; a tensor in the options is an array on both sides.
ROWS = [
    ("linear", ((2, 3), (4, 3), (4,)), {}),
    ("linear", ((3,), (3,)), {}),
    ("bilinear", ((2, 3), (2, 4), (5, 3, 4), (5,)), {}),
    ("linear_cross_entropy", ((3, 4), (5, 4)), {"target": np.array([4, 0, 1]),
                                                "reduction": "none"}),
    ("glu", ((3, 4),), {}),
    ("glu", ((4, 3),), {"dim": 0}),
    ("softmin", ((3, 4),), {"dim": 0}),
    ("softplus", ((3, 4),), {"beta": 3.0, "threshold": 2.0}),
    ("softplus", ((3, 4),), {"beta": 0.5}),
    ("rrelu", ((3, 4),), {"lower": 0.1, "upper": 0.5}),
    ("prelu", ((), (1,)), {}),
    ("normalize", ((3, 4),), {"p": 3.0, "dim": 0}),
    ("pairwise_distance", ((3, 4), (3, 4)), {"p": 3.0}),
    ("pairwise_distance", ((3, 4), (1, 4)), {"keepdim": True}),
    ("pdist", ((4, 3),), {}),
    ("pdist", ((4, 3),), {"p": 1.0}),
    ("unfold", ((2, 3, 5, 4),), {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1}),
    ("unfold", ((3, 5, 4),), {"kernel_size": 2, "stride": (1, 2)}),
    ("fold", ((2, 12, 6),), {"output_size": (4, 5), "kernel_size": 2, "stride": (2, 1),
                             "padding": (0, 0), "dilation": (1, 2)}),
    ("fold", ((8, 9),), {"output_size": 4, "kernel_size": 2}),
    ("channel_shuffle", ((2, 6, 3),), {"groups": 3}),
    ("channel_shuffle", ((1, 4, 2, 2),), {"groups": 2}),
    ("affine_grid", THETA, {"size": (2, 1, 3, 4), "align_corners": True}),
    ("affine_grid", THETA, {"size": (2, 1, 1, 4), "align_corners": False}),
    ("affine_grid", ((2, 3, 4),), {"size": (2, 1, 2, 3, 2), "align_corners": False}),
    ("margin_ranking_loss", ((3,), (3,)), {"target": SIGNS, "margin": 0.3}),
    ("soft_margin_loss", ((3,),), {"target": SIGNS, "reduction": "sum"}),
    ("hinge_embedding_loss", ((3,),), {"target": SIGNS, "margin": 1.5}),
    ("cosine_embedding_loss", ((3, 4), (3, 4)), {"target": SIGNS, "margin": -0.9}),
    ("multilabel_soft_margin_loss", ((2, 3), (2, 3)), {"reduction": "none"}),
    ("multilabel_soft_margin_loss", ((2, 3), (2, 3)), {"weight": np.array([0.3, 2, 1])}),
    ("multi_margin_loss", ((3, 4),), {"target": np.array([2, 0, 3]), "margin": 3.0}),
    ("multi_margin_loss", ((3, 4),), {"target": np.array([2, 0, 3]), "p": 2,
                                      "weight": np.array([0.3, 2, 1, 3])}),
    ("multi_margin_loss", ((4,),), {"target": np.array(2), "reduction": "none"}),
    ("multilabel_margin_loss", ((2, 4),), {"target": np.array([[3, 0, -1, 1], [2, -1, 0, 0]])}),
    ("multilabel_margin_loss", ((4,),), {"target": np.array([3, 0, 1, 2])}),
    ("poisson_nll_loss", ((3, 4), (3, 4)), {"low": 0.2, "full": True}),
    ("poisson_nll_loss", ((3, 4), (3, 4)), {"low": 0.2, "log_input": False, "reduction": "sum"}),
    ("gaussian_nll_loss", ((3, 4), (3, 4), (3, 4)), {"low": 0.2, "full": True}),
    ("gaussian_nll_loss", ((3, 4), (3, 4), (3,)), {"low": 0.2, "reduction": "none"}),
    ("triplet_margin_with_distance_loss", ((3, 4),) * 3, {"swap": True, "margin": 3.0}),
    ("max_unpool1d", ((2, 3, 2),), {"indices": np.array([[[3, 1], [0, 4], [2, 1]]] * 2),
                                    "kernel_size": 2, "output_size": (5,)}),
    ("max_unpool2d", ((2, 2, 2),), {"indices": np.array([[[0, 3], [8, 10]], [[5, 2], [12, 15]]]),
                                    "kernel_size": 2}),
    ("lp_pool1d", ((2, 3, 6),), {"norm_type": 3.0, "kernel_size": 2, "low": 0.1}),
    ("lp_pool2d", ((2, 5, 6),), {"norm_type": 2.0, "kernel_size": 3, "stride": 1}),
    ("lp_pool3d", ((2, 4, 5, 4),), {"norm_type": 2.0, "kernel_size": (1, 2, 2),
                                    "ceil_mode": True}),
]  # fmt: skip
OTHER_NAMES = {"dim": "axis", "keepdim": "keepdims", "target": "targets"}


def fitted(options, dtype):
    """Return options with arrays of floats in a dtype."""
    return {
        key: value.astype(dtype) if getattr(value, "dtype", None) == "float64" else value
        for key, value in options.items()
    }


def of_torch(torch, options, dtype="float64"):
    options = fitted(options, dtype)
    return {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}


@pytest.mark.oracle
@each("name, shapes, options", ROWS)
def test_functions_equal_those_of_pytorch_to_second_order(name, shapes, options):
    low = options.get("low", -2.0)
    options = {key: value for key, value in options.items() if key != "low"}
    once = ("pdist", "multi_margin_loss", "multilabel_margin_loss")  # in PyTorch
    mine = {OTHER_NAMES.get(key, key): value for key, value in options.items()}
    compare(
        lambda *xs: getattr(ag.ops, name)(*xs, **fitted(mine, xs[0].dtype)),
        lambda torch, *xs: getattr(torch.nn.functional, name)(
            *xs, **of_torch(torch, options, str(xs[0].dtype).removeprefix("torch."))
        ),
        draw(*shapes, low=low),
        second=name not in once,
    )


@pytest.mark.oracle
@pytest.mark.parametrize("p", [2.0, 1.0, 3.0])
def test_distances_of_all_rows_equal_those_of_pytorch(p):
    compare(
        lambda x, y: ag.ops.cdist(x, y, p),
        lambda torch, x, y: torch.cdist(x, y, p),
        draw((2, 3, 4), (2, 5, 4)),
        second=False,
    )


# -- grids ------------------------------------------------------------------------------------


@pytest.mark.oracle
@each("corners", [False, True])
@each("padding", ["zeros", "border", "reflection"])
@each("mode, axes", [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3),
                       ("nearest", 3)])  # fmt: skip
def test_grid_sample_equals_that_of_pytorch_to_second_order(mode, axes, padding, corners):
    options = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    sizes = (4, 3, 5)[:axes]
    values = draw((2, 2, *sizes), (2, 3, *(2,) * (axes - 1), axes), low=-1.7, high=1.7)
    if mode == "nearest":  # PyTorch has a gradient of zeros by the grid, and none of second order
        image, grid = values

        def theirs(torch, x):
            return torch.nn.functional.grid_sample(x, torch.tensor(grid, dtype=x.dtype), **options)

        compare(lambda x: ag.ops.grid_sample(x, grid.astype(x.dtype), **options), theirs, [image])
        return
    compare(
        lambda *xs: ag.ops.grid_sample(*xs, **options),
        lambda torch, *xs: torch.nn.functional.grid_sample(*xs, **options),
        values,
        second=axes == 2 and mode == "bilinear",
    )


def test_the_grid_of_the_identity_gives_the_image_itself():
    x = ag.Graph().input("x", ("n", 2, 4, 5), "float64")
    theta = np.array([[[1.0, 0, 0], [0, 1, 0]]] * 3)
    (value,) = draw((3, 2, 4, 5))
    for corners in (False, True):
        grid = ag.ops.affine_grid(x.graph.constant(theta), (3, 2, 4, 5), align_corners=corners)
        for mode in ("bilinear", "nearest", "bicubic"):
            y = ag.ops.grid_sample(x, grid, mode, align_corners=corners)
            np.testing.assert_allclose(evaluate(y, {x: value})[0], value, rtol=1e-12)


# -- bags -------------------------------------------------------------------------------------


@pytest.mark.oracle
@each("mode", ["sum", "mean", "max"])
@each("padding", [None, 0, -1])
@each("offsets", [None, [0, 2, 2, 5]])
@each("last", [False, True])
def test_embedding_bag_equals_that_of_pytorch(mode, padding, offsets, last):
    index = np.random.default_rng(0).integers(0, 4, (3, 2) if offsets is None else 5)
    options = {"mode": mode, "padding_idx": padding, "include_last_offset": last and bool(offsets)}
    starts = None if offsets is None else np.array(offsets)
    compare(
        lambda w: ag.ops.embedding_bag(index, w, starts, **options),
        lambda torch, w: torch.nn.functional.embedding_bag(
            torch.tensor(index), w, None if starts is None else torch.tensor(starts), **options
        ),
        draw((4, 3)),
        second=False,
    )


@pytest.mark.oracle
def test_weighted_bags_equal_those_of_pytorch():
    index = np.array([[1, 2, 0], [3, 3, 1]])
    compare(
        lambda w, f: ag.ops.embedding_bag(index, w, mode="sum", per_sample_weights=f),
        lambda torch, w, f: torch.nn.functional.embedding_bag(
            torch.tensor(index), w, mode="sum", per_sample_weights=f
        ),
        draw((4, 3), (2, 3)),
        second=False,
    )


# -- noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"])
def test_whole_channels_are_dropped(name):
    axes = int(name[-2]) if name[-2].isdigit() else 2
    x = ag.Graph().input("x", ("n", 40, *(3,) * axes), "float64")
    y = getattr(ag.ops, name)(x, 0.4, training=True)
    with ag.TapeMachine([y]) as machine:
        value = machine.run_sync({"x": np.ones((2, 40, *(3,) * axes))})[y].value
    flat = value.reshape(80, -1)
    np.testing.assert_array_equal(flat, flat[:, :1] * np.ones_like(flat))
    assert len(np.unique(flat)) == 2
    assert 10 < (flat[:, 0] == flat[:, 0].min()).sum() < 54


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name):
    x = ag.Graph().input("x", (200, 200, 1), "float64")
    y = getattr(ag.ops, name)(x, 0.3, training=True)
    value = np.random.default_rng(0).normal(size=(200, 200, 1))
    with ag.TapeMachine([y]) as machine:
        got = machine.run_sync({"x": value})[y].value
    assert abs(got.mean()) < 0.03
    assert abs(got.std() - 1) < 0.03


def test_slopes_are_drawn_in_training_and_the_middle_else():
    x = ag.Graph().input("x", ("n",), "float64")
    drawn, fixed = ag.ops.rrelu(x, 0.2, 0.4, training=True), ag.ops.rrelu(x, 0.2, 0.4)
    with ag.TapeMachine([drawn, fixed]) as machine:
        run = machine.run_sync({"x": -np.ones(1000)})
    slopes = -run[drawn].value
    assert 0.2 <= slopes.min() < 0.21 < 0.39 < slopes.max() < 0.4
    np.testing.assert_allclose(run[fixed].value, -0.3)


def test_gumbel_softmax_draws_with_the_probabilities_of_softmax():
    logits = np.log(np.array([0.1, 0.6, 0.3], "f4")) + np.zeros((4000, 1), "f4")
    x = ag.Graph().input("x", ("n", 3))
    y = ag.ops.gumbel_softmax(x, 0.1)
    with ag.TapeMachine([y]) as machine:
        value = machine.run_sync({"x": logits})[y].value
    np.testing.assert_allclose(value.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose((value > 0.5).mean(0), [0.1, 0.6, 0.3], atol=0.03)


# -- errors -----------------------------------------------------------------------------------


@each(
    ("name", "shapes", "options", "error", "text"),
    [
        ("grid_sample", ((1, 1, 3, 3), (1, 2, 2, 3)), {}, ShapeError, "a grid .* does not fit"),
        ("grid_sample", ((1, 1, 3, "w"), (1, 2, 2, 2)), {}, ShapeError, "have to be known"),
        ("grid_sample", ((1, 1, 3, 3), (1, 2, 2, 2)), {"mode": "linear"}, GraphTypeError,
         "mode is one of .* got 'linear'"),
        ("affine_grid", ((1, 2, 2),), {"size": (1, 1, 3, 3)}, ShapeError, "does not fit images"),
        ("unfold", ((2, 3),), {"kernel_size": 2}, ShapeError, "unfold takes rank 3 or 4"),
        ("fold", ((3,),), {"output_size": 4, "kernel_size": 2}, ShapeError, "takes rank 2 or 3"),
        ("fold", ((4, 7),), {"output_size": 4, "kernel_size": 2}, ShapeError, "reshape"),
        ("channel_shuffle", ((1, 5, 2),), {"groups": 2}, ShapeError, "no known multiple of 2"),
        ("pdist", (("n", 2),), {}, ShapeError, "a known number of rows"),
        ("dropout2d", ((2, 3),), {}, ShapeError, "takes rank 3 or 4"),
        ("max_unpool1d", ((1, None),), {"indices": INTS, "kernel_size": 2}, ShapeError,
         "sizes have to be known"),
        ("avg_pool1d", ((1, 4),), {"kernel_size": 2, "divisor_override": 0}, GraphTypeError,
         "divisor_override must not be 0"),
        ("multi_margin_loss", ((2, 3),), {"targets": INTS, "p": 3}, GraphTypeError, "p is 1 or 2"),
        ("interpolate", ((1, 1, 4),), {"scale_factor": -1.0}, ShapeError, "a number above 0"),
        ("interpolate", ((1, 1, "n"),), {"scale_factor": 1.5}, ShapeError, "needs a known size"),
        ("interpolate", ((1, 1, 4),), {"size": 2, "antialias": True}, GraphTypeError,
         "antialias has no meaning"),
    ],
)  # fmt: skip
def test_wrong_calls_are_explained(name, shapes, options, error, text):
    graph = ag.Graph()
    xs = [graph.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(error, match=text):
        getattr(ag.ops, name)(*xs, **options)


def test_wrong_bags_are_explained():
    w = ag.Graph().input("w", (4, 3))
    with pytest.raises(GraphTypeError, match="'sum' with weights, got 'mean'"):
        ag.ops.embedding_bag(INTS, w, per_sample_weights=np.ones((2, 3), "f4"))
    with pytest.raises(ShapeError, match="takes a matrix, or a vector with offsets"):
        ag.ops.embedding_bag(np.array([1, 2]), w)
