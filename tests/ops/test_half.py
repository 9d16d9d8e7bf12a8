"""Neural ops in float16 and bfloat16: storage in two bytes, sums in float32."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import draw

OPS = {
    "conv": lambda x: ag.ops.conv1d(x, (ag.ops.transpose(x, (1, 0, 2)) * 0.5)[:, :, :3]),
    "conv_transpose": lambda x: ag.ops.conv_transpose1d(
        x, ag.ops.transpose(x, (1, 0, 2)), stride=2
    ),
    "max_pool": lambda x: ag.ops.max_pool1d(x, 3, stride=2, padding=1),
    "avg_pool": lambda x: ag.ops.avg_pool1d(x, 3, stride=2, padding=1),
    "adaptive_max_pool": lambda x: ag.ops.adaptive_max_pool1d(x, 3),
    "resample": lambda x: ag.ops.upsample(x, 9, mode="linear"),
    "layer_norm": lambda x: ag.ops.layer_norm(x, 8),
    "rms_norm": lambda x: ag.ops.rms_norm(x, 8, eps=1e-3),
    "batch_norm": lambda x: ag.ops.batch_norm(x).y,
    "attention": lambda x: ag.ops.scaled_dot_product_attention(x, x, x, is_causal=True),
    "cosine_similarity": lambda x: ag.ops.cosine_similarity(x, x * x),
}


def dtypes(name):
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16, 2.0**-7
    return np.float16, 2.0**-10


@each("half", ["float16", "bfloat16"])
@each("name", OPS)
def test_op_in_half_precision_is_near_that_in_double(name, half):
    dtype, eps = dtypes(half)
    (value,) = draw((2, 2, 8))
    results = []
    for kind in (dtype, np.float64):
        x = ag.Graph().input("x", value.shape, kind)
        y = OPS[name](x)
        results.append(
            evaluate([y, *ag.gradients(y.sum(), [x])], {x: value.astype(dtype).astype(kind)})
        )
    for got, wanted in zip(*results, strict=True):
        assert got.dtype == dtype
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(got.astype("f8"), wanted, atol=12 * eps * scale)


def test_defaults_of_rms_norm_know_bfloat16():
    dtype, _ = dtypes("bfloat16")
    x = ag.Graph().input("x", (1, 4), dtype)
    (got,) = evaluate(ag.ops.rms_norm(x, 4), {x: np.ones((1, 4), dtype)})
    np.testing.assert_allclose(got.astype("f4"), 1, atol=0.01)


def test_long_averages_in_float16_are_summed_in_float32():
    x = ag.Graph().input("x", (1, 1, 4096), "float16")
    value = np.full(x.shape, 100, "float16")  # the sum is above the largest float16
    (got,) = evaluate(ag.ops.avg_pool1d(x, 4096), {x: value})
    np.testing.assert_array_equal(got, 100)


def test_gradient_of_a_mean_of_more_numbers_than_float16_counts_is_not_lost():
    x = ag.Graph().input("x", (70_000,), "float16")
    [slope] = ag.gradients(ag.ops.mean(x), [x])
    [found] = evaluate([slope], {x: np.ones(70_000, "float16")})
    np.testing.assert_array_equal(found, np.float16(1 / 70_000))
