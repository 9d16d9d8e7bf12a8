"""Functions with control flow by data: what `ag.function` is tried on.

`CASES` are pairs of a function and lists of arguments; each argument is a float, an int, or an
array of floats.
"""

import math

import numpy as np

CASES = []


def case(*calls):
    def add(f):
        CASES.append((f, calls))
        return f

    return add


V = np.array([0.5, -1.5, 2.0, 0.25])
M = np.array([[0.5, -1.0], [2.0, 0.3], [-0.7, 1.1]])


@case((2.0,), (-3.0,))
def sign_of(x):
    if x > 0:
        return x * x
    else:
        return -x


@case((2.0,), (-3.0,), (0.5,))
def early(x):
    if x > 1:
        return x * 3
    y = x + 1
    if y < 0:
        return y * y
    return y


@case((2.0,), (-3.0,), (12.0,))
def chained(x):
    if x < 0:
        y = -x
    elif x < 10:
        y = x * 2
    else:
        y = x - 5
    return y + x


@case((100.0,), (0.5,))
def halved(x):
    while x > 1:
        x = x / 2
    return x


@case((100.0,), (3.0,))
def counted(x):
    count = 0
    while x > 1:
        x, count = x / 2, count + 1
    return x * count


@case((1.5, 4), (1.5, 0))
def power(x, n):
    y = 1.0
    for _ in range(n):
        y = y * x
    return y


@case((1.5, 7), (1.5, 2))
def broken(x, n):
    y = 0.0
    for i in range(n):
        if y > 5:
            break
        y = y + x * i
    return y


@case((1.5, 7), (0.5, 3))
def continued(x, n):
    y = 0.0
    for i in range(n):
        if i % 2 == 0:
            continue
        y += x * i
    return y


@case((V,))
def summed(xs):
    total = 0.0
    for x in xs:
        total += x * x
    return total


@case((V,))
def positive_sum(xs):
    total = 0.0
    for x in xs:
        if x > 0:
            total += x
    return total


@case((V,), (np.abs(V),))
def first_negative(xs):
    for x in xs:
        if x < 0:
            return x * 10
    return xs[0]


@case((V, 1.0), (V, 100.0))
def search(xs, bound):
    total = 0.0
    for i in range(len(xs)):
        total = total + xs[i] * xs[i]
        if total > bound:
            return total * 2
    return -total


@case((M,))
def rows(m):
    out = np.zeros(2)
    for row in m:
        out = out + np.sin(row)
    return out


@case((M,))
def nested_loops(m):
    total = 0.0
    for row in m:
        for x in row:
            if x > 0:
                total += x
            else:
                total -= x * x
    return total


@case((2.0, 3.0), (-2.0, 3.0), (2.0, -3.0))
def both(x, y):
    if x > 0 and y > 0:
        return x * y
    return x + y


@case((2.0, 3.0), (-2.0, 3.0), (-2.0, -3.0))
def either(x, y):
    return x * y if x > 0 or y > 0 else x - y


@case((2.0,), (-2.0,))
def negated(x):
    if not x > 0:
        x = -x
    return x * x


@case((0.5,), (1.5,), (-1.0,))
def between(x):
    return x * 2 if 0 < x < 1 else x / 2


@case((V, 2), (V, 9))
def guarded_index(xs, n):
    i = 0
    total = 0.0
    while i < n and i < len(xs):
        total += xs[i]
        i += 1
    return total


@case((2.0,), (-0.5,))
def ternaries(x):
    a = x if x > 0 else -x
    b = (a + 1) if a > 1.5 else (a - 1 if a < 1 else a)
    return a * b


@case((V,))
def comprehension(xs):
    return np.sum([x * x + 1 for x in xs])


@case((V,))
def pairs(xs):
    total = 0.0
    for i, x in enumerate(xs):
        total += i * x
    return total


@case((V, V * V))
def zipped(xs, ys):
    total = 0.0
    for x, y in zip(xs, ys):
        total += x * y if x > 0 else y
    return total


@case((V,))
def backwards(xs):
    last = xs[0]
    for x in reversed(xs):
        last = last * 0.5 + x
    return last


def _helper(x):
    if x > 1:
        return math.log(x)
    return x - 1


@case((2.0,), (0.3,))
def calling(x):
    return _helper(x) + _helper(x * 2)


@case((2.0, 2), (0.3, 3))
def nested_function(x, n):
    def step(y):
        if y > 1:
            return y * 0.7
        return y + x

    for _ in range(n):
        x = step(x)
    return x


@case((2.0,), (-0.5,))
def closes_over(x):
    scale = 3.0
    f = lambda y: y * scale if y > 0 else y  # noqa: E731
    return f(x) + f(-x)


@case((V,), (-V,))
def vector_branch(xs):
    if xs.sum() > 1:
        y = xs * 2
    else:
        y = xs - 1
    return y.sum()


@case((3.0,), (0.2,))
def asserted(x):
    assert x > 0, "positive numbers only"
    return np.sqrt(x)


@case((V,))
def written(xs):
    y = np.zeros(4)
    for i in range(len(xs)):
        y[i] = xs[i] * i
    y[0] += 2.0
    return y.sum() + y[3]


@case((2.0, 1), (2.0, 2), (2.0, 5))
def matched(x, kind):
    match kind:
        case 1:
            return x
        case 2 | 3:
            return x * x
        case _:
            return -x


@case((V,), (np.ones(4),))
def loop_with_else(xs):
    y = 0.0
    for x in xs:
        if x < 0:
            y = x
            break
    else:
        y = xs[0] + 7.0
    return y * 2


@case((10.0,), (0.1,))
def while_true(x):
    n = 0
    while True:
        x = x * 0.5
        n += 1
        if x < 1:
            break
    return x + n


@case((2.0,), (3.0,))
def walrus(x):
    while (y := x * x) > 3:
        x = y / 10
    return x


@case((2.0,), (-2.0,))
def tuples(x):
    pair = (x, 1.0)
    if x > 0:
        pair = (x * 2, x)
    a, b = pair
    return a * b


@case((2.0,), (-2.0,))
def dicts(x):
    d = {"a": x, "b": x * x}
    if x > 0:
        d["a"] = x * 3
    return d["a"] + d["b"]


@case((2.0, 30), (9.0, 3))
def newton(x, n):
    y = x
    for _ in range(n):
        step = (y * y - x) / (2 * y)
        y = y - step
        if abs(step) < 1e-12:
            break
    return y


@case((0.3, 0.0), (0.3, 1.7))
def keywords(x, shift, *, scale=2.0, twice=True):
    if twice:
        x = x * scale
    if shift > 1:
        x = x + shift
    return x


@case((6,), (27,))
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@case((V,))
def running_max(xs):
    top = xs[0]
    for x in xs:
        top = max(top, x)
    return top


@case((1.05, 3), (-1.03, 4))
def three_deep(x, n):
    for i in range(n):
        j = 0
        while j < i:
            if x > 2:
                x = x - 1.5
            else:
                for _ in range(2):
                    x = x + 0.3
            j += 1
    return x


@case((3.0,), (-1.0,))
def returns_in_with(x):
    with np.errstate(divide="ignore"):
        if x > 0:
            return 1 / x
    return x


@case((2.0,), (0.0,))
def none_is_static(x, extra=None):
    if extra is None and x > 1:
        return x * 5
    return x


@case((2.0,), (7.0,))
def returns_out_of_an_endless_loop(x):
    while True:
        x = x * 1.5
        if x > 5:
            return x * x


@case((2.0, 3), (0.5, 0))
def counts_down(x, n):
    for i in reversed(range(1, n, 2)):
        x = x * x + i
    for i in reversed(range(n)):
        x = x * 2.0 - i
    return x * len(range(n))


@case((1.5, 4))
def range_beside_range(x, n):
    for i, (j, k) in enumerate(zip(range(n), range(2, n))):
        x = x * 0.5 + i + j * k
    return x


@case((2.0,), (0.1,))
def breaks_in_the_else_of_an_inner_loop(x):
    for i in range(3):
        for j in range(2):
            x = x + j
            if x > 100:
                break
        else:
            break
        x = x + i
    else:
        x = x * 100.0
    return x
