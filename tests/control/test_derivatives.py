"""Derivatives of control flow, in all modes and of second order: against JAX and by definition."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.control import derivatives as control_derivatives
from actorgraph.control.revolve import reversal, steps_again
from actorgraph.ops._records import fields_read
from tests._each import each
from tests.control._runs import derivatives, values

POLICIES = ("all", "carry", 1, 3, "auto")
every_policy = pytest.mark.parametrize("save", POLICIES)


# -- programs in the words that both libraries know ----------------------------------------------


def cond(lax, np_, x, v):
    return lax.cond(x[0] > 0.0, lambda: (np_.sin(x) * v).sum(), lambda: (v * v).sum())


def switch(lax, np_, x, v):
    branches = [lambda y: y * x[0], lambda y: np_.exp(y), lambda y: y]
    index = (x[0] > 0).astype("int64") + (x[0] > 1).astype("int64")
    return (lax.switch(index, branches, v) * v).sum()


def scan(lax, np_, x, v):
    last, ys = lax.scan(lambda c, e: (np_.tanh(x * c) + e, c * x * e), x * x, v)
    return (ys * ys).sum() + last.sum()


def reversed_scan(lax, np_, x, v):
    last, ys = lax.scan(lambda c, e: (np_.sin(c * e) + x, c * c), x, v, reverse=True)
    return last.sum() + (ys * x).sum()


def unused_stack(lax, np_, x, v):
    last, _ = lax.scan(lambda c, e: ((c[0] + c[1] * e, c[1] * x), c[1]), (x, x + 1.0), v)
    return last[0].sum()


def counted(lax, np_, x, v):
    body = lambda c, e: ((c[0] * x + e, c[1] + 1), np_.cos(c[0]))  # noqa: E731
    (last, count), ys = lax.scan(body, (x, np.zeros((), "int64")), v)
    return (last * count.astype("float64")).sum() + ys.sum()


def fori(lax, np_, x, v):
    body = lambda i, c: c * x[0] + np_.sin(c) * v[i]  # noqa: E731
    return lax.fori_loop(0, 2, body, v).sum()


def no_trips(lax, np_, x, v):
    return (lax.fori_loop(3, 3, lambda i, c: c * x[0], v) * v).sum()


def mapped(lax, np_, x, v):
    return (lax.map(lambda e: np_.sin(e) * x, v) * v).sum()


def scan_with_cond(lax, np_, x, v):
    def body(c, e):
        c = lax.cond(c.sum() > 0.5, lambda c: c * x * e, lambda c: np_.sin(c) + e * e, c)
        return c, c * e

    last, ys = lax.scan(body, x, v)
    return last.sum() + (ys * ys).sum()


def three_deep(lax, np_, x, v):
    def innermost(c, e):
        c = lax.cond(c.sum() > 1, lambda c: np_.sin(c) * x, lambda c: c + e, c)
        return c, c * c

    def inner(c, e):
        c, y = lax.scan(innermost, c * 0.5, v)
        return c * e, y.sum()

    def outer(c, e):
        c, y = lax.scan(inner, c, v * e)
        return c, (y * y).sum()

    last, ys = lax.scan(outer, x, v)
    return last.sum() + ys.sum()


def chained(lax, np_, x, v):
    _, ys = lax.scan(lambda c, e: (c + e * x, c * x), x, v)
    last, zs = lax.scan(lambda c, e: (c * e + x, c), x, ys)
    return last.sum() + (zs * ys).sum()


PROGRAMS = {
    one.__name__: one
    for one in (cond, switch, scan, reversed_scan, unused_stack, counted, fori, no_trips, mapped,
                scan_with_cond, three_deep, chained)
}  # fmt: skip


def repeat(count, body, init):
    """A while loop that counts; in JAX, where none has a gradient, it is a fori_loop."""
    step = lambda c: (c[0] + 1, body(c[1]))  # noqa: E731
    return ag.while_loop(lambda c: c[0] < count, step, (np.int64(0), init))[1]


OURS = SimpleNamespace(
    cond=ag.cond, switch=ag.switch, scan=ag.scan, fori_loop=ag.fori_loop, map=ag.map, vmap=ag.vmap,
    repeat=repeat,
)  # fmt: skip


def built(program):
    g = ag.Graph()
    x, v = g.input("x", ("k",), "float64"), g.input("v", ("n", "k"), "float64")
    loss = program(OURS, ag.ops, x, v)
    slopes = ag.gradients(loss, [x, v])
    return loss, (slopes[0] * slopes[0]).sum() + slopes[1].sum(), [x, v]


def fed(seed=0, n=3, k=2):
    draw = np.random.default_rng(seed).normal
    return draw(size=k), draw(size=(n, k)), draw(size=k), draw(size=(n, k))


def by_jax(program, x, v, dx, dv):
    """Return value, gradients, tangent, and the same of what `built` makes of the gradients."""
    jax = pytest.importorskip("jax")
    lax = SimpleNamespace(**vars(jax.lax), vmap=jax.vmap)
    lax.repeat = lambda count, body, init: lax.fori_loop(0, count, lambda i, c: body(c), init)

    def f(x, v):
        return program(lax, jax.numpy, x, v)

    def f2(x, v):
        a, b = jax.grad(f, (0, 1))(x, v)
        return (a * a).sum() + b.sum()

    def everything(x, v, dx, dv):
        return [
            part
            for one in (f, f2)
            for part in (*_flat(jax.value_and_grad(one, (0, 1))(x, v)),
                         jax.jvp(one, (x, v), (dx, dv))[1])
        ]  # fmt: skip

    with jax.enable_x64(True), jax.disable_jit():  # to compile takes 10 s a program
        return everything(x, v, dx, dv)


def _flat(value_and_grads):
    value, grads = value_and_grads
    return value, *grads


def agrees_with_jax(program, x, v, dx, dv):
    loss, second, wrt = built(program)
    feeds, moves = {"x": x, "v": v}, {"x": dx, "v": dv}
    (value, _), grads, (tangent, tangent2) = derivatives([loss, second], feeds, wrt, moves)
    (value2,), grads2, _ = derivatives([second], feeds, wrt, moves)
    found = [value, *grads, tangent, value2, *grads2, tangent2]
    for one, other in zip(found, by_jax(program, x, v, dx, dv), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@each("name", PROGRAMS)
def test_values_gradients_second_order_and_tangents_are_those_of_jax(name):
    pytest.importorskip("jax")
    agrees_with_jax(PROGRAMS[name], *fed(n=2))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_finite_differences_and_tangents_agree_with_them(name):
    loss, _, wrt = built(PROGRAMS[name])
    x, v, dx, dv = fed(3)
    _, grads, (tangent, *_) = derivatives([loss], {"x": x, "v": v}, wrt, {"x": dx, "v": dv})
    step = 1e-6
    with ag.LispMachine([loss], wrt=[]) as machine:
        ends = [
            machine.run_sync({"x": x + sign * step * dx, "v": v + sign * step * dv})[loss].value
            for sign in (1, -1)
        ]
    slope = (ends[0] - ends[1]) / (2 * step)
    along = (grads[0] * dx).sum() + (grads[1] * dv).sum()
    np.testing.assert_allclose([along, tangent], slope, rtol=1e-6, atol=1e-7)


# -- values known --------------------------------------------------------------------------------


def test_the_slope_of_a_cumulative_sum_is_a_triangle_of_ones(g):
    xs = g.input("xs", (4,), "float64")
    _, ys = ag.scan(lambda c, x: (c + x, c + x), np.zeros(()), xs)
    rows = [ag.gradients(ys[i], [xs])[0] for i in range(4)]
    np.testing.assert_array_equal(values(rows, {"xs": np.ones(4)}), np.tril(np.ones((4, 4))))


def test_a_carry_is_active_though_its_first_value_is_not(g):
    a, xs = g.input("a", (), "float64"), g.input("xs", (5,), "float64")
    _, ys = ag.scan(lambda c, x: (a * c + x, a * c + x), np.array(0.2), xs)
    (slope,) = ag.gradients(ys.sum(), [a])
    feed = {"a": 0.7, "xs": np.array([0.11, -0.37, 0.23, 0.41, -0.19])}
    np.testing.assert_allclose(values(slope, feed)[0], 1.3952, rtol=1e-4)


def test_a_carry_that_nobody_reads_is_no_trouble(g):
    p = g.input("p", (), "float64")
    body = lambda c, _: ({"a": c["a"], "b": c["b"] + c["a"]}, None)  # noqa: E731
    last, _ = ag.scan(body, {"a": p, "b": np.zeros(())}, None, length=2)
    (slope,) = ag.gradients(last["a"] * p, [p])
    assert values(slope, {"p": 2.0}) == [4.0]


@every_policy
def test_a_while_loop_has_a_gradient(g, save):
    x = g.input("x", (), "float64")
    half = g.constant(np.array(0.5))
    step = lambda c: (c[1], half * (c[1] + x / c[1]))  # noqa: E731
    root = ag.while_loop(lambda c: abs(c[0] - c[1]) > 1e-12, step, (x + 1.0, x), save=save)[1]
    (slope,) = ag.gradients(root, [x])
    (bend,) = ag.gradients(slope, [x])
    found, grads, tangents = derivatives([root, slope, bend], {"x": 2.0}, [x], {"x": 1.0})
    want = [2**0.5, 0.5 * 2**-0.5, -0.25 * 2**-1.5]
    np.testing.assert_allclose(found, want, rtol=1e-9)
    np.testing.assert_allclose([*grads, *tangents[:2]], [want[1], *want[1:]], rtol=1e-9)


def test_the_slope_through_no_iterations_is_that_of_the_first_carry(g):
    x, y = g.input("x", (), "float64"), g.input("y", (), "float64")
    out = ag.while_loop(lambda c: c < 1.0, lambda c: c * y, x)
    assert values(ag.gradients(out, [x, y]), {"x": 3.0, "y": 2.0}) == [1.0, 0.0]


def test_only_the_branch_that_is_taken_is_differentiated(g):
    x = g.input("x", (), "float64")
    (slope,) = ag.gradients(ag.cond(x > 0, lambda: ag.ops.log(x), lambda: x * 0.0), [x])
    assert values(slope, {"x": 0.0}) == [0.0]


def test_gradients_inside_of_a_body_reach_what_it_closes_over(g):
    w, xs = g.input("w", (), "float64"), g.input("xs", (3,), "float64")

    def descend(c, x):
        slopes = ag.gradients(w * w * c * x, [w, c])
        return c - slopes[1], slopes[0]

    last, slopes = ag.scan(descend, np.ones(()), xs)
    found = values([last, slopes], {"w": 2.0, "xs": np.array([0.1, 0.2, 0.3])})
    carry, wanted = 1.0, []
    for x in (0.1, 0.2, 0.3):
        wanted.append(2 * 2.0 * carry * x)
        carry -= 4.0 * x
    np.testing.assert_allclose(found[0], carry, rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-12)


# -- what is kept between the passes ---------------------------------------------------------------


def unrolled(body, carry, elements, length):
    ys = []
    for i in range(length):
        carry, y = body(carry, elements[i])
        ys.append(y)
    return carry, ys


@every_policy
def test_a_scan_has_the_bits_of_the_unrolled_graph(g, save):
    n = 6
    a, c0 = g.input("a", (3, 3), "float64"), g.input("c", (3,), "float64")
    parts = [g.input(f"x{i}", (3,), "float64") for i in range(n)]
    body = lambda c, x: (ag.ops.tanh(c @ a) + x, (c * x).sum())  # noqa: E731
    last, ys = ag.scan(body, c0, ag.ops.stack(parts), save=save)
    loss = (last * last).sum()
    other, _ = unrolled(body, c0, parts, n)
    flat = (other * other).sum()
    draw = np.random.default_rng(1).normal
    feeds = {"a": draw(size=(3, 3)), "c": draw(size=3), **{p.name: draw(size=3) for p in parts}}
    one = values([loss, *ag.gradients(loss, [a, c0, *parts])], feeds)
    two = values([flat, *ag.gradients(flat, [a, c0, *parts])], feeds)
    for left, right in zip(one, two, strict=True):
        assert left.tobytes() == right.tobytes()
    del ys


def test_what_is_kept_changes_no_bit_of_a_gradient():
    found = []
    for save in POLICIES:
        g = ag.Graph()
        x, v = g.input("x", (), "float64"), g.input("v", ("n",), "float64")
        last, ys = ag.scan(
            lambda c, e, x=x: (ag.ops.sin(c * x) + e, c * e), x, v, save=save, reverse=True
        )
        slopes = ag.gradients((ys * ys).sum() + last, [x, v])
        found.append(values(slopes, {"x": 0.3, "v": np.linspace(0, 1, 9)}))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("most_bytes", [0, 8 * 9, 8 * 9 * 3, 10**9])
def test_automatic_keeping_changes_no_bit_however_much_fits(most_bytes, monkeypatch):
    monkeypatch.setattr(control_derivatives, "MOST_BYTES", most_bytes)
    found = []
    for save in ("auto", "carry"):
        g = ag.Graph()
        x, v = g.input("x", (), "float64"), g.input("v", (9,), "float64")
        body = lambda c, e, x=x: (  # noqa: E731
            (ag.ops.sin(c[0] * x) + c[1], c[1] + e, c[2] + e, c[3] + c[2]),
            e * e,
        )
        last, ys = ag.scan(body, (x, x, x, x), v, save=save)
        slopes = ag.gradients(ys.sum() * last[0], [x, v])
        found.append(values(slopes, {"x": 0.3, "v": np.linspace(0, 1, 9)}))
    for one, two in zip(*found, strict=True):
        assert one.tobytes() == two.tobytes()


def test_forward_runs_keep_no_history(g):
    xs = g.input("xs", (4,), "float64")
    last, _ = ag.scan(lambda c, x: (c * x, None), np.ones(()), xs)
    with ag.LispMachine([last], wrt=[xs]) as machine:
        kept = []
        for backward in (False, True):
            seen = []
            log = lambda node, value, seen=seen: seen.append(value)  # noqa: E731
            with ag.LispMachine([last], wrt=[xs], log=log) as m:
                m.run_sync({"xs": np.ones(4)}, backward=backward)
            records = [value for value in seen if isinstance(value, tuple)]
            kept.append(sum(part is not None for part in records[0]))
        assert machine.wrt
        assert kept[0] < kept[1]


# -- Revolve --------------------------------------------------------------------------------------


def test_a_reversal_advances_as_few_steps_as_any_and_keeps_to_its_slots():
    lengths = (*range(24), 56, 100, 200)
    for length, slots in itertools.product(lengths, (1, 2, 3, 4, 5, 8, 10, 12)):
        kept, at, advanced, back, most = [0], 0, 0, [], 1
        for action, place in reversal(length, slots):
            if action == "advance":
                advanced, at = advanced + place - at, place
            elif action == "keep":
                kept.append(at)
                most = max(most, len(kept))
            else:
                if action == "back":
                    assert at == place
                    back.append(place)
                else:
                    kept.pop()
                at = kept[-1]
        assert back == list(range(length))[::-1]
        assert most <= slots
        assert kept == [0]
        assert advanced == steps_again(length, slots)


@each(
    "length, counts",
    [
        (10, (45, 20, 15, 14, 13, 10, 9)),
        (20, (190, 65, 45, 39, 33, 30, 28)),
        (56, (1540, 340, 210, 168, 140, 113, 100)),
        (100, (4950, 845, 490, 374, 316, 245, 222)),
        (200, (19900, 2470, 1305, 948, 790, 580, 522)),
    ],
)
def test_the_counts_are_those_of_the_formula(length, counts):
    assert tuple([steps_again(length, s) for s in (1, 2, 3, 4, 5, 8, 10)]) == counts
    assert [steps_again(1000, s) for s in (10, 20, 50)] == [3636, 2747, 1948]


def test_a_long_scan_is_differentiated_in_the_memory_of_its_slots(g):
    steps, width, slots = 400, 2000, 21
    x = g.input("x", (width,), "float64")
    last, _ = ag.scan(lambda c, _: (ag.ops.sin(c) * x, None), x, None, length=steps, save=slots)
    loss = last.sum()
    import tracemalloc

    with ag.TapeMachine([loss], wrt=[x]) as machine:
        machine.run_sync({"x": np.ones(width)}, backward=True)
        tracemalloc.start()
        machine.run_sync({"x": np.ones(width)}, backward=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < (slots + 12) * width * 8 < steps * width * 8 / 10


def test_views_of_what_a_loop_keeps_are_not_kept_beside_it():
    graph = ag.Graph()
    x = graph.input("x", (2, 3), "float64")

    def step(carry, _):
        both = ag.ops.sigmoid(ag.ops.concatenate([carry, carry * carry], axis=1))
        one, other = ag.ops.split(both, 2, axis=1)
        return one * other, None

    y = ag.scan(step, x, length=4)[0].sum()
    [slope] = ag.gradients(y, [x])
    loops = [node for node in graph.nodes if node.op.name == "loop"]
    spec = loops[0].attrs["loop"]
    fields = [field for field in fields_read(loops[0]) if field >= spec.inner]
    kept = [spec.body.nodes[field - spec.inner] for field in fields]
    assert [node.op.name for node in kept] == ["sigmoid"]
    found = ag.TapeMachine([y, slope], wrt=[]).run_sync({"x": np.ones((2, 3))})[slope].value
    ends = [_after(step, 1 + h) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def _after(step, start):
    carry = ag.Graph().constant(np.full((1, 1), start))
    for _ in range(4):
        carry = step(carry, None)[0]
    return float(ag.LispMachine([carry]).run_sync({})[carry].value[0, 0])
