"""Drawn calls of functions made of elementwise ops: special functions, parts of floats, bits."""

from functools import partial

from hypothesis import strategies as st

import actorgraph as ag
from tests.ops._drawn import broadcast, drawn, one_of_results, row, shapes


@row("i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1")
def bessel(draw, f):
    return drawn(f, draw(shapes()), low=0.3, high=4.0)


@row("polygamma")
def polygamma(draw, f):
    return drawn(partial(f, draw(st.integers(0, 3))), draw(shapes()), low=0.5, high=3.0)


@row("multigammaln")
def multigammaln(draw, f):
    p = draw(st.integers(1, 4))
    return drawn(lambda x: f(x, p), draw(shapes()), low=2.0, high=5.0)


@row("frexp", "modf")
def parts(draw, f):
    return drawn(one_of_results(draw, f, 2), draw(shapes()), low=0.3, high=3.9)


@row("float_power")
def float_power(draw, f):
    """Of a float32 node it is float64, which the laws of float32 do not expect."""
    x = draw(broadcast(2))
    return drawn(lambda x, y: ag.ops.astype(f(x, y), x.dtype), *x, low=0.5)
