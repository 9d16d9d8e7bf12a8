"""ag.function: Python's control flow on nodes is what Python makes of numbers."""

import inspect

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from tests._each import each
from tests.control._runs import on_every_machine
from tests.source.branching import CASES, V

NAMES = [f.__name__ for f, _ in CASES]


def nodes_of(args, graph):
    dtypes = {int: "int64", float: "float64"}
    return [
        graph.input(f"x{i}", np.shape(arg), dtypes.get(type(arg), "float64"))
        for i, arg in enumerate(args)
    ]


@each("f, calls", CASES)
def test_nodes_give_what_numbers_give(f, calls):
    xs = nodes_of(calls[0], ag.Graph())
    y = ag.function(f)(*xs)
    wrt = [x for x in xs if x.dtype.kind == "f"]
    slopes = ag.gradients([y.sum()], wrt) if y.dtype.kind == "f" and wrt else []
    with ag.TapeMachine([y, *slopes], wrt=[]) as machine:
        for args in calls:
            fed = {x.name: arg for x, arg in zip(xs, args, strict=True)}
            run = machine.run_sync(fed)
            np.testing.assert_allclose(run[y].value, f(*args), rtol=1e-12)
            for x, slope in zip(wrt, slopes, strict=True):
                place = [node.id for node in xs].index(x.id)
                wanted = difference(f, args, place)
                np.testing.assert_allclose(run[slope].value, wanted, rtol=1e-5, atol=1e-7)


def difference(f, args, place):
    """Central differences of the sum of f by one argument."""
    x = np.asarray(args[place], float)
    found = np.zeros(x.size)
    for i in range(x.size):
        ends = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved.reshape(-1)[i] += step
            given = float(moved) if not moved.ndim else moved
            ends.append(np.sum(f(*args[:place], given, *args[place + 1 :])))
        found[i] = (ends[0] - ends[1]) / 2e-6
    return found.reshape(x.shape)


@pytest.mark.parametrize("name", ["search", "three_deep", "nested_loops", "newton"])
def test_all_machines_agree(name):
    f, calls = CASES[NAMES.index(name)]
    xs = nodes_of(calls[0], ag.Graph())
    y = ag.function(f)(*xs)
    for args in calls:
        fed = {x.name: arg for x, arg in zip(xs, args, strict=True)}
        found = on_every_machine([y], fed, wrt=[xs[0]], backward=True)
        np.testing.assert_allclose(found[0], f(*args), rtol=1e-12)


def test_without_a_node_it_is_the_function_as_it_was():
    for f, calls in CASES:
        for args in calls:
            np.testing.assert_array_equal(ag.function(f)(*args), f(*args))


def test_signatures_names_and_defaults_stay():
    f, _ = CASES[NAMES.index("keywords")]
    made = ag.function(f)
    assert inspect.signature(made) == inspect.signature(f)
    x = ag.Graph().input("x", (), "float64")
    y = made(x, 2.0, scale=3.0)
    assert float(ag.LispMachine([y]).run_sync({"x": 1.0})[y].value) == 5.0


def test_methods_and_decorated_functions_are_converted():
    class Model:
        def __init__(self):
            self.scale = 2.0

        @ag.function
        def forward(self, x):
            if x > 0:
                return x * self.scale
            return x

    x = ag.Graph().input("x", (), "float64")
    y = Model().forward(x)
    assert float(ag.LispMachine([y]).run_sync({"x": 3.0})[y].value) == 6.0


def test_loops_over_symbolic_lengths():
    xs = ag.Graph().input("xs", ("n", 2), "float64")

    @ag.function
    def total(xs):
        s = 0.0
        for x in xs:
            if x.sum() > 0:
                s = s + x
        return s

    y = total(xs)
    assert y.shape == (2,)
    for n in (0, 1, 5):
        feed = np.random.default_rng(n).normal(size=(n, 2))
        found = ag.TapeMachine([y]).run_sync({"xs": feed})[y].value
        np.testing.assert_allclose(found, feed[feed.sum(1) > 0].sum(0), atol=1e-15)


def test_float32_stays_float32():
    x = ag.Graph().input("x", (), "float32")

    @ag.function
    def f(x):
        scale = 1.0 if x > 0 else 2.5
        total = 0.0
        for i in range(int(x)):
            total += scale * i
        return total

    assert f(x).dtype == "float32"


def test_an_index_is_not_read_where_the_test_before_it_fails():
    xs = ag.Graph().input("xs", ("n",), "float64")

    @ag.function
    def first(xs):
        i = 0
        while i < len(xs) and xs[i] <= 0:
            i += 1
        return i

    y = first(xs)
    machine = ag.TapeMachine([y], wrt=[])
    assert machine.run_sync({"xs": np.array([-1.0, -2.0])})[y].value == 2
    assert machine.run_sync({"xs": np.array([-1.0, 2.0])})[y].value == 1


def test_an_assertion_fails_the_run_with_its_text():
    f, _ = CASES[NAMES.index("asserted")]
    x = ag.Graph().input("x", (), "float64")
    y = ag.function(f)(x)
    with pytest.raises(ag.NodeError, match="branching.py:.*positive numbers only"):
        ag.TapeMachine([y]).run_sync({"x": -1.0})


def test_errors_in_a_body_name_the_line_of_the_user():
    xs = ag.Graph().input("xs", ("n", 2, 2), "float64")

    @ag.function
    def f(xs):
        total = 0.0
        for x in xs:
            total = total + ag.ops.cholesky(x).sum()  # this line
        return total

    y = f(xs)
    line = inspect.getsourcelines(f)[1] + 4
    with pytest.raises(ag.NodeError, match=rf"test_functions.py:{line}") as caught:
        ag.TapeMachine([y]).run_sync({"xs": -np.ones((3, 2, 2))})
    assert caught.value.iteration == (0,)


# -- what is refused ------------------------------------------------------------------------------


def refused(f, *args, match, kind=ag.source.UnsupportedSyntax):
    xs = nodes_of(args, ag.Graph())
    with pytest.raises(kind, match=match) as caught:
        ag.function(f)(*xs)
    return caught.value


def test_a_name_of_one_branch_only():
    def f(x):
        if x > 0:
            y = x * 2
        return y

    error = refused(f, 1.0, match="y is read later, and has no value where the test is false")
    assert error.filename == __file__
    assert error.lineno == inspect.getsourcelines(f)[1] + 1


def test_a_name_that_a_loop_gives_its_first_value():
    def f(x):
        while x > 1:
            x, y = x / 2, x
        return y

    refused(f, 1.0, match="y is read in the next iteration, or after the loop")


def test_a_carry_that_changes_its_type():
    def dtype(x):
        y = x
        while x > 1:
            x, y = x / 2, y > 0
        return y

    def shape(xs):
        total = xs
        for x in xs:
            total = total.sum() + x
        return total

    at = rf"{__file__}:\d+:\d+: in dtype: y enters an iteration as float64.* and leaves as bool"
    refused(dtype, 1.0, match=at, kind=ag.GraphTypeError)
    refused(
        shape, V, match=r"total enters .* float64\[4\] .* it keeps its dims", kind=ag.ShapeError
    )


def test_branches_of_two_types():
    def f(x):
        return x if x > 0 else np.arange(3)

    def g(x):
        return (x, x) if x > 0 else x

    def h(x):
        if x > 0:
            name = "a"
        else:
            name = "b"
        return name

    refused(f, 1.0, match="is float64 where the test is true and int64", kind=ag.GraphTypeError)
    refused(g, 1.0, match="branches need one structure")
    refused(h, 1.0, match="a graph chooses between arrays and numbers only")


def test_tests_that_are_arrays():
    def f(xs):
        if xs > 0:
            return xs
        return -xs

    refused(f, V, match=r"write .any\(\) or .all\(\)")


def test_what_has_no_form_in_a_graph():
    def generator(x):
        yield x

    def leaves_try(x):
        try:
            return x
        except ValueError:
            return -x

    def grows(xs):
        out = []
        for x in xs:
            out.append(x)  # noqa: PERF402
        return out

    class Thing:
        seen = 0

    thing = Thing()

    def sets(x):
        if x > 0:
            thing.seen = 1
        return x

    def filters(xs):
        return [x for x in xs if x > 0]

    refused(generator, 1.0, match="yield has no form in a graph")
    refused(leaves_try, 1.0, match="may leave a try")
    refused(grows, V, match="a list that grows is a comprehension")
    refused(sets, 1.0, match="the attribute seen is set in a branch or loop")
    refused(filters, V, match="keeps are known only in a run")


def test_recursion_by_a_node_is_refused():
    @ag.function
    def f(x):
        return f(x / 2) + 1 if x > 1 else x

    x = ag.Graph().input("x", (), "float64")
    with pytest.raises(ag.GraphError, match="must not depend on a node"):
        f(x)


def test_convert_false_leaves_python_as_it_is():
    x = ag.Graph().input("x", (), "float64")
    with pytest.raises(ag.GraphTypeError, match="truth value"):
        ag.function(CASES[0][0], convert=False)(x)


def powers(x, n):
    return x if n == 0 else x * powers(x, n - 1)


def annotated(x):
    y: float
    if x > 0:
        y: float = x * 2.0
    else:
        y: float = x
    return y


def comprehension_in_a_call(x):
    y = sum([a * a for a in x])
    z = sum([a + y for a in x])
    y += z
    return y


def bound_in_the_test_of_a_loop(x):
    y = x
    while (y := y * 0.5) > 0.3:
        y = y * x * 0.5
    return y


def bound_in_a_comprehension(x):
    squares = [(y := a * a) for a in [x, 3.0]]
    return y + squares[0] * x


def asserted_of_each(x):
    items = [1.0, 2.0]
    assert all(e > 0.0 for e in items)
    return x * items[1]


def written_in_turn(x):
    v, i = np.zeros(3), 0
    v[i], i, *rest = x, 1, 2.0 * x
    w = v[1] = rest[0]
    v[i + 1], v[0] = v[0] * w, v[1]
    return v[0] * v[1] + v[2] * w


@each(
    ("function", "args"),
    [(powers, (3.0, 2)), (annotated, (3.0,)), (comprehension_in_a_call, (np.array([1.0, 2.0]),)),
     (bound_in_the_test_of_a_loop, (1.3,)), (bound_in_a_comprehension, (1.3,)),
     (asserted_of_each, (1.3,)), (written_in_turn, (1.3,))],
)  # fmt: skip
def test_recursion_annotated_names_and_names_bound_in_expressions_or_by_turns(function, args):
    x = ag.Graph().input("x", np.shape(args[0]), "float64")
    y = ag.function(function)(x, *args[1:])
    found = ag.LispMachine([y]).run_sync({"x": args[0]})[y].value
    assert found == function(*args)


def test_and_and_or_of_numbers_as_values_are_refused_and_tests_of_them_are_not():
    def value(x):
        return x and 2.0 * x

    def truth(x):
        return 1.0 if x and 2.0 * x else 0.0

    x = ag.Graph().input("x", (), "float64")
    with pytest.raises(ag.GraphTypeError, match="one of their operands as value"):
        ag.function(value)(x)
    y = ag.function(truth)(x)
    assert float(ag.LispMachine([y]).run_sync({"x": 3.0})[y].value) == 1.0


def test_a_list_of_a_range_of_a_node_is_refused_and_so_is_a_zip_that_is_reversed():
    n = ag.Graph().input("n", (), "int64")
    for function, text in (
        (lambda n: sum(list(range(n))), "has its elements in a run only; go over it by a"),
        (lambda n: [i for i in reversed(zip(range(n), range(n)))], "cannot be reversed"),  # noqa: C416
    ):
        with pytest.raises(ag.GraphTypeError, match=text):
            ag.function(function)(n)


def test_what_a_comprehension_over_a_node_gives_is_not_joined_or_repeated_as_a_list():
    def behind(x):
        return np.sum([e * e for e in x] + [0.5])

    def before(x):
        items = [e * e for e in x]
        return np.sum(items + items)

    def augmented(x):
        items = [e * e for e in x]
        items += [0.5]
        return np.sum(items)

    def repeated(x):
        items = [e * e for e in x]
        return np.sum(2 * items)

    def added(x):
        return np.sum([e * e for e in x] + x)

    x = ag.Graph().input("x", (3,), "float64")
    for function in (behind, before, augmented, repeated):
        with pytest.raises(GraphError, match="is not joined or repeated as a list is"):
            ag.function(function)(x)
    y = ag.function(added)(x)
    given = np.array([1.0, 2.0, 3.0])
    assert ag.LispMachine([y]).run_sync({"x": given})[y].value == added(given)


def test_a_node_that_is_written_into_an_array_of_a_container_is_refused():
    def written(x):
        held = {"b": np.zeros(2)}
        held["b"][0] = x
        return held["b"][0]

    def put(x):
        held = {"b": [0.0, 1.0]}
        held["b"][0] = x
        return held["b"][0] + held["b"][1]

    x = ag.Graph().input("x", (), "float64")
    with pytest.raises(GraphError, match="an array that a container, or a global, holds"):
        ag.function(written)(x)
    y = ag.function(put)(x)
    assert ag.LispMachine([y]).run_sync({"x": 2.0})[y].value == 3.0


def test_a_write_into_an_array_that_a_call_put_into_a_container_is_refused():
    def by_keyword(x):
        held = dict(b=x)  # noqa: C408
        x[0] = 3.0
        return held["b"]

    def in_a_list(x):
        held = list(zip([1.0], [x], strict=True))
        x[0] = 3.0
        return held[0][1]

    def by_update(x):
        held = {}
        held.update(b=x)
        x[0] = 3.0
        return held["b"]

    x = ag.Graph().input("x", (2,), "float64")
    for function in (by_keyword, in_a_list, by_update):
        with pytest.raises(GraphError, match="held would see in Python that x changes"):
            ag.function(function)(x)
