"""Ops on an array module that is not NumPy's, beside NumPy: values, gradients, what raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import actorgraph as ag
import actorgraph.control.in_blocks  # its op is in no module of `ops`
from actorgraph.autodiff import gradients
from actorgraph.devices.base import pending
from actorgraph.graph import topological_order
from actorgraph.lower.kernels import kernel
from actorgraph.op import CONSTANT, REGISTRY, Op
from actorgraph.testing._cases import Case

ag.ops.__dir__()  # all of them
OPS = {
    op.name: op for op in REGISTRY.values() if op.samples and not op.checked and op.kernel is None
}


def on_device(xp: Any, outputs: Sequence[Any], feeds: Mapping[Any, Any]) -> list[Any]:
    """Return values computed by the kernels of programs with an array module."""
    values: dict[Any, Any] = {}
    host = {node: np.asarray(value) for node, value in feeds.items()}
    for node in topological_order(outputs):
        if node in host or node.op is CONSTANT:
            host.setdefault(node, node.attrs.get("value"))
            values[node] = xp.asarray(host[node])
            continue
        operands = [
            host[part] if place in node.op.on_host and part in host else values[part]
            for place, part in enumerate(node.inputs)
        ]
        values[node] = kernel(node, xp, {})(*operands)
        if not isinstance(values[node], xp.ndarray):
            raise TypeError(f"{node.op.name} left the device: {type(values[node]).__name__}")
    return [values[node].get() for node in outputs]


def check(xp: Any, op: Op, tolerance: float = 1e-10) -> None:
    """Raise where an op or its gradient differs from NumPy's on one of its samples."""
    for sample in op.samples:
        for dtype in ("float64", "complex128"):
            try:
                case = Case(op, sample, dtype)
            except ag.GraphTypeError:
                continue
            if dtype == "complex128" and "dtype" in sample.attrs:
                continue
            nodes = [case.y]
            if case.wrt:
                nodes += gradients([case.y], case.wrt, seeds=[case.random_like(case.y)])
            _compare(xp, nodes, case.feeds, tolerance)


def _compare(xp: Any, nodes: Sequence[Any], feeds: Mapping[Any, Any], tolerance: float) -> None:
    refused: set[str] = set()
    try:
        wanted = ag.testing.evaluate(nodes, feeds)
    except np.linalg.LinAlgError as error:
        wanted, refused = [], {str(error)}
    pending.checks = []
    found = on_device(xp, nodes, feeds)
    told = {check.text for check in pending.checks if bool(check.bad)}
    if told != refused:
        raise AssertionError(f"checks told {told}, on NumPy {refused}")
    for got, want in zip(found, wanted, strict=False):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            raise AssertionError(f"got {got.dtype}{got.shape}, expected {want.dtype}{want.shape}")
        np.testing.assert_allclose(got, want, tolerance, tolerance)


def captured(xp: Any, op: Op) -> str:
    """Return whether the forward of an op may stand in a CUDA graph: "yes", or what forbids it."""
    case = Case(op, op.samples[0])
    arrays = [xp.asarray(case.feeds[x]) for x in case.xs]
    operands = [
        case.feeds[x] if place in op.on_host else array
        for place, (x, array) in enumerate(zip(case.xs, arrays, strict=True))
    ]
    call = kernel(case.y, xp, {})
    call(*operands)  # compiles, and fills the pool
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        call(*operands)
        stream.synchronize()
        stream.begin_capture()
        try:
            kept = call(*operands)
        except Exception as error:
            kept, why = None, f"{type(error).__name__}: {str(error)[:80]}"
        try:
            graph = stream.end_capture()
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:80]}"
        if kept is None:
            return why
        graph.launch(stream)
        stream.synchronize()
    return "yes"
