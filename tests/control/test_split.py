"""Loops that are made as several beside each other: which, that it changes no bit, what is told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.control import layers, split
from actorgraph.tiles import here
from tests._each import each
from tests._soak import drawn

ops = ag.ops
RNG = np.random.default_rng(0)
STEPS, SHAPE = 24, (3, 3)
START = np.zeros(SHAPE, "float64")
XS = RNG.normal(size=(STEPS, *SHAPE))
WEIGHTS = RNG.normal(size=(3, *SHAPE)) / 2


@pytest.fixture(autouse=True)
def worth_it(monkeypatch, made):
    """All ops cost the same, and to split a loop is worth it."""
    monkeypatch.setattr(split, "_WORTH", 1.0)
    monkeypatch.setattr(split, "is_heavy", lambda us: True)
    monkeypatch.setattr(split, "predicted_us", lambda node, symbols, walked: 1.0)


def stacked(weights, count=3):
    """Return a body of layers of which each takes what the one before has made."""

    def body(states, x):
        new = []
        for state, w in zip(states, weights, strict=True):
            x = ops.tanh(state @ w + x * state)
            new.append(x)
        return tuple(new), x

    return body


def fed(g, xs=XS):
    x = g.input("xs", ("n", *SHAPE), "float64")
    weights = [g.parameter(f"w{i}", w) for i, w in enumerate(WEIGHTS)]
    return x, weights, {"xs": xs}


def check(outputs, feeds, backward=False, **options):
    """Check the bits of two workers against the interpreter; return what the machine says."""
    options.setdefault("native", False)
    wanted = ag.LispMachine(outputs).run_sync(feeds, backward=backward)
    with ag.ActorMachine(outputs, workers=2, **options) as machine:
        run = machine.run_sync(feeds, backward=backward)
        for node in machine.outputs.values():
            assert run[node].value.tobytes() == wanted[node].value.tobytes()
        for node in machine.wrt if backward else ():
            assert run[node].grad.tobytes() == wanted[node].grad.tobytes()
        return machine.explain()


@pytest.mark.parametrize("save", ["all", "carry", 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_layers_in_one_body_are_made_beside_each_other_both_ways(made, save, reverse):
    xs, weights, feeds = fed(ag.Graph())
    _, ys = ag.scan(stacked(weights), (START,) * 3, xs, save=save, reverse=reverse)
    told = check([ops.sum(ys * ys), ys], feeds, backward=True)
    assert len(made) == (1 if save == 5 else 2)  # slots go back step by step
    assert all(count > 1 for count in made)
    assert "concurrent loops" in told


def test_carries_that_do_not_need_one_another_are_loops_of_their_own(g, made):
    xs, (w, v, _), feeds = fed(g)
    body = lambda c, x: ((ops.tanh(c[0] @ w + x), ops.sin(c[1] @ v) - x), c)  # noqa: E731
    ends, ys = ag.scan(body, (START, START), xs)
    check([*ends, *ys], feeds)
    assert made == [2]


def test_a_carry_may_wait_for_another_part_and_results_may_be_elements_and_views(g, made):
    xs, (w, v, _), feeds = fed(g)

    def body(c, x):
        first = ops.tanh(c[0] @ w + x)
        second = ops.sin(c[1] @ v - x @ c[2].T)
        return (first, second, first), (x, ops.transpose(second), c[2], first, first, c[0] + c[2])

    ends, ys = ag.scan(body, (START, START + 1.0, START), xs)
    check([*ends, *ys], feeds)
    assert made == [2]


def test_scalars_and_the_position_are_handed_over(g, made):
    x = g.input("x", (), "float64")

    def body(i, c):
        one = ops.sin(c[0] + i.astype("float64") * x)
        return one, ops.cos(c[1] + one) * one

    ends = ag.fori_loop(2, 2 + STEPS, body, (np.zeros(()), np.zeros(())))
    check([*ends], {"x": np.array(0.3)})
    assert made == [3]


def test_a_wave_takes_the_parts_of_its_longest_loop(g, made):
    xs, weights, feeds = fed(g)
    _, ys = ag.scan(stacked(weights), (START,) * 3, xs)
    last, _ = ag.scan(lambda c, x: (c + x, None), START, ys)
    check([last], feeds)
    assert made[0] > 2


@each(
    "reason, options",
    [
        ("what depends on the iteration before takes 100 % of each", {"swaps": True}),
        ("its body has an op of yours", {"nested": True}),
        ("another memory layout", {"turns": True}),
        ("it is interpreted, watched, on a device", {"watch": ("nan",)}),
        # Last, as it is skipped without llvmlite.
        ("`jit` may give its parts other last bits", {"jit": "wait", "exact": False}),
    ],
)
def test_what_cannot_be_split_is_made_in_turn_and_told_why(made, reason, options):
    xs, (w, v, _), feeds = fed(ag.Graph())
    swaps, nested, turns = (options.get(key) for key in ("swaps", "nested", "turns"))

    def body(c, x):
        one, two = ops.tanh(c[0] @ w + x), ops.tanh(c[1] @ v + x)
        if nested:
            two = ag.fori_loop(0, 2, lambda i, y: y * 0.5, two)
        one = one.T if turns else one
        return ((two, one) if swaps else (one, two)), None

    ends, _ = ag.scan(body, (START, START), xs)
    how = {key: options[key] for key in ("watch", "jit", "exact") if key in options}
    if "jit" in how:
        pytest.importorskip("llvmlite")
    with ag.ActorMachine(ends, wrt=[], workers=2, **how) as machine:
        machine.run_sync(feeds)
        assert reason in machine.explain()
    assert made == []


def test_what_is_not_in_c_order_is_made_in_turn(g, made):
    xs, weights, _ = fed(g)
    _, ys = ag.scan(stacked(weights), (START,) * 3, xs)
    check([ys], {"xs": np.asarray(XS, order="F")})
    assert made == []


def test_large_values_stay_with_those_that_read_them(g, made, monkeypatch):
    xs, (w, v, u), feeds = fed(g)

    def body(c, x):
        wide = ops.exp(ops.tile(ops.tanh(c[0] @ w + x), (8, 1)) * 0.1)
        return (wide[:3], ops.sin(c[1] @ v + ops.sum(wide)), ops.cos(c[2] @ u)), None

    monkeypatch.setattr(split, "_MOST_BYTES", STEPS * 100)
    ends, _ = ag.scan(body, (START,) * 3, xs)
    told = check([*ends], feeds)
    assert made == []
    ends, _ = ag.scan(stacked((w, v, u)), (START,) * 3, xs)
    monkeypatch.setattr(split, "_MOST_BYTES", STEPS * 200)
    told = check([*ends], feeds)
    assert made == [3]
    assert "hand over 144 bytes" in told


def test_longer_sequences_that_would_hand_over_too_much_are_made_in_turn(g, made, monkeypatch):
    xs, weights, _ = fed(g)
    _, ys = ag.scan(stacked(weights), (START,) * 3, xs)
    monkeypatch.setattr(split, "_MOST_BYTES", STEPS * 200)
    with ag.ActorMachine([ys], wrt=[], workers=2) as machine:
        for count in (1, 2, 1):
            machine.run_sync({"xs": np.concatenate([XS] * count)})
    assert len(made) == 2


def test_a_failure_is_that_of_the_first_iteration_and_its_node(g, made):
    xs, _, feeds = fed(g, XS.copy())

    def body(c, x):
        one = c[0] + 1.0 / x[0, 0]
        return (one, c[1] + ops.log(x[1, 1]) + one), None

    ends, _ = ag.scan(body, (START, START), xs)
    feeds["xs"][:, 1, 1] = 1.0
    feeds["xs"][3, 1, 1] = feeds["xs"][9, 0, 0] = 0.0  # the second part fails before the first
    with ag.ActorMachine(ends, wrt=[], workers=2) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError) as caught:
            machine.run_sync(feeds)
        feeds["xs"][9, 0, 0] = 1.0
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
            machine.run_sync(feeds)
    assert made == [3, 3]
    assert caught.value.iteration == (3,)
    assert caught.value.op == "log"
    assert __file__ in caught.value.line


def test_a_run_that_dies_ends_between_iterations(g, made):
    class Run:
        asked = 0

        @property
        def dead(self):
            Run.asked += 1
            return "cancelled" if Run.asked > 9 else None

    class Scheduler:
        slots = 2
        tile_queue = type("Nobody", (), {"share": print, "withdraw": print})()

    xs, weights, _ = fed(g)
    _, ys = ag.scan(stacked(weights), (START,) * 3, xs)
    loop = ys.inputs[0]
    kernel = loop.op.kernel(loop, {"n": STEPS}, ())
    kernel.parts = None
    here.held = (Scheduler, None, None)
    try:
        with pytest.raises(layers.Dead):
            kernel(Run(), *WEIGHTS, *[START] * 3, XS)
    finally:
        del here.held
    assert len(made) == 1
    assert Run.asked < STEPS


NAMES = st.sampled_from(["c0", "c1", "c2", "x", "w"])
RECIPE = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["tanh", "sin", "transpose", "square"]), inner),
        st.tuples(st.sampled_from(["add", "multiply", "matmul", "subtract"]), inner, inner),
    ),
    max_leaves=5,
)


@pytest.mark.soak
@drawn(6, 400)
@given(
    st.lists(RECIPE, min_size=3, max_size=3),
    st.lists(RECIPE, min_size=1, max_size=2),
    st.sampled_from(["auto", "all", "carry", 3]),
    st.booleans(),
)
def test_drawn_bodies_have_the_bits_of_the_interpreter(nexts, results, save, reverse):
    xs, (w, *_), feeds = fed(ag.Graph())

    def made_of(recipe, names):
        if isinstance(recipe, str):
            return names[recipe]
        kind, *parts = recipe
        return getattr(ops, kind)(*[made_of(part, names) for part in parts])

    def body(c, x):
        names = {"c0": c[0], "c1": c[1], "c2": c[2], "x": x, "w": w}
        new = [ops.tanh(made_of(one, names)) for one in nexts]
        return tuple(new), [made_of(one, names) for one in results]

    ends, ys = ag.scan(body, (START + 0.5,) * 3, xs, reverse=reverse, save=save)
    check([sum([ops.sum(one * one) for one in (*ends, *ys)]), *ends, *ys], feeds, backward=True)
