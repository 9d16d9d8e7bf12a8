"""Programs that once had wrong gradients, or none."""

from itertools import product

import numpy as np
import pytest

from actorgraph import source
from actorgraph.errors import GraphError
from tests._each import each

WAYS = ("reverse", "forward"), ("joint", "split"), (True, False)


def keyed(a, *, b):
    return a * b


def bound_to_its_own_keyword(x):
    x = keyed(3.0 * x, b=x)
    return x * 1.0


def rebound_in_its_loop(x):
    y = np.array([x, 2.0 * x])
    for a in y:
        y = y * a
    return np.sum(y)


def default_of_a_captured_name(x):
    def h(z, c=x):
        return 2.0 * z

    return x + h(0.5)


def left_in_a_branch(x):
    y = np.array([1.0, 2.0])
    if y[1] > 5.0:
        return 2.0
    a, _ = y
    return a * x


def even(x):
    return np.sum(np.linspace(0.0, x, 3)) + np.sum(np.full(2, x))


def dict_copied(x):
    d = {"a": x, "b": 1.0}
    e = d.copy()
    e["a"] = e["a"] * 2.0
    return d["a"] * e["a"]


def elements_named_in_two_places(x):
    xs = [x, 2.0 * x]
    if sum([a + 1.0 for a in xs]) > 0.0:
        return sum([a * a for a in xs])
    return x


def written_into_itself(x):
    y = np.array([x, 2.0 * x, x * x]) * 1.5
    y[:] = y
    y[::-1] = y
    return y[0] + 3.0 * y[1]


def under_two_names(x):
    items, named = [x, 2.0 * x], {"a": x, "b": x * x}
    with np.errstate(all="ignore"):
        a, b = items, named
    with np.errstate(all="ignore"):
        c, d = items, named
    return a[1] * c[0] * c[1] + b["a"] * d["a"] * d["b"]


def applied(f, a):
    return f(a) * 2.0


def reads_a_name_of_its_own(x):
    v = np.array([x, 2.0])

    def h(a):
        return applied(lambda z: z * 2.0, a) + v[0]

    y = h(x)
    z = 1.0
    return y * z


def captured_before_it_is_bound(x):
    def h(a):
        return a * z if a > 100.0 else a * a

    y = h(x)
    z = x * 3.0
    return y * z


LENGTHS = [1.0, 2.0]


def measured(a):
    return a * len(LENGTHS)


def named_like_a_global_of_its_function(x):
    y = measured(x)
    unused = measured(x)  # noqa: F841
    LENGTHS = 2.0
    return y * LENGTHS


def named_in_a_comprehension(x):
    e = x * 2.0
    n = len([e + 1 for e in range(3)])
    return e * n


def comprehension_over_its_own_name(x):
    e = [x, 2.0 * x]

    def h(a):
        return sum([e * a for e in e])

    return h(x)


def lambda_in_a_comprehension(x):
    m = [(lambda e: e * 2.0)(e) for e in [x, 2.0 * x]]  # noqa: PLC3002
    return m[0] * m[1]


def comprehension_in_the_head_of_a_loop(x):
    z, total = [x, 2.0 * x], 0.0
    for a in z + [z * 2.0 for z in [1.0, 2.0]]:
        z = [a]
        total = total + a * z[0]
    return total


def deleted(x):
    z = 2.0
    y = x * z
    del z
    return y


def captured_index(x):
    y = x
    for i in [1, 2, 3]:
        y = applied(lambda a: a * i, y)  # noqa: B023
    return y


def captured_name_bound_again(x):
    z = 2.0
    y = applied(lambda a: a * a * z, x)
    z = 5.0
    return y * z


def default_of_its_own_name(x):
    w = x * 2.0

    def f(a, w=w):
        return a * w

    w = 3.0
    return f(x) * w + f(2.0)


def default_of_another_function(x):
    def f(a, c=x):
        return a * c

    def h(a):
        return f(f(a)) + f(1.5)

    return h(0.81)


def passive_call_of_another_function(x):
    def f(a):
        return a * 2.0

    def h(a):
        return a * f(1.5)

    return h(x)


def lambda_of_two_names(x):
    f = g = lambda a: a * 2.0
    return f(x) * g(x)


class Scaled:
    factor = 3.0

    def times(self, a):
        return a * a * self.factor


bound_method = Scaled().times


def method_under_a_name(x):
    return bound_method(x)


def bound_in_a_default(x):
    def h(a, k=(y := 2.0)):
        return a * k

    return h(x) * y


@each(
    "function",
    [bound_to_its_own_keyword, rebound_in_its_loop, default_of_a_captured_name, left_in_a_branch,
     even, dict_copied, elements_named_in_two_places, written_into_itself,
     under_two_names, reads_a_name_of_its_own, captured_before_it_is_bound,
     named_like_a_global_of_its_function, named_in_a_comprehension, comprehension_over_its_own_name,
     lambda_in_a_comprehension, comprehension_in_the_head_of_a_loop, deleted, captured_index,
     captured_name_bound_again, default_of_its_own_name, default_of_another_function,
     passive_call_of_another_function, lambda_of_two_names, method_under_a_name,
     bound_in_a_default],
)  # fmt: skip
def test_programs_that_once_had_wrong_gradients_or_none(function):
    wanted = (function(1.3 + 1e-6) - function(1.3 - 1e-6)) / 2e-6
    for mode, motion, optimized in product(*WAYS):
        found = source.grad(function, mode=mode, motion=motion, optimized=optimized)(1.3)
        assert found == pytest.approx(wanted, rel=1e-6)


def default_of_a_lambda(x):
    return applied(lambda a, k=x: a * k, 1.5)


def lambda_as_a_default(x):
    def h(a, f=lambda q: q * x):
        return f(a)

    return h(1.5)


def attribute_of_a_class(x):
    class Held:
        k = x

    return Held.k * 2.0


def bound_in_a_comprehension(x):
    squares = [(y := a * a) for a in [x, 3.0 * x]]
    return y * squares[0]


def bound_in_one_case(x):
    z = 1.0
    y = (z := x * 2.0) if x < 0.0 else 1.0
    return z * y * x


def bound_by_a_second_operand(x):
    z = x
    if x < 0.0 and (z := x * 2.0) > 1.0:
        return z
    return z * x


def bound_behind_a_use(x):
    z = x
    y = z + (z := x * x) * z
    return z * y


def name_that_hides_one_of_a_called_function(x):
    v = x * x

    def f(a):
        return v * a

    def h(v):
        return f(v)

    return h(2.0 * x)


@each(
    "function, text",
    [(name_that_hides_one_of_a_called_function, "give one of the two another name"),
     (default_of_a_lambda, "holds the active x"), (lambda_as_a_default, "holds the active x"),
     (attribute_of_a_class, "use a dict"), (bound_in_a_comprehension, "bind it before"),
     (bound_in_one_case, "bind it before"), (bound_by_a_second_operand, "bind it before"),
     (bound_behind_a_use, "bind it before")],
)  # fmt: skip
def test_programs_that_once_had_wrong_gradients_are_refused(function, text):
    for mode, motion, optimized in product(*WAYS):
        with pytest.raises(source.UnsupportedSyntax, match=text):
            source.grad(function, mode=mode, motion=motion, optimized=optimized)


def test_a_second_derivative_through_a_function_that_is_passed_on_is_refused():
    first = source.grad(captured_index)
    with pytest.raises(source.UnsupportedSyntax, match="is known at run time only"):
        source.grad(first)


def everything(x):
    y = [x, 1.0]
    y[:] = [x * x, x, 3.0 * x]
    return y[0] * y[1] + y[2]


def itself(x):
    y = [x, 2.0 * x, x * x]
    y[1:] = y[:-1]
    return y[0] * y[1] * y[2]


def constants(x):
    y = [x, 2.0 * x]
    y[:] = [1.0, 2.0]
    return y[0] * x


def into_constants(x):
    y = [1.0, 2.0, 3.0]
    y[::2] = [x, x * x]
    return y[0] * y[2]


def in_a_loop(x):
    y = [x, 2.0 * x]
    for _ in range(2):
        y[:] = [y[1] * x, y[0]]
    return y[0] * y[1]


def fewer(x):
    y = [x, 1.0, x * x]
    y[0:1] = []
    return y[1] * x


def elements_of_an_array(x):
    y, v = [x, 1.0], np.array([1.0, 2.0]) * x
    y[:] = v
    return y[0] * y[1]


def by_a_named_slice(x):
    y, s = [x, 1.0], slice(0, 1)
    y[s] = [x * x]
    return y[0] * y[1]


@each("function", [everything, itself, constants, into_constants, in_a_loop, fewer,
                   elements_of_an_array, by_a_named_slice])  # fmt: skip
def test_a_slice_of_a_list_that_is_written_is_refused_when_it_runs(function):
    for mode, motion, optimized in product(*WAYS):
        derivative = source.grad(function, mode=mode, motion=motion, optimized=optimized)
        with pytest.raises(GraphError, match="a slice of a list was assigned"):
            derivative(1.3)
