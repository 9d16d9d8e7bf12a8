"""Drawn calls of functions of matrices: triangular systems, LU, eigenvalues, norms, equations."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from tests.ops._drawn import axis_in, broadcast, drawn, flags, one_of_results, part_of, row, shapes
from tests.ops._drawn import sizes as drawn_sizes
from tests.ops._drawn_products import apart, rectangle, square, well

# -- systems ------------------------------------------------------------------------------------


def right_side(draw, a):
    return (a[-1],) if draw(flags) else (*draw(part_of(a[:-2])), a[-1], draw(drawn_sizes()))


@row("solve_triangular")
def solve_triangular(draw, f):
    a = square(draw)
    b = right_side(draw, a)
    options = {"upper": draw(flags), "left": draw(flags), "unitriangular": draw(flags)}
    if not options["left"] and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    return drawn(lambda a, b: f(well(a), b, **options), a, b, low=-1, high=1, repeats=False)


@row("cholesky_solve")
def cholesky_solve(draw, f):
    a, upper = square(draw), draw(flags)
    b = right_side(draw, a)
    return drawn(lambda a, b: f(b, well(a), upper=upper), a, b, low=-1, high=1, repeats=False)


@row("lu", "lu_factor")
def lu(draw, f):
    """Of a matrix whose largest entries stand on the diagonal, apart from each other."""
    which = {"lu": (1, 2), "lu_factor": (0,)}[f.__name__]
    place = draw(st.sampled_from(which))
    turn = draw(flags)

    def call(x):
        x = apart(x)
        return f(ag.ops.flip(x, -2) if turn else x)[place]

    return drawn(call, rectangle(draw), low=-1, high=1)


@row("lu_solve")
def lu_solve(draw, f):
    a = square(draw)
    b = right_side(draw, a)
    return drawn(lambda a, b: f(ag.ops.lu_factor(well(a)), b), a, b, low=-1, high=1, repeats=False)


@row("tensorsolve")
def tensorsolve(draw, f):
    turned = draw(flags)

    def call(a, b):
        matrix = well(ag.ops.reshape(a, (6, 6)))
        a = ag.ops.reshape(matrix, (6, 2, 3))
        return f(ag.ops.moveaxis(a, 0, 1), b, axes=(0, 2)) if turned else f(a, b)

    return drawn(call, (6, 2, 3), (6,), low=-1, high=1)


@row("tensorinv")
def tensorinv(draw, f):
    ind = draw(st.sampled_from((1, 2)))
    dims = ((6,), (2, 3)) if ind == 1 else ((2, 3), (6,))

    def call(a):
        return f(ag.ops.reshape(well(ag.ops.reshape(a, (6, 6))), dims[0] + dims[1]), ind)

    return drawn(call, dims[0] + dims[1], low=-1, high=1)


# -- values of matrices -------------------------------------------------------------------------


@row("eig")
def eig(draw, f):
    f = one_of_results(draw, f, 2)
    return drawn(lambda x: f(well(x)), square(draw), low=-1, high=1)


@row("eigvals", "matrix_exp")
def of_matrix(draw, f):
    by = {"eigvals": 4.0, "matrix_exp": 0.3}[f.__name__]
    return drawn(lambda x: f(well(x, by)), square(draw), low=-1, high=1)


@row("cond")
def cond(draw, f):
    p = draw(st.sampled_from((None, 2, -2, "fro", "nuc", 1, -1, np.inf, -np.inf)))
    return drawn(lambda x: f(well(x), p), square(draw, least=1), low=-1, high=1)


@row("matrix_norm")
def matrix_norm(draw, f):
    order = draw(st.sampled_from(("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)))
    options = {"keepdims": draw(flags), "axis": draw(st.sampled_from(((-2, -1), (-1, -2))))}
    m, n = draw(drawn_sizes(1)), draw(drawn_sizes(1))
    shape = (*draw(shapes(max_dims=1, most=2)), m, n)
    return drawn(lambda x: f(apart(x), order, **options), shape, low=-1, high=1)


@row("vector_norm")
def vector_norm(draw, f):
    shape = draw(shapes(1, least=1))
    options = {"ord": draw(st.sampled_from((1, 2, 3.5))), "axis": draw(axis_in(len(shape)))}
    return drawn(f, shape, options=options)


# -- products -----------------------------------------------------------------------------------


@row("householder_product")
def householder_product(draw, f):
    x = rectangle(draw, tall=True)
    return drawn(f, x, (*x[:-2], draw(st.integers(0, x[-1]))), low=-1, high=1, repeats=False)


@row("cross")
def cross(draw, f):
    x, y = draw(broadcast(2, max_dims=2))
    ndim = min(len(x), len(y)) + 1
    axis = draw(st.integers(-ndim, -1))

    def with_axis(shape):
        place = axis + len(shape) + 1
        return (*shape[:place], 3, *shape[place:])

    return drawn(f, with_axis(x), with_axis(y), options={"axis": axis})


@row("matvec")
def matvec(draw, f):
    x, y = draw(broadcast(2, max_dims=1))
    m, k = draw(drawn_sizes()), draw(drawn_sizes())
    return drawn(f, (*x, m, k), (*y, k))


@row("vecmat")
def vecmat(draw, f):
    x, y = draw(broadcast(2, max_dims=1))
    m, k = draw(drawn_sizes()), draw(drawn_sizes())
    return drawn(f, (*x, k), (*y, k, m))


@row("multi_dot")
def multi_dot(draw, f):
    dims = [draw(drawn_sizes()) for _ in range(draw(st.integers(3, 5)))]
    found = list(pairwise(dims))
    if draw(flags):
        found[0] = found[0][1:]
    if draw(flags):
        found[-1] = found[-1][:1]
    return drawn(lambda *xs: f(xs), *found, repeats=False)


@row("vander")
def vander(draw, f):
    options = {"n": draw(st.integers(0, 4)), "increasing": draw(flags)}
    return drawn(f, draw(shapes(1, 2)), options=options)
