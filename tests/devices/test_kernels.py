"""Kernels of our own: their text compiles for real GPUs, and the stand-in runs that very text."""

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph.devices import kernels
from actorgraph.devices.kernels import EXACT, FUNCTIONS, ElementKernel, can_fuse, lines_of
from actorgraph.op import REGISTRY
from actorgraph.ops._declare import _composed
from tests.devices._nvrtc import compiled

RULES = {
    op.name: op.loop.text
    for op in REGISTRY.values()
    if op.loop is not None and op.loop.kind == "value" and can_fuse(op.loop.text, FUNCTIONS)
}
TESTS = {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal"}
"""As steps of their own they give no floats; they stand inside of other rules."""
ODD = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-310, 3e38, -0.5, 2.0, 700.0]


def kernel_of(text, dtype):
    """Return the kernel of one rule, whose operands are all whole, and how many there are."""
    count = max((i + 1 for i, name in enumerate("xyz") if name in names(text)), default=0)
    kinds = ["?" if text == "where(x, y, z)" and not i else dtype for i in range(count)]
    lines = lines_of([("s", text, [f"a{i}" for i in range(count)])])
    return ElementKernel(dtype, "".join(kinds), (False,) * count, lines), kinds


def names(text):
    return text.replace("(", " ").replace(")", " ").replace(",", " ").split()


def operands(kinds):
    for place, kind in enumerate(kinds):
        numbers = np.array(ODD * len(ODD)) if place else np.repeat(ODD, len(ODD))
        numbers = np.roll(numbers, 5 * (place == 2))
        with np.errstate(over="ignore"):
            yield (numbers > 0.3) if kind == "?" else numbers.astype(kind)


# -- text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_the_text_of_every_function_compiles_for_a_gpu_that_is_not_here(dtype, architecture):
    rules = [
        (f"s{i}", text, [f"a{place}" for place in (0, 1, 2)])
        for i, text in enumerate(RULES.values())
        if text != "where(x, y, z)"
    ]
    rules.append(("s", "where(x, y, z)", ["a3", "a0", "a1"]))
    whole = ElementKernel(dtype, f"{dtype * 3}?", (False, True, False, False), lines_of(rules))
    assert {function for _, function, _ in whole.lines} == {*FUNCTIONS}
    for text in (whole.text, kernels.sums_text(dtype)):
        assert compiled(text, architecture)[:4] == b"\x7fELF"


def test_what_does_not_compile_is_told_by_the_compiler():
    with pytest.raises(ValueError, match="nothing_such"):
        compiled(kernels.sums_text("f").replace("total = out", "nothing_such = out"), 90)


def test_rules_are_those_of_the_ops_that_are_declared():
    assert len(RULES) > 20
    assert {"add", "multiply", "sqrt", "tanh", "where", "relu", "rsqrt", "cube"} <= RULES.keys()
    assert not can_fuse("divide(x, size)", FUNCTIONS)
    assert not can_fuse("x", FUNCTIONS)
    assert not can_fuse("exp(x)", EXACT)


# -- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", [name for name in RULES if name not in EXACT & TESTS])
def test_a_kernel_has_the_bits_of_its_rule_for_odd_numbers_too(world, name, dtype):
    kernel, kinds = kernel_of(RULES[name], dtype)
    given = [*operands(kinds)]
    cp = stand_in.cupy
    with stand_in.Stream(non_blocking=True), np.errstate(all="ignore"):
        of_op = REGISTRY[name].forward(np, *given)
        expected = _composed(RULES[name], ", ".join("xyz"[: len(kinds)]))(np, *given)
        found = kernel(cp, *map(cp.asarray, given)).get()
        apart = kernel(cp, *[cp.asarray(np.repeat(one, 2))[::2] for one in given]).get()
    assert world.kernels == 1  # with gaps it goes step by step
    np.testing.assert_allclose(expected, of_op, rtol=2e-6 if dtype == "f" else 1e-14, atol=1e-38)
    for one in (found, apart):
        assert np.array_equal(one, expected, equal_nan=True)
        if can_fuse(RULES[name], EXACT):  # which of 0 and -0 is the larger one nobody says
            known = ~np.isnan(one)
            assert np.array_equal(np.signbit(one[known]), np.signbit(expected[known]))


def test_nothing_is_launched_for_no_elements(world):
    kernel, _ = kernel_of("add(x, y)", "f")
    cp = stand_in.cupy
    with stand_in.Stream(non_blocking=True):
        nothing = cp.zeros((0, 3), "f")
        assert kernel(cp, nothing, nothing).get().shape == (0, 3)
    assert world.kernels == 0


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("size", [0, 1, 7, 300])
def test_segmented_sums_have_the_bits_of_numpy(world, dtype, size):
    draw = np.random.default_rng(size)
    places = draw.integers(-4, 5, size) % 9
    added = (draw.normal(size=size) * 10.0 ** draw.integers(-8, 8, size)).astype(dtype)
    expected = draw.normal(size=9).astype(dtype)
    cp = stand_in.cupy
    with stand_in.Stream(non_blocking=True):
        for apart in (False, True):
            out = cp.asarray(np.repeat(expected, 2))[::2] if apart else cp.asarray(expected)
            kernels.combine_in_order(cp, "add", out, cp.asarray(places), cp.asarray(added))
            total = expected.copy()
            np.add.at(total, places, added)
            assert np.array_equal(out.get(), total)


# -- machines ---------------------------------------------------------------------------------


def graph():
    g = ag.Graph()
    x = g.input("x", (4, 3), "float64")
    w = g.parameter("w", np.full((1,), 0.5))
    a = (x * w + 1.0) / (x * x + 2.0)
    b = ag.ops.where(x > 0.0, a, -a) - abs(x)
    y = (ag.ops.tanh(b) * ag.ops.exp(-b) + b.T.T).named("y")
    return x, y, y.sum()


def run(**options):
    x, y, loss = graph()
    feeds = {"x": np.arange(12.0).reshape(4, 3) / 3.0 - 1.5}
    with ag.ActorMachine([loss, y], wrt=[x], **options) as machine:
        for _ in range(2):
            found = machine.run_sync(feeds, backward=True)
    return [found[loss].value, found[y].value, found[x].grad]


@pytest.mark.parametrize("world", range(3), indirect=True)
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_steps_are_one_kernel_and_have_the_bits_of_the_cpu(world, exact, captured):
    found = run(device="cuda:0", lanes=2, captured=captured, exact=exact)
    for one, expected in zip(found, run(exact=exact), strict=True):
        assert np.array_equal(one, expected)
    assert world.kernels > 0
    assert world.races == []


def test_what_is_not_exact_makes_fewer_kernels_of_more_steps(world):
    x = ag.Graph().input("x", (3,), "float64")
    y = (ag.ops.tanh(x * 2.0) + 1.0) * ag.ops.exp(-x)
    counts = []
    for exact in (True, False):
        with ag.ActorMachine([y], device="cuda:0", exact=exact) as machine:
            machine.run_sync({"x": np.ones(3)})
            with ag.trace.record() as trace:
                machine.run_sync({"x": np.ones(3)})
        lanes = [part for part in trace.slices if part.lane == "cuda:0 lane 0"]
        counts.append(len(lanes))
    assert counts == [5, 1]


@pytest.mark.parametrize("options", [{"fuse": "none"}, {"watch": ("nan",)}])
def test_who_asks_for_nodes_one_by_one_gets_them(world, options):
    found = run(device="cuda:0", **options)
    assert all(map(np.array_equal, found, run()))
    assert world.kernels == 0


def test_lisp_machine_goes_node_by_node(world):
    _, y, _ = graph()
    with ag.LispMachine([y], device="cuda:0", captured=True) as machine:
        machine.run_sync({"x": np.ones((4, 3))})
    assert world.kernels == world.replays == 0


def test_gradients_of_places_that_repeat_have_the_bits_of_the_cpu(world):
    g = ag.Graph()
    W, i = (
        g.parameter("W", np.random.default_rng(0).normal(size=(5, 3))),
        g.input("i", (40,), "int64"),
    )
    loss = (ag.ops.exp(ag.ops.embedding(i, W)) * 1e3).sum()
    feeds = {"i": np.random.default_rng(1).integers(0, 5, 40)}
    found = []
    for device in ("cpu", "cuda:0"):
        with ag.ActorMachine([loss], device=device) as machine:
            found.append(machine.run_sync(feeds, backward=True)[W].grad)
    assert np.array_equal(*found)
    assert world.kernels > 0
