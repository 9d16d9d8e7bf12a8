"""Large steps by NumPy are cut into blocks, which helpers compute, too; no bit shows it."""

import _thread
import os
import signal
import threading
import warnings
from operator import call
from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.helpers import HELPERS
from actorgraph.options import NATIVE
from actorgraph.solvers import _formula
from tests._strikes import strikes

DEADLINE_S = 10
SHAPES = (3, 50), (), (201,), (4, 5, 6), (0, 2)


@pytest.fixture(autouse=True)
def in_small_blocks(monkeypatch):
    monkeypatch.setenv(NATIVE, "0")
    monkeypatch.setattr(_formula, "_codes", {})  # what other tests have made
    monkeypatch.setattr(_formula, "_BLOCK_BYTES", 64)
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
    """Has the calling thread's first ufunc wait until a helper is at work."""

    def __init__(self, monkeypatch):
        self.caller, self.came, self.go_on = threading.get_ident(), threading.Event(), None
        self.call = call
        monkeypatch.setattr(_formula, "call", lambda *given: self(*given))

    def __call__(self, *given):
        if not isinstance(given[0], np.ufunc):
            return call(*given)
        if threading.get_ident() != self.caller:
            self.came.set()
            if self.go_on is not None:
                assert self.go_on.wait(DEADLINE_S)
        else:
            assert self.came.wait(DEADLINE_S)
            if self.go_on is not None:
                raise KeyboardInterrupt
        return self.call(*given)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "LAMB", "BarzilaiBorwein"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_helper_changes_no_bit(kind, dtype, monkeypatch):
    wanted = whole(kind, dtype=dtype)
    gated = Gated(monkeypatch)
    found = stepped(getattr(ag.solvers, kind)(lr=0.1), parameters(dtype))
    assert gated.came.is_set()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def parameters_of(held):
    weights = parameters()
    if held:
        plain, weights = weights, [ag.nn.Parameter(one.value) for one in weights]
        for number, (one, other) in enumerate(zip(weights, plain, strict=True)):
            one.grad, one.name = other.grad, f"w{number}"
    return weights


@pytest.mark.parametrize("held", [False, True])
def test_nobody_reads_what_a_helper_writes_after_an_interrupt(held, monkeypatch):
    wanted = whole("LAMB", steps=4)
    solver, weights = ag.solvers.LAMB(lr=0.1), parameters_of(held)
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
    HELPERS.called.put(ended.set)  # when it has ended what it was at
    HELPERS.awake(1)
    assert ended.wait(DEADLINE_S)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_error_in_a_helper_is_the_steps_and_nothing_has_changed(monkeypatch):
    def fails(*given):
        if threading.get_ident() != gated.caller:
            raise FloatingPointError("in a helper")

    gated = Gated(monkeypatch)
    gated.call = fails
    solver, weights = ag.solvers.LAMB(lr=0.1), parameters()
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


def test_a_step_waits_for_what_a_helper_has_drawn(monkeypatch):
    wanted, gated, waiting = whole("Adam", steps=1), Gated(monkeypatch), threading.Event()
    monkeypatch.setattr(os, "sched_yield", waiting.set)

    def late(*given):
        if threading.get_ident() != gated.caller:
            assert waiting.wait(DEADLINE_S)
        call(*given)

    gated.call = late
    found = stepped(ag.solvers.Adam(lr=0.1), parameters(), 1)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def everything(solver, weights):
    """Return the bytes of all that a step changes."""
    states = [slot.state for slot in solver._slots.values()]
    kept = [(one.step, [array.tobytes() for array in one.arrays.values()]) for one in states]
    return solver.steps, [np.array(one.value).tobytes() for one in weights], kept


@pytest.mark.parametrize("held", [False, True])
def test_an_interrupt_between_two_ufuncs_comes_after_the_step(held, monkeypatch, request):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # in a job, it is ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))
    made = []
    for struck in (False, True):
        solver, weights = ag.solvers.Adam(lr=0.1), parameters_of(held)
        stepped(solver, weights)
        if struck:
            calls, *rest = _formula._compiled(solver.loop())

            def interrupted(*arrays, calls=calls):
                first, *others = calls(*arrays)
                return first, (_thread.interrupt_main,), *others

            monkeypatch.setattr(_formula, "_compiled", lambda *_, rest=rest: (interrupted, *rest))
            with pytest.raises(KeyboardInterrupt):
                solver.step(weights)
        else:
            solver.step(weights)
        made.append(everything(solver, weights))
    assert made[0] == made[1]


@pytest.mark.parametrize("held", [False, True])
def test_a_shared_step_is_made_or_not_wherever_it_is_struck(held):
    solver, weights = ag.solvers.Adam(lr=0.1), parameters_of(held)
    state = values = None

    def ready():
        nonlocal state, values
        if state is None:
            stepped(solver, weights)
            state, values = solver.state_dict(), [np.array(one.value) for one in weights]
        solver.load_state_dict(state)
        for one, value in zip(weights, values, strict=True):
            if held:
                one.value = value
            else:
                one.value[...] = value

    ready()
    before = everything(solver, weights)
    solver.step(weights)
    after = everything(solver, weights)
    errors = np.geterr(), np.geterrcall()
    for moment in strikes(lambda: solver.step(weights), ready):
        found = everything(solver, weights)
        assert found in (before, after), f"half a step, at {moment}"
        assert errors == (np.geterr(), np.geterrcall())


def test_states_stay_where_they_are():
    solver, weights = ag.solvers.Adam(lr=0.1), parameters_of(True)
    stepped(solver, weights)
    states = [slot.state for slot in solver._slots.values()]
    places = [one.ctypes.data for state in states for one in state.arrays.values()]
    stepped(solver, weights)
    assert states == [slot.state for slot in solver._slots.values()]
    assert places == [one.ctypes.data for state in states for one in state.arrays.values()]


@pytest.mark.parametrize("asked", ["warn", "ignore"])
def test_overflow_in_a_helper_is_told_after_the_step_as_the_error_state_says(asked, monkeypatch):
    gated = Gated(monkeypatch)
    weights = parameters()
    for one in weights:
        one.grad[...] = 3e38
    with np.errstate(over=asked), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ag.solvers.SGD(lr=1e5).step(weights)
    assert gated.came.is_set()
    assert all(np.isinf(one.value).all() for one in weights)
    wanted = ["overflow encountered in a step of SGD"] if asked == "warn" else []
    assert [str(one.message) for one in told] == wanted


@pytest.mark.parametrize(
    "lines",
    [
        ("a = b", "b = b + g", "p = p - a * rate"),
        ("g = b", "b = b + rate", "p = p - g * rate"),
        ("a = b + g", "b = a", "a = a + g", "p = b"),
    ],
)
def test_a_name_keeps_what_it_was_given_where_the_other_changes_later(lines):
    class Renaming(ag.solvers.LoopSolver):
        def loop(self):
            return ag.solvers.Loop(lines, ("a", "b"), ("rate",))

        def numbers(self, step):
            return (0.5,)

    weights, values = parameters("float64"), []
    for one in weights:
        names = {"p": one.value.copy(), "g": one.grad, "a": 0.0 * one.grad, "b": 0.0 * one.grad}
        for _ in range(3):
            names["g"] = one.grad
            for line in lines:
                exec(line, {"rate": 0.5}, names)
        values.append(names["p"])
    for found, wanted in zip(stepped(Renaming(), weights), values, strict=True):
        np.testing.assert_array_equal(found, wanted)
