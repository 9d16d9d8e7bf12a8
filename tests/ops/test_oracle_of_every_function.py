"""Every public function agrees with PyTorch: value, both modes, second order, kinds of numbers.

A new function needs a row in one of the tables ``_oracle_*.py``.
"""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.graph import topological_order
from actorgraph.op import REGISTRY
from tests.ops import (  # noqa: F401 - they fill the rows
    _oracle_arrays,
    _oracle_elementwise,
    _oracle_nets,
)
from tests.ops._oracle import ROWS, Comparison, compare
from tests.ops.test_oracle_of_draws import DRAWN

pytestmark = pytest.mark.oracle

NOT_COMPARED = {
    "makes ops, and is none; test_define.py compares the laws of such": "Sample Together define",
}
NOT_MET = {
    "test_oracle_of_draws.py has these": (
        "random_binomial random_categorical random_normal random_truncated_normal random_uniform"
    ),
    "stands in graphs whose sizes only a run knows": (
        "arange concatenate_part concatenate_part_adjoint concatenate_starts flatten "
        "getitem_adjoint_like reshape_like size_along size_of "
        "split_part split_part_adjoint"
    ),
    "is put there by a rewrite": "one_unless_nan",
    "passes a value on": "as_it_is checkpoint hook_gradient recompute stop_gradient",
}
REAL_IN_PYTORCH = (
    "affine_grid huber index_reduce max_unpool1d max_unpool2d max_unpool3d mse nll scatter_reduce "
    "select_scatter slice_scatter smooth_l1 spacing"
).split()
"""What takes complex numbers here and not, or not with gradients, in PyTorch."""
IN_ORDER = (
    "argmax argmin argsort clip fmax fmin greater greater_equal histogram isin less less_equal "
    "max maximum median min minimum nanargmax nanargmin nanmax nanmedian nanmin searchsorted sort"
).split()
"""What NumPy does with complex numbers by their lexicographic order; here they have none."""


def takes_complex(row):
    try:
        Comparison(row, "complex128")
    except ag.GraphError:
        return False
    return True


@pytest.mark.filterwarnings("ignore:.*(index_reduce|ComplexHalf|beta state):UserWarning")
@pytest.mark.parametrize("name", ROWS)
def test_function_agrees_with_pytorch(name):
    compare(ROWS[name], "float64")
    compare(ROWS[name], "float32")
    if name.split()[0] not in REAL_IN_PYTORCH and takes_complex(ROWS[name]):
        compare(ROWS[name], "complex128")


def test_every_function_is_compared_or_says_why_not():
    compared = {getattr(ag.ops, name, None) for name in (*ROWS, *DRAWN)}
    missing = {name for name in ag.ops.__all__ if getattr(ag.ops, name) not in compared}
    said = {name for names in NOT_COMPARED.values() for name in names.split()}
    assert missing == said, "write a row in tests/ops/_oracle_*.py, or a reason in NOT_COMPARED"


def numpy_takes(function, values):
    for count in {1, len(values)}:
        try:
            function(*(v.astype(complex) if v.dtype.kind == "f" else v for v in values[:count]))
        except (TypeError, ValueError, AttributeError, IndexError, np.exceptions.AxisError):
            continue
        return True
    return False


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_complex_numbers_are_taken_where_numpy_takes_them():
    refused = [name for name in ROWS if not takes_complex(ROWS[name])]
    found = [
        name
        for name in refused
        for space in (np, np.linalg, np.fft)
        if callable(getattr(space, name, None))
        and numpy_takes(getattr(space, name), ROWS[name].values)
    ]
    assert sorted(found) == IN_ORDER


def ops_of(row, dtype):
    """Return the names of the ops in the graphs of every derivative."""
    if dtype == "complex128" and not takes_complex(row):
        return set()
    one = Comparison(row, dtype)
    try:
        nodes = one.nodes([k for k, y in enumerate(one.ys) if y.dtype.kind in "fc"])
    except ag.GraphError:  # it has no gradient
        nodes = one.ys
    return {node.op.name for node in topological_order(nodes)}


def test_every_op_is_part_of_what_is_compared():
    met = {
        op
        for row in ROWS.values()
        for dtype in ("float64", "complex128")
        for op in ops_of(row, dtype)
    }
    library = {op.name for op in REGISTRY.values() if not op.checked}
    said = {name for names in NOT_MET.values() for name in names.split()}
    assert library - met == said, "write a row in tests/ops/_oracle_*.py, or a reason in NOT_MET"
