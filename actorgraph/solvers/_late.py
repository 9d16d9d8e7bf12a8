"""The solvers that are imported when one of them is first asked for."""

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
    "AdaDelta", "AdaGrad", "Adamax", "BarzilaiBorwein", "LAMB", "LBFGS", "Lion", "NAdam",
    "RAdam", "RMSProp",
]  # fmt: skip
