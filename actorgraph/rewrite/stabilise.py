"""Passes that replace textbook formulas by numerically stable forms.

The formulas overflow, cancel, or have 0 / 0 or 0 * inf in their gradients where the limit is
finite.  A pattern applies only if its constant is literally 1 and the shape stays the same:
``log(a - 1)``, ``log(a + 2)`` or ``exp(x) + 1`` stay as they are.  All apply to real floats, and
``neg(neg(x))`` to every number.

Source: Gorgonia's table of stabilisations (but a shared softmax stays, and its log gets a separate
node), and the limits of sqrt, x / x and norms at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import KEPT_OUT, REGISTRY, Op, Sample
from actorgraph.ops._arrays import all_finite, one
from actorgraph.ops._rules import declare
from actorgraph.ops.activations import logsigmoid, sigmoid, softplus
from actorgraph.ops.arithmetic import abs as size_of_each
from actorgraph.ops.arithmetic import sqrt
from actorgraph.ops.elementwise import expm1, log, log1p, where
from actorgraph.ops.losses import log_softmax, softmax
from actorgraph.ops.reductions import logsumexp
from actorgraph.ops.statistics import norm
from actorgraph.rewrite._pass import Pass, Rule, number_of

_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _NEG, _RECIPROCAL, _SQUARE, _SQRT = (
    REGISTRY[name] for name in "add subtract multiply divide neg reciprocal square sqrt".split()
)
_EXP, _LOG, _LOG1P, _SIGMOID, _SOFTMAX, _SUM, _BROADCAST = (
    REGISTRY[name] for name in "exp log log1p sigmoid softmax sum broadcast_to".split()
)


# -- what patterns are made of ----------------------------------------------------------------


def _becoming(found: Callable[[Node], Node | None], made: Callable[[Node], Node]) -> Rule:
    """Return the rule that applies `made` to the operand that `found` returns."""

    def rule(node: Node) -> Node | None:
        x = found(node)
        return None if x is None else made(x)

    return rule


def _is(node: Node, value: float) -> bool:
    """Return whether all elements of the node are literally this number."""
    return bool(number_of(node) == value)


def _inside(node: Node | None, op: Op) -> Node | None:
    """Return x if the node is ``op(x)`` of floats."""
    return (
        node.inputs[0] if node is not None and node.op is op and node.dtype.kind in "fV" else None
    )


def _plus(node: Node, value: float) -> Node | None:
    """Return a if the node is ``a + value``, ``value + a`` or ``a - (-value)``."""
    if node.op is _ADD:
        pairs = [node.inputs, node.inputs[::-1]]
    elif node.op is _SUBTRACT:
        pairs, value = [node.inputs], -value
    else:
        return None
    for a, constant in pairs:
        if _is(constant, value) and a.dims == node.dims and node.dtype.kind in "fV":
            return a
    return None


def _one_minus(node: Node) -> Node | None:
    """Return a if the node is ``1 - a``."""
    if node.op is not _SUBTRACT or not _is(node.inputs[0], 1) or node.dtype.kind not in "fV":
        return None
    a = node.inputs[1]
    return a if a.dims == node.dims else None


def _squared(node: Node) -> Node | None:
    """Return x if the node is ``square(x)`` or ``x * x``."""
    twice = node.op is _MULTIPLY and node.inputs[0] is node.inputs[1]
    return _inside(node, _MULTIPLY if twice else _SQUARE)


# -- logarithms -------------------------------------------------------------------------------


def _log_of_softmax(node: Node) -> Node | None:
    inner = node.inputs[0]
    x = _inside(inner, _SOFTMAX)
    return None if x is None else log_softmax(x, inner.attrs["axis"])


def _log_of_product(node: Node) -> Node | None:
    product = node.inputs[0]
    if product.op is not _MULTIPLY:
        return None
    for a, share in (product.inputs, product.inputs[::-1]):
        x = _inside(share, _SOFTMAX)
        if x is not None:
            return log(a) + log_softmax(x, share.attrs["axis"])
    return None


def _log_of_exponentials(node: Node) -> Node | None:
    total = node.inputs[0]
    x = _inside(_inside(total, _SUM), _EXP)
    if x is None or any(x.dims[i] == 0 for i in total.attrs["axis"]):
        return None  # the log of an empty sum is -inf, but logsumexp refuses an empty axis
    return logsumexp(x, total.attrs["axis"], total.attrs["keepdims"])


# -- exponentials -----------------------------------------------------------------------------


def _rest_of_sigmoid(node: Node) -> Node | None:
    gate = _one_minus(node)
    if gate is None and node.op is _ADD:
        gate = _inside(_plus(node, 1), _NEG)
    x = _inside(gate, _SIGMOID)
    return None if x is None else sigmoid(-x)


def _by_hand_sigmoid(node: Node) -> Node | None:
    if node.op is _DIVIDE and not _is(node.inputs[0], 1):
        return None
    x = _inside(_inside(_plus(node.inputs[-1], 1), _EXP), _NEG)
    return None if x is None or x.dims != node.dims else sigmoid(x)


def _by_hand_softmax(node: Node) -> Node | None:
    above, total = node.inputs
    x, below = _inside(above, _EXP), _inside(total, _SUM)
    if x is None or below is not above:
        return None
    axis = total.attrs["axis"]
    return softmax(x, axis[0]) if total.attrs["keepdims"] and len(axis) == 1 else None


# -- roots and quotients ----------------------------------------------------------------------


def _root_of_squares(node: Node) -> Node | None:
    total = node.inputs[0]
    squares = _inside(total, _SUM)
    x = None if squares is None else _squared(squares)
    return None if x is None else norm(x, 2, total.attrs["axis"], total.attrs["keepdims"])


def _one_forward(xp: Any, x: Any, out: Any = None) -> Any:
    if x.ndim and all_finite(xp, x):
        out = np.empty(x.shape, x.dtype) if out is None else out
        out.fill(1)
        return out
    return xp.where(x == x, one(xp, x), x)


_ONE = declare(
    "one_unless_nan", "f[*s] -> f[*s]", _one_forward, vjp=(None,), jvp=lambda tans, y, x: None,
    samples=(Sample(((3, 4),)), Sample(((),))), memory=KEPT_OUT,
    doc="1, NaN where x is NaN: a ratio whose limit is taken where it is 0 / 0.", traced=True,
)  # fmt: skip


def _by_itself(node: Node) -> Node | None:
    x, y = node.inputs
    return build(_ONE, x) if x is y and x.dtype.kind in "fV" else None


def _by_its_root(node: Node) -> Node | None:
    x, root = node.inputs
    return sqrt(x) if _inside(root, _SQRT) is x else None


def _negated_twice(node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op is _NEG else None


_TABLE: tuple[tuple[str, str, Rule, tuple[Op, ...]], ...] = (
    ("log1p", "log(1 + a) becomes log1p(a)",
     _becoming(lambda node: _plus(node.inputs[0], 1), log1p), (_LOG,)),
    ("log1p_neg", "log(1 - a) becomes log1p(-a)",
     _becoming(lambda node: _one_minus(node.inputs[0]), lambda a: log1p(-a)), (_LOG,)),
    ("logsigmoid", "log(sigmoid(x)) becomes -softplus(-x), one op",
     _becoming(lambda node: _inside(node.inputs[0], _SIGMOID), logsigmoid), (_LOG,)),
    ("log_softmax", "log(softmax(a)) becomes log_softmax(a)", _log_of_softmax, (_LOG,)),
    ("log_product", "log(a * softmax(b)) becomes log(a) + log_softmax(b)", _log_of_product,
     (_LOG,)),
    ("logsumexp", "log(sum(exp(x))) becomes logsumexp(x)", _log_of_exponentials, (_LOG,)),
    ("softplus", "log1p(exp(x)) becomes softplus(x)",
     _becoming(lambda node: _inside(node.inputs[0], _EXP), softplus), (_LOG1P,)),
    ("softplus_neg", "log1p(-sigmoid(x)) becomes -softplus(x)",
     _becoming(lambda node: _inside(_inside(node.inputs[0], _NEG), _SIGMOID),
               lambda x: -softplus(x)), (_LOG1P,)),
    ("expm1", "exp(x) - 1 becomes expm1(x)",
     _becoming(lambda node: _inside(_plus(node, -1), _EXP), expm1), (_ADD, _SUBTRACT)),
    ("sigmoid_rest", "1 - sigmoid(x) becomes sigmoid(-x)", _rest_of_sigmoid, (_ADD, _SUBTRACT)),
    ("sigmoid", "1 / (1 + exp(-x)) becomes sigmoid(x)", _by_hand_sigmoid, (_DIVIDE, _RECIPROCAL)),
    ("softmax", "exp(x) / sum(exp(x)) becomes softmax(x)", _by_hand_softmax, (_DIVIDE,)),
    ("abs", "sqrt(x * x) becomes abs(x), with gradient 0 at 0",
     _becoming(lambda node: _squared(node.inputs[0]), size_of_each), (_SQRT,)),
    ("sqrt_squared", "sqrt(x) * sqrt(x) becomes x where x >= 0, with gradient 1 at 0",
     _becoming(lambda node: _inside(_squared(node), _SQRT), lambda x: where(x >= 0, x, nan)),
     (_MULTIPLY, _SQUARE)),
    ("norm", "sqrt(sum(x * x)) becomes norm(x), with gradient 0 at 0", _root_of_squares, (_SQRT,)),
    ("ratio", "x / x becomes 1, also at 0 and inf; NaN stays", _by_itself, (_DIVIDE,)),
    ("sqrt_ratio", "x / sqrt(x) becomes sqrt(x), 0 at 0", _by_its_root, (_DIVIDE,)),
    ("double_neg", "-(-x) becomes x", _negated_twice, (_NEG,)),
)  # fmt: skip

STABLE: tuple[Pass, ...] = tuple(Pass(*row) for row in _TABLE)
"""All of them.  Each changes bits: `double_neg` changes none of a value, but sums of cotangents
are then taken in another order."""
