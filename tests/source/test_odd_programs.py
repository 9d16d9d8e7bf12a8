"""Programs that once had wrong gradients, or none."""

from itertools import product

import numpy as np
import pytest

from actorgraph import source
from tests._each import each


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


@each(
    "function",
    [bound_to_its_own_keyword, rebound_in_its_loop, default_of_a_captured_name, left_in_a_branch,
     even, dict_copied, elements_named_in_two_places, written_into_itself,
     under_two_names],
)  # fmt: skip
def test_programs_that_once_had_wrong_gradients_or_none(function):
    wanted = (function(1.3 + 1e-6) - function(1.3 - 1e-6)) / 2e-6
    for mode, optimized in product(("reverse", "forward"), (True, False)):
        found = source.grad(function, mode=mode, optimized=optimized)(1.3)
        assert found == pytest.approx(wanted, rel=1e-6)
