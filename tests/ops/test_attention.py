"""Scaled dot-product attention: against PyTorch, masked rows, symbolic dims, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

SHAPES = ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2))
attention = ag.ops.scaled_dot_product_attention


def theirs(torch, *tensors, **settings):
    return torch.nn.functional.scaled_dot_product_attention(*tensors, **settings)


@pytest.mark.oracle
@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"scale": 0.7}], ids=str)
def test_attention_equals_that_of_pytorch_to_second_order(settings):
    compare(
        lambda *xs: attention(*xs, **settings),
        lambda torch, *xs: theirs(torch, *xs, **settings),
        draw(*SHAPES),
    )


@pytest.mark.oracle
def test_masks_equal_those_of_pytorch_to_second_order():
    seen = np.random.default_rng(0).integers(0, 2, (3, 4, 6)).astype(bool)
    seen[..., 0] = True

    compare(
        lambda *xs: attention(*xs, mask=seen),
        lambda torch, *xs: theirs(torch, *xs, attn_mask=torch.tensor(seen)),
        draw(*SHAPES),
    )
    compare(
        lambda q, k, v, m: attention(q, k, v, m),
        lambda torch, q, k, v, m: theirs(torch, q, k, v, attn_mask=m),
        draw(*SHAPES, (4, 6)),
    )


def test_a_query_that_sees_no_key_gets_zeros_and_no_gradient():
    g = ag.Graph()
    x = g.input("x", (2, 3), "float64")
    seen = np.array([[False, False], [True, True]])
    y = attention(x, x.graph.constant(np.ones((2, 3))), np.ones((2, 3)) * 2, mask=seen)

    value, gradient = evaluate([y, *ag.gradients((y * y).sum(), [x])], {x: np.ones((2, 3))})

    np.testing.assert_array_equal(value[0], 0)
    np.testing.assert_allclose(value[1], 2)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[0], 0)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_large_scores_neither_overflow_nor_change_the_dtype(dtype):
    x = ag.Graph().input("x", (3, 4), dtype)
    value = np.eye(3, 4).astype(dtype) * 100

    (got,) = evaluate(attention(x, x, x, is_causal=True), {x: value})

    assert got.dtype == dtype
    np.testing.assert_allclose(got, value)


def test_causal_mask_and_bool_mask_hold_together():
    g = ag.Graph()
    x = g.input("x", (3, 2), "float64")
    (value,) = draw((3, 2))
    seen = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1]], bool)

    both, one = (
        evaluate(attention(x, x, x, mask=mask, is_causal=causal), {x: value})
        for mask, causal in ((seen, True), (seen & np.tri(3, dtype=bool), False))
    )

    np.testing.assert_array_equal(both, one)


@pytest.mark.parametrize("dims", [("batch", "length", 4), (None, None, 4)])
def test_lengths_may_be_known_only_in_a_run(dims):
    (value,) = draw((2, 3, 4))
    results = []
    for shape in (dims, value.shape):
        x = ag.Graph().input("x", shape, "float64")
        y = attention(x, x, x, is_causal=True)
        (first,) = ag.gradients((y * y).sum(), [x])
        results.append(evaluate([y, first, *ag.gradients((first * first).sum(), [x])], {x: value}))

    for symbolic, fixed in zip(*results, strict=True):
        np.testing.assert_allclose(symbolic, fixed, rtol=1e-10)


def test_wrong_attention_is_explained():
    g = ag.Graph()
    x, free = g.input("x", (3, 4)), g.input("free", (3, "n"))

    with pytest.raises(ShapeError, match="takes rank 2 or more"):
        attention(g.input("v", (3,)), x, x)
    with pytest.raises(GraphTypeError, match="only a run knows the features .* give scale"):
        attention(free, free, free)
    with pytest.raises(GraphTypeError, match="add: mixed dtypes"):
        attention(x, x, x, mask=np.zeros((3, 3)))
