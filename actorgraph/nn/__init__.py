"""Neural networks: parameters, modules, layers, and initial values of weights."""

from actorgraph import ops as functional
from actorgraph.nn import init
from actorgraph.parameters import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init"]
