"""Laws that every op, solver, machine and device obeys; one call checks your own.

The project's tests run the same laws.  They need only NumPy, and no test runner.
"""

from actorgraph.keywords import all_answering
from actorgraph.testing._devices import DEVICE_LAWS, check_device
from actorgraph.testing._evaluate import evaluate
from actorgraph.testing._laws import Laws
from actorgraph.testing._machines import MACHINE_LAWS, check_machine
from actorgraph.testing._ops import OP_LAWS, check_op
from actorgraph.testing._solvers import SOLVER_LAWS, check_solver

__all__ = [
    "DEVICE_LAWS", "Laws", "MACHINE_LAWS", "OP_LAWS", "SOLVER_LAWS", "check_device",
    "check_machine", "check_op", "check_solver",
    "evaluate",
]  # fmt: skip
__dir__ = __all__.copy

all_answering(globals())
