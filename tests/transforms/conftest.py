"""What tests of transforms share: a graph with an input."""

import pytest

import actorgraph as ag


@pytest.fixture
def g():
    return ag.Graph("net")


@pytest.fixture
def x(g):
    return g.input("x", (3,), "float64")
