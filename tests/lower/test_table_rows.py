"""Rows of tables: where their values lie."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.errors import NodeError
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


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
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
