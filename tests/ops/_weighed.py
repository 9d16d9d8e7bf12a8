"""Comparison with PyTorch to second order, along drawn directions, complex numbers too."""

import numpy as np

import actorgraph as ag
from tests._evaluate import evaluate

EXACT = 1e-9


def draw(*shapes, low=0.3, high=3.0):
    rng = np.random.default_rng(7)
    return [rng.uniform(low, high, shape) for shape in shapes]


def compare(ours, theirs, values, rtol=EXACT):
    """Compare value, gradients of a weighted sum, and gradients of a weighted sum of those."""
    import torch

    graph = ag.Graph()
    xs = [graph.input(f"x{i}", value.shape, value.dtype) for i, value in enumerate(values)]
    ts = [torch.tensor(value, requires_grad=True) for value in values]
    y, z = ours(*xs), theirs(*ts)
    rng = np.random.default_rng(8)
    weights = rng.normal(size=y.shape).astype(y.dtype)
    outer = [rng.normal(size=value.shape).astype(value.dtype) for value in values]
    if y.dtype.kind == "c":
        weights = weights + 1j * rng.normal(size=y.shape)
    first = ag.gradients([y], xs, seeds=[weights])
    wanted = torch.autograd.grad(
        z, ts, torch.tensor(weights), create_graph=True, materialize_grads=True
    )
    second = ag.gradients(first, xs, seeds=outer)
    if any(grad.requires_grad for grad in wanted):
        wanted_second = torch.autograd.grad(
            wanted, ts, list(map(torch.tensor, outer)), materialize_grads=True
        )
    else:
        wanted_second = [torch.zeros_like(t) for t in ts]
    got = evaluate([y, *first, *second], dict(zip(xs, values, strict=True)))
    for mine, other in zip(got, [z, *wanted, *wanted_second], strict=True):
        other = other.numpy(force=True)
        assert mine.shape == other.shape
        scale = np.abs(other).max(initial=1e-4)  # what is exactly 0 has rounding errors
        np.testing.assert_allclose(mine, other, rtol=rtol, atol=rtol * 0.1 * scale)
