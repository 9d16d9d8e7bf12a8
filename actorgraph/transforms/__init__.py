"""Function transforms: `grad`, `value_and_grad`, `vjp`, `jvp`, `jacobian`, `hessian`, `vmap`.

Each takes nodes and returns nodes, or takes a Python function of arrays and returns a function of
arrays.  The function is called once with nodes, for each kind of arguments: structure, dtypes,
shapes and values of what is no array.  What it builds is differentiated as a graph and run by a
`TapeMachine`; both are kept.  Inside a function that is being traced, and on nodes, a transformed
function adds nodes to the same graph, so transforms nest.  ``exact=False`` rewrites what the
function has built into stable forms before it is differentiated; see `grad`.
"""

from actorgraph.transforms.gradient import grad, value_and_grad
from actorgraph.transforms.jacobians import hessian, jacobian
from actorgraph.transforms.products import hvp, jvp, vjp
from actorgraph.transforms.vectorising import vmap

__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"]
