"""The laws of solvers catch a fault that is planted, and say which law it breaks."""

from typing import ClassVar

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.testing import SOLVER_LAWS
from tests._each import each


class Descent(ag.solvers.AbstractSolver[dict]):
    """Momentum that is right."""

    def __init__(self, lr):
        super().__init__()
        self.lr = lr

    def init(self, value):
        return {"speed": np.zeros_like(value)}

    def update(self, state, grad, current, out):
        speed = 0.5 * state["speed"] + grad
        np.subtract(current, self.lr * speed, out=out)
        return {"speed": speed.astype(out.dtype)}


class WritesGradients(Descent):
    def update(self, state, grad, current, out):
        if grad.flags.writeable:
            grad *= self.lr
            np.subtract(current, grad, out=out)
            return state
        return super().update(state, grad, current, out)


class WritesItsState(Descent):
    def update(self, state, grad, current, out):
        state["speed"] *= 0.5
        state["speed"] += grad
        np.subtract(current, self.lr * state["speed"], out=out)
        return state


class WritesCurrentValue(Descent):
    def update(self, state, grad, current, out):
        if current.flags.writeable:
            current -= self.lr * grad
        np.subtract(current, 0.5 * self.lr * grad, out=out)
        return state


class SharesState(Descent):
    speeds: ClassVar = {}

    def init(self, value):
        return self.speeds.setdefault((value.shape, value.dtype.str), super().init(value))

    def update(self, state, grad, current, out):
        after = super().update(state, grad, current, out)
        state.update(after)
        return state


class Ascent(Descent):
    def update(self, state, grad, current, out):
        return super().update(state, -grad, current, out)


class KeepsTheValue(Descent):
    def update(self, state, grad, current, out):
        out[...] = current
        return current - self.lr * grad


class Asserts(Descent):
    def update(self, state, grad, current, out):
        raise AssertionError


def test_a_solver_that_is_right_passes():
    ag.testing.check_solver(Descent)


@each(
    "wrong, law",
    [
        (Ascent, "a parabola is minimised: got .* expected 0 .*; look at signs and at the order"),
        (Asserts, "a parabola is minimised: AssertionError"),
        (WritesGradients, "gradients are not written: the gradient after two steps: got"),
        (WritesItsState, "a step that fails changes neither parameters nor state: .*to the bit"),
        (WritesCurrentValue, "a parameter switches to another array: the array that runs .* read"),
        (SharesState, "switching and in place give the same bits: a parameter beside"),
    ],
)
def test_a_planted_fault_is_caught_by_the_law_that_it_breaks(wrong, law):
    with pytest.raises(AssertionError, match=f"(?s)broken law: {law}"):
        ag.testing.check_solver(wrong)


def test_a_step_that_is_not_written_is_told_with_where_it_belongs():
    [law] = [law for law in SOLVER_LAWS if law.__name__.startswith("dtype_and_identity")]
    with pytest.raises(AssertionError, match="expected less than 1; `update` writes .* to `out`"):
        law(KeepsTheValue)


def test_an_error_of_the_solver_itself_is_told_with_the_law():
    def broken(lr):
        raise ZeroDivisionError("no rate")

    with pytest.raises(AssertionError, match="broken law: .* ZeroDivisionError: no rate") as caught:
        ag.testing.check_solver(broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_was_made_in_the_place_of_what_makes_it_is_told():
    with pytest.raises(TypeError, match="expected a function that makes a solver of a learning"):
        ag.testing.check_solver(ag.solvers.SGD(lr=0.1))
    with pytest.raises(TypeError, match="expected a function that makes a device"):
        ag.testing.check_device(ag.devices.get("cpu"))
