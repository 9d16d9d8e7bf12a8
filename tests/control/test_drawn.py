"""Drawn bodies of loops, branches and vmaps: what JAX makes of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests._soak import SOAK
from tests.control.test_derivatives import agrees_with_jax, fed

UNARY = st.sampled_from(["sin", "tanh", "cos"])
BINARY = st.sampled_from(["+", "*", "-"])
RECIPE = st.recursive(
    st.sampled_from(["c", "e", "x"]),
    lambda inner: st.one_of(
        st.tuples(UNARY, inner),
        st.tuples(BINARY, inner, inner),
        st.tuples(st.just("cond"), inner, inner, inner),
    ),
    max_leaves=6,
)


def drawn(recipe, lax, np_, names):
    if isinstance(recipe, str):
        return names[recipe]
    kind, *parts = recipe
    if kind == "cond":
        pred = drawn(parts[0], lax, np_, names).sum() > 0.3
        one, other = (lambda p=p: drawn(p, lax, np_, names) * 1.0 for p in parts[1:])
        return lax.cond(pred, one, other)
    found = [drawn(part, lax, np_, names) for part in parts]
    if len(found) == 1:
        return getattr(np_, kind)(found[0])
    left, right = found
    return {"+": lambda: left + right, "*": lambda: left * right, "-": lambda: left - right}[kind]()


def scanned(lax, body, x, v, reverse):
    last, ys = lax.scan(body, x * 1.0, v, reverse=reverse)
    return (last * last).sum() + (ys * ys).sum()


def repeated(lax, body, x, v, reverse):
    found = lax.repeat(2, lambda c: body(c, v[0])[0 if reverse else 1], x * 1.0)
    return (found * found).sum()


def counted(lax, body, x, v, reverse):
    found = lax.fori_loop(0, 2, lambda i, c: body(c, v[i * 0])[0], x * 1.0)
    return (found * found).sum()


def mapped(lax, body, x, v, reverse):
    one, other = lax.map(lambda e: body(x, e), v)
    return (one * other).sum()


def vmapped(lax, body, x, v, reverse):
    one, other = lax.vmap(lambda e: body(x, e))(v)
    return (one * other).sum()


def scanned_rows(lax, body, x, v, reverse):
    """A loop in a vmap: the carry has rows, the elements have none."""
    ends = lax.vmap(lambda e: lax.scan(body, e * 1.0, v, reverse=reverse)[0])(v)
    return (ends * ends).sum()


KINDS = (scanned, repeated, counted, mapped, vmapped, scanned_rows)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 60)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
@settings(max_examples=84 if SOAK else 1, deadline=None)
@given(RECIPE, RECIPE, st.integers(1, 2), st.booleans())
def test_drawn_bodies_are_those_of_jax(kind, carry, y, length, reverse):
    pytest.importorskip("jax")

    def program(lax, np_, x, v):
        def body(c, e):
            names = {"c": c, "e": e, "x": x}
            made = [drawn(part, lax, np_, names) * 1.0 for part in (carry, y)]
            return made[0], made[1]

        return kind(lax, body, x, v, reverse)

    agrees_with_jax(program, *fed(length, length))
