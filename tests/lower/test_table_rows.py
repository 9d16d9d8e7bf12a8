"""Rows of tables: where their values lie."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.errors import NodeError
from actorgraph.lower import row_writing, spots, table_rows
from tests._each import each
from tests.lower.test_layouts import FLOATS, numbers
from tests.lower.test_table import check

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


def chain(x, steps=12):
    """Return what elementwise steps in a row make of a value."""
    for _ in range(steps):
        x = ops.tanh(x) - 0.25
    return x


def walked_bytes(outputs, feeds):
    """Return the bytes of memory of a machine's tables."""
    with ag.TapeMachine(outputs, native="wait") as machine:
        machine.run_sync(feeds)
        [plan] = machine._plans.values()
        return plan.inline.program.walked_bytes


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.usefixtures("values_share_memory")
def test_a_step_writes_over_an_operand_that_ends_there(dtype):
    x = ag.Graph().input("x", (8, 16), dtype)
    feeds = {"x": numbers((8, 16), dtype, False)}
    assert check([chain(x)], feeds) == ["table"]
    assert walked_bytes([chain(x)], feeds) == feeds["x"].nbytes


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "form",
    [
        lambda y: y * y,
        lambda y: 1.0 / y,
        lambda y: y - y[::-1],
        lambda y: y[:, ::-1] - y,
        lambda y: ops.maximum(y, y[:1]),
        lambda y: y / y[:, :1],
        lambda y: y - ops.transpose(ops.reshape(y, (16, 8))),
        lambda y: ops.transpose(ops.transpose(y) * 2.0 - ops.transpose(y[::-1])),
        lambda y: ops.where(y > 0, y, y * 2.0),
        lambda y: ops.arctan2(y, -y) + ops.hypot(y, ops.exp(y)),
        lambda y: ops.sigmoid(y) - ops.relu(y) * y,
        lambda y: y - y.sum(0) - y.sum(1, keepdims=True),
        lambda y: ops.softmax(y) @ ops.softmax(y).transpose() @ y,
    ],
)
def test_values_that_share_memory_in_turn_have_their_bits(form, dtype, special):
    x = ag.Graph().input("x", (8, 16), dtype)
    y = chain(x, 3) * 3.0 if not special else x * 1.0
    for _ in range(4):
        y = form(y)
    outputs = [y, chain(y)]
    with np.errstate(all="ignore"):
        feeds = {"x": numbers((8, 16), dtype, special)}
        assert "table" in check(outputs, feeds)
        loss = ops.square(outputs[1]).sum()
        assert "table" in check([loss], feeds, backward=True, wrt=[x])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.usefixtures("values_share_memory")
def test_a_forward_that_fills_an_array_fills_the_result_itself(dtype):
    x = ag.Graph().input("x", (5, 6), dtype)
    padded = [ops.pad(x + k, ((1, 2), (0, 1))) for k in range(8)]
    feeds = {"x": numbers((5, 6), dtype, True)}
    with np.errstate(all="ignore"):
        assert check(padded, feeds) == ["table"]
        assert walked_bytes(padded, feeds) == feeds["x"].nbytes + (-feeds["x"].nbytes % 64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_products_of_a_matrix_with_its_own_transpose_are_left_to_numpy(dtype):
    x = ag.Graph().input("x", (4, 160), dtype)
    feeds = {"x": numbers((4, 160), dtype, False)}
    y = chain(x)
    assert check([chain(y.transpose() @ y)[:6]], feeds) == ["table", "matmul", "table"]
    assert check([chain(y @ y.transpose())], feeds) == ["table"]  # it is small
    assert check([chain(y.transpose() @ (y * 2.0))[:6]], feeds) == ["table"]


IMAGES = (2, 3, 8, 10)
WHOLE = [
    lambda x: (x > 0.3).astype("float32") * x, lambda x: x.astype("float64").astype("float32"),
    lambda x: x.transpose().astype("float64").astype("float32"),
    lambda x: ops.where(x > 0.0, x, 0.0) * (x > 0.1).astype("int64").astype("float32"),
    lambda x: ops.var(x, 1), lambda x: ops.std(x, 0), lambda x: ops.max(x, 0),
    lambda x: ops.avg_pool2d(x.reshape(IMAGES), 3, 1), lambda x: ops.im2col(x.reshape(IMAGES), 3),
    lambda x: ops.unfold(x.reshape(IMAGES), (3, 2), padding=1, stride=(1, 2)),
    lambda x: ops.fold(x.reshape(2, 24, 10), (3, 7), (2, 3)),
    lambda x: ops.col2im(x.reshape(2, 5, 4, 12), (6, 6), (2, 3)),
]  # fmt: skip
BESIDE = [
    ops.tril, ops.triu, lambda x: (x.astype("int64") * 3).astype("float32"),
]  # fmt: skip


def test_casts_spreads_and_windows_are_rows_and_interrupt_no_table():
    """Forward and backward; what is behind a step whose layout is unknown has no rows."""
    values = np.random.default_rng(3).normal(size=(6, 80)).astype("float32")
    for form in WHOLE + BESIDE:
        x = ag.Graph().input("x", (6, 80), "float32")
        y = form(x * 1.5)
        for _ in range(6):
            y = ops.tanh(y * 1.1)
        loss = ops.square(y).sum()
        for found in (check([loss], {"x": values}), check([loss], {"x": values}, True, [x])):
            assert found == ["table"] or (form in BESIDE and found.count("table") == 1)


def beside(part):
    """Return the outputs of two chains with part of the first between them, and feeds."""
    x = ag.Graph().input("x", (6, 4), "float32")
    return [chain(part(chain(x)))], {"x": numbers((6, 4), "float32", False)}


@each("dtype", FLOATS)
@each(
    "part",
    [
        lambda y: y[[1, 3, 1, -1]],
        lambda y: y[np.array([5, -6, 5], np.int32), :],
        lambda y: y[np.array([[0, 2, 0], [-1, 2, 1]])],
        lambda y: y[np.array(2)],
        lambda y: y[np.array([1, 2], np.uint8)],
        lambda y: y[[0] * 40] * y[[-6] * 20 + [2] * 20],
        lambda y: y[np.array([True, False, True, True, False, True])],
        lambda y: y[np.arange(24).reshape(6, 4) % 3 == 0],
        lambda y: y.transpose()[[1, -1, 1]],
        lambda y: y[::-2][[1, -1, 1]],
        lambda y: y[:, 1][[1, -1, 1]],
        lambda y: y.reshape(2, 3, 4)[[1, -1, 1]],
        lambda y: ops.take(y, [23, -24, 5, 5]),
        lambda y: (y > 0)[[1, -1]].astype(str(y.dtype)) * y[0],
    ],
)
def test_entries_along_axis_0_by_an_array_are_rows_forward_and_backward(part, dtype):
    x = ag.Graph().input("x", (6, 4), dtype)
    loss = chain(part(chain(x))).sum()
    feeds = {"x": numbers((6, 4), dtype, False)}
    assert check([loss], feeds) == ["table"]
    assert check([loss], feeds, backward=True, wrt=[x]) == ["table"]


@pytest.mark.parametrize("dtype", ["uint32", "int16"])
def test_an_index_of_a_dtype_that_no_row_casts_is_between_two_tables(dtype):
    outputs, feeds = beside(lambda y: y[np.array([1, 3, 1], dtype)])
    assert check(outputs, feeds) == ["table", "getitem", "table"]


def test_an_index_array_that_names_nothing_fails_as_from_python():
    g = ag.Graph()
    x, i = g.input("x", ("n", 4), "float32"), g.input("i", ("m",), "int64")
    loss = chain(chain(x)[i]).sum()
    feeds = {"x": numbers((6, 4), "float32", False), "i": np.array([0, -6, 5])}
    assert check([loss], feeds, backward=True, wrt=[x]) == ["table"]
    with ag.TapeMachine([loss], wrt=[x], native="wait") as machine:
        good = machine.run_sync(feeds, backward=True)[x].grad
        for wrong in (6, -7, 1 << 62):
            with pytest.raises(NodeError, match=f"index {wrong} is out of bounds for axis 0"):
                machine.run_sync(feeds | {"i": np.array([0, wrong, 5])}, backward=True)
        assert machine.run_sync(feeds, backward=True)[x].grad.tobytes() == good.tobytes()


def test_a_scatter_refuses_an_index_of_which_the_product_with_the_width_wraps():
    g = ag.Graph()
    x, i = g.input("x", (3, 4), "float32"), g.input("i", (3,), "int64")
    adjoint = ag.op.REGISTRY["getitem_adjoint"]
    added = g.apply(adjoint, (chain(x), i), {"index": ("array",), "shape": (6, 4)})
    feeds = {"x": numbers((3, 4), "float32", False), "i": np.array([0, -6, 0])}
    assert check([chain(added)], feeds) == ["table"]
    with (
        ag.TapeMachine([chain(added)], native="wait") as machine,
        pytest.raises(NodeError, match=f"index 0 or {1 << 62} is out of bounds for dim 6"),
    ):
        machine.run_sync(feeds | {"i": np.array([0, 1 << 62, 0])})


# -- kinds of steps --------------------------------------------------------------------------------


def test_rows_of_steps_that_are_alike_are_written_once(monkeypatch):
    wrote, step = [], row_writing.RowWriter.step
    monkeypatch.setattr(
        row_writing.RowWriter, "step", lambda rows, one: wrote.append(step(rows, one))
    )
    x = ag.Graph().input("x", (6, 8), "float32")
    w = x.graph.parameter("w", numbers((8, 8), "float32", False))
    y = x
    for _ in range(12):
        y = ops.tanh(ops.softmax(y) @ w.transpose() + w[2]) - y.sum(0) * 0.25
    feeds = {"x": numbers((6, 8), "float32", False)}
    assert check([y], feeds) == ["table"]
    assert len(wrote) < 25


@pytest.mark.parametrize("dtype", FLOATS)
def test_steps_are_alike_only_if_their_operands_share_the_same_bytes(dtype):
    """Operands overlap by so many elements, by all of them, or not at all, in any order."""
    x = ag.Graph().input("x", (12, 3), dtype)
    y = chain(x, 2)
    pairs = [(a, b) for a in range(0, 9, 2) for b in range(0, 9, 2)]
    parts = [y[a : a + 4] - y[b : b + 4] * y[(a + b) // 2 : (a + b) // 2 + 4] for a, b in pairs]
    parts += [y[a : a + 4][::-1] - y[b : b + 4] for a, b in pairs]
    parts += [ops.where(y[a : a + 4] > 0.0, y[b : b + 4], y[a : a + 4]) for a, b in pairs]
    parts += [y[a : a + 3] @ y[b : b + 3].transpose() for a, b in pairs]
    feeds = {"x": numbers((12, 3), dtype, False)}
    assert check([chain(ops.stack(parts[:75])), *parts[75:]], feeds) == ["table"]


def written(steps, given, results):
    """Return rows of steps whose results stay in the table."""
    stretch = SimpleNamespace(
        steps=steps, given=given, others={}, odd={}, shared={}, results=results,
        copied={one.id for one in results}, code_row=None, classes=None,
    )  # fmt: skip
    return table_rows.Written(stretch, {})


@pytest.mark.usefixtures("values_share_memory")
def test_a_step_whose_memory_is_too_small_has_no_row(monkeypatch):
    x = ag.Graph().input("x", (4, 6), "float64")
    y = chain(x, 3)
    steps = [node for node in y.graph.topological_order(y) if node.inputs]
    assert check([y], {"x": np.ones((4, 6))}) == ["table"]  # machine code is there
    assert written(steps, [x], [y]).total == 192
    pack = table_rows.pack
    for change in (-1, 4):  # a byte too few; all values are misaligned

        def packed(spans, loans, change=change):
            total, places = pack(spans, loans)
            places = [one._replace(begin=one.begin + max(change, 0)) for one in places]
            return total + change, places

        monkeypatch.setattr(table_rows, "pack", packed)
        with pytest.raises(spots.Unfit) as refused:
            written(steps, [x], [y])
        assert refused.value.position == 0


PLACES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 5), st.integers(-2, 2)),
    min_size=1, max_size=6,
)  # fmt: skip


@given(PLACES)
def test_arguments_that_share_bytes_are_grouped_and_keep_their_distances(drawn):
    places = [(base, at, at + size, at + by, (), 1) for base, at, size, by in drawn]
    group, offset = [*range(len(places))], [0] * len(places)
    for one, other, shift in table_rows._meetings(places):
        group[one], offset[one] = group[other], offset[other] + shift
    wanted = [{one} for one in range(len(places))]
    for _ in places:
        for some in wanted:
            some |= {
                two for one in [*some] for two in range(len(places))
                if places[one][0] == places[two][0]
                and places[one][1] < places[two][2] and places[two][1] < places[one][2]
            }  # fmt: skip
    for one, some in enumerate(wanted):
        assert some == {two for two in range(len(places)) if group[two] == group[one]}
        for two in some:
            assert offset[two] - offset[one] == places[two][3] - places[one][3]
