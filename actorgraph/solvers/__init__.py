"""Solvers: they turn gradients into new parameter values."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from actorgraph.errors import no_name
from actorgraph.solvers._base import AbstractSolver, Loop
from actorgraph.solvers._formula import LoopSolver
from actorgraph.solvers._slots import ValueGrad
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
    "LBFGS", "Lion", "Loop", "LoopSolver", "NAdam", "RAdam", "RMSProp", "SGD", "ValueGrad",
    "schedules",
]  # fmt: skip
__dir__ = __all__.copy

# Imported when first asked for: most programs use one of those above.
_LATE = frozenset({*__all__} - {*globals()} - {"schedules"})


def __getattr__(name: str) -> Any:
    if name == "schedules":
        import actorgraph.solvers.schedules as late
    elif name in _LATE:
        import actorgraph.solvers._late as others

        _hide_modules()
        return getattr(others, name)
    else:
        raise no_name("ag.solvers", name, __all__)
    return late


def _hide_modules() -> None:
    """Hide modules, so that `ag.solvers.adam(1e-3)` is answered by the name `Adam`."""
    for name, one in [*globals().items()]:
        if isinstance(one, ModuleType) and name[0] != "_" and name not in __all__:
            del globals()[name]


_hide_modules()
