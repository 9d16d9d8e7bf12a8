"""Sinc and its derivatives: against the integral that defines them, near 0, and PyTorch."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate


def derivatives(points, count):
    x = ag.Graph().input("x", points.shape, "float64")
    nodes = [ag.ops.sinc(x)]
    for _ in range(count):
        nodes.append(ag.gradients(nodes[-1].sum(), [x])[0])
    return evaluate(nodes, {x: points})


def test_derivatives_of_every_order_are_exact_near_zero_and_far_away():
    points = np.array([0, 1e-300, 1e-9, 1e-5, 0.01, 0.3, 0.3184, 0.6, 0.96, 1.3, -0.7, 3, 17.3])
    # sinc(x) is the mean of cos(pi x t) for t in [0, 1], and its derivatives those of the cosine.
    nodes, weights = np.polynomial.legendre.leggauss(60)
    t = (nodes + 1) / 2
    for order, value in enumerate(derivatives(points, 5)):
        phase = np.cos(np.pi * points[:, None] * t + order * np.pi / 2)
        wanted = (phase * (np.pi * t) ** order) @ weights / 2
        np.testing.assert_allclose(value, wanted, rtol=1e-12, atol=1e-13 * np.pi**order)


def test_value_is_that_of_numpy_behind_its_name():
    points = np.linspace(-4, 4, 33)
    x = ag.Graph().input("x", points.shape, "float64")
    (value,) = evaluate([np.sinc(x)], {x: points})
    np.testing.assert_allclose(value, np.sinc(points), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_dtype_is_kept(dtype):
    x = ag.Graph().input("x", (3,), dtype)
    (value,) = evaluate([ag.ops.sinc(x)], {x: np.array([0, 0.5, 2], dtype)})
    assert value.dtype == dtype
    np.testing.assert_allclose(value, [1, 2 / np.pi, 0], atol=1e-3)
