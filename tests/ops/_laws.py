"""The laws of one application of an op: what `test_laws` and `test_drawn_laws` check.

`Case` is the application.  First order: forward and reverse rules are adjoint, and forward rules
agree with central differences.  Second order: so do the derivatives of the gradients.
"""

import numpy as np

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.types import Dim
from tests._evaluate import evaluate

EPS = 1e-6
# The derivatives of ctc_loss end at the second: by design a rule of its curvature raises.
RAISING_RULES = {"ctc_curvature": (2,)}


class Case:
    """One application of an op, with inputs in general position: no ties, nothing near 0.

    `call` builds the result of the nodes; without it `op` is applied with the sample's attributes.
    `sizes` says what the graph knows of the dims: "told", "named" (equal sizes have one symbol) or
    "unknown" (None).  A size of 1 is always told, since broadcasting asks for it.
    """

    def __init__(self, op, sample, dtype="float64", repeat=False, call=None, sizes="told"):
        self.op, self.sample, self.sizes = op, sample, sizes
        self.rng = np.random.default_rng(len(op.name) if op else 7)
        self.graph = ag.Graph()
        arrays = self.draw(dtype)
        self.xs = [
            self.graph.input(f"x{i}", _dims(array.shape, sizes), array.dtype)
            for i, array in enumerate(arrays)
        ]
        if repeat:
            self.xs = [self.xs[0]] * len(self.xs)
        self.feeds = dict(zip(self.xs, arrays, strict=True))
        self.y = call(*self.xs) if call else self.graph.apply(op, self.xs, sample.attrs)
        constants = sample.constants if call else RAISING_RULES.get(op.name, ())
        self.wrt = [
            x
            for i, x in enumerate(dict.fromkeys(self.xs))
            if x.dtype.kind in "fc" and self.y.dtype.kind in "fc"
            if i not in constants and (call or op.has_vjp(i))
        ]

    def draw(self, dtype):
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

    def check_type(self, node, wanted):
        """A derivative is of the type of what it belongs to, as far as the graph tells sizes."""
        if self.sizes == "told":
            assert node.type == wanted.type, f"{node!r} belongs to {wanted!r}"
        assert (node.dtype, node.ndim) == (wanted.dtype, wanted.ndim), f"{node!r}, {wanted!r}"

    def shape_of(self, node):
        """The shape, evaluated where the node does not know it."""
        known = all(isinstance(dim, int) for dim in node.shape)
        return node.shape if known else evaluate([node], self.feeds)[0].shape

    def random_like(self, node):
        shape = self.shape_of(node)
        value = self.rng.normal(size=shape)
        if node.dtype.kind == "c":
            value = value + 1j * self.rng.normal(size=shape)
        return np.asarray(value).astype(node.dtype)

    def moved(self, directions, step):
        return {
            x: value + step * directions[x] if x in directions else value
            for x, value in self.feeds.items()
        }

    def difference(self, nodes, directions, feeds=None):
        """Central differences of `nodes` along `directions`."""
        ahead = evaluate(nodes, {**self.moved(directions, EPS), **(feeds or {})})
        behind = evaluate(nodes, {**self.moved(directions, -EPS), **(feeds or {})})
        return [(a - b) / (2 * EPS) for a, b in zip(ahead, behind, strict=True)]


def _dims(shape, sizes):
    if sizes == "told":
        return shape
    return tuple(1 if size == 1 else None if sizes == "unknown" else f"n{size}" for size in shape)


def inner(left, right):
    return np.sum(np.conj(left) * right).real


def close(got, wanted, rtol=1e-6):
    wanted = np.asarray(wanted)
    scale = max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * 0.1 * scale)


def check_type(case):
    """The result is what the type of its node says."""
    (value,) = evaluate([case.y], case.feeds)
    said = [size if dim is None or isinstance(dim, Dim) else dim
            for dim, size in zip(case.y.shape, value.shape, strict=True)]  # fmt: skip
    assert tuple(said) == value.shape, f"{case.y!r} gave {value.shape}"
    assert value.dtype == case.y.dtype, f"{case.y!r} gave {value.dtype}"


def check_first_order(case):
    """jvp against differences for each argument, and vjp as its adjoint."""
    if not case.wrt:
        return
    y, graph = case.y, case.graph
    ct = graph.input("ct", y.shape, y.dtype)
    ct_value = case.random_like(y)
    pulled = ag.gradients([y], case.wrt, seeds=[ct])
    for node, x in zip(pulled, case.wrt, strict=True):
        case.check_type(node, x)
    pulled_values = evaluate(pulled, {**case.feeds, ct: ct_value})
    for number, (x, pulled_value) in enumerate(zip(case.wrt, pulled_values, strict=True)):
        v = graph.input(f"v{number}", x.shape, x.dtype)
        direction = case.random_like(x)
        (pushed,) = tangents([y], {x: v})
        case.check_type(pushed, y)
        (tangent,) = evaluate([pushed], {**case.feeds, v: direction})
        assert (tangent.dtype, pulled_value.dtype) == (y.dtype, x.dtype)
        np.testing.assert_allclose(
            inner(ct_value, tangent), inner(pulled_value, direction), 1e-10, 1e-10,
            err_msg=f"vjp and jvp by {x!r} are not adjoint",
        )  # fmt: skip
        if "float32" not in (str(x.dtype), str(y.dtype)):
            close(tangent, case.difference([y], {x: direction})[0])


def check_second_order(case):
    """Derivatives of the gradient, forward over reverse and reverse over reverse."""
    if not case.wrt:
        return
    y, graph = case.y, case.graph
    ct = graph.input("ct", y.shape, y.dtype)
    feeds = {**case.feeds, ct: case.random_like(y)}
    gradients = ag.gradients([y], case.wrt, seeds=[ct])
    directions = {x: case.random_like(x) for x in case.wrt}
    seeds = {x: graph.constant(direction) for x, direction in directions.items()}
    wanted = case.difference(gradients, directions, {ct: feeds[ct]})
    pushed = evaluate(tangents(gradients, seeds), feeds)
    for got, want in zip(pushed, wanted, strict=True):
        close(got, want)
    weights = [case.random_like(x) for x in case.wrt]
    second = evaluate(ag.gradients(gradients, [*case.wrt, ct], seeds=weights), feeds)
    got = sum(inner(a, directions[x]) for a, x in zip(second, case.wrt, strict=False))
    close(got, sum(inner(w, want) for w, want in zip(weights, wanted, strict=True)))
    # The gradient is linear in the cotangent.
    first = evaluate(gradients, feeds)
    close(
        inner(second[-1], feeds[ct]),
        sum(inner(w, g) for w, g in zip(weights, first, strict=True)),
    )


LAYOUTS = {
    "transposed": lambda value: value.T.copy().T,
    "every second entry": lambda value: np.repeat(value, 2, axis=-1)[..., ::2],
    "backwards": lambda value: np.flip(np.flip(value).copy()),
}
"""Views of the values of an array whose entries do not lie in C order."""


def value_and_gradients(case):
    """The result and its gradients by `wrt` along a random cotangent, with the feeds they need."""
    if not case.wrt:
        return [case.y], case.feeds
    ct = case.graph.input("ct", case.y.shape, case.y.dtype)
    feeds = {**case.feeds, ct: case.random_like(case.y)}
    return [case.y, *ag.gradients([case.y], case.wrt, seeds=[ct])], feeds


def check_layouts(case, rtol):
    """Values and gradients are those of contiguous copies; bit for bit where `rtol` is 0."""
    nodes, feeds = value_and_gradients(case)
    wanted = evaluate(nodes, feeds)
    for layout in LAYOUTS.values():
        laid = {x: layout(value) if value.ndim else value for x, value in feeds.items()}
        for got, want in zip(evaluate(nodes, laid), wanted, strict=True):
            if rtol and want.dtype.kind in "fc":
                close(got, want, rtol)
            else:
                np.testing.assert_array_equal(got, want)


def check_float32(case32, case64, rtol):
    """In float32 all is float32, and near what float64 gives for the same numbers."""
    nodes32, feeds32 = value_and_gradients(case32)
    nodes64, feeds64 = value_and_gradients(case64)
    rounded = {x: value.astype(mine.dtype) for (x, mine), value in
               zip(feeds64.items(), feeds32.values(), strict=True)}  # fmt: skip
    got, wanted = evaluate(nodes32, feeds32), evaluate(nodes64, rounded)
    for node, value, want in zip(nodes32, got, wanted, strict=True):
        assert value.dtype == node.dtype
        assert value.shape == want.shape
        if value.dtype.kind in "fc":
            close(value, want, rtol)
        else:
            np.testing.assert_array_equal(value, want)
