# ruff: noqa: E741, F401, ICN001 - names as drawn programs have them
"""Functions that drawn programs call: some change what they get."""

import math

import numpy
import numpy as np
from numpy import sin as sn

M = np.array([[0.4, -0.3, 0.2], [0.1, 0.6, -0.5], [-0.2, 0.3, 0.7]])
C = 0.7


def times(a, b=0.5):
    return a * b + np.sin(a)


def turned(v, k=1.0):
    return v * k + v[::-1]


def put(l, a):
    l.append(a)
    return a * 2.0


def put_only(l, a):
    l.append(a)


def grown(l, a):
    l.append(a)
    return l


def bump(v, a):
    v[0] = v[0] * a
    return np.sum(v)


def scaled(v):
    v *= 2.0
    return v


def same(v):
    return v


def part(v):
    return v[1:]


def early(a):
    if a > 0.3:
        return a * a
    return np.sin(a)


def set_d(d, a):
    d["a"] = a * 2.0
    return d


def deep(a, n):
    return a if n == 0 else deep(a * 0.5, n - 1) + a


def pair(a, b):
    return a * b, a + b


def applied(f, a):
    return f(a) * 2.0


def total(*items):
    result = 0.0
    for item in items:
        result = result + item * item
    return result


def keyed(a, *, b, c=2.0):
    return a * b - c * a


def named(**given):
    return given["a"] * given["b"]


def copied(v):
    v = v.copy()
    v[0] = 3.0 * v[1]
    return v


def popped(l):
    return l.pop()


def filled(v):
    out = []
    for e in v:
        if e < -0.5:
            continue
        out.append(e * e)
    return out


def held(a):
    box = [a]

    def get():
        return box[0]

    box[0] = a * 3.0
    return get()
