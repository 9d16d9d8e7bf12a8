"""Solvers: they turn gradients into new parameter values."""

from typing import TYPE_CHECKING, Any

from actorgraph.solvers._base import AbstractSolver, Loop, ValueGrad
from actorgraph.solvers.adam import Adam
from actorgraph.solvers.adamw import AdamW
from actorgraph.solvers.sgd import SGD

if TYPE_CHECKING:
    from actorgraph.solvers import schedules
    from actorgraph.solvers.adadelta import AdaDelta
    from actorgraph.solvers.adagrad import AdaGrad
    from actorgraph.solvers.adamax import Adamax
    from actorgraph.solvers.barzilai_borwein import BarzilaiBorwein
    from actorgraph.solvers.lamb import LAMB
    from actorgraph.solvers.lbfgs import LBFGS
    from actorgraph.solvers.lion import Lion
    from actorgraph.solvers.nadam import NAdam
    from actorgraph.solvers.radam import RAdam
    from actorgraph.solvers.rmsprop import RMSProp

__all__ = [
    "AbstractSolver", "AdaDelta", "AdaGrad", "Adam", "AdamW", "Adamax", "BarzilaiBorwein", "LAMB",
    "LBFGS", "Lion", "Loop", "NAdam", "RAdam", "RMSProp", "SGD", "ValueGrad", "schedules",
]  # fmt: skip

# Imported when first asked for: most programs use one.
_LATE = {
    "AdaDelta": "adadelta", "AdaGrad": "adagrad", "Adamax": "adamax", "LAMB": "lamb",
    "BarzilaiBorwein": "barzilai_borwein", "LBFGS": "lbfgs", "Lion": "lion", "NAdam": "nadam",
    "RAdam": "radam", "RMSProp": "rmsprop",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "schedules":
        return import_module(f"{__name__}.schedules")
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
