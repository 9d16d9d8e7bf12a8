"""Lists among arrays, views of arrays that change, keys of dicts, and whole numbers."""

import math
import operator
from itertools import product

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import source
from actorgraph.errors import GraphError
from tests._each import each

WAYS = [*product(("reverse",), ("joint", "split"), (True, False)), ("forward", "joint", True)]
V = np.array([0.5, 2.0, 1.5])


def list_added(x):
    return np.sum(([x] + V * x) * V)


def list_written(x):
    y = V * x
    y[:] = [x]
    return np.sum(y * V)


def list_of_rows_written(x):
    y = np.outer(V, V) * x
    y[:] = [[x], [2.0 * x], [x * x]]
    return np.sum(y * np.outer(V, V))


def list_of_elements_written(x):
    y = np.outer(V[:2], V) * x
    y[:] = [x, x * x, 3.0]
    return np.sum(y * V)


def row_written(x):
    y = V * x
    y[:] = V[None] * x * x
    return np.sum(y * V)


def joined(x):
    return np.sum(np.concatenate([V * x, [x, x * x]]) ** 2)


def joined_by_name(x):
    items = [x, x * x, 2.0]
    return np.dot(items, V) + np.sum(np.outer(V, V) @ items) + np.sum(np.where(V > 1.0, V, items))


def interpolated(x):
    return np.interp(x, [1.0, 2.0], [x, x * x])


def squared(x):
    return np.square([x])[0] + np.sum(np.maximum(V, [x * x]))


def summed_and_read(x):
    items = [x, x * x]
    return np.sum(items) * items[0] + np.sum(items * V[:2]) + np.sum(items)


def converted(x):
    y = V * x
    return np.sum(y.astype(int) * y) + np.sum(np.array(y, dtype=int) * y) + np.full(1, x, int)[0]


def parted(x):
    fraction, whole = math.modf(3.0 * x)
    return fraction * x + whole * x


def logarithms(x):
    return math.log(x, 3) + math.log(3.0, x)


def equal_keys(x):
    one, other = 1, 1
    return {"a": x, "a": x * x}["a"] * {one: x, other: 3.0 * x}[1]  # noqa: F601 - it is the case


def bound_in_its_loop(x):
    y = x
    for b in [4.0, 5.0]:
        y, b = b, y + b
    for i in range(2):
        y, i = y * x, x
        y = y + i
    return 0.3 * y


def negated(x):
    return (not x) * x + x


def keys(x):
    given = {0: x, 1: x * x}
    return sum([k * x for k in given.keys()])  # noqa: SIM118


def rows_read(x):
    y = np.outer(V, V) * x
    y *= x
    row = y[1]
    return np.sum(row * row)


def rows_passed(x):
    y = np.zeros((3, 3))
    for i in range(1, 3):
        y[i] = y[i - 1] + _doubled(y[i - 1]) + x
    return np.sum(y * V)


def _doubled(row):
    return row * 2.0


def elements_swapped(x):
    y = V * x
    y[0], y[1] = y[1] * x, y[0]
    return np.sum(y * V)


@each("function", [
    list_added, list_written, list_of_rows_written, list_of_elements_written, row_written, joined,
    joined_by_name, interpolated, squared, summed_and_read, converted, parted, logarithms,
    equal_keys, bound_in_its_loop, negated, keys,
    rows_read, rows_passed, elements_swapped,
])  # fmt: skip
def test_the_gradient_is_that_of_differences(function):
    slope = (function(1.3 + 1e-6) - function(1.3 - 1e-6)) / 2e-6
    for mode, motion, optimized in WAYS:
        derivative = source.grad(function, mode=mode, motion=motion, optimized=optimized)
        assert derivative(1.3) == pytest.approx(slope, rel=1e-6), (mode, motion, optimized)


def rows_swapped(x):
    y = np.outer(V, V) * x
    y[0], y[1] = y[1], y[0]
    return np.sum(y * V)


def row_kept(x):
    y = np.outer(V, V) * x
    row = y[0]
    y[0] = x
    return np.sum(row)


def row_kept_in_a_list(x):
    y = np.outer(V, V) * x
    rows = [y[0], 1.0]
    y[0] = x
    return np.sum(rows[0])


def row_appended(x):
    y, rows = np.outer(V, V) * x, []
    rows.append(y[0])
    y *= x
    return np.sum(rows[0])


def row_kept_and_multiplied(x):
    y = np.outer(V, V) * x
    row = y[0]
    y *= x
    return np.sum(row)


def row_of_a_walrus(x):
    y = np.outer(V, V) * x
    if (row := y[0])[0] > 0.0:
        y[0] = x
    return np.sum(row)


def rows_kept(x):
    y = np.outer(V, V) * x
    rows = [y[i] for i in range(2)]
    y[0] = x
    return np.sum(rows[0])


def axis_added(x):
    y = V * x
    row = y[None]
    y *= x
    return np.sum(row)


def element_as_a_view(x):
    y = V * x
    first = y[0, ...]
    y *= x
    return first * 2.0


def conjugated(x):
    y = V * x
    z = y.conj()
    y *= x
    return np.sum(z)


def _both(y, x):
    return y, x


def passed_through(x):
    y = V * x
    z, a = _both(y, x)
    y *= x
    return np.sum(z) * a


def row_passed_through(x):
    y = np.outer(V, V) * x
    pair = _both(y[0], x)
    y *= x
    return np.sum(pair[0])


def multiplied_in_its_loop(x):
    y, total = np.outer(V, V) * x, 0.0
    for row in y:
        y *= x
        total = total + np.sum(row)
    return total


def written_as_integers(x):
    y = np.zeros(3, dtype=int)
    y[0] = x * 9.0
    return y[0] * x


def written_into_a_range(x):
    y = np.arange(3)
    y[1:] = V[1:] * x
    return np.sum(y) * x


def written_as_bool(x):
    y = np.array([False, True])
    y[0] = x
    return np.sum(y) * x


@each(("function", "text"), [
    (rows_swapped, "view of y, which is written to"), (row_kept, "view of y, which is written to"),
    (row_kept_in_a_list, "view of y"), (row_appended, "view of y"), (row_of_a_walrus, "view of y"),
    (row_kept_and_multiplied, "view of y"), (rows_kept, "view of y"), (axis_added, "view of y"),
    (element_as_a_view, "y"), (conjugated, "y"), (passed_through, "returns"),
    (row_passed_through, "returns"),
    (written_as_integers, "int64"), (written_into_a_range, "int64"), (written_as_bool, "bool"),
])  # fmt: skip
def test_a_view_that_changes_and_a_number_that_is_cut_are_refused(function, text):
    for mode, motion, optimized in WAYS:
        with pytest.raises(GraphError, match=text):
            source.grad(function, mode=mode, motion=motion, optimized=optimized)(1.3)
    with pytest.raises(GraphError, match=text):
        ag.function(function)(ag.Graph().input("x", (), "float64"))


def keys_in_a_loop(x):
    total, given = 0.0, {0: x, 1: x * x}
    for key in given:
        total = total + key * x
    return total


def keys_numbered(x):
    given = {1: x, 0: x * x}
    return sum([i * key * x for i, key in enumerate(given)])


def keys_unpacked(x):
    one, other = {1: x, 0: x * x}
    return one * x + other


def keys_summed(x):
    return sum({0: x, 1: x * x}) * x


@each(("function", "text"), [
    (keys_in_a_loop, "given is a dict"), (keys_numbered, "given is a dict"),
    (keys_unpacked, "is a dict"), (keys_summed, "items is a dict"),
    (multiplied_in_its_loop, "an array changes while a loop goes over it"),
])  # fmt: skip
def test_elements_by_place_of_a_dict_or_of_an_array_that_changes_are_refused(function, text):
    for mode, motion, optimized in WAYS:
        with pytest.raises(GraphError, match=text):
            source.grad(function, mode=mode, motion=motion, optimized=optimized)(1.3)


def bound_anew_in_the_backward_pass(x):
    y = x
    for _ in range(20):
        following = y - (y * y - x) / (2.0 * y)
        if abs(following - y) < 1e-12:
            break
        y = following
    return y


def test_the_value_is_that_of_the_function_where_the_backward_pass_binds_its_name_anew():
    for mode, motion, optimized in WAYS:
        slope, value = source.grad(
            bound_anew_in_the_backward_pass, mode=mode, motion=motion, optimized=optimized,
            preserve_result=True,
        )(1.3)  # fmt: skip
        assert (slope, value) == pytest.approx((0.5 / 1.3**0.5, 1.3**0.5))


def largest_by_key(x):
    return max([x, 2.0], key=lambda a: -a)


def starred_to_defaults(x):
    def times(a, b, c=2.0):
        return a * b * c

    pair = (x, x)
    return times(*pair)


@each(("function", "text"), [
    (largest_by_key, "max with keywords has no derivative"),
    (starred_to_defaults, "to a function with defaults"),
])  # fmt: skip
def test_calls_that_would_fail_when_they_run_are_refused_before(function, text):
    for mode in ("reverse", "forward"):
        with pytest.raises(source.UnsupportedSyntax, match=text):
            source.grad(function, mode=mode)


def test_keys_that_become_a_list_have_no_gradient():
    def second(x):
        return list({0: x, 1: x * x})[1] * x

    for mode, motion, optimized in WAYS:
        assert source.grad(second, mode=mode, motion=motion, optimized=optimized)(1.3) == 1.0


def test_second_derivatives_pass_through_elements_of_dicts():
    def cubed(x):
        given = {"a": x, "b": x * x}
        return given["a"] * given["b"]

    slope = source.grad(cubed)
    assert source.jvp(slope)(1.3, dx=1.0) == pytest.approx(6.0 * 1.3)
    assert source.grad(slope)(1.3) == pytest.approx(6.0 * 1.3)


def test_arguments_of_hypot_beyond_two_are_refused():
    with pytest.raises(GraphError, match="hypot of 3 arguments has no derivative"):
        source.grad(lambda x: math.hypot(x, x, 1.0))


def test_a_function_of_operator_that_changes_a_node_is_refused():
    def added(x):
        y = V * x
        return np.sum(y * operator.iadd(y, x))

    with pytest.raises(GraphError, match="changes no node in place"):
        ag.function(added)(ag.Graph().input("x", (), "float64"))


def test_functions_that_a_comprehension_makes_have_its_last_element():
    def last(x, y):
        functions = [lambda: a * x for a in [2.0, y]]  # noqa: B023 - it is the case
        return functions[0]()

    graph = ag.Graph()
    x, y = graph.input("x", (), "float64"), graph.input("y", (), "float64")
    found = ag.function(last)(x, y)
    assert ag.LispMachine([found]).run_sync({"x": 3.0, "y": 5.0})[found].value == 15.0
