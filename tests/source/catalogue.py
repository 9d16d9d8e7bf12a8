# ruff: noqa: B007, PERF401, RET504, RET508, RUF021 - how code is written is the subject here
"""Functions that are differentiated in every way: (function, arguments, wrt) by name.

`TRACED` are those that `ag.grad` can trace as well.
"""

import math

import numpy as np

CATALOGUE = {}
TRACED = set()
VECTOR = np.array([0.3, -0.7, 1.2])
OTHER = np.array([1.1, 0.4, 0.9])
MATRIX = np.array([[0.5, -0.2, 0.8], [1.3, 0.7, -0.4]])
SQUARE = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.0, 0.6, 1.8]])


def case(*args, wrt=(0,), traced=False):
    def add(function):
        name = function.__name__
        assert name not in CATALOGUE, name
        CATALOGUE[name] = function, args, wrt
        if traced:
            TRACED.add(name)
        return function

    return add


# -- straight lines --------------------------------------------------------------------------------


@case(1.3, traced=True)
def identity(x):
    return x


@case(1.3, traced=True)
def constant_factor(x):
    return 3 * x


@case(1.3, traced=True)
def cubic(x):
    return x**3 - 2 * x**2 + x / 4 - 1


@case(1.3, 0.4, wrt=(0, 1), traced=True)
def all_operators(x, y):
    return -x + y * x - y / x + (+x) ** y


@case(1.3, traced=True)
def chain_of_names(x):
    a = np.sin(x)
    b = np.cos(a)
    c = np.exp(b)
    return np.log(c + 2) * a


@case(0.7, traced=True)
def same_name_again(x):
    x = np.sin(x)
    x = x * x
    x = np.exp(x)
    return x


@case(1.3, traced=True)
def overwrite_argument(x):
    y = x * 2
    x = 3 * y
    return x * y


@case(1.3, traced=True)
def chained_assignment(x):
    a = b = x * x
    return a + 2 * b


@case(1.3, traced=True)
def swap(x):
    a, b = x, x * x
    a, b = b, a
    return a - 3 * b * b


@case(1.3, 0.2, wrt=(1,), traced=True)
def second_argument(x, y):
    return x * np.sin(y)


@case(1.3, 0.2, wrt=(1, 0), traced=True)
def turned_arguments(x, y):
    return x * np.sin(y)


@case(1.3)
def gradient_names_used(x):
    bx = x * 2
    dx = bx * x
    tape = dx + bx
    return tape * bx


@case(1.3, traced=True)
def augmented(x):
    y = x * 1.0
    y += x * x
    y *= 2.0
    y -= x
    y /= 3.0
    return y


@case(1.3, traced=True)
def annotated(x: float) -> float:
    y: float = x * x
    return y


@case(1.3, traced=True)
def dead_code(x):
    y = np.exp(x)  # noqa: F841
    return x * x


@case(1.3, traced=True)
def unused_argument_part(x):
    return 2.0 + 0 * x


@case(0.6, traced=True)
def trigonometry(x):
    return np.tan(x) + np.arcsin(x) + np.arccos(x) * np.arctan(x)


@case(0.6, traced=True)
def hyperbolic(x):
    return np.sinh(x) + np.cosh(x) * np.tanh(x)


@case(0.6, traced=True)
def logarithms(x):
    return np.log(x) + np.log1p(x) * np.log2(x) + np.log10(x) + np.expm1(x)


@case(0.6)
def math_module(x):
    return math.sin(x) + math.exp(x) * math.sqrt(x) + math.log(x) + math.atan(x)


@case(-0.6, traced=True)
def absolute(x):
    return np.abs(x) + abs(x) * 2


@case(1.3, 0.7, wrt=(0, 1), traced=True)
def extremes(x, y):
    return np.maximum(x, y) * 2 + np.minimum(x, 3 * y)


@case(1.3, 0.7, wrt=(0, 1), traced=True)
def power_of_two(x, y):
    return x**y + np.power(y, x) + np.hypot(x, y)


# -- arrays ----------------------------------------------------------------------------------------


@case(VECTOR, traced=True)
def sum_of_squares(x):
    return np.sum(x * x)


@case(VECTOR, traced=True)
def mean_of_products(x):
    return np.mean(x * np.exp(x))


@case(VECTOR, MATRIX, wrt=(0, 1), traced=True)
def broadcasting(x, y):
    return np.sum(x * y + x / (y + 3.0) - x)


@case(1.3, VECTOR, wrt=(0, 1), traced=True)
def scalar_and_vector(x, y):
    return np.sum(x * y) + np.sum(x**2 + y)


@case(OTHER, MATRIX + 2.0, wrt=(0, 1), traced=True)
def power_broadcasts(x, y):
    return np.sum(x**y)


@case(MATRIX, traced=True)
def sum_over_axis(x):
    return np.sum(np.sum(x, axis=0) ** 2) + np.sum(x.sum(axis=1, keepdims=True) * x)


@case(MATRIX, traced=True)
def means_and_spread(x):
    return np.sum(np.mean(x, axis=1) ** 2) + np.var(x) + np.std(x)


@case(VECTOR, traced=True)
def products(x):
    return np.prod(x) + np.cumsum(x)[1]


@case(VECTOR, traced=True)
def largest_elements(x):
    return np.max(x) * np.min(x) + x.max() ** 2


@case(MATRIX, OTHER, wrt=(0, 1), traced=True)
def matrix_times_vector(a, x):
    return np.sum(np.dot(a, x) ** 2) + np.sum(a @ x)


@case(MATRIX, SQUARE, wrt=(0, 1), traced=True)
def matrix_products(a, b):
    return np.sum((a @ b) ** 2) + np.sum(np.matmul(a, b))


@case(VECTOR, OTHER, wrt=(0, 1), traced=True)
def inner_and_outer(x, y):
    return np.inner(x, y) + np.sum(np.outer(x, y) ** 2) + np.dot(x, y)


@case(MATRIX, traced=True)
def transposes(x):
    return np.sum((x.T @ x) ** 2) + np.sum(np.transpose(x)[0] ** 3)


@case(MATRIX, traced=True)
def transpose_with_axes(x):
    y = np.reshape(x, (1, 2, 3))
    return np.sum(np.transpose(y, (2, 0, 1))[0] ** 2)


@case(MATRIX, traced=True)
def reshapes(x):
    y = x.reshape(3, 2)
    z = np.ravel(y)
    return np.sum(y[0] * y[1]) + z[2] * z[3]


@case(MATRIX)
def shape_unpacked(x):
    rows, cols = x.shape
    return np.sum(x) / (rows * cols) + len(x) * x[0, 0]


@case(SQUARE, traced=True)
def determinant_and_inverse(x):
    return np.linalg.det(x) + np.sum(np.linalg.inv(x) ** 2) + np.trace(x)


@case(SQUARE, VECTOR, wrt=(0, 1), traced=True)
def solve(a, b):
    return np.sum(np.linalg.solve(a, b) ** 2)


@case(VECTOR, traced=True)
def where_and_clip(x):
    return np.sum(np.where(x > 0, x * x, -x)) + np.sum(np.clip(x, -0.5, 1.0))


@case(VECTOR, OTHER, wrt=(0, 1), traced=True)
def joined(x, y):
    return np.sum(np.concatenate([x, y * y]) ** 2) + np.sum(np.stack([x, y], axis=1)[:, 0])


@case(VECTOR)
def array_of_parts(x):
    y = np.array([x[0], x[1] * x[2], 3.0 * x[1]])
    return np.sum(y * y)


@case(VECTOR, traced=True)
def sorted_values(x):
    return np.sum(np.sort(x) * np.array([1.0, 2.0, 3.0])) + np.sum(np.flip(x)[0])


@case(MATRIX, traced=True)
def einsum_of_two(x):
    return np.einsum("ij,ij->", x, x) + np.sum(np.einsum("ij->j", x) ** 2)


@case(VECTOR, traced=True)
def logsumexp(x):
    top = np.max(x)
    return top + np.log(np.sum(np.exp(x - top)))


@case(MATRIX, traced=True)
def softmax_loss(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return -np.sum(np.log(p[:, 0]))


@case(MATRIX, VECTOR, OTHER, wrt=(0, 1, 2), traced=True)
def two_layers(w, b, x):
    h = np.tanh(w @ x)
    return np.sum(h**2) + np.sum(np.tanh(b * x))


@case(VECTOR, traced=True)
def norms(x):
    return np.linalg.norm(x) + np.sqrt(np.sum(x * x)) * np.sum(np.square(x))


@case(VECTOR)
def dtype_and_copies(x):
    return np.sum(x.copy() * np.array(x) + np.asarray(x) + x.astype(np.float64) + np.copy(x))


@case(VECTOR)
def zeros_and_ones(x):
    return np.sum(np.zeros_like(x) + np.ones_like(x) * x + np.ones(x.shape) * x)


@case(VECTOR, traced=True)
def expanded_dims(x):
    return np.sum(x[:, None] * x[None, :] ** 2) + np.sum(np.expand_dims(x, 0) ** 3)


# -- subscripts ------------------------------------------------------------------------------------


@case(VECTOR, traced=True)
def elements(x):
    return x[0] * x[1] + x[-1] ** 2


@case(MATRIX, traced=True)
def slices(x):
    return np.sum(x[0, :] * x[1, ::-1]) + np.sum(x[:, 1:] ** 2) + np.sum(x[..., -1])


@case(MATRIX, traced=True)
def rows_of_rows(x):
    return x[0][1] * x[1][2] + np.sum(x[0] * x[1])


@case(VECTOR, traced=True)
def index_arrays(x):
    return np.sum(x[[0, 0, 2]] ** 2) + np.sum(x[np.array([1, 1])] * 3)


@case(VECTOR)
def masks(x):
    return np.sum(x[x > 0] ** 2)


@case(VECTOR)
def computed_indices(x):
    i = int(np.argmax(x))
    return x[i] ** 2 + x[i - 1]


@case(VECTOR)
def writes_elements(x):
    y = np.zeros(3)
    y[0] = x[1] * 2
    y[1] = x[0] * y[0]
    y[0] = y[1] * x[2]
    return np.sum(y * y)


@case(VECTOR)
def writes_slices(x):
    y = np.ones((2, 3)) * x
    y[0, 1:] = x[:2] ** 2
    y[1] = y[0] * x
    return np.sum(y**2)


@case(VECTOR)
def writes_over_and_over(x):
    y = x * 1.0
    for i in range(3):
        y[i] = y[i - 1] * np.sin(y[i]) + x[i]
    return np.sum(y * x)


@case(VECTOR)
def augmented_elements(x):
    y = np.zeros(3)
    for i in range(3):
        y[i] += x[i] * x[0]
        y[i] *= 2.0
    return np.sum(y * y)


@case(VECTOR)
def written_value_is_used_before(x):
    y = x * 2
    a = np.sum(y * y)
    y[0] = 5.0
    return a * np.sum(y)


@case(1.3)
def fills_a_table(x):
    table = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            if i == 0:
                table[i, j] = x**j
            else:
                table[i, j] = table[i - 1, j] * x + i
    return np.sum(np.sin(table))


# -- branches --------------------------------------------------------------------------------------


@case(1.3)
def branch(x):
    if x > 0:
        y = x * x
    else:
        y = np.sin(x)
    return y


@case(-1.3)
def other_branch(x):
    if x > 0:
        y = x * x
    else:
        y = np.sin(x)
    return y


@case(1.3)
def branch_without_else(x):
    y = x
    if x > 1:
        y = y * x
    return y * 2


@case(1.3, 0.4, wrt=(0, 1))
def elifs(x, y):
    if x < 0:
        z = x
    elif x < 1:
        z = x * y
    elif x < 2:
        z = x * y * y
    else:
        z = y
    return z * z


@case(1.3, 0.4, 2.1, wrt=(0, 1, 2))
def devilish_nest(x, y, z):
    if x > y:
        if y > z:
            r = x
        elif z > 2:
            r = x * z
            if x * y > 0.1:
                r = r * y
        else:
            r = z
    else:
        r = y
    return r * r


@case(1.3)
def overwritten_in_branches(x):
    y = np.sin(x)
    if x > 1:
        y = y * y
        y = np.exp(y)
    else:
        y = y + 1
    y = y * x
    return y


@case(1.3)
def conditional_expression(x):
    return (x * x if x > 1 else -x) + (np.sin(x) if x > 2 else np.cos(x))


@case(1.3)
def boolean_operators(x):
    y = x * x if x > 1 and not x > 3 or x < -5 else x
    return y * (1 if 0 < x < 2 else 3)


@case(2.0)
def or_of_values(x):
    y = (x - 1.3) or x * 2
    return y * x


@case(1.3)
def early_return(x):
    if x > 1:
        return x**3
    return np.sin(x)


@case(0.3)
def early_return_not_taken(x):
    if x > 1:
        return x**3
    y = np.sin(x)
    if y > 0.9:
        return y * 2
    y = y * x
    return y * y


@case(1.3, 2)
def returns_everywhere(x, n):
    if n == 0:
        return x
    elif n == 1:
        return x * x
    else:
        if x > 0:
            return np.exp(x)
        return -x


@case(1.3, "square")
def match_on_text(x, kind):
    match kind:
        case "cube":
            return x**3
        case "square" | "second":
            y = x * x
        case _:
            y = x
    return y * 2


@case(1.3, 7)
def match_with_guard(x, n):
    match n:
        case 1:
            return x
        case m if m > 5:
            return x * m
        case None:
            return x * x
    return -x


@case(-0.2)
def nothing_flows_from_the_other_branch(x):
    y = np.sqrt(x + 1.0)
    if x > 0:
        z = np.log(x)
    else:
        z = y * 2
    return z


# -- loops -----------------------------------------------------------------------------------------


@case(1.1, 3)
def iterpower(x, n):
    y = x
    for _ in range(n):
        y = y * x
    return y


@case(1.1)
def index_in_loop(x):
    y = 0.0
    for i in range(1, 8, 2):
        y = y + np.sin(x * i) / i
    return y


@case(1.1, 0)
def no_trip(x, n):
    y = x * x
    for _ in range(n):
        y = y * x
    return y


@case(1.1)
def nested_loops(x):
    y = x
    for i in range(3):
        for j in range(i):
            y = y * np.cos(x * j) + i
        y = np.sin(y)
    return y


@case(1.1)
def loop_then_branch(x):
    y = x
    for _ in range(4):
        y = np.sin(y) + x
    if y > 1:
        y = y * y
    return y


@case(1.1)
def branch_in_loop(x):
    y = x
    for i in range(5):
        if i % 2 == 0:
            y = y * x
        elif i > 2:
            y = y + np.sin(x)
        else:
            pass
    return y


@case(2.0)
def newton_root(x):
    y = x
    while abs(y * y - x) > 1e-12:
        y = 0.5 * (y + x / y)
    return y


@case(1.1)
def while_with_count(x):
    n = 0
    while n < 4:
        x = np.sin(x) * 1.5
        n += 1
    return x


@case(1.1)
def while_true_break(x):
    y = 1.0
    while True:
        y = y * x
        if y > 2:
            break
        y = y + 0.1
    return y * y


@case(1.1)
def continue_in_loop(x):
    y = 0.0
    for i in range(6):
        if i % 3 == 1:
            continue
        y = y + x**i
        if i == 4:
            continue
        y = y * 1.1
    return y


@case(1.1)
def break_in_nested_branches(x):
    y = x
    for i in range(10):
        if i > 2:
            if y > 2:
                y = y * 3
                break
            else:
                y = y + 1
        y = y * x
    return y


@case(1.1)
def loop_with_else(x):
    y = x
    for i in range(3):
        if y > 100:
            break
        y = y * x
    else:
        y = y * y
    return y


@case(1.1)
def loop_with_else_not_reached(x):
    y = x
    for i in range(5):
        y = y * x
        if i == 2:
            break
    else:
        y = y * y
    return y + x


@case(1.1)
def return_in_loop(x):
    y = x
    for i in range(10):
        y = y * x
        if y > 2:
            return y * i
    return -y


@case(0.5)
def return_in_loop_not_reached(x):
    y = x
    for i in range(4):
        y = y * x
        if y > 2:
            return y * i
    return -y


@case(1.1)
def return_from_two_loops(x):
    y = x
    for i in range(4):
        for j in range(4):
            y = y * x
            if y > 1.8:
                return y + i * x
        y = y - 0.1
    return y


@case(VECTOR)
def over_elements(x):
    total = 0.0
    for a in x:
        total = total + a * a
    return total


@case(MATRIX)
def over_rows(x):
    total = np.zeros(3)
    for row in x:
        total = total + row * row
    return np.sum(total)


@case(VECTOR, OTHER, wrt=(0, 1))
def over_zip(x, y):
    total = 0.0
    for a, b in zip(x, y):
        total = total + a * b * b
    return total


@case(VECTOR)
def over_enumerate(x):
    total = 0.0
    for i, a in enumerate(x):
        total = total + a**2 * i
    return total


@case(VECTOR, OTHER, wrt=(0, 1))
def over_enumerated_pairs(x, y):
    total = 0.0
    for i, (a, b) in enumerate(zip(x, y)):
        total += i * a * b
    return total


@case(VECTOR)
def over_reversed(x):
    total = 0.0
    for a in reversed(x):
        total = total * 0.5 + a
    return total


@case(VECTOR)
def largest_by_loop(x):
    top = x[0]
    for a in x:
        if a > top:
            top = a
    total = 0.0
    for a in x:
        total += np.exp(a - top)
    return np.log(total) + top


@case(1.1)
def over_a_list(x):
    total = 0.0
    for k in [1, 2, 5]:
        total = total + x**k
    return total


@case(0.7)
def fixed_point(x):
    y = x
    for _ in range(20):
        before = y
        y = np.cos(y) * x
        if abs(before - y) < 1e-3:
            break
    return y


@case(0.4, np.array([1.0, 0.5]))
def runge_kutta(rate, start):
    y = start
    for _ in range(5):
        k1 = -rate * y
        k2 = -rate * (y + 0.05 * k1)
        k3 = -rate * (y + 0.05 * k2)
        k4 = -rate * (y + 0.1 * k3)
        y = y + 0.1 * (k1 + 2 * k2 + 2 * k3 + k4) / 6
    return np.sum(y * y)


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
