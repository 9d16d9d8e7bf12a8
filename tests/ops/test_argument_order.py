"""Where PyTorch has a function of the same name, positional arguments mean the same.

Equal shapes in another order would be silently wrong.  What both PyTorch and NumPy have may follow
either; what only we have stands behind, or is given by name.
"""

import inspect
import re

import numpy as np
import pytest

import actorgraph as ag

pytestmark = pytest.mark.oracle

# A parameter here, and what PyTorch and NumPy call it.
ALIKE = {
    "x": "input input1 x1 tensor a A ar ary array m v p values tensors data e element",
    "y": "other target tensor input2 x2 mat2 vec2 b B input",
    "a": "input A", "b": "B input1", "factor": "input2", "test": "te test_elements",
    "x1": "input input1", "x2": "input2", "n": "N", "m": "M",
    "index": "input indices", "indices": "input tensor index ind", "ordered": "sorted_sequence a",
    "log_probs": "input", "logits": "input", "probabilities": "input", "anchor": "input",
    "targets": "target", "mask": "attn_mask", "nodes": "tensors arrays", "values": "source v",
    "axis": "dim dims", "axes": "dims dim", "reps": "dims", "keepdims": "keepdim",
    "axis1": "dim0 dim1 axis0", "axis2": "dim1 dim2", "start_axis": "start_dim",
    "end_axis": "end_dim", "shift": "shifts", "k": "diagonal offset", "offset": "diagonal",
    "low": "min", "high": "max", "depth": "num_classes", "pad_width": "pad", "num": "steps",
    "constant_values": "value", "shape": "size", "start": "start_or_stop", "stop": "end",
    "hidden": "hx", "state": "hx", "parts": "split_size_or_sections indices_or_sections",
}  # fmt: skip

OTHERWISE = {
    "draw for a graph": "bernoulli binomial",
    "have the options of numpy.linalg": "qr svd",
    "PyTorch and NumPy state without what comes second": "logsumexp max min permute prod",
    "PyTorch states otherwise than it documents": "cumulative_trapezoid polygamma topk",
    "take the weights one by one, as the cells": "gru lstm",
    "stand as in SciPy and torch.linalg": "lu_solve",
    "NumPy has an option before that we do not": "linspace",
}


def positional(function):
    """Positional parameters, from the signature or, of a built-in, from its documentation."""
    try:
        found = inspect.signature(function).parameters.values()
        return [one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, 0)]
    except (TypeError, ValueError):
        text = re.search(r"\((.*?)\)\s*->", function.__doc__ or "", re.DOTALL)
        names = [part.split("=")[0].strip() for part in text[1].split(",")] if text else []
        return names[: names.index("*")] if "*" in names else names


def orders_of(name):
    """Return the orders that a name may follow: PyTorch's, or NumPy's where it has the name."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    if hasattr(functional, name):
        # Some are dispatched by a flag, and have a signature under a longer name only.
        full = getattr(functional, f"{name}_with_indices", getattr(functional, name))
        return [positional(full)]
    if not hasattr(torch, name):
        return []
    stated = torch.overrides.get_testing_overrides().get(getattr(torch, name))
    found = [positional(stated)] if stated else []
    return found + ([positional(getattr(np, name))] if hasattr(np, name) else [])


def agree(here, there):
    return all(
        mine == other or other in ALIKE.get(mine, "").split()
        for mine, other in zip(here, there, strict=False)
    )


def test_positional_arguments_stand_in_the_order_of_pytorch():
    wrong, shared = {}, 0
    for name in ag.ops.__all__:
        function = getattr(ag.ops, name)
        orders = orders_of(name) if inspect.isfunction(function) else []
        # What makes nodes of nothing takes the graph first.
        here = [one for one in positional(function) if one != "graph"] if orders else []
        shared += bool(orders)
        if orders and not any(agree(here, there) for there in orders):
            wrong[name] = here, orders
    assert shared > 200
    assert set(wrong) == {name for names in OTHERWISE.values() for name in names.split()}
