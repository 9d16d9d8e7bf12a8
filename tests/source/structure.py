# ruff: noqa: PERF401, RET504 - how code is written is the subject here
"""Functions of the catalogue: calls, closures, containers."""

import numpy as np

from tests.source.cases import MATRIX, OTHER, VECTOR, case

# -- functions -------------------------------------------------------------------------------------


def square(x):
    return x * x


def weighted(x, y, weight=2.0, *, shift=0.0):
    z = x * weight
    return z * y + shift * x


def power(x, n):
    if n == 0:
        return 1.0
    return x * power(x, n - 1)


def is_even(x, n):
    return x if n == 0 else is_odd(x * 1.5, n - 1)


def is_odd(x, n):
    return -x if n == 0 else is_even(x * x, n - 1)


def pair_of(x, y):
    return x * y, np.sin(x)


@case(1.3)
def calls(x):
    return square(square(x) + 1) * x


@case(1.3)
def calls_in_loop(x):
    y = x
    for _ in range(3):
        y = square(y) - x
    return y


@case(1.3, 0.4, wrt=(0, 1))
def defaults_and_keywords(x, y):
    return weighted(x, y) + weighted(y=x, x=y, weight=x) + weighted(x, y, shift=y)


@case(1.3, 0.4)
def active_in_one_call(x, y):
    return weighted(y, x) + weighted(x, y)


@case(1.3)
def tuple_from_call(x):
    a, b = pair_of(x, x * x)
    return a * b


@case(1.1)
def recursion(x):
    return power(x, 4) + power(x * x, 2)


@case(1.1)
def mutual_recursion(x):
    return is_even(x, 5)


@case(1.3)
def nested_function(x):
    def inner(y):
        return y * x

    return inner(x) + inner(2.0)


@case(1.3)
def nested_with_default(x):
    def inner(y, z=3.0):
        return y * z + x

    return inner(x) * inner(x, x)


@case(1.1)
def nested_recursion(x):
    def inner(n):
        if n == 0:
            return x
        return inner(n - 1) * x

    return inner(3)


@case(1.3)
def nested_calls_nested(x):
    def one(y):
        return y * x

    def two(y):
        return one(y) + one(y * y)

    return two(x)


@case(1.3)
def lambdas(x):
    f = lambda y: y * np.sin(x)  # noqa: E731
    return f(x) + f(2 * x)


def applied(f, x):
    return f(x) * x


@case(1.3)
def function_as_argument(x):
    return applied(square, x) + applied(np.sin, x)


SCALE = 2.5


@case(1.3)
def reads_a_global(x):
    return x * x * SCALE


def _closed_over():
    factor = np.array([1.0, 2.0, 3.0])

    @case(VECTOR)
    def reads_a_cell(x):
        return np.sum(x * factor * x)

    @case(VECTOR)
    def calls_a_cell(x):
        return reads_a_cell(x) * 2


_closed_over()


@case(1.3, 0.4, 0.9)
def star_arguments(*args):
    return args[0] * args[1] ** 2 + args[2]


def total_of(*args):
    total = 0.0
    for one in args:
        total = total + one * one
    return total


@case(1.3)
def calls_with_many(x):
    return total_of(x, 2.0, x * x)


@case([1.3, 0.4])
def calls_with_starred(xs):
    return total_of(*xs)


@case(1.3, traced=True)
def keyword_only(x, *, scale=3.0):
    return x * scale


@case(1.3)
def walrus(x):
    if (y := x * x) > 1:
        return y * 3
    return y


@case(1.1)
def walrus_in_while(x):
    y = x
    while (z := y * y) < 5:
        y = z + 0.1
    return z * y


@case([0.3, 1.2])
def python_builtins(xs):
    return sum(xs) * max(xs) + min(xs[0], 2.0) + max(xs[1], 0.1, 0.2) + float(xs[0])


@case(1.3)
def passive_statements(x):
    import os.path

    name = os.path.join("a", "b")
    text = f"{name} {x:.2f} {x!r}"
    assert x > 0, f"{x} is negative"
    try:
        size = len(text)
    except TypeError:
        size = 0
    if size < 0:
        raise ValueError(text)
    return x * x


@case(0.5)
def passive_context(x):
    with np.errstate(all="ignore"):
        y = np.log(x)
        z = y * x
    return z


@case(0.5)
def return_in_context(x):
    with np.errstate(all="ignore"):
        if x > 0:
            return x * x
        y = x * 3
    return y


# -- containers ------------------------------------------------------------------------------------


@case([0.3, 1.2, 0.7])
def list_in(xs):
    return xs[0] * xs[1] + xs[2]


@case({"a": 0.3, "b": VECTOR})
def dict_in(p):
    return p["a"] * np.sum(p["b"] ** 2)


@case((0.3, (1.2, VECTOR)))
def nested_tuples_in(t):
    a, (b, c) = t
    return a * b + np.sum(c * a)


@case({"layers": [{"w": MATRIX, "b": np.array([0.1, 0.2])}]}, OTHER)
def parameters_in_a_tree(params, x):
    for layer in params["layers"]:
        x = np.tanh(layer["w"] @ x + layer["b"])
    return np.sum(x * x)


@case(1.3)
def tuple_built(x):
    t = (x, x * x, 3.0)
    return t[0] * t[1] + t[2] * x


@case(1.3)
def dict_built(x):
    d = {"a": x, "b": x * x}
    d["c"] = d["a"] * d["b"]
    d["a"] = d["c"] * 2
    return d["a"] + d["c"]


@case(1.3)
def list_appended(x):
    out = []
    y = x
    for i in range(4):
        y = y * x + i
        out.append(y)
    return out[0] * out[3] + out[-2]


@case(VECTOR)
def list_stacked(x):
    rows = []
    for i in range(3):
        rows.append(x * i)
    return np.sum(np.stack(rows) ** 2)


@case(1.3)
def list_as_a_stack(x):
    stack = [x]
    for i in range(4):
        top = stack.pop()
        stack.append(top * x)
        if i % 2:
            stack.append(np.sin(top))
    return stack.pop() * stack.pop()


@case(VECTOR)
def list_comprehension(x):
    return sum([a * a for a in x]) + sum([a for a in x if a > 0])


@case(MATRIX)
def nested_comprehension(x):
    return sum([a * b for a in x[0] for b in x[1] if b > 0])


@case(1.3)
def dict_comprehension(x):
    d = {k: x**k for k in range(4)}
    return d[2] + d[3] * 2


@case({"a": 0.3, "b": 1.2})
def over_dict(p):
    total = 0.0
    for key, value in p.items():
        total = total + value * value * (2 if key == "a" else 1)
    for value in p.values():
        total = total * value
    for key in p:
        total = total + p[key]
    return total


@case([1.0, 2.0, 3.0, 4.0])
def starred_target(xs):
    first, *rest, last = xs
    return first * last + rest[0] * rest[1]


@case(1.3)
def comprehension_keeps_names(x):
    i = x * 2
    y = sum([x * i for i in range(3)])
    return y * i


@case([0.5, 0.2])
def list_extended(xs):
    out = []
    out.extend(xs)
    out.extend([1.0, xs[0]])
    return out[0] * out[1] * out[2] + out[3]


@case([VECTOR, OTHER])
def list_of_arrays(xs):
    total = 0.0
    for x in xs:
        total = total + np.sum(x * xs[0])
    return total


@case(VECTOR)
def lists_added(x):
    out, more = [], ()
    for a in x:
        out = out + [a * a]  # noqa: RUF005
        more += (a, 2.0)
    out += [x[0]]
    return out[0] * out[1] + out[2] * out[3] + more[2] * more[4]


@case(VECTOR)
def dict_with_defaults(x):
    d = {}
    for i in range(4):
        d[i % 2] = d.get(i % 2, 1.0) * x[i % 3]
    return d[0] * d.get(1) + d.get("a", x[2])


@case(VECTOR)
def rows_written(x):
    y = np.zeros((2, 3))
    y[:] = x
    y[1, :2] = x[0] * x[1]
    return np.sum(y * y)


@case(VECTOR)
def places_written_twice(x):
    y = np.ones(3)
    y[[0, 0, 2]] = x
    y[np.array([1, 1])] *= x[:2] * x[1:]
    y[y < 0] = x[1]
    return np.sum(y * y)


@case(VECTOR)
def an_argument_copied(x):
    x = x.copy()
    for i in range(1, 3):
        x[i] = x[i] * x[i - 1]
    return np.sum(x * x)


@case(VECTOR)
def defaults_of_a_definition(x):
    weight, made = np.ones(3), []

    def scaled(y, factor=x * 2.0, weight=weight):
        return y * factor * weight

    weight = weight * 3.0
    for i in range(3):
        made.append(lambda y, i=i: y * y * i)
    return np.sum(scaled(x) + scaled(x, 3.0)) * weight[0] + made[1](x[0]) + made[2](x[1])


@case(VECTOR)
def definitions_called_for_nothing(x):
    seen = []

    def look(y):
        assert len(y) == 3

    def twice(y):
        return y * 2.0

    def power(n):
        return lambda y: y**n

    look(x)
    for _ in range(2):
        look(x * 2.0)
    unused = twice(x)
    seen.append(unused)
    return np.sum(x * twice(3.0)) + np.sum(power(2)(x))


@case(VECTOR)
def modules_of_a_function(x):
    import math

    from numpy import sin

    return math.exp(x[0]) * np.sum(sin(x))


@case(VECTOR)
def rows_made_one_by_one(x):
    rows, momentum, path = [], np.zeros(3), np.zeros((2, 3))
    for i in range(2):
        row = []
        for a in x:
            row.append(a * i)
        rows.append(row)
        momentum = 0.9 * momentum + x
        momentum += 1.0
        path[i] = momentum
    turned = path.T
    return rows[1][0] * rows[1][2] + np.sum(turned * turned)


def doubled(function):
    return lambda y: 2.0 * function(y)


@case(VECTOR)
def functions_of_one_name(x):
    if x[0] > 0:

        def chosen(y):
            return y * 2.0
    else:

        def chosen(y):
            return y * y

    def again(y):
        return y * y * y

    first = again(x)
    again = np.sin

    def applied(chosen, y):
        return chosen(y) * 3.0

    @doubled
    def decorated(y):
        return y * y

    return np.sum(chosen(x) * first + again(x) * applied(np.cos, x) + decorated(x))
