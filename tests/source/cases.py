"""Functions that are differentiated in every way: (function, arguments, wrt) by name.

`TRACED` are those that `ag.grad` can trace as well.
"""

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
