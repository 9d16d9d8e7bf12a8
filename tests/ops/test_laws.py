"""Laws that every op of the registry obeys, on the samples that its own declaration gives.

A new op is found by itself: it needs `samples`, and nothing here.  Elementwise ops and reductions
are tried besides on shapes, axes and broadcasts that hypothesis chooses.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError
from actorgraph.op import REGISTRY, Op, Sample, bind_attrs
from tests._evaluate import evaluate

LIBRARY = [op for op in REGISTRY.values() if not op.checked]  # the others are ops of tests
CASES = [
    pytest.param(op, sample, id=f"{op.name}-{number}")
    for op in LIBRARY
    for number, sample in enumerate(op.samples)
]
EPS = 1e-6
# The derivatives of ctc_loss end at the second: by design a rule of its curvature raises.
RAISING_RULES = {"ctc_curvature": (2,)}
WITHOUT_SECOND_ORDER = ("ctc_pull", "ctc_curvature")


class Case:
    """One application of an op, with inputs in general position: no ties, nothing near 0."""

    def __init__(self, op, sample, dtype="float64", repeat=False):
        self.op, self.sample = op, sample
        self.rng = np.random.default_rng(len(op.name))
        self.graph = ag.Graph()
        arrays = self.draw(dtype)
        self.xs = [
            self.graph.input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(arrays)
        ]
        if repeat:
            self.xs = [self.xs[0]] * len(self.xs)
        self.feeds = dict(zip(self.xs, arrays, strict=True))
        self.y = self.graph.apply(op, self.xs, sample.attrs)
        self.wrt = [
            x
            for i, x in enumerate(dict.fromkeys(self.xs))
            if x.dtype.kind in "fc" and op.has_vjp(i) and self.y.dtype.kind in "fc"
            if i not in RAISING_RULES.get(op.name, ())
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

    def shape_of(self, node):
        """The shape, evaluated where the node does not know it."""
        return evaluate([node], self.feeds)[0].shape if None in node.shape else node.shape

    def random_like(self, node):
        value = self.rng.normal(size=self.shape_of(node))
        if node.dtype.kind == "c":
            value = value + 1j * self.rng.normal(size=node.shape)
        return value.astype(node.dtype)

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


def inner(left, right):
    return np.sum(np.conj(left) * right).real


def close(got, wanted, rtol=1e-6):
    wanted = np.asarray(wanted)
    scale = max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * 0.1 * scale)


def check_first_order(case):
    """jvp against differences for each argument, and vjp as its adjoint."""
    if not case.wrt:
        return
    y, graph = case.y, case.graph
    ct = graph.input("ct", y.shape, y.dtype)
    ct_value = case.random_like(y)
    pulled = ag.gradients([y], case.wrt, seeds=[ct])
    assert [node.type for node in pulled] == [x.type for x in case.wrt]
    pulled_values = evaluate(pulled, {**case.feeds, ct: ct_value})
    for number, (x, pulled_value) in enumerate(zip(case.wrt, pulled_values, strict=True)):
        v = graph.input(f"v{number}", x.shape, x.dtype)
        direction = case.random_like(x)
        (pushed,) = tangents([y], {x: v})
        assert pushed.type == y.type
        (tangent,) = evaluate([pushed], {**case.feeds, v: direction})
        assert tangent.dtype == y.dtype
        assert pulled_value.dtype == x.dtype
        assert inner(ct_value, tangent) == pytest.approx(
            inner(pulled_value, direction), rel=1e-10, abs=1e-10
        )
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
    weights = [case.random_like(node) for node in gradients]
    second = evaluate(ag.gradients(gradients, [*case.wrt, ct], seeds=weights), feeds)
    got = sum(inner(a, directions[x]) for a, x in zip(second, case.wrt, strict=False))
    close(got, sum(inner(w, want) for w, want in zip(weights, wanted, strict=True)))
    # The gradient is linear in the cotangent.
    first = evaluate(gradients, feeds)
    close(
        inner(second[-1], feeds[ct]),
        sum(inner(w, g) for w, g in zip(weights, first, strict=True)),
    )


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
def test_op_says_where_to_try_it_and_what_it_is(op):
    assert op.samples
    assert op.doc.endswith(".")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_shape_and_dtype_are_those_of_the_result(op, sample, dtype):
    case = Case(op, sample, dtype)
    (value,) = evaluate([case.y], case.feeds)
    assert len(value.shape) == case.y.ndim
    assert all(dim in (None, size) for dim, size in zip(case.y.shape, value.shape, strict=True))
    assert value.dtype == case.y.dtype
    if value.dtype.kind == "f" and "dtype" not in sample.attrs:
        assert value.dtype == dtype


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_layout_of_arguments_does_not_matter(op, sample):
    case = Case(op, sample)
    spread = {
        x: np.repeat(value, 2, axis=-1)[..., ::2] for x, value in case.feeds.items() if x.ndim
    }
    flipped = {x: value.T.copy().T for x, value in case.feeds.items()}
    (wanted,) = evaluate([case.y], case.feeds)
    for feeds in ({**case.feeds, **spread}, flipped):
        (value,) = evaluate([case.y], feeds)
        np.testing.assert_allclose(value, wanted, rtol=1e-14)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_arguments_are_only_read(op, sample):
    case = Case(op, sample)
    before = [value.copy() for value in case.feeds.values()]
    evaluate([case.y], case.feeds)  # which hands out read-only arrays
    for old, value in zip(before, case.feeds.values(), strict=True):
        np.testing.assert_array_equal(value, old)


def _broadcast_variants(arrays):
    """The arrays, and the same with strides of 0 along one axis of one array, and along all."""
    yield arrays
    for i, array in enumerate(arrays):
        for axis in range(array.ndim):
            flat = np.broadcast_to(array[(slice(None),) * axis + (slice(0, 1),)], array.shape)
            if flat.shape[axis]:
                yield [*arrays[:i], flat, *arrays[i + 1 :]]
    if all(array.size for array in arrays):
        yield [np.broadcast_to(array[(0,) * array.ndim], array.shape) for array in arrays]


@pytest.mark.parametrize(("op", "sample"), [c for c in CASES if c.values[0].layout != "any"])
def test_results_have_the_layout_that_the_op_declares(op, sample):
    case = Case(op, sample)
    attrs = bind_attrs(sample.attrs, {})
    for arrays in _broadcast_variants([case.feeds[x] for x in case.xs]):
        result = np.asarray(op.forward(np, *arrays, **attrs))
        if op.layout == "ordered":
            strides = [s for s, n in zip(result.strides, result.shape, strict=True) if s and n > 1]
            assert strides == sorted(strides, reverse=True)
        else:
            assert result.flags.c_contiguous
            assert not any(np.may_share_memory(result, array) for array in arrays)


@pytest.mark.parametrize(("op", "sample"), [c for c in CASES if c.values[0].takes_out])
def test_what_is_written_to_memory_that_is_given_is_the_result(op, sample):
    case = Case(op, sample)
    arrays, attrs = [case.feeds[x] for x in case.xs], bind_attrs(sample.attrs, {})
    expected = np.asarray(op.forward(np, *arrays, **attrs))
    if expected.ndim:
        out = np.full(expected.shape, 7, expected.dtype)
        np.testing.assert_array_equal(op.forward(np, *arrays, out, **attrs), expected)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_cost_is_positive(op, sample):
    case = Case(op, sample)
    assert op.flops(sample.shapes, case.shape_of(case.y), sample.attrs) > 0


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
def test_float_results_of_floats_have_both_rules(op):
    case = Case(op, op.samples[0])
    if case.y.dtype.kind == "f" and any(x.dtype.kind == "f" for x in case.xs):
        assert op.vjp is not None
        assert op.jvp is not None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_rules_agree_with_each_other_and_with_differences(op, sample, dtype):
    case = Case(op, sample, dtype)
    if dtype == "float64":
        check_first_order(case)
    elif case.wrt:
        (ct,) = evaluate([case.y], case.feeds)
        for node in ag.gradients([case.y], case.wrt, seeds=[ct]):
            (value,) = evaluate([node], case.feeds)
            assert value.dtype == node.dtype
            assert value.dtype in (np.float32, np.complex64)


# Complex vectors are defined up to phases: see test_decompositions.py.
PHASES = ("eigh", "svd", "complement", "turn_free")


def _admits_complex(op, sample):
    if "dtype" in sample.attrs or op.name in PHASES:
        return False
    try:
        return bool(Case(op, sample, "complex128").wrt)
    except GraphTypeError:
        return False


@pytest.mark.parametrize(
    ("op", "sample"), [case for case in CASES if _admits_complex(*case.values)]
)
def test_rules_hold_for_complex_numbers_where_the_type_admits_them(op, sample):
    check_first_order(Case(op, sample, "complex128"))
    check_second_order(Case(op, sample, "complex128"))


@pytest.mark.parametrize("wrong", ["vjp", "jvp", "vjp and jvp"])
def test_a_rule_wrong_by_one_in_a_thousand_is_caught(wrong):
    def slope(x, rule):
        return x * x * (3.003 if rule in wrong else 3)

    cube = Op(
        "cube",
        "f[*s] -> f[*s]",
        lambda xp, x: x * x * x,
        vjp=(lambda ct, y, x: ct * slope(x, "vjp"),),
        jvp=lambda tans, y, x: tans[0] * slope(x, "jvp"),
    )
    with pytest.raises(AssertionError, match=r"tolerance|comparison|==|abs"):
        check_first_order(Case(cube, Sample(((3, 4),))))


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_second_order_agrees_with_differences_of_the_gradient(op, sample):
    if op.name not in WITHOUT_SECOND_ORDER:
        check_second_order(Case(op, sample))


# Of x against x these make a tie or a step, where differences say nothing.
STEPS = ("maximum", "minimum", "clip", "mod", "floor_divide")
REPEATABLE = [
    pytest.param(op, sample, id=f"{op.name}-{number}")
    for op in LIBRARY
    for number, sample in enumerate(op.samples)
    if len(sample.shapes) > 1
    and len(set(sample.shapes)) == 1
    and not sample.ints
    and not sample.bools
    and op.name not in STEPS
]


@pytest.mark.parametrize(("op", "sample"), REPEATABLE)
def test_one_node_may_be_every_argument(op, sample):
    check_first_order(Case(op, sample, repeat=True))
    check_second_order(Case(op, sample, repeat=True))


def _is_elementwise(op):
    if not isinstance(op.scheme, str):
        return False
    *args, result = op.scheme.split(" -> ")
    rows = [re.fullmatch(r"\w+\[\*(\w)\]", arg) for arg in args]
    return all(rows) and result.endswith(f"[*{'|'.join(row[1] for row in rows if row)}]")


ELEMENTWISE = [op for op in LIBRARY if _is_elementwise(op) and not op.samples[0].attrs]
REDUCTIONS = [
    op
    for op in LIBRARY
    if {"axis", "keepdims"} == set(op.samples[0].attrs)
    and isinstance(op.samples[0].attrs["axis"], tuple)
]


def test_elementwise_ops_and_reductions_are_recognised():
    assert {"add", "where", "power", "relu", "clip"} <= {op.name for op in ELEMENTWISE}
    assert {"sum", "mean", "max", "min", "logsumexp", "prod", "any"} <= {
        op.name for op in REDUCTIONS
    }


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(picks=st.data())
def test_elementwise_laws_hold_for_any_shapes_that_broadcast(op, picks):
    model = op.samples[0]
    shapes = picks.draw(
        hnp.mutually_broadcastable_shapes(
            num_shapes=len(model.shapes), min_side=0, max_side=3, max_dims=3
        )
    ).input_shapes
    sample = Sample(shapes, {}, model.low, model.high, model.ints, model.bools)
    case = Case(op, sample)
    (value,) = evaluate([case.y], case.feeds)
    assert value.shape == case.y.shape == np.broadcast_shapes(*shapes)
    check_first_order(case)


@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda op: op.name)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(picks=st.data())
def test_reduction_laws_hold_for_any_shape_and_axes(op, picks):
    shape = picks.draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=3))
    given_axes = picks.draw(
        st.one_of(
            st.none(),
            hnp.valid_tuple_axes(len(shape)),
            *([st.integers(-len(shape), len(shape) - 1)] if shape else []),
        )
    )
    keepdims = picks.draw(st.booleans())
    x = ag.Graph().input("x", shape, "float64")
    attrs = getattr(ag.ops, op.name)(x, given_axes, keepdims).attrs
    case = Case(op, Sample((shape,), attrs))
    (value,) = evaluate([case.y], case.feeds)
    numpy_axes = given_axes if given_axes is None else attrs["axis"]
    reference = {"logsumexp": np.logaddexp.reduce}.get(op.name) or getattr(np, op.name)
    wanted = reference(case.feeds[case.xs[0]], axis=numpy_axes, keepdims=keepdims)
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    check_first_order(case)
