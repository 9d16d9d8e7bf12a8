"""Embedding, sparsemax and YOLO: against PyTorch or their definitions, regressions by name."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

INDEX = np.array([[1, 0, 3], [3, 3, 2]])


# -- embedding --------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("padding", [None, 3, -2])
def test_embedding_equals_that_of_pytorch_to_second_order(padding):
    def theirs(torch, w):
        rows = torch.nn.functional.embedding(torch.tensor(INDEX), w, padding)
        return rows * rows

    def ours(w):
        rows = ag.ops.embedding(INDEX, w, padding)
        return rows * rows

    compare(ours, theirs, draw((4, 2)), second=padding is None)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_an_index_out_of_range_raises_in_the_run(wrong):
    w = ag.Graph().input("w", (4, 2))
    with pytest.raises(IndexError, match="out of range for 4 classes"):
        evaluate(ag.ops.embedding(np.array([0, wrong]), w), {w: np.zeros((4, 2), "f4")})


def test_tables_of_unknown_length_have_gradients():
    w = ag.Graph().input("w", (None, 2), "float64")
    y = ag.ops.embedding(INDEX, w, 0)
    (gradient,) = evaluate(ag.gradients(y.sum(), [w]), {w: np.ones((5, 2))})
    np.testing.assert_array_equal(gradient[:, 0], [0, 1, 1, 3, 0])


def test_wrong_embeddings_are_explained():
    g = ag.Graph()
    w = g.input("w", (4, 2))
    with pytest.raises(ShapeError, match="padding_idx 4 is no entry of"):
        ag.ops.embedding(INDEX, w, 4)
    with pytest.raises(ShapeError, match="padding_idx -1 counts from an end not known yet"):
        ag.ops.embedding(INDEX, g.input("u", ("n", 2)), -1)
    with pytest.raises(GraphTypeError, match="float64 is not an integer"):
        ag.ops.embedding(INDEX * 1.0, w)


# -- sparsemax --------------------------------------------------------------------------------


def projection(z):
    """Return the projection of a vector on the simplex, by bisection for tau."""
    low, high = z.min() - 1, z.max()
    for _ in range(200):
        tau = (low + high) / 2
        low, high = (tau, high) if np.maximum(z - tau, 0).sum() > 1 else (low, tau)
    return np.maximum(z - low, 0)


@each("axis", [0, 1, 2, -1])
@each("scale", [0.1, 1, 1000])
def test_sparsemax_is_the_projection_on_the_simplex_along_any_axis(axis, scale):
    """Regression: Gorgonia's is right for the last axis only."""
    x = ag.Graph().input("x", (3, 4, 5), "float64")
    (value,) = draw(x.shape)
    (got,) = evaluate(ag.ops.sparsemax(x, axis), {x: value * scale})
    wanted = np.apply_along_axis(projection, axis, value * scale)
    np.testing.assert_allclose(got, wanted, atol=1e-12 * scale)
    np.testing.assert_allclose(got.sum(axis), 1, rtol=1e-12)


def test_sparsemax_of_different_axes_are_different_nodes():
    """Regression: Gorgonia leaves the axis out of the hash."""
    x = ag.Graph().input("x", (3, 3))
    assert ag.ops.sparsemax(x, 0) is not ag.ops.sparsemax(x, 1)


def test_gradient_of_sparsemax_is_centred_on_its_support():
    x = ag.Graph().input("x", (4,), "float64")
    seed = np.array([1.0, 5, 7, 100])
    y = ag.ops.sparsemax(x)
    value, gradient = evaluate(
        [y, *ag.gradients([y], [x], seeds=[seed])], {x: np.array([0.4, 0.3, 0.3, -3])}
    )
    np.testing.assert_allclose(value, [0.4, 0.3, 0.3, 0], atol=1e-15)
    np.testing.assert_allclose(gradient, [1 - 13 / 3, 5 - 13 / 3, 7 - 13 / 3, 0])


# -- YOLO -------------------------------------------------------------------------------------

ANCHORS = [(10, 13), (16, 30), (33, 23), (30, 61)]


def decoded(x, anchors, net_size, classes):
    """Decode cell by cell and anchor by anchor, by the definition."""
    _, _, height, width = x.shape
    fields = 5 + classes
    rows = []
    for cell_y in range(height):
        for cell_x in range(width):
            for number, (wide, high) in enumerate(anchors):
                t = x[:, number * fields : (number + 1) * fields, cell_y, cell_x]
                s = 1 / (1 + np.exp(-t))
                box = [
                    (s[:, 0] + cell_x) * net_size[1] / width,
                    (s[:, 1] + cell_y) * net_size[0] / height,
                    np.exp(t[:, 2]) * wide,
                    np.exp(t[:, 3]) * high,
                ]
                rows.append(np.concatenate([np.stack(box, 1), s[:, 4:]], 1))
    return np.stack(rows, 1)


@each("mask", [None, [0, 1], [3, 1], [2]])
@each("net_size", [32, (32, 48)])
def test_yolo_decode_uses_the_anchors_that_the_mask_names(mask, net_size):
    """Regression: Gorgonia takes the first anchors, whatever the mask says."""
    chosen = ANCHORS if mask is None else [ANCHORS[i] for i in mask]
    x = ag.Graph().input("x", ("batch", len(chosen) * 7, 2, 3), "float64")
    (value,) = draw((2, len(chosen) * 7, 2, 3))
    y = ag.ops.yolo_decode(x, ANCHORS, net_size, 2, mask)
    got, gradient = evaluate([y, *ag.gradients(y.sum(), [x])], {x: value})
    sizes = net_size if isinstance(net_size, tuple) else (net_size, net_size)
    np.testing.assert_allclose(got, decoded(value, chosen, sizes, 2), rtol=1e-12)
    assert gradient.shape == value.shape


def test_yolo_decode_keeps_float32_and_has_a_gradient_by_differences():
    g = ag.Graph()
    narrow = g.input("narrow", (1, 12, 1, 2))
    assert ag.ops.yolo_decode(narrow, ANCHORS, 8, 1, [0, 1]).dtype == "float32"
    x = g.input("x", (1, 12, 1, 2), "float64")
    (value,) = draw(x.shape)
    y = ag.ops.yolo_decode(x, ANCHORS, 8, 1, [0, 1])
    direction = np.random.default_rng(0).normal(size=x.shape)
    (gradient,) = evaluate(ag.gradients((y * y).sum(), [x]), {x: value})
    ahead, behind = ((evaluate(y, {x: value + s * direction})[0] ** 2).sum() for s in (1e-6, -1e-6))
    assert (gradient * direction).sum() == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)


def decoded_by_pytorch(torch, x, anchors, net_size):
    """Decode by PyTorch's ops, with strides of the two sizes."""
    batch, _, height, width = x.shape
    t = x.reshape(batch, len(anchors), -1, height, width).permute(0, 3, 4, 1, 2)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    cells = torch.stack([columns, rows], -1)[:, :, None]
    strides = torch.tensor([net_size[1] / width, net_size[0] / height], dtype=x.dtype)
    centre = (t[..., :2].sigmoid() + cells) * strides
    sizes = t[..., 2:4].exp() * torch.tensor(anchors, dtype=x.dtype)
    return torch.cat([centre, sizes, t[..., 4:].sigmoid()], -1).reshape(batch, -1, t.shape[-1])


@pytest.mark.oracle
@pytest.mark.parametrize("mask", [None, [3, 1]])
def test_yolo_decode_agrees_with_pytorch_to_second_order(mask):
    chosen = ANCHORS if mask is None else [ANCHORS[i] for i in mask]
    compare(
        lambda x: ag.ops.yolo_decode(x, ANCHORS, (32, 48), 2, mask),
        lambda torch, x: decoded_by_pytorch(torch, x, chosen, (32, 48)),
        draw((2, len(chosen) * 7, 2, 3)),
    )


def test_tangents_of_yolo_decode_are_adjoint_to_its_gradient():
    g = ag.Graph()
    x, v = (g.input(name, (1, 12, 2, 2), "float64") for name in "xv")
    y = ag.ops.yolo_decode(x, ANCHORS, 8, 1, [0, 1])
    value, direction = draw(x.shape, x.shape)
    seed = np.random.default_rng(1).normal(size=y.shape)
    nodes = [*ag.gradients([y], [x], seeds=[seed]), *tangents([y], {x: v})]
    pulled, pushed = evaluate(nodes, {x: value, v: direction})
    assert np.vdot(seed, pushed) == pytest.approx(np.vdot(pulled, direction), rel=1e-12)


@each(
    "shape, anchors, mask, error, text",
    [
        ((1, 13, 2, 2), ANCHORS, [0, 1], ShapeError, "2 anchors and 1 classes need 12 channels"),
        ((1, 12, 2), ANCHORS, [0, 1], ShapeError, "takes .batch, channels, height, width."),
        ((1, 12, "h", 2), ANCHORS, [0, 1], ShapeError, "all but the batch known"),
        ((1, 12, 2, 2), ANCHORS, [0, 4], GraphTypeError, r"mask \[0, 4\] names none of 4 anchors"),
        ((1, 12, 2, 2), [1, 2], None, GraphTypeError, "anchors are pairs"),
    ],
)
def test_wrong_yolo_heads_are_explained(shape, anchors, mask, error, text):
    x = ag.Graph().input("x", shape)
    with pytest.raises(error, match=text):
        ag.ops.yolo_decode(x, anchors, 8, 1, mask)


def test_settings_of_yolo_are_part_of_a_nodes_identity():
    """Regression: Gorgonia's hash leaves out everything but the anchors."""
    x = ag.Graph().input("x", (1, 12, 2, 2))
    settings = [(8, 1, [0, 1]), (16, 1, [0, 1]), (8, 1, [1, 0])]
    assert len({ag.ops.yolo_decode(x, ANCHORS, *more) for more in settings}) == 3
