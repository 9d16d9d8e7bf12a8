"""Applications that are equal in every bit are one node, and no others are."""

import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.op import REGISTRY, Op, attrs_key
from tests._each import each
from tests._evaluate import evaluate


@pytest.fixture
def g():
    return ag.Graph("net")


def test_equal_applications_are_one_node(g):
    x = g.input("x", (3,), "float64")
    y = ag.ops.exp(x) + ag.ops.tanh(x)
    assert ag.ops.exp(x) + ag.ops.tanh(x) is y
    assert x.sum(0) is x.sum((0,))
    assert x * 2 is x * 2.0
    assert x * np.ones(3) is x * np.ones(3)


def test_operands_in_another_order_are_another_node(g):
    x = g.input("x", (3,), "float64")
    left = ag.ops.exp(x)
    assert x - left is not left - x
    assert x + left is not left + x


def test_constants_differ_by_dtype_and_bits(g):
    """Regression: Gorgonia merges constants whose texts agree."""
    values = [1, 1.0, True, 0.0, -0.0, np.float32(1), np.int32(1), [1.0], [[1.0]], 1 + 0j]
    large = np.zeros(10_000)
    other = large.copy()
    other[5_000] = 1e-300
    values += [large, other, large.reshape(100, 100), np.nan, np.inf, -np.inf]
    assert len({g.constant(value) for value in values}) == len(values)
    assert len({g.constant(value) for value in values}) == len(values)
    assert g.constant(np.nan) is g.constant(float("nan"))


def test_weak_scalars_of_equal_bits_are_one_node_and_others_are_not(g):
    x = g.input("x", (3,), "float64")
    assert x + 1 is x + 1.0
    assert x + 0.0 is not x + (-0.0)


def test_equal_attributes_of_a_graph_are_one_object_and_others_are_not(g):
    x, y = g.input("x", (3, 2), "float64"), g.input("y", (3, 2), "float64")

    def slope(node, value):
        return ag.ops.leaky_relu(node, value).attrs

    assert x.transpose().attrs is y.transpose().attrs
    assert slope(x, 0.0) is slope(y, 0.0)
    assert slope(x, 0.0) is not slope(x, -0.0)


APPLICATIONS = [(op, sample) for op in list(REGISTRY.values()) for sample in op.samples]


def altered(value):
    """Return values that differ from an attribute in one single place."""
    if isinstance(value, bool):
        return [not value, int(value)]
    if isinstance(value, int):
        return [value + 1, value - 1, float(value), value + 256]
    if isinstance(value, float):
        whole = int(value) if np.isfinite(value) and value == int(value) else 0
        return [np.nextafter(value, 12.5), -value, whole]
    if isinstance(value, str):
        return [value + "'", value.upper() + "_"]
    if isinstance(value, slice):
        parts = [value.start, value.stop, value.step]
        return [
            slice(*parts[:i], other, *parts[i + 1 :])
            for i, part in enumerate(parts)
            for other in ([5, 261, -1] if part is None else altered(part))
        ]
    if isinstance(value, tuple):
        changed = [
            (*value[:i], other, *value[i + 1 :])
            for i, part in enumerate(value)
            for other in altered(part)
        ]
        return [*changed, (*value, 0), list(value)]
    if value is None:
        return [0, False]
    return [None, 12345]


def test_nodes_that_differ_in_any_single_attribute_never_merge():
    """Regression: ten of Gorgonia's ops leave attributes out of their hashes."""
    for op, sample in APPLICATIONS:
        keys = {attrs_key(dict(sample.attrs))}
        count = 1
        for name, value in sample.attrs.items():
            for other in altered(value):
                keys.add(attrs_key({**sample.attrs, name: other}))
                count += 1
        keys.add(attrs_key({**sample.attrs, "another": 1}))
        assert len(keys) == count + 1, op


def dtype_in(sample, position):
    if position in sample.ints:
        return "int64"
    if position in sample.bools:
        return "bool"
    return "complex128" if position in sample.complexes else "float64"


@each("op", list(REGISTRY.values()))
def test_an_op_applied_twice_is_one_node_and_to_other_inputs_another(op):
    for sample in op.samples:
        g = ag.Graph()
        one, two = (
            [
                g.input(f"{tag}{i}", shape, dtype_in(sample, i))
                for i, shape in enumerate(sample.shapes)
            ]
            for tag in "ab"
        )
        node = g.apply(op, one, dict(sample.attrs))
        assert g.apply(op, one, dict(sample.attrs)) is node
        for i, other in enumerate(two):
            assert g.apply(op, [*one[:i], other, *one[i + 1 :]], dict(sample.attrs)) is not node


def test_different_ops_of_equal_inputs_and_attributes_never_merge(g):
    x = g.input("x", (3, 4))
    nodes = {f(x, axis=1, keepdims=True) for f in (ag.ops.sum, ag.ops.mean, ag.ops.max, ag.ops.min)}
    assert len(nodes) == 4


@each(
    ("left", "right"),
    [
        (1, True),
        (0.0, -0.0),
        (1, 1.0),
        ((1, 2), [1, 2]),
        (None, False),
        ("1", 1),
        (slice(1), slice(0, 1)),
        (np.float32(1), np.float64(1)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2, "f4"), np.zeros(1, "f8")),
        (np.dtype("f4"), "float32"),
        ({"a": 1}, {"b": 1}),
        ((), ((),)),
        ((1, 0), (True, False)),
        ((1, 2), (1, 2.0)),
        ((1,), (int, 1)),
    ],
)
def test_attributes_that_mean_different_things_have_different_keys(left, right):
    assert attrs_key(left) != attrs_key(right)
    assert attrs_key(left) == attrs_key(left)


def test_an_array_attribute_is_keyed_by_what_it_held_when_the_key_was_made():
    array = np.zeros(3)
    key = attrs_key(array)
    array[0] = 1
    assert key == attrs_key(np.zeros(3))
    assert key != attrs_key(array)


def test_a_large_constant_is_held_once(g):
    size = 4 << 20
    array = np.zeros(size, "uint8")
    tracemalloc.start()
    node = g.constant(array)
    held, _ = tracemalloc.get_traced_memory()
    again = g.constant(array)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert node is again
    assert held < 1.1 * size
    assert after < 1.1 * size


def test_arrays_of_one_digest_are_told_apart_by_their_bytes(monkeypatch):
    left, right = attrs_key(np.zeros(3)), attrs_key(np.ones(3))
    for _, bits in (left, right):
        monkeypatch.setattr(type(bits), "__hash__", lambda self: 0)
        bits.digest = 0
    assert left != right
    assert len({left, right}) == 2


def test_arrays_that_differ_in_their_last_byte_differ(g):
    size = (1 << 20) + 3
    arrays = [np.zeros(size, "uint8") for _ in range(3)]
    arrays[1][-1] = 1
    first, second, third = map(g.constant, arrays)
    assert first is not second
    assert first is third
    assert g.constant(arrays[0][::-1]) is first


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.array(1.5), np.array([None, "a"], object)])
def test_empty_scalar_and_object_arrays_have_keys(array):
    assert attrs_key(array) == attrs_key(array.copy())
    assert attrs_key(array) != attrs_key(array.reshape((1, *array.shape)))


def test_writing_to_an_array_that_was_an_attribute_changes_no_node(g):
    lookup = Op("lookup", "a[*s] -> a[*s]", lambda xp, x, table: x + table)
    x, table = g.input("x", (2,)), np.zeros(2, "float32")
    node = g.apply(lookup, [x], {"table": table})
    table += 1
    assert g.apply(lookup, [x], {"table": np.zeros(2, "float32")}) is node
    assert g.apply(lookup, [x], {"table": table}) is not node
    np.testing.assert_array_equal(evaluate([node], {x: np.ones(2, "float32")})[0], [1, 1])
