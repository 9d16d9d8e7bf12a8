"""Comparison of one call with PyTorch: value, both modes, second order, in each kind of number.

``ROWS`` has a `Row` by name of a public function; the rows of a family stand in a file of their
own, ``_oracle_*.py``, written with `row` and `alike`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import draw

torch = pytest.importorskip("torch")

ROWS = {}
KINDS = {"float64": 1e-9, "float32": 1e-4, "complex128": 1e-9}
"""How near a result is to PyTorch's, by dtype."""


@dataclass(frozen=True)
class Row:
    """A call in both, and the arrays that both get.

    Parameters
    ----------
    ours, theirs : callable
        Of nodes and of tensors; each returns one result or several.
    values : list of arrays
        Floats are drawn again as complex numbers where both take them.
    second : bool
        Whether there are derivatives of second order.
    tolerance : float
        By how much `KINDS` is exceeded, where PyTorch's own function is less precise.
    """

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    values: list[np.ndarray]
    second: bool = True
    tolerance: float = 1.0


def row(
    name, ours, theirs, *shapes, low=-2.0, high=2.0, given=(), ints=(), second=True, tolerance=1.0
):
    """Add a call on drawn floats of these shapes, or on `given` ones, and then on `ints`."""
    assert name not in ROWS, name
    ours = getattr(ag.ops, name) if ours is None else ours
    values = given or draw(*(shapes or [(3, 4)]), low=low, high=high)
    ROWS[name] = Row(ours, theirs, [*values, *map(np.array, ints)], second, tolerance)


def alike(names, *shapes, space=torch, **options):
    """Add the functions that have the name, or the one after a colon, and arguments of PyTorch."""
    for name in names.split():
        mine, _, other = name.partition(":")
        row(mine, None, getattr(space, other or mine), *shapes, **options)


def both(name, call, *shapes, space=torch, **options):
    """Add a call ``call(functions, *arrays)`` that is written alike for both."""
    row(name, lambda *xs: call(ag.ops, *xs), lambda *ts: call(space, *ts), *shapes, **options)


def listed(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def noise(rng, value):
    found = rng.normal(size=value.shape)
    if value.dtype.kind == "c":
        found = found + 1j * rng.normal(size=value.shape)
    return found.astype(value.dtype)


class Comparison:
    """A row on numbers of one kind: the nodes of every derivative, and PyTorch's results."""

    def __init__(self, row, dtype):
        self.row, self.dtype, rng = row, dtype, np.random.default_rng(8)
        self.values = [self._cast(rng, value) for value in row.values]
        self.moving = [k for k, value in enumerate(self.values) if value.dtype.kind in "fc"]
        graph = ag.Graph()
        self.xs = [graph.input(f"x{k}", v.shape, v.dtype) for k, v in enumerate(self.values)]
        self.ys = listed(row.ours(*self.xs))
        self.along = [noise(rng, self.values[k]) for k in self.moving]
        self.outer = [noise(rng, self.values[k]) for k in self.moving]
        self.seeds, self.weights = [], []

    @property
    def second(self):
        return self.row.second and self.dtype != "float32"

    def _cast(self, rng, value):
        if value.dtype.kind != "f":
            return value
        turn = 0.3j * rng.uniform(-1, 1, value.shape) if self.dtype[0] == "c" else 0
        return (value + turn).astype(self.dtype)

    def nodes(self, smooth):
        """Return values, tangents, gradients and their gradients: of the `smooth` results."""
        found = list(self.ys)
        if smooth:
            xs, ys = [self.xs[k] for k in self.moving], [self.ys[k] for k in smooth]
            found += listed(ag.jvp(ys, xs, self.along))
            graph = xs[0].graph
            self.seeds = [graph.input(f"seed{k}", y.shape, y.dtype) for k, y in enumerate(ys)]
            first = ag.gradients(ys, xs, seeds=self.seeds)
            found += first
            if self.second:
                found += ag.gradients(first, xs, seeds=self.outer)
        return found

    def theirs(self):
        """Return the same of PyTorch as arrays, and which results are smooth there."""
        ts = [torch.tensor(value) for value in self.values]
        for k in self.moving:
            ts[k].requires_grad_()
        zs = [z if isinstance(z, torch.Tensor) else torch.tensor(z)
              for z in listed(self.row.theirs(*ts))]  # fmt: skip
        smooth = [k for k, z in enumerate(zs) if z.requires_grad]
        found = list(zs)
        if smooth:
            some, xs = [zs[k] for k in smooth], [ts[k] for k in self.moving]
            found += _tangents(some, xs, [torch.tensor(tangent) for tangent in self.along])
            rng = np.random.default_rng(9)
            self.weights = [noise(rng, z.numpy(force=True)) for z in some]
            seeds = list(map(torch.tensor, self.weights))
            first = _gradients(some, xs, seeds, create_graph=self.second)
            found += first
            if self.second:
                rough = [k for k, grad in enumerate(first) if grad.requires_grad]
                outer = [torch.tensor(self.outer[k]) for k in rough]
                found += _gradients([first[k] for k in rough], xs, outer)
        return [z.resolve_conj().numpy(force=True) for z in found], smooth


def _gradients(zs, xs, seeds, create_graph=False):
    if not zs:
        return [torch.zeros_like(x) for x in xs]
    return list(torch.autograd.grad(zs, xs, seeds, create_graph=create_graph, retain_graph=True,
                                    materialize_grads=True))  # fmt: skip


def _tangents(zs, xs, along):
    """Return the tangents: the gradient of the gradient by its seed, which is linear in that."""
    seeds = [torch.ones_like(z, requires_grad=True) for z in zs]
    pulled = _gradients(zs, xs, seeds, create_graph=True)
    kept = [k for k, grad in enumerate(pulled) if grad.requires_grad]
    return _gradients([pulled[k] for k in kept], seeds, [along[k] for k in kept])


def compare(row, dtype, run=evaluate):
    """Compare a call with PyTorch in every derivative."""
    ours = Comparison(row, dtype)
    wanted, smooth = ours.theirs()
    nodes = ours.nodes(smooth)
    feeds = dict(zip(ours.xs + ours.seeds, ours.values + ours.weights, strict=True))
    rtol = KINDS[dtype] * row.tolerance
    for mine, theirs in zip(run(nodes, feeds), wanted, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        if mine.dtype.kind in "biu":
            np.testing.assert_array_equal(mine, theirs)
        else:
            largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=1e-2)
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * 0.1 * largest)


def compare_call(ours, theirs, values, rtol=KINDS["float64"]):
    """Compare a call on these arrays with PyTorch in every derivative."""
    compare(Row(ours, theirs, values, tolerance=rtol / KINDS["float64"]), "float64")
