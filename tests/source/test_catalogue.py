"""Every function of the catalogue, in every way, against finite differences and `ag.grad`."""

from copy import deepcopy
from itertools import product

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff.trees import flatten, unflatten
from tests._each import each
from tests._soak import SOAK
from tests.source.catalogue import CATALOGUE, TRACED

WAYS = list(product(("reverse", "forward"), ("joint", "split"), (True, False)))
FACES = [[WAYS[i] for i in ways] for ways in ((0, 3, 5, 6), (1, 2, 4, 7))]
"""Half of them each: any two settings meet in both, and functions take turns."""
assert len(CATALOGUE) >= 120


def differences(function, args, place):
    """Return the gradient by central differences."""
    rest = args[:place]
    leaves, structure = flatten(args[place])
    found = []
    for i, leaf in enumerate(leaves):
        column = np.zeros(np.shape(leaf))
        for at in np.ndindex(column.shape):
            values = []
            for step in (1e-6, -1e-6):
                moved = np.array(leaf, dtype=float)
                moved[at] += step
                tree = [*leaves]
                tree[i] = moved if moved.shape else float(moved)
                given = unflatten(structure, tree)
                values.append(function(*deepcopy((*rest, given, *args[place + 1 :]))))
            column[at] = (values[0] - values[1]) / 2e-6
        found.append(column)
    return found


def assert_same(found, expected, name):
    leaves, _ = flatten(found)
    assert len(leaves) == len(expected)
    for one, other in zip(leaves, expected, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_way_gives_the_gradient_of_finite_differences(name):
    function, args, wrt = CATALOGUE[name]
    if name == "star_arguments":
        expected = [np.array([d]) for d in map(float, np.ravel(
            [differences(function, args, i)[0] for i in range(3)]))]  # fmt: skip
        expected = [np.squeeze(one) for one in expected]
        places = [expected]
    else:
        places = [differences(function, args, place) for place in wrt]
    before, first = deepcopy(args), [*CATALOGUE].index(name)
    for mode, motion, optimized in WAYS if SOAK else FACES[first % 2]:
        derivative = ag.source.grad(
            function, wrt, mode=mode, motion=motion, optimized=optimized, preserve_result=True
        )
        *found, value = derivative(*args)
        label = f"{name} {mode} {motion} {optimized}\n{derivative.__source__}"
        np.testing.assert_allclose(value, function(*deepcopy(args)), err_msg=label)
        for one, expected in zip(found, places, strict=True):
            assert_same(one, expected, label)
    for one, other in zip(flatten(before)[0], flatten(args)[0], strict=True):
        np.testing.assert_array_equal(one, other)


@each("name", sorted(TRACED))
def test_what_can_be_traced_has_the_gradient_of_the_graph(name):
    function, args, wrt = CATALOGUE[name]
    found = ag.source.grad(function, wrt)(*args)
    expected = ag.grad(function, argnums=wrt if len(wrt) > 1 else wrt[0])(*args)
    for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
