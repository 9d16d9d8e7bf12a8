"""Comparison of matrix functions with PyTorch to second order, complex too."""

import numpy as np

import actorgraph as ag
from tests._evaluate import evaluate

DTYPES = ["float64", "complex128"]


def matrices(*shape, dtype, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(shape)
    if dtype == "complex128":
        value = value + 1j * rng.standard_normal(shape)
    return value + shift * np.eye(*shape[-2:]) if len(shape) > 1 else value


def square_of(x):
    return ag.ops.real(x * ag.ops.conj(x))


def compare(ours, theirs, values, rtol=1e-9):
    """Compare the value, gradients of a weighted sum, and gradients of the sum of their squares."""
    import torch

    graph = ag.Graph()
    xs = [graph.input(f"x{i}", value.shape, value.dtype) for i, value in enumerate(values)]
    ts = [torch.tensor(value, requires_grad=True) for value in values]
    y, z = ours(*xs), theirs(*ts)
    weights = matrices(*y.shape, dtype=y.dtype.name, seed=9) if y.ndim > 1 else np.ones(y.shape)
    weights = weights.astype(y.dtype)
    first = ag.gradients([y], xs, seeds=[weights])
    second = ag.gradients(sum(square_of(node).sum() for node in first), xs)
    wanted = torch.autograd.grad(z, ts, torch.tensor(weights), create_graph=True)
    total = sum((node * node.conj()).real.sum() for node in wanted)
    wanted_second = torch.autograd.grad(total, ts)
    got = evaluate([y, *first, *second], dict(zip(xs, values, strict=True)))
    for mine, other in zip(got, [z, *wanted, *wanted_second], strict=True):
        other = other.resolve_conj().numpy(force=True)
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=rtol, atol=rtol * np.abs(other).max())
