"""Writes and calls that change what another name sees are refused: a gradient would be wrong."""

import math
from collections import deque

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import GraphError, source
from tests._each import each


def chained(x):
    y = z = x * 2
    y[0] = 5.0
    return np.sum(z)


def reshaped(x):
    y = x * 2
    z = y.reshape(-1, 1)
    y[1] = 5.0
    return np.sum(z)


def one_of_two(x):
    y = x * 2
    z = y if len(x) > 1 else x
    y[1] = 5.0
    return np.sum(z)


def list_of_two_names(x):
    out = [x]
    other = out
    out.append(x * x)
    return other[1]


def list_in_a_list(x):
    out = []
    outer = [out]
    out.append(x)
    return outer[0][0]


def list_of_an_element(x):
    lists = [[], []]
    lists[0].append(x)
    return lists[0][0]


def list_of_the_caller(x):
    out = []

    def put(y):
        out.append(y)
        return 0.0

    return put(x) + out[0]


def list_in_a_comprehension(x):
    out = []
    [out.append(a) for a in x]
    return out[0]


def argument_under_a_name(x):
    result_1 = x
    result_1[0] = 5.0
    return np.sum(result_1) * 2


def holds_an_active_value(x):
    def times(k):
        return lambda y: y * k

    return times(x)(x)


@each(
    ("function", "text", "offset"),
    [
        (chained, "may change z", 2),
        (reshaped, "z = y.copy\\(\\)", 3),
        (one_of_two, "may change z", 3),
        (list_of_two_names, "may change other", 3),
        (list_in_a_list, "may change outer", 3),
        (list_of_an_element, "a part of a container", 2),
        (list_of_the_caller, "out = out.copy\\(\\)", 4),
        (list_in_a_comprehension, "write a statement for it", 2),
        (argument_under_a_name, "result_1 = result_1.copy\\(\\)", 2),
        (holds_an_active_value, "give them as arguments", 4),
    ],
)
def test_a_write_that_another_name_or_a_container_sees_is_refused(function, text, offset):
    for make in (source.grad, source.jvp):
        with pytest.raises(source.UnsupportedSyntax, match=text) as caught:
            make(function)
        assert caught.value.lineno == function.__code__.co_firstlineno + offset


def kept_and_augmented(x):
    y, kept = x * 2.0, []
    for _ in range(2):
        kept.append(y)
        y += x
    return np.sum(kept[0])


def list_augmented_under_a_name(x):
    out = [x]
    other = out
    other += [x]
    return out[0]


def returned_as_it_was(x):
    y = x * 2.0
    z = _itself(y)
    y[0] = 0.0
    return np.sum(z)


def _itself(y):
    return y


@each(
    ("function", "text"),
    [
        (kept_and_augmented, "y is an array that"),
        (list_augmented_under_a_name, "other is a list that"),
        (returned_as_it_was, "_itself\\(y\\) returns y itself"),
    ],
)
def test_a_write_that_another_name_may_see_is_refused_when_it_runs(function, text):
    for make in (source.grad, source.jvp):
        with pytest.raises(GraphError, match=text):
            make(function)(np.ones(2), np.ones(2) if make is source.jvp else None)


def written_by_out(x):
    y = np.zeros(2)
    np.multiply(x, x, out=y)
    return np.sum(y)


def written_by_copyto(x):
    y = np.zeros(2)
    if len(x) > 1:
        np.copyto(y, x)
    return np.sum(y)


def sorted_in_place(x):
    y = x * 1.0
    y.sort()
    return y[0]


def updated(x):
    d = {"a": 1.0}
    d.update(a=x[0])
    return d["a"]


def reversed_in_place(x):
    out = [1.0, x[0]]
    out.reverse()
    return out[0]


def written_by_a_function(x):
    y = np.zeros(2)

    def put(a):
        y[0] = a

    for a in x:
        put(a)
    return np.sum(y)


@each(
    ("function", "name"),
    [
        (written_by_out, "y"), (written_by_copyto, "y"), (sorted_in_place, "y"), (updated, "d"),
        (reversed_in_place, "out"), (written_by_a_function, "y"),
    ],
)  # fmt: skip
def test_a_call_that_changes_what_is_read_later_is_refused(function, name):
    x = np.array([2.0, 1.0])
    for make in (source.grad, source.jvp):
        with pytest.raises(GraphError, match=f"changes {name}, and a change by a call"):
            make(function)(x, x if make is source.jvp else None)


def _put(values, x):
    values.append(x)
    return x


def unused_result(x):
    out = [1.0]
    unused = _put(out, x[0])  # noqa: F841 - the call is what counts
    return out[1]


def called_in_a_test(x):
    out = [1.0]
    if _put(out, x[0]) > 0.0:
        return out[1]
    return x[1]


def called_in_a_passive_expression(x):
    out = [1.0]
    count = int(_put(out, x[0]))
    return out[1] * count


def put_before(x):
    out = deque()
    out.appendleft(x[0])
    return out[0]


class Sum:
    def __init__(self):
        self.value = 0.0

    def add(self, x):
        self.value += x


def added_to_an_object(x):
    out = Sum()
    out.add(x[0])
    return out.value * x[1]


@each(
    "function",
    [unused_result, called_in_a_test, called_in_a_passive_expression, put_before,
     added_to_an_object],
)  # fmt: skip
def test_a_call_whose_result_has_no_gradient_must_not_change_what_is_read_later(function):
    x = np.array([2.0, 1.0])
    for optimized in (True, False):
        with pytest.raises(GraphError, match=r"changes out, and a change|write into values"):
            source.grad(function, optimized=optimized)(x)
    with pytest.raises(GraphError, match=r"changes out, and a change|write into values"):
        source.jvp(function)(x, x)


def written_as_out(x):
    y = np.zeros(2)
    z = np.sin(x, out=y)
    return np.sum(y) + z[0]


def flipped(x):
    y = x * 2.0
    z = np.flip(y)
    z[0] = 5.0
    return np.sum(y)


def kept_uncopied(x):
    y = x * 2.0
    z = np.array(y, copy=False)
    z[0] = 5.0
    return np.sum(y)


def buffer_under_two_names(x):
    buffer = np.zeros(2)
    y = _itself(buffer)
    y[0] = x[0]
    return np.sum(buffer)


def rows_in_a_list(x):
    y = np.outer(x, x)
    rows = list(y)
    y[0, 0] = 2.0
    return np.sum(rows[0])


def grows_in_its_loop(x):
    out = [x[0], x[1]]
    for one in out:
        if len(out) < 4:
            out.append(one * 2.0)
    return out[3]


def repeated(x):
    out = [x[0]] * 2
    return out[1]


def dicts_merged(x):
    d = {"a": x[0]} | {"b": x[1]}
    return d["a"] * d["b"]


def listed_by_a_method(x):
    return x.tolist()[0] * 2.0


def summed_exactly(x):
    return math.fsum([x[0], x[1]])


@each(
    ("function", "text"),
    [
        (written_as_out, "out= has no gradient"),
        (flipped, "a write into z"),
        (kept_uncopied, "a write into z"),
        (buffer_under_two_names, "returns y itself"),
        (rows_in_a_list, "rows is a view of y"),
        (grows_in_its_loop, "a list changes while a loop goes over it"),
        (repeated, "a list was repeated"),
        (dicts_merged, "BinOp of active values"),
        (listed_by_a_method, "method .tolist"),
        (summed_exactly, "fsum has no derivative"),
    ],
)
def test_what_has_no_right_gradient_is_refused(function, text):
    x = np.array([2.0, 1.0])
    for make in (source.grad, source.jvp):
        with pytest.raises(GraphError, match=text):
            make(function)(x, x if make is source.jvp else None)


class Kept:
    pass


def kept_as_an_attribute(x):
    kept = Kept()
    setattr(kept, "first", x[0])  # noqa: B010
    return kept.first * x[1]


def test_an_active_value_set_as_an_attribute_is_refused():
    with pytest.raises(GraphError, match="an attribute has no gradient; use a dict"):
        source.grad(kept_as_an_attribute)


def test_sums_of_unknown_lists_are_refused():
    def added(xs, ys):
        zs = xs + ys
        return zs[0]

    with pytest.raises(GraphError, match="append or extend"):
        source.grad(added)([1.0], [2.0])


def test_calls_that_change_nothing_may_look_at_values(capsys):
    def f(x):
        y = x * x
        print(y[0])
        np.testing.assert_array_equal(y, x * x)
        return np.sum(y)

    assert source.grad(f)(np.array([1.0, 3.0])).tolist() == [2.0, 6.0]
    assert capsys.readouterr().out == "1.0\n"


def node_under_two_names(x):
    y = x * 2.0
    z = y
    y[0] = 5.0
    return np.sum(z)


def view_of_a_node(x):
    y = x * 2.0
    z = y[1:]
    y += 1.0
    return np.sum(z)


def dict_under_two_names(x):
    d = {"a": x[0]}
    e = d
    if x[1] > 0:
        d["a"] = x[1]
    return e["a"]


def list_under_two_names(x):
    out = []
    other = out
    for i in range(2):
        if x[i] > 0:
            out.append(x[i])
        else:
            out.append(-x[i])
    return other[0]


def array_of_a_caller(x):
    y = np.zeros(2)
    _write(y, x[0])
    return np.sum(y)


def _write(y, value):
    y[0] = value


@each(
    ("function", "text"),
    [
        (node_under_two_names, "z would see in Python that y changes"),
        (view_of_a_node, "a view of y, which is written to, is kept"),
        (dict_under_two_names, "e would see in Python that d changes"),
        (list_under_two_names, "other would see in Python that out changes"),
        (array_of_a_caller, "the caller would see in Python that y changes"),
    ],
)
def test_a_change_that_becomes_a_new_value_in_a_graph_is_refused_where_others_see_it(
    function, text
):
    x = ag.Graph().input("x", (2,), "float64")
    with pytest.raises(source.UnsupportedSyntax, match=text):
        ag.function(function)(x)
    given = np.array([1.0, 2.0])
    assert ag.function(function)(given) == function(given)


def updated_in_a_branch(x):
    held = {"k": 1.0}
    if x[0] > 0:
        held.update(k=5.0)
    return x[1] * held["k"]


def popped_in_a_branch(x):
    held = [1.0, 2.0]
    last = held[-1]
    if x[0] > 0:
        last = held.pop()
    return x[1] * held[-1] * last


def deleted_in_a_branch(x):
    held = {"k": 1.0, "j": 2.0}
    if x[0] > 0:
        del held["k"]
    return x[1] * len(held)


def filled_in_a_branch(x):
    held = np.ones(2)
    if x[0] > 0:
        held.fill(4.0)
    return np.sum(x * held)


def written_deep_in_a_loop(x):
    held = [[1.0]]
    for _ in x:
        held[0][0] = held[0][0] + 1.0
    return x[0] * held[0][0]


def counted_by_a_function(x):
    seen = set()

    def held():
        seen.add(len(seen))

    while x[0] < 3.0:
        x = x + 1.0
        held()
    return x[0] * len(seen)


@each(
    "function",
    [updated_in_a_branch, popped_in_a_branch, deleted_in_a_branch, filled_in_a_branch,
     written_deep_in_a_loop, counted_by_a_function],
)  # fmt: skip
def test_a_change_of_an_object_in_a_branch_or_loop_of_a_graph_is_refused(function):
    x = ag.Graph().input("x", (2,), "float64")
    with pytest.raises(source.UnsupportedSyntax, match="held changes in a branch or loop"):
        ag.function(function)(x)
    given = np.array([1.0, 2.0])
    assert ag.function(function)(given) == function(given)


def test_objects_that_a_branch_makes_may_change_in_it():
    def f(x):
        if x[0] > 0:
            parts = [x[0]]
            parts.extend([x[1], 3.0])
            named = {}
            for i in range(2):
                named.update({i: parts[i]})
            y = parts[2] * named[1]
        else:
            y = x[0]
        return y

    x = ag.Graph().input("x", (2,), "float64")
    y = ag.function(f)(x)
    for given in ([1.0, 2.0], [-1.0, 2.0]):
        assert ag.LispMachine([y]).run_sync({"x": np.array(given)})[y].value == f(given)


def _scaled(y):
    y[0] = y[0] * 2.0
    return np.sum(y)


def written_by_a_callee(x):
    y = x * 1.0
    first = _scaled(y)
    return first + np.sum(y)


def _with_one_more(items, y):
    items.append(y)
    return items


def list_written_by_a_callee(x):
    items = [x]
    if np.sum(x) > 0.5:
        first = _with_one_more(items, x)[0]
    else:
        first = x
    return np.sum(first) + np.sum(items[-1])


def _with_a_total(given, y):
    given["total"] = np.sum(y)
    return given


def dicts_written_by_a_callee_and_read_from_there(x):
    given = {"total": 0.0, "more": x}
    y = 0.0
    if np.sum(x) > 0.5:
        given = _with_a_total(given, x)
        y = _with_a_total({"total": 1.0, "more": x}, x)["total"]
    return given["total"] * y


def _rest(y):
    return y[1:]


def written_behind_a_callee(x):
    y = x * 1.0
    z = _rest(y)
    z[0] = 3.0
    return np.sum(y)


def part_of_a_buffer(x):
    y = np.zeros(2)
    z = _rest(y)
    z[0] = x[0]
    return np.sum(y)


def rows_written_in_their_loop(x):
    y = np.outer(x, x)
    total = 0.0
    for row in y:
        y[1, 1] = 2.0
        total = total + np.sum(row)
    return total


def element_of_a_list_written(x):
    y = x * 2.0
    for z in [y]:
        z[0] = 5.0
    return np.sum(y)


def rows_of_a_list_written(x):
    y = np.outer(x, x)
    rows = [row for row in y]  # noqa: C416
    y[0] = 2.0
    return np.sum(rows[0])


def sorted_where_it_is(x):
    y = x * -1.0
    y.sort()
    return y[0]


SEEN = np.ones(2)


def _notes(x):
    SEEN[:] = x


def _copies(x):
    np.copyto(SEEN, x)
    return np.sum(x)


def noted(x):
    _notes(x)
    return np.sum(SEEN * x)


def copied(x):
    return _copies(x) + np.sum(SEEN * x)


def copied_further_inside(x):
    return copied_by_a_callee(x) + np.sum(SEEN * x)


def copied_by_a_callee(x):
    return _copies(x)


@each("function", [noted, copied, copied_further_inside])
def test_a_helper_that_writes_what_is_already_there_into_a_global_is_refused(function):
    with pytest.raises(source.UnsupportedSyntax, match="changes SEEN, and a change by a call"):
        source.grad(function)(SEEN.copy())


def test_rows_that_a_comprehension_keeps_are_refused_where_their_array_is_written():
    with pytest.raises(source.UnsupportedSyntax, match="may change rows"):
        source.grad(rows_of_a_list_written)


@each(
    ("function", "text"),
    [
        (rows_of_a_list_written, "rows would see in Python that y changes"),
        (written_by_a_callee, "writes into an argument"),
        (list_written_by_a_callee, "writes into an argument"),
        (written_behind_a_callee, r"_rest\(y\) returns what it got, or a part of it"),
        (part_of_a_buffer, r"_rest\(y\) returns what it got, or a part of it"),
        (rows_written_in_their_loop, "goes over views of an array that is written to"),
        (element_of_a_list_written, "what it is a part of would see"),
        (sorted_where_it_is, r"sort\(\) of an array changes it, but of a node returns another one"),
    ],
)
def test_a_change_that_a_call_or_a_loop_hides_is_refused_in_a_graph(function, text):
    x = ag.Graph().input("x", (2,), "float64")
    with pytest.raises(source.UnsupportedSyntax, match=text):
        ag.function(function)(x)
    given = np.array([1.0, 2.0])
    assert ag.function(function)(given) == function(given)


def test_what_a_callee_has_written_may_be_read_where_it_is_assigned():
    x = ag.Graph().input("x", (2,), "float64")
    y = ag.function(dicts_written_by_a_callee_and_read_from_there)(x)
    assert ag.LispMachine([y]).run_sync({"x": np.array([1.0, 2.0])})[y].value == 9.0
