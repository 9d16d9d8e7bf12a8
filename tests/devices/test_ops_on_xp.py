"""Every op, forward and gradient, on strict arrays that are not NumPy's: what CuPy would refuse.

The array module is the stand-in for CuPy: its names, parameters and dtypes are those of the
snapshot of an installed wheel, conversions are errors, and kernels run late.  Values are NumPy's.
"""

import sys

import numpy as np
import pytest

import tests._cupy as stand_in
from actorgraph.op import REGISTRY
from benchmarks._gpu_parity import OPS, check
from tests._each import each


@pytest.fixture
def stream(monkeypatch):
    for name, module in stand_in.MODULES.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(stand_in, "world", stand_in.World(1))
    with stand_in.Stream(non_blocking=True) as stream:
        yield stream


@each("op", OPS.values())
def test_every_op_and_its_gradient_run_on_strict_arrays(op, stream):
    check(stand_in.cupy, op)


def test_no_op_is_left_out():
    assert not [op.name for op in REGISTRY.values() if op.samples and op.kernel is not None]
    assert len(OPS) >= 280


def test_the_snapshot_is_that_of_the_cupy_that_is_installed():
    pytest.importorskip("cupy")
    from tests._cupy import snapshot

    assert snapshot.snapshot() == stand_in.SNAPSHOT


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda cupy, x: cupy.maximum.reduce(x), "maximum.reduce"),
        (lambda cupy, x: x.max(initial=0.0), "initial"),
        (lambda cupy, x: cupy.add.at(x, cupy.arange(2), x[:2]), "atomics"),
        (lambda cupy, x: cupy.linalg.matrix_rank(x, rtol=0.1), "rtol"),
        (lambda cupy, x: cupy.logical_and(x * 1j, x), "no loop"),
        (lambda cupy, x: cupy.vecdot(x, x), "no 'vecdot'"),
        (lambda cupy, x: x + np.ones(3), "Unsupported type"),
        (lambda cupy, x: np.asarray(x), "implicit conversion"),
        (lambda cupy, x: np.sum(x), "of NumPy"),
        (lambda cupy, x: cupy.matmul(x, x, x), "out"),
    ],
)
def test_what_cupy_refuses_the_stand_in_does(stream, call, text):
    x = stand_in.cupy.asarray(np.ones(3))
    with pytest.raises((TypeError, AttributeError, NotImplementedError), match=text):
        call(stand_in.cupy, x)
