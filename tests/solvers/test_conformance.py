"""What every solver must do: the laws of `actorgraph.testing`.  A new solver needs a row here."""

import inspect

import numpy as np
import pytest

from actorgraph import solvers
from actorgraph.dual import Dual
from actorgraph.solvers._settings import solver
from actorgraph.testing import SOLVER_LAWS
from tests._each import each

FACTORIES = {
    "sgd": lambda lr: solvers.SGD(lr=lr),
    "sgd_momentum": lambda lr: solvers.SGD(lr=lr, momentum=0.5),
    "sgd_nesterov": lambda lr: solvers.SGD(lr=lr, momentum=0.5, nesterov=True),
    "sgd_weight_decay": lambda lr: solvers.SGD(lr=lr, momentum=0.5, weight_decay=1e-3),
    "sgd_l1": lambda lr: solvers.SGD(lr=lr, momentum=0.5, l1=1e-3),
    "adam": lambda lr: solvers.Adam(lr=lr),
    "adam_weight_decay": lambda lr: solvers.Adam(lr=lr, weight_decay=1e-4),
    "adam_amsgrad": lambda lr: solvers.Adam(lr=lr, amsgrad=True),
    "adagrad": lambda lr: solvers.AdaGrad(lr=lr * 10),
    "adadelta": lambda lr: solvers.AdaDelta(lr=lr * 20, eps=1e-4),
    "rmsprop": lambda lr: solvers.RMSProp(lr=lr, momentum=0.5, centered=True),
    "nadam": lambda lr: solvers.NAdam(lr=lr),
    "radam": lambda lr: solvers.RAdam(lr=lr),
    "adamax": lambda lr: solvers.Adamax(lr=lr),
    "lion": lambda lr: solvers.Lion(lr=lr),
    "lamb": lambda lr: solvers.LAMB(lr=lr),
    "barzilai_borwein": lambda lr: solvers.BarzilaiBorwein(lr=lr),
    "adamw": lambda lr: solvers.AdamW(lr=lr, weight_decay=1e-4),
}


@each("law", SOLVER_LAWS)
@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_every_solver_obeys_the_laws_of_solvers(make, law):
    law(make)


def test_every_public_solver_has_a_row():
    public = {
        cls
        for name in solvers.__all__
        if inspect.isclass(cls := getattr(solvers, name))
        and issubclass(cls, solvers.AbstractSolver)
        and not inspect.isabstract(cls)
    }
    tried = {type(factory(0.1)) for factory in FACTORIES.values()}
    assert public == tried, "write a row in FACTORIES for each solver of ag.solvers"


def test_an_update_that_returns_no_state_is_told_and_changes_nothing():
    class Forgets(solvers.AbstractSolver):
        def init(self, value):
            return {"steps": 0}

        def update(self, state, grad, current, out):
            out[...] = 0

    weight = Dual(np.ones(3), np.ones(3))
    with pytest.raises(TypeError, match="Forgets.update returned None, expected the state .* dict"):
        Forgets().step([weight])
    assert np.all(weight.value == 1.0)


def test_the_repr_names_rate_changed_settings_and_steps():
    solver = solvers.AdamW(betas=(0.8, 0.99), clip_norm=1.0)
    assert repr(solver) == "<AdamW lr=0.001 betas=(0.8, 0.99) clip_norm=1.0, 0 steps>"


@pytest.mark.parametrize(("name", "meant"), [("adam", "Adam"), ("rmsprop", "RMSProp")])
def test_the_name_of_a_file_is_told_to_be_no_solver(name, meant):
    assert getattr(solvers, meant)
    with pytest.raises(
        AttributeError, match=rf"ag.solvers has no '{name}'; did you mean '{meant}'"
    ):
        getattr(solvers, name)


def test_a_solver_that_does_not_call_the_init_of_its_base_class_is_told_to():
    class Forgetful(solvers.AbstractSolver[None]):
        def __init__(self):
            self.lr = 0.1

        def init(self, value):
            return None

        def update(self, state, grad, current, out):
            return state

    with pytest.raises(TypeError, match=r"Forgetful.__init__ has to call super\(\).__init__\(\)"):
        Forgetful()


def test_a_setting_of_a_new_name_is_told_where_to_be_declared():
    with pytest.raises(TypeError, match="Paced has the new settings pace: add to SETTINGS"):

        @solver("Paced()", "[0.7]")
        class Paced(solvers.AbstractSolver[None]):
            lr: float = 0.1
            pace: float = 1.0
