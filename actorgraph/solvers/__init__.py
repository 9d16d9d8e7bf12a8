"""Solvers: they turn gradients into new parameter values."""

from actorgraph.solvers._base import AbstractSolver, Loop, LoopSolver, ValueGrad
from actorgraph.solvers.adam import Adam
from actorgraph.solvers.adamw import AdamW
from actorgraph.solvers.sgd import SGD

__all__ = ["AbstractSolver", "Adam", "AdamW", "Loop", "LoopSolver", "SGD", "ValueGrad"]
