"""Large steps by NumPy are cut into blocks, which helpers compute, too; no bit shows it."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.helpers import HELPERS
from actorgraph.options import NATIVE
from actorgraph.solvers import _formula

DEADLINE_S = 10
SHAPES = (3, 50), (), (201,), (4, 5, 6), (0, 2)


@pytest.fixture(autouse=True)
def in_small_blocks(monkeypatch):
    monkeypatch.setenv(NATIVE, "0")
    monkeypatch.setattr(_formula, "_codes", {})  # what other tests have made
    monkeypatch.setattr(_formula, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(_formula, "_SMALL_BYTES", 0)
    monkeypatch.setattr(_formula, "_SHARED_BYTES", 0)
    monkeypatch.setattr(HELPERS, "count", 1)


def parameters(dtype="float32"):
    rng = np.random.default_rng(1)
    made = [[np.asarray(rng.standard_normal(shape), dtype) for _ in "vg"] for shape in SHAPES]
    return [SimpleNamespace(value=value, grad=grad) for value, grad in made]


def stepped(solver, weights, steps=3):
    for _ in range(steps):
        solver.step(weights)
    return [one.value for one in weights]


def whole(kind, steps=3, dtype="float32"):
    """Return what one thread makes of the parameters, array by array."""
    solver = getattr(ag.solvers, kind)(lr=0.1)
    solver.helped, _formula._BLOCK_BYTES = False, 1 << 40
    found = stepped(solver, parameters(dtype), steps)
    _formula._BLOCK_BYTES = 64
    return found


class Gated:
    """Has the first block of the calling thread wait until a helper is at one."""

    def __init__(self, monkeypatch):
        self.caller, self.came, self.go_on = threading.get_ident(), threading.Event(), None
        self.compute = _formula._Plan.compute
        monkeypatch.setattr(_formula._Plan, "compute", lambda plan, arrays: self(plan, arrays))

    def __call__(self, plan, arrays):
        if threading.get_ident() != self.caller:
            self.came.set()
            if self.go_on is not None:
                assert self.go_on.wait(DEADLINE_S)
        else:
            assert self.came.wait(DEADLINE_S)
            if self.go_on is not None:
                raise KeyboardInterrupt
        self.compute(plan, arrays)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "LAMB", "BarzilaiBorwein"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_helper_changes_no_bit(kind, dtype, monkeypatch):
    wanted = whole(kind, dtype=dtype)
    gated = Gated(monkeypatch)
    found = stepped(getattr(ag.solvers, kind)(lr=0.1), parameters(dtype))
    assert gated.came.is_set()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("held", [False, True])
def test_nobody_reads_what_a_helper_writes_after_an_interrupt(held, monkeypatch):
    wanted = whole("Adam", steps=4)
    solver, weights = ag.solvers.Adam(lr=0.1), parameters()
    if held:
        plain, weights = weights, [ag.nn.Parameter(one.value) for one in weights]
        for number, (one, other) in enumerate(zip(weights, plain, strict=True)):
            one.grad, one.name = other.grad, f"w{number}"
    stepped(solver, weights)
    before = [np.array(one.value) for one in weights]
    with monkeypatch.context() as patched:
        gated = Gated(patched)
        gated.go_on = threading.Event()
        with pytest.raises(KeyboardInterrupt):
            solver.step(weights)
    for one, was in zip(weights, before, strict=True):
        np.testing.assert_array_equal(one.value, was)
    found = stepped(solver, weights, 1)  # by this thread alone: its helper waits
    gated.go_on.set()
    ended = threading.Event()
    HELPERS._have(ended.set, 1)  # when it has ended what it was at
    assert ended.wait(DEADLINE_S)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_error_in_a_helper_is_the_steps_and_nothing_has_changed(monkeypatch):
    def fails(plan, arrays):
        if threading.get_ident() != gated.caller:
            raise FloatingPointError("in a helper")

    gated = Gated(monkeypatch)
    gated.compute = fails
    solver, weights = ag.solvers.SGD(lr=0.1), parameters()
    before = [one.value.copy() for one in weights]
    with pytest.raises(FloatingPointError, match="in a helper"):
        solver.step(weights)
    assert solver.steps == 0
    for one, was in zip(weights, before, strict=True):
        np.testing.assert_array_equal(one.value, was)


def test_the_errstate_of_the_caller_holds_in_helpers(monkeypatch):
    gated = Gated(monkeypatch)
    weights = parameters()
    weights[0].grad[-1] = 3e38
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        ag.solvers.SGD(lr=1e5).step(weights)
    assert gated.came.is_set()
