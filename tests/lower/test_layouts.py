"""Layouts: the strides of values that NumPy does not put in C order, and rows that write them."""

from itertools import chain, combinations, permutations
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.lower.kernels import kernel
from actorgraph.lower.layouts import Layouts
from actorgraph.lower.spots import Spot, Unfit, view_spot
from actorgraph.memory.buffers import regular
from actorgraph.op import CONSTANT
from actorgraph.rewrite.exact import restated
from tests._each import each
from tests._soak import drawn
from tests.lower.test_table import check
from tests.machines._graphs import graphs, graphs_of_other_dtypes

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
FLOATS = ["float32", "float64"]


def moved(array):
    """Return the strides of the axes with more than one entry; none for an empty array."""
    pairs = zip(array.shape, array.strides, strict=True)
    return [step for size, step in pairs if size > 1 and 0 not in array.shape]


def check_layouts(example):
    """Compare layouts with the strides that kernels give, for C-contiguous leaves."""
    order = example.graph.topological_order(example.outputs)
    steps = [node for node in order if not node.is_leaf]
    feeds = {getattr(node, "name", node): value for node, value in example.feeds[0].items()}
    values, symbols = {}, {"n": len(feeds["x"])}
    layouts = Layouts(steps, symbols, regular(steps))
    with np.errstate(all="ignore"):
        for node in order:
            if node.op is CONSTANT:
                values[node.id] = node.attrs["value"]
            elif node.is_leaf:
                value = feeds.get(node.name, getattr(node, "value", None))
                values[node.id] = np.array(value, order="C")
            else:
                given = [values[part.id] for part in node.inputs]
                values[node.id] = np.asarray(kernel(node, np, symbols)(*given))
            spot = layouts.of(node)
            if spot is not None:
                found = values[node.id]
                assert (spot.offset, spot.shape) == (0, found.shape)
                assert moved(spot) == moved(found), node


def test_the_layout_of_an_operand_is_that_of_its_step_though_the_node_is_older():
    graph = ag.Graph()
    x, y = graph.input("x", (3, 4), "float64"), graph.input("y", (4, 3), "float64")
    older = ops.tanh(y)
    last = ops.exp(older)
    step = restated(older, older.op, (x.T,), older.attrs)
    steps = [x.T, step, last]
    assert Layouts(steps, {}, regular(steps)).of(last).strides == (8, 32)


@drawn(100, 4000)
@given(graphs())
def test_layouts_are_those_that_numpy_chooses(example):
    check_layouts(example)


@drawn(60, 2000)
@given(graphs_of_other_dtypes())
def test_layouts_of_other_dtypes_are_those_that_numpy_chooses(example):
    check_layouts(example)


def attention(dtype, heads=2):
    """Return a loss of multi-head attention, as transformers write it, with feeds."""
    g, size = ag.Graph(), 8
    x = g.input("x", ("b", 6, size * heads), dtype)
    rng = np.random.default_rng(3)
    weights = [
        g.parameter(name, rng.normal(size=(size * heads, size * heads)).astype(dtype))
        for name in "qkvo"
    ]
    q, k, v = [
        ops.transpose(ops.reshape(x @ w, ("b", 6, heads, size)), (0, 2, 1, 3)) for w in weights[:3]
    ]
    seen = ops.softmax(q * 0.25 @ ops.transpose(k, (0, 1, 3, 2)), axis=-1) @ v
    y = ops.reshape(ops.transpose(seen, (0, 2, 1, 3)), ("b", 6, size * heads)) @ weights[3]
    return ops.square(y).mean(), {"x": rng.normal(size=(3, 6, size * heads)).astype(dtype)}


@pytest.mark.parametrize("dtype", FLOATS)
def test_attention_forward_and_backward_is_one_table_with_the_same_bits(dtype):
    loss, feeds = attention(dtype)
    assert check([loss], feeds) == ["table"]
    found = check([loss], feeds, backward=True)
    assert found.count("table") == 1
    assert len(found) < 6


@pytest.mark.parametrize("dtype", FLOATS)
def test_results_that_are_not_in_c_order_lie_as_numpy_lays_them(dtype):
    x = ag.Graph().input("x", ("n", 5, 4), dtype)
    turned = ops.tanh(ops.transpose(x, (2, 0, 1)) * 2.0)
    for _ in range(6):
        turned = ops.tanh(turned) + 1.0
    feeds = {"x": np.random.default_rng(1).normal(size=(3, 5, 4)).astype(dtype)}
    assert check([turned], feeds) == ["table"]
    strides = []
    for wait in (False, "wait"):
        with ag.TapeMachine([turned], native=wait) as machine:
            strides += [machine.run_sync(feeds)[turned].value.strides for _ in range(3)]
    assert len({*strides}) == 1
    assert strides[0] != np.empty((4, 3, 5), dtype).strides


def test_sums_of_what_is_turned_have_their_bits():
    x = ag.Graph().input("x", (4, 6, 5), "float32")
    y = x
    for _ in range(6):
        y = ops.tanh(y)
    feeds = {"x": np.random.default_rng(1).normal(size=(4, 6, 5)).astype("float32")}
    flat = ops.reshape(y, (24, 5))
    assert check([ops.transpose(flat, (1, 0)).sum(0)], feeds) == ["table"]
    for axes in ((1, 0, 2), (2, 1, 0), (0, 2, 1)):  # NumPy adds in the order of memory
        assert check([ops.transpose(y, axes).sum((0, 1))], feeds) == ["table"]


SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30, -1e30, 1e-40]


def numbers(shape, dtype, special):
    """Return numbers that differ along any axis, with special ones among them."""
    x = np.sin(np.arange(np.prod(shape) * 1.0)).reshape(shape).astype(dtype)
    if special:
        x.reshape(-1)[:: x.size // len(SPECIAL)][: len(SPECIAL)] = SPECIAL
    return x


@each("special", [False, True])
@each("dtype", FLOATS)
@each("shape", [(4, 6, 5), (3, 70, 9), (2, 3, 1, 300)])
def test_sums_over_any_axes_of_turned_arrays_are_rows_with_their_bits(shape, dtype, special):
    x = ag.Graph().input("x", shape, dtype)
    y, sums, rank = x * 1.0, [], len(shape)
    for turn in permutations(range(rank)):
        turned = ops.transpose(y, turn)
        for axes in chain.from_iterable([combinations(range(rank), n) for n in range(1, rank)]):
            sums += [turned.sum(axes), turned.sum(axes, keepdims=True)]
    with np.errstate(all="ignore"):
        assert check(sums, {"x": numbers(shape, dtype, special)}) == ["table"]


def test_a_sum_that_keeps_axes_of_a_turned_array_is_laid_as_numpy_lays_it():
    x = ag.Graph().input("x", (4, 6, 5, 3), "float32")
    feeds = {"x": numbers((4, 6, 5, 3), "float32", False)}
    found = [ops.transpose(x * 1.0, (3, 1, 0, 2)).sum(1)]
    for _ in range(5):
        found.append(ops.tanh(found[-1]))
    assert check(found, feeds) == ["table"]
    with ag.TapeMachine(found, native="wait") as machine:
        run = machine.run_sync(feeds)
        strides = [run[node].value.strides for node in found]
    assert strides == [np.transpose(feeds["x"], (3, 1, 0, 2)).sum(1).strides] * 6


@pytest.mark.parametrize("options", [{"fuse": "all"}, {"fuse": "none"}, {}])
def test_a_record_that_comes_from_another_task_has_no_layout(options):
    ag.nn.manual_seed(0)
    x = ag.Graph().input("x", (7, 4, 8), "float32")
    loss = ops.square(ag.nn.LSTM(8, 8)(x)[0]).mean()
    feeds = {"x": numbers((7, 4, 8), "float32", False)}
    with ag.LispMachine([loss]) as machine:
        wanted = machine.run_sync(feeds, backward=True)
    for kind in (ag.TapeMachine, ag.ActorMachine):
        with kind([loss], native="wait", **options) as machine:
            run = machine.start(feeds, backward=True).result()
            for node in machine.wrt:
                assert run[node].grad.tobytes() == wanted[node].grad.tobytes()


def test_an_item_of_a_record_is_no_view_of_memory():
    with pytest.raises(Unfit):
        view_spot(Spot(0, 0, (), (), 8), np.dtype(object), itemgetter(0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "form",
    [
        lambda x: x[:, 1:].sum(),
        lambda x: x[::2, 1:].mean(),
        lambda x: x[:, ::-1].sum(axis=1),
        lambda x: x[::-1].sum(axis=0),
        lambda x: x.transpose((1, 0))[::-1].sum(),
        lambda x: ops.broadcast_to(x.sum(), (1, 8)) @ x,
        lambda x: x @ ops.broadcast_to(x.sum(), (8, 1)),
    ],
)
def test_what_numpy_sums_in_an_order_of_its_own_has_no_row(form, dtype):
    x = ag.Graph().input("x", (8, 8), dtype)
    z, y = x, form(ops.tanh(x))
    for _ in range(20):
        z = ops.tanh(z) * 0.5
    values = np.random.default_rng(2).normal(size=(8, 8)).astype(dtype)
    with ag.LispMachine([y, z]) as machine:
        wanted = machine.run_sync({"x": values})[y].value
    with ag.TapeMachine([y, z], native="wait") as machine:
        assert machine.run_sync({"x": values})[y].value.tobytes() == wanted.tobytes()
        assert f"around '{y.name}', which has no row" in machine.explain()
