"""Comparison with PyTorch to second order, for tests of families of ops."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate


def draw(*shapes, low=-2.0, high=2.0, seed=7):
    """Return float64 arrays in general position: a grid of distinct values in random order."""
    rng = np.random.default_rng(seed)
    sizes = [int(np.prod(shape)) for shape in shapes]
    total = sum(sizes)
    grid = np.linspace(low, high, total + 2)[1:-1]
    grid += rng.uniform(-0.2, 0.2, total) * (grid[1] - grid[0] if total > 1 else 0)
    parts = np.split(rng.permutation(grid), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def compare(ours, theirs, values, rtol=1e-9, second=True, single=True):
    """Compare the value, gradients of a weighted sum, and gradients of the sum of their squares.

    `theirs` gets torch and tensors: of float64 or complex128, and where `single`, to first order,
    of half the size.
    """
    _compare(ours, theirs, values, second, rtol, 1e-14)
    if single:
        halves = {"float64": "float32", "complex128": "complex64"}
        small = [value.astype(halves[value.dtype.name]) for value in values]
        _compare(ours, theirs, small, False, 1e-4, 1e-5)


def _compare(ours, theirs, values, second, rtol, atol):
    torch = pytest.importorskip("torch")
    graph = ag.Graph()
    xs = [graph.input(f"x{i}", value.shape, value.dtype) for i, value in enumerate(values)]
    tensors = [torch.tensor(value, requires_grad=True) for value in values]
    y, z = ours(*xs), theirs(torch, *tensors)
    assert y.shape == tuple(z.shape)
    rng = np.random.default_rng(8)
    weights = rng.normal(size=y.shape)
    if y.dtype.kind == "c":
        weights = weights + 1j * rng.normal(size=y.shape)
    weights = weights.astype(y.dtype)
    first = ag.gradients([y], xs, seeds=[weights])
    wanted = torch.autograd.grad(
        z, tensors, torch.tensor(weights), create_graph=second, allow_unused=True
    )
    nodes, targets = [y, *first], [z, *wanted]
    if second:
        nodes += ag.gradients(
            sum(ag.ops.real(node * ag.ops.conj(node)).sum() for node in first), xs
        )
        total = sum((part * part.conj()).real.sum() for part in wanted if part is not None)
        targets += (
            torch.autograd.grad(total, tensors, allow_unused=True)
            if total.requires_grad
            else [None] * len(xs)
        )
    for got, want in zip(evaluate(nodes, dict(zip(xs, values, strict=True))), targets, strict=True):
        want = np.zeros_like(got) if want is None else want.numpy(force=True)
        assert got.dtype == want.dtype
        scale = np.abs(want).max(initial=0)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol + rtol * scale)
