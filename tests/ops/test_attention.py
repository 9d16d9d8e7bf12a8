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
    x = ag.Graph().input("x", (2, 3), "float64")
    seen = np.array([[False, False], [True, True]])
    y = attention(x, x.graph.constant(np.ones((2, 3))), np.ones((2, 3)) * 2, mask=seen)
    value, gradient = evaluate([y, *ag.gradients((y * y).sum(), [x])], {x: np.ones((2, 3))})
    np.testing.assert_array_equal(value[0], 0)
    np.testing.assert_allclose(value[1], 2)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[0], 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_query_whose_keys_a_float_mask_hides_gets_zeros_and_no_gradient(dtype):
    g = ag.Graph()
    x, m = g.input("x", (2, 3), dtype), g.input("m", (2, 2), dtype)
    y = attention(x, x.graph.constant(np.ones((2, 3)), dtype=dtype), x, m)
    feeds = {x: np.ones((2, 3)).astype(x.dtype),
             m: np.array([[-np.inf, -np.inf], [-np.inf, 0.5]]).astype(x.dtype)}  # fmt: skip
    value, *gradients = evaluate([y, *ag.gradients((y * y).sum(), [x, m])], feeds)
    np.testing.assert_array_equal(value.astype("f8"), [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(gradients[0].astype("f8"), [[0, 0, 0], [2, 2, 2]])
    np.testing.assert_array_equal(gradients[1].astype("f8"), np.zeros((2, 2)))


@pytest.mark.oracle
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_two_bytes_lose_no_more_than_in_pytorch(dtype, masked):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    halves = [torch.tensor(rng.normal(size=(4, 64, 32))).to(getattr(torch, dtype))
              for _ in range(3)]  # fmt: skip
    if masked:
        halves.append(torch.tensor(rng.normal(size=(64, 64))).to(halves[0].dtype))
    exact = theirs(torch, *(one.double() for one in halves)).numpy()
    given = theirs(torch, *halves).double().numpy()
    g = ag.Graph()
    xs = [g.input(f"x{i}", tuple(one.shape), dtype) for i, one in enumerate(halves)]
    feeds = {x: one.double().numpy().astype(x.dtype) for x, one in zip(xs, halves, strict=True)}
    (got,) = evaluate(attention(*xs), feeds)
    assert np.abs(got.astype("f8") - exact).mean() <= 1.01 * np.abs(given - exact).mean()


@pytest.mark.oracle
def test_heads_of_queries_may_share_heads_of_keys_as_in_pytorch():
    compare(
        lambda *xs: attention(*xs, enable_gqa=True),
        lambda torch, *xs: theirs(torch, *xs, enable_gqa=True),
        draw((2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 5)),
        second=False,  # in PyTorch
    )


@pytest.mark.oracle
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_several_heads_equal_those_of_pytorch(biased, causal):
    mask = np.where(np.tri(3, 3, dtype=bool), 0.0, -np.inf)

    def ours(x, w, o, *bias):
        named = dict(zip(("in_proj_bias", "out_proj_bias"), bias, strict=False))
        return ag.ops.multi_head_attention(
            x, x, x * 2, 2, in_proj_weight=w, out_proj_weight=o, is_causal=causal, **named
        )

    def of_torch(torch, x, w, o, *bias):
        x = x.swapaxes(0, 1)
        first, second = bias or (None, None)
        y, _ = torch.nn.functional.multi_head_attention_forward(
            x, x, x * 2, 4, 2, w, first, None, None, False, 0.0, o, second,
            attn_mask=torch.tensor(mask, dtype=x.dtype) if causal else None,
        )  # fmt: skip
        return y.swapaxes(0, 1)

    compare(ours, of_torch, draw((2, 3, 4), (12, 4), (4, 4), *[(12,), (4,)] * biased))


def test_projections_may_be_given_one_by_one():
    x = ag.Graph().input("x", (2, 3, 4), "float64")
    value, w, o = draw((2, 3, 4), (12, 4), (5, 4))
    both = [
        ag.ops.multi_head_attention(x, x, x, 2, in_proj_weight=weights, out_proj_weight=o)
        for weights in (w, np.split(w, 3))
    ]
    one, other = evaluate(both, {x: value})
    assert one.shape == (2, 3, 5)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_large_scores_neither_overflow_nor_change_the_dtype(dtype):
    x = ag.Graph().input("x", (3, 4), dtype)
    value = np.eye(3, 4).astype(dtype) * 100
    (got,) = evaluate(attention(x, x, x, is_causal=True), {x: value})
    assert got.dtype == dtype
    np.testing.assert_allclose(got, value)


def test_causal_mask_and_bool_mask_hold_together():
    x = ag.Graph().input("x", (3, 2), "float64")
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
    half = g.input("half", (3, 4), "float16")
    with pytest.raises(GraphTypeError, match="mixed dtypes, float16 and float32"):
        attention(half, half, x)
    heads = g.input("heads", (1, 3, 2, 4))
    with pytest.raises(ShapeError, match="3 heads of queries cannot share 2 of keys"):
        attention(heads, heads[:, :2], heads[:, :2], enable_gqa=True)
