"""Function transforms: `grad`, `value_and_grad`, `vjp`, `jvp`, `jacobian`, `hessian`, `vmap`.

Each takes nodes and returns nodes, or takes a Python function of arrays and returns a function of
arrays.  The function is traced once for each kind of arguments: their structure, dtypes, shapes and
the values of those that are no arrays.  Its graph is differentiated and run by a `TapeMachine`;
both are cached.  Inside a function that is being traced, and on nodes, a transformed function adds
nodes to the same graph, so transforms nest.  ``exact=False`` rewrites the function's graph into
stable forms before it is differentiated; see `grad`.
"""

from actorgraph.transforms.gradient import grad, value_and_grad
from actorgraph.transforms.jacobians import hessian, jacobian
from actorgraph.transforms.products import hvp, jvp, vjp
from actorgraph.transforms.vectorising import vmap

__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp", "vmap"]
