"""Passes that change no bit: machines apply them to the joint graph, by default.

They run after differentiation, so derivatives are simplified too and sums of cotangents keep
their order.  A rule looks at one node whose inputs are settled.  It returns an older node of the
same value, or the node `restated`: another op in its place, with the same id, owner and line.  So
one pass in build order reaches the fixed point, and regions are those of the graph as it was
differentiated (see `lower.simplify`, which applies the rules, and also merges equal nodes and drops
dead ones).

Invariant: layouts stay, too, since the order of NumPy's sums and the loop of a product depend on
the strides of operands.  So a copy such as ``x * 1`` is dropped only if `x` is known to have no
gaps.  A feed is not: it is whatever the user passes.

Not here, because a bit could change: ``x + 0`` (-0 becomes 0), ``x * 0`` (NaN, inf, -0),
``x - x``, complex ``x * 1`` (inf * 0), ``(-x) * (-y)`` and ``x - (-y)`` (the sign of a NaN),
``x ** 1`` (vector libraries may round), and a sum over no axis or over dims of size 1 (it adds 0
to -0).  A matrix product reads a transposed operand as a view; that needs no pass.

Elementwise chains are not computed block by block either, nor are a bias and an activation behind a
product.  Compared with steps that write into planned buffers, in place where possible, blocks of 16
to 128 Ki elements took 1.0 to 1.6 times as long for arrays of up to 8 MB and about as long for
16 MB (float32, one thread, L2 cache of 1 MiB, L3 of 32 MiB).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.node import Variable
from actorgraph.op import CONSTANT, REGISTRY, Op
from actorgraph.rewrite._pass import Pass, Rule, number_of

_LOOKED_AT = 32
"""Most nodes that `_is_c` visits, so that the work stays linear."""


def is_pure(op: Op) -> bool:
    """Return whether the number of calls of the op is unobservable: no user code, no waiting."""
    return not op.waits and op.concurrency is None and not op.checked


def restated(node: Node, op: Op, inputs: tuple[Node, ...], attrs: Mapping[str, Any]) -> Node:
    """Return another op in the place of `node`, with the same id, type, owner and line."""
    return Node(
        node.graph, node.id, op, inputs, attrs, node.type, node.checks, node.line, node.owner,
        node._name,
    )  # fmt: skip


def with_inputs(node: Node, instead: Mapping[int, Node]) -> Node:
    """Return the node restated with what stands `instead` of its inputs, by id; itself if none."""
    for part in node.inputs:
        if part.id in instead:
            inputs = tuple([instead.get(part.id, part) for part in node.inputs])
            return restated(node, node.op, inputs, node.attrs)
    return node


def _ops(names: str) -> tuple[Op, ...]:
    return tuple(REGISTRY[name] for name in names.split())


_ADD, _MULTIPLY, _NEG = _ops("add multiply neg")
_WHERE, _ASTYPE, _TRANSPOSE, _RESHAPE = _ops("where astype transpose reshape")
_BROADCAST, _EXPAND, _SQUEEZE, _GETITEM = _ops("broadcast_to expand_dims squeeze getitem")

_PASSES: list[Pass] = []


def _exact(name: str, doc: str, roots: str) -> Callable[[Rule], Rule]:
    """Make a pass of a rule for some ops; names that are not registered (yet) are ignored."""
    ops = tuple(REGISTRY[root] for root in roots.split() if root in REGISTRY)

    def add(rule: Rule) -> Rule:
        _PASSES.append(Pass(name, doc, rule, ops, changes_bits=False, late=True))
        return rule

    return add


def _by_machines(name: str, doc: str) -> Pass:
    """Return a pass that machines implement without a rule."""
    return Pass(name, doc, None, changes_bits=False, late=True)


# -- what is known about layouts ----------------------------------------------------------------


def _is_compact(node: Node) -> bool:
    """Return whether the array is known to have no gaps, in any order of axes."""
    while node.op is _TRANSPOSE:
        node = node.inputs[0]
    if node.op is CONSTANT:
        flags = node.attrs["value"].flags
        return bool(flags.c_contiguous or flags.f_contiguous)
    return not node.ndim or _is_variable(node) or node.op.makes_own


def _is_variable(node: Node) -> bool:
    return isinstance(node, Variable) or node.op.name in ("parameter", "buffer")


def _is_c(node: Node) -> bool:
    """Return whether the array is known to be C-contiguous."""
    stack, looked_at = [node], 0
    while stack:
        top = stack.pop()
        looked_at += 1
        if not top.ndim or _is_variable(top) or (top.op.memory.layout == "c" and top.op.makes_own):
            continue
        if top.op is CONSTANT:
            if not top.attrs["value"].flags.c_contiguous:
                return False
            continue
        if not top.op.makes_own or looked_at > _LOOKED_AT:
            return False
        stack += top.inputs
    return True


# -- algebra --------------------------------------------------------------------------------------


@_exact(
    "times_one", "x * 1, 1 * x and x / 1 become x: multiplying by 1 is exact",
    "multiply divide",
)  # fmt: skip
def _times_one(node: Node) -> Node | None:
    x, y = node.inputs
    if node.dtype.kind not in "fiu":
        return None
    if number_of(y) == 1 and _keeps(x, node):
        return x
    return y if node.op is _MULTIPLY and number_of(x) == 1 and _keeps(y, node) else None


@_exact(
    "zero_term", "x - 0 and x + (-0) become x, also where x is -0; integers x + 0 too",
    "add subtract",
)  # fmt: skip
def _zero_term(node: Node) -> Node | None:
    x, y = node.inputs
    kind = node.dtype.kind
    if kind not in "fiu":
        return None
    for one, other in ((x, y), (y, x)) if node.op is _ADD else ((x, y),):
        term = number_of(other)
        if term is None or term != 0 or not _keeps(one, node):
            continue
        # x - 0 and x + (-0) are x for every x, -0 included; x + 0 is not.
        if kind != "f" or bool(np.signbit(term)) == (node.op is _ADD):
            return one
    return None


def _keeps(x: Node, node: Node) -> bool:
    """Return whether `x` itself may replace a copy of it."""
    return x.dims == node.dims and _is_compact(x)


@_exact(
    "undo", "-(-x), conj(conj(x)) and not not x become x: each flips a bit, twice",
    "neg conj logical_not",
)  # fmt: skip
def _undone(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op is not node.op or node.dtype.kind == "V":
        return None
    x = inner.inputs[0]
    return x if x.dtype == node.dtype and _is_compact(x) else None


@_exact(
    "repeat", "abs(abs(x)) becomes abs(x), so floor, ceil, trunc and round: fixed points",
    "abs floor ceil trunc round",
)  # fmt: skip
def _repeated(node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner if inner.op is node.op and node.dtype.kind != "V" else None


@_exact("abs_neg", "abs(-x) becomes abs(x): the sign bit is cleared", "abs")
def _abs_of_neg(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op is not _NEG or node.dtype.kind not in "fi":
        return None
    return restated(node, node.op, inner.inputs, node.attrs)


@_exact(
    "same_choice", "where(c, x, x), maximum(x, x) and minimum(x, x) become x: a choice of one",
    "where maximum minimum",
)  # fmt: skip
def _same_choice(node: Node) -> Node | None:
    x, y = node.inputs[-2:]
    if x is not y or node.dtype.kind == "V" or not _keeps(x, node):
        return None
    # The layout of the result of `where` depends on its condition, too.
    return x if node.op is not _WHERE or not node.inputs[0].ndim or node.ndim <= 1 else None


@_exact("cast_back", "astype to a wider dtype and back becomes x: widening is exact", "astype")
def _there_and_back(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op is not _ASTYPE:
        return None
    x = inner.inputs[0]
    # Within a kind: float64 cannot hold every int64, whatever `can_cast` says.
    if x.dtype != node.dtype or x.dtype.kind != inner.dtype.kind or x.dtype.kind not in "fiuc":
        return None
    return x if np.can_cast(x.dtype, inner.dtype, "safe") and _is_compact(x) else None


# -- views ----------------------------------------------------------------------------------------


@_exact("transpose", "a transpose of a transpose becomes one, or x: the same view", "transpose")
def _transposed_twice(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op is not _TRANSPOSE:
        return None
    axes = tuple([inner.attrs["axes"][axis] for axis in node.attrs["axes"]])
    if axes == tuple(range(node.ndim)):
        return inner.inputs[0]
    return restated(node, _TRANSPOSE, inner.inputs, {"axes": axes})


@_exact("reshape", "a reshape of a reshape becomes one, or x, where both are views", "reshape")
def _reshaped_twice(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op is not _RESHAPE or not _is_c(inner.inputs[0]):
        return None
    x = inner.inputs[0]
    if x.dims == node.dims and all(isinstance(dim, int) for dim in x.dims):
        return x
    return restated(node, _RESHAPE, inner.inputs, node.attrs)


@_exact("broadcast", "a broadcast of a broadcast becomes one: the same view", "broadcast_to")
def _broadcast_twice(node: Node) -> Node | None:
    inner = node.inputs[0]
    return restated(node, node.op, inner.inputs, node.attrs) if inner.op is _BROADCAST else None


@_exact(
    "operand", "an operand broadcast to the shape of the other becomes what was broadcast",
    "add subtract multiply divide",
)  # fmt: skip
def _broadcast_operand(node: Node) -> Node | None:
    x, y = node.inputs
    if y.dims == node.dims and y.op is not _BROADCAST:
        before = _before_broadcast(x)
        return None if before is None else restated(node, node.op, (before, y), node.attrs)
    if x.dims == node.dims and x.op is not _BROADCAST:
        before = _before_broadcast(y)
        return None if before is None else restated(node, node.op, (x, before), node.attrs)
    return None


def _before_broadcast(node: Node) -> Node | None:
    """Return the operand of a broadcast, or of one of a number that then got axes of size 1."""
    if node.op is _EXPAND:
        node = node.inputs[0]
        if node.op is not _BROADCAST or node.inputs[0].ndim:
            return None
    return node.inputs[0] if node.op is _BROADCAST else None


@_exact("squeeze", "squeeze of expand_dims at the same axes becomes x: the same view", "squeeze")
def _expanded_and_squeezed(node: Node) -> Node | None:
    inner = node.inputs[0]
    same = inner.op is _EXPAND and inner.attrs["axis"] == node.attrs["axis"]
    return inner.inputs[0] if same else None


@_exact("flip", "reversing the same axes twice becomes x: the same view", "getitem")
def _flipped_twice(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op is not _GETITEM or len(node.inputs) != 1 or len(inner.inputs) != 1:
        return None
    index = node.attrs.get("index")
    if index != inner.attrs.get("index") or not isinstance(index, tuple):
        return None
    flips = (slice(None), slice(None, None, -1))
    if not all(isinstance(part, slice) and part in flips for part in index):
        return None
    return inner.inputs[0]


@_exact(
    "pass_through", "stop_gradient, checkpoint and the like become x: they return it as it is",
    "stop_gradient hook_gradient checkpoint as_it_is",
)  # fmt: skip
def _passed_through(node: Node) -> Node | None:
    return node.inputs[0]


EXACT: tuple[Pass, ...] = (
    *_PASSES,
    _by_machines("fold", "an op on constants becomes its value, computed once by the same kernel"),
    _by_machines(
        "merge", "equal nodes of one task become one: the same kernel on the same operands"
    ),
    _by_machines(
        "slices", "a sum of adjoints of disjoint slices becomes one array, each written as x + 0"
    ),
)
"""All exact passes, in the order in which they are tried."""
