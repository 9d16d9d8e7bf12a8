"""One application of an op, and checks of its type and derivatives.

First order: forward and reverse rules are adjoint, and forward rules agree with central
differences.  Second order: the derivatives of the gradients do, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from actorgraph.autodiff import gradients, tangents
from actorgraph.graph import Graph
from actorgraph.node import Node
from actorgraph.op import Op
from actorgraph.testing._evaluate import evaluate
from actorgraph.testing._laws import claim
from actorgraph.types import Dim

Array = Any
Feeds = dict[Node, Array]

EPS = 1e-6


@final
class Case:
    """One application of an op, with inputs in general position: no ties, nothing near 0.

    `call` builds the result from the input nodes; without it `op` is applied with the sample's
    attributes.  `sizes` says what the graph knows of the dims: "known", "named" (equal sizes have
    one symbol) or "unknown" (None).  A size of 1 is always known, as broadcasting needs it.
    """

    def __init__(
        self, op: Op | None, sample: Any, dtype: str = "float64", repeat: bool = False,
        call: Callable[..., Node] | None = None, sizes: str = "known",
    ) -> None:  # fmt: skip
        self.op, self.sample, self.sizes = op, sample, sizes
        self.rng = np.random.default_rng(len(op.name) if op else 7)
        self.graph = Graph()
        arrays = self.draw(dtype)
        self.xs = [
            self.graph.input(f"x{i}", _dims(array.shape, sizes), array.dtype)
            for i, array in enumerate(arrays)
        ]
        if repeat:
            self.xs = [self.xs[0]] * len(self.xs)
        self.feeds = dict(zip(self.xs, arrays, strict=True))
        if call is not None:
            self.y = call(*self.xs)
        else:
            assert op is not None, "a case is of an op, or of a call"
            self.y = self.graph.apply(op, self.xs, sample.attrs)
        self.wrt = [
            x
            for i, x in enumerate(dict.fromkeys(self.xs))
            if x.dtype.kind in "fc" and self.y.dtype.kind in "fc"
            if i not in sample.constants and (op is None or op.has_vjp(i))
        ]

    def draw(self, dtype: str) -> list[Array]:
        """Return the arrays of the arguments."""
        sample = self.sample
        total = sum(int(np.prod(shape)) for shape in sample.shapes)
        spread = np.linspace(sample.low, sample.high, total + 6)[1:-1]
        spread += self.rng.uniform(-0.2, 0.2, spread.shape) * (spread[1] - spread[0])
        pool = iter(self.rng.permutation(spread[np.abs(spread) > 1e-3]))
        arrays = []
        for i, shape in enumerate(sample.shapes):
            if i in sample.ints:
                array = self.rng.integers(0, sample.ints[i], shape)
            elif i in sample.bools:
                array = self.rng.integers(0, 2, shape).astype(bool)
            else:
                size = int(np.prod(shape))
                kept = "complex64" if dtype == "float32" else "complex128"
                kept = kept if i in sample.complexes else dtype
                array = np.array([next(pool) for _ in range(size)]).reshape(shape).astype(kept)
                if array.dtype.kind == "c":
                    array += 1j * self.rng.uniform(0.3, 1, shape)
            arrays.append(array)
        return arrays

    def check_type(self, node: Node, wanted: Node) -> None:
        """Check that a derivative has the type of its node, as far as the graph knows sizes."""
        if self.sizes == "known":
            claim(node.type == wanted.type, f"{node!r} belongs to {wanted!r}")
        same = (node.dtype, node.ndim) == (wanted.dtype, wanted.ndim)
        claim(same, f"{node!r} belongs to {wanted!r}")

    def shape_of(self, node: Node) -> tuple[int, ...]:
        """Return the shape, by evaluation if the node does not know it."""
        known = tuple([dim for dim in node.shape if isinstance(dim, int)])
        if len(known) == node.ndim:
            return known
        shape: tuple[int, ...] = evaluate([node], self.feeds)[0].shape
        return shape

    def random_like(self, node: Node) -> Array:
        """Return normal numbers of the node's type."""
        shape = self.shape_of(node)
        value: Any = self.rng.normal(size=shape)
        if node.dtype.kind == "c":
            value = value + 1j * self.rng.normal(size=shape)
        return np.asarray(value).astype(node.dtype)

    def moved(self, directions: Mapping[Node, Array], step: float) -> Feeds:
        """Return the feeds moved by a step along the directions."""
        return {
            x: value + step * directions[x] if x in directions else value
            for x, value in self.feeds.items()
        }

    def difference(
        self, nodes: Sequence[Node], directions: Mapping[Node, Array],
        feeds: Mapping[Node, Array] | None = None,
    ) -> list[Array]:  # fmt: skip
        """Return central differences of `nodes` along `directions`."""
        ahead = evaluate(nodes, {**self.moved(directions, EPS), **(feeds or {})})
        behind = evaluate(nodes, {**self.moved(directions, -EPS), **(feeds or {})})
        return [(a - b) / (2 * EPS) for a, b in zip(ahead, behind, strict=True)]


def _dims(shape: tuple[int, ...], sizes: str) -> tuple[int | str | None, ...]:
    if sizes == "known":
        return shape
    return tuple(1 if size == 1 else None if sizes == "unknown" else f"n{size}" for size in shape)


def inner(left: Array, right: Array) -> float:
    """Return the real inner product."""
    return float(np.sum(np.conj(left) * right).real)


def close(got: Array, wanted: Array, rtol: float = 1e-6, what: str = "") -> None:
    """Raise if two arrays differ by more than rounding, relative to the largest entry."""
    wanted = np.asarray(wanted)
    scale = max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * 0.1 * scale, err_msg=what)


def check_type(case: Case) -> None:
    """Raise if the result does not have the type of its node."""
    (value,) = evaluate([case.y], case.feeds)
    wanted = f"expected {case.y.dtype} of shape {case.y.shape}, as its type says"
    claim(value.ndim == case.y.ndim, f"{case.y!r} gave {value.shape}, {wanted}")
    said = [size if dim is None or isinstance(dim, Dim) else dim
            for dim, size in zip(case.y.shape, value.shape, strict=True)]  # fmt: skip
    claim(tuple(said) == value.shape, f"{case.y!r} gave {value.shape}, {wanted}")
    claim(value.dtype == case.y.dtype, f"{case.y!r} gave {value.dtype}, {wanted}")


def check_first_order(case: Case) -> None:
    """Check for each argument jvp against differences, and vjp as its adjoint.

    Without a forward rule, the reverse rule is compared with differences.
    """
    if not case.wrt:
        return
    y, graph = case.y, case.graph
    ct = graph.input("ct", y.shape, y.dtype)
    ct_value = case.random_like(y)
    pulled = gradients([y], case.wrt, seeds=[ct])
    for node, x in zip(pulled, case.wrt, strict=True):
        case.check_type(node, x)
    pulled_values = evaluate(pulled, {**case.feeds, ct: ct_value})
    for number, (x, pulled_value) in enumerate(zip(case.wrt, pulled_values, strict=True)):
        claim(pulled_value.dtype == x.dtype, f"the gradient by {x!r} is {pulled_value.dtype}")
        direction = case.random_like(x)
        if not _has_forward_rule(case):
            (slope,) = case.difference([y], {x: direction})
            what = f"vjp by {x!r} (ACTUAL) and differences of the forward (DESIRED)"
            close(inner(pulled_value, direction), inner(ct_value, slope), 1e-6, what)
            continue
        v = graph.input(f"v{number}", x.shape, x.dtype)
        (pushed,) = tangents([y], {x: v})
        case.check_type(pushed, y)
        (tangent,) = evaluate([pushed], {**case.feeds, v: direction})
        claim(tangent.dtype == y.dtype, f"the tangent along {x!r} is {tangent.dtype}")
        np.testing.assert_allclose(
            inner(ct_value, tangent), inner(pulled_value, direction), 1e-10, 1e-10,
            err_msg=f"vjp and jvp by {x!r} are not adjoint: one of them is wrong; "
            "ACTUAL is by the jvp, DESIRED by the vjp",
        )  # fmt: skip
        if "float32" not in (str(x.dtype), str(y.dtype)):
            what = f"jvp by {x!r} (ACTUAL) and differences of the forward (DESIRED)"
            close(tangent, case.difference([y], {x: direction})[0], 1e-6, what)


def _has_forward_rule(case: Case) -> bool:
    return case.op is None or case.op.jvp is not None


def check_second_order(case: Case) -> None:
    """Check derivatives of the gradient, forward over reverse and reverse over reverse."""
    if not case.wrt:
        return
    y, graph = case.y, case.graph
    ct = graph.input("ct", y.shape, y.dtype)
    feeds = {**case.feeds, ct: case.random_like(y)}
    first = gradients([y], case.wrt, seeds=[ct])
    directions = {x: case.random_like(x) for x in case.wrt}
    seeds = {x: graph.constant(direction) for x, direction in directions.items()}
    wanted = case.difference(first, directions, {ct: feeds[ct]})
    if _has_forward_rule(case):
        pushed = evaluate(tangents(first, seeds), feeds)
        for x, tangent, want in zip(case.wrt, pushed, wanted, strict=True):
            close(tangent, want, 1e-6, f"forward over reverse, the gradient by {x!r}")
    weights = [case.random_like(x) for x in case.wrt]
    second = evaluate(gradients(first, [*case.wrt, ct], seeds=weights), feeds)
    got = sum(inner(a, directions[x]) for a, x in zip(second, case.wrt, strict=False))
    along = sum(inner(w, want) for w, want in zip(weights, wanted, strict=True))
    close(got, along, 1e-6, "reverse over reverse")
    # The gradient is linear in the cotangent.
    values = evaluate(first, feeds)
    summed = sum(inner(w, g) for w, g in zip(weights, values, strict=True))
    close(inner(second[-1], feeds[ct]), summed, 1e-6, "the gradient by the cotangent")
