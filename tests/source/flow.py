# ruff: noqa: B007, RET504, RET508, RUF021 - how code is written is the subject here
"""Functions of the catalogue: branches and loops."""

import contextlib

import numpy as np

from tests.source.cases import MATRIX, OTHER, VECTOR, case

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


@case(1.7)  # noqa: RET503
def returns_in_one_branch(x):
    a = x * x
    if x > 1:
        return a


@case(1.7)  # noqa: RET503
def returns_in_a_loop_only(x):
    for _ in range(5):
        x = x * 1.5
        if x > 4:
            return x * x


@case(1.2)
def returns_out_of_two_endless_loops(x):
    while True:
        while True:
            x = x * 1.3
            if x > 5:
                return x * x
            if x > 2:
                break
        x = x * x


@case(0.9)  # noqa: RET503
def returns_here_and_there(x):
    if x > 0:
        if x > 1:
            return x**3
    else:
        return -x
    x = x + 1
    with np.errstate(over="ignore"):
        for _ in range(4):
            for k in range(3):
                x = x * 1.1
                if x > 2.5:
                    return x * x * k


@case(1.2)
def break_in_the_else_of_an_inner_loop(x):
    for i in range(3):
        for j in range(2):
            x = x * x
        else:
            break
    else:
        x = x * 100.0
    return x


@case(1.2)
def closure_reads_what_is_bound_later(x):
    scale = 1.0

    def scaled(y):
        return scale * y

    scale = 3.0
    return x * scaled(2.0)


@case(1.2)
def passive_try_may_leave_a_name_as_it_was(x):
    scale = 2.0
    try:
        scale = [3.0][int(np.ceil(3.5))]
    except IndexError:
        pass
    return x * scale


@case(1.2)
def passive_context_may_leave_a_name_as_it_was(x):
    scale = 2.0
    with contextlib.suppress(IndexError):
        scale = [3.0][int(np.ceil(3.5))]
    return x * scale
