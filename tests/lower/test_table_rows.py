"""Rows of tables: where their values lie."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.errors import GraphTypeError, NodeError
from actorgraph.lower import row_writing, spots, table, table_rows
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


VECTORS = [
    ((5, 6), (6,)), ((6,), (6, 7)), ((6,), (6,)), ((3, 5, 6), (6,)), ((6,), (3, 6, 7)),
    ((2, 3, 5, 6), (6,)), ((1, 6), (6,)), ((6,), (6, 1)), ((40, 300), (300,)), ((1,), (1,)),
]  # fmt: skip


@each("dtype", FLOATS)
@each("first, second", VECTORS)
def test_products_with_vectors_are_rows(first, second, dtype):
    g = ag.Graph()
    x, y = g.input("x", first, dtype), g.input("y", second, dtype)
    feeds = {"x": numbers(first, dtype, False), "y": numbers(second, dtype, False)}
    for left in (x * 2.0, (x * 2.0)[::-1] * 1.0, ops.transpose(ops.transpose(x * 0.5) * 2.0)):
        product = chain(left, 4) @ chain(y, 4)
        assert check([chain(product)], feeds) == ["table"]
        assert "table" in check([ops.square(product).sum()], feeds, backward=True, wrt=[x, y])


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
    lambda x: ops.roll(x, 7, 1), lambda x: ops.roll(x, (-2, 81), (0, 1)), lambda x: ops.roll(x, 0),
    lambda x: ops.roll(x.transpose(), 1, 0), lambda x: ops.vecdot(x, x * 2.0) * x[:, 3],
    lambda x: ops.vecdot(x[:, :6], x[:, 1:7] * 2.0).sum() * x,
    lambda x: ops.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda x: ops.outer(x[0], x[:, 2]),
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


def test_what_is_behind_copies_and_diagonals_is_rows():
    x = ag.Graph().input("x", (6, 6))
    for form in (
        lambda x: ops.repeat(x, 2, 0),
        ops.diag_embed,
        lambda x: ops.index_put(x, (slice(None, None, 2), [0, 1, 0], None), 1.0),
    ):
        [*before, behind] = check([chain(form(x * 2.0))], {"x": numbers((6, 6), "float32", False)})
        assert behind == "table"
        assert "table" not in before


def beside(part):
    """Return the outputs of two chains with part of the first between them, and feeds."""
    x = ag.Graph().input("x", (6, 4), "float32")
    return [chain(part(chain(x)))], {"x": numbers((6, 4), "float32", False)}


PARTS = {
    "rows": lambda y: y[[1, 3, 1, -1]],
    "rows by int32": lambda y: y[np.array([5, -6, 5], np.int32), :],
    "rows of two axes": lambda y: y[np.array([[0, 2, 0], [-1, 2, 1]])],
    "one row": lambda y: y[np.array(2)],
    "many rows": lambda y: y[[0] * 40] * y[[-6] * 20 + [2] * 20],
    "rows by a mask": lambda y: y[np.array([True, False, True, True, False, True])],
    "entries by a mask": lambda y: y[np.arange(24).reshape(6, 4) % 3 == 0],
    "rows of a transposed matrix": lambda y: y.transpose()[[1, -1, 1]],
    "rows with gaps": lambda y: y[::-2][[1, -1, 1]],
    "entries of a column": lambda y: y[:, 1][[1, -1, 1]],
    "matrices": lambda y: y.reshape(2, 3, 4)[[1, -1, 1]],
    "entries of all": lambda y: ops.take(y, [23, -24, 5, 5]),
    "bools": lambda y: (y > 0)[[1, -1]].astype(str(y.dtype)) * y[0],
    "columns": lambda y: y[:, [1, -4, 3, 3, 3]],
    "columns of two axes": lambda y: y[:, np.array([[0, 2, 0], [-1, 2, 1]])],
    "one column": lambda y: y[:, np.array(-1)],
    "columns of a transposed matrix": lambda y: y.transpose()[:, [5, -6, 5]],
    "the middle axis": lambda y: y.reshape(2, 3, 4)[:, [2, 0, -1, 2, 2]],
    "the last of three axes": lambda y: y.reshape(2, 3, 4)[..., [2, 0, -1, 2, 2]],
    "one of each row": lambda y: y[np.arange(6), [0, 3, -1, 3, -4, 2]],
    "pairs of two axes": lambda y: y[[[0], [-1], [0]], [2, 2, -4]],
    "two axes of three": lambda y: y.reshape(2, 3, 4)[[1, -1, 1], [0, 2, 0]],
    "two axes behind one": lambda y: y.reshape(2, 3, 4)[:, [1, -1, 1], [0, 2, 0]],
    "all of three axes": lambda y: y.reshape(2, 3, 4)[[1, -1, 1], [0, 2, 0], [3, 3, 3]],
    "along columns": lambda y: ops.gather(y, 0, [[0, 5, -6], [5, 5, 5]]),
    "along rows": lambda y: ops.take_along_axis(y, [[0, 3, -1, 3, 3]], 1),
    "along the middle": lambda y: ops.gather(y.reshape(2, 3, 4), 1, [[[0, 2], [-1, 2], [2, 2]]]),
    "picked": lambda y: ops.pick(y, [0, 3, 1, 3, 2, 2]),
    "picked along columns": lambda y: ops.pick(y, [0, 5, 1, 5], axis=0),
    "rows put": lambda y: ops.index_put(y, [1, 3, 1], y[:3]),
    "columns put": lambda y: ops.index_put(y, (..., [1, 3, 1]), y[:, 1:]),
    "a slice put": lambda y: ops.index_put(y, slice(1, 4), y[:3]),
    "scattered": lambda y: ops.scatter(y, 1, [[0, 3, -1, 3]] * 6, y[:, ::-1]),
    "rows added": lambda y: ops.index_add(y, 0, [1, -6, 1, 1], y[2:]),
    "columns added": lambda y: ops.index_add(y, 1, [1, 3, 1], y[:, 1:]),
    "entries added": lambda y: ops.index_put(y, ([1, 1], [-1, 3]), y[0, :2], accumulate=True),
    "a slice added": lambda y: ops.index_put(y, slice(1, 4), y[:3], accumulate=True),
    "scattered and added": lambda y: ops.scatter_add(y, 0, [[0, 5, -1, 5]] * 3, y[::2]),
    "added to transposed": lambda y: ops.index_add(y.transpose(), 0, [1, 3, 1], y.transpose()[1:]),
}


@each("dtype", FLOATS)
@each("part", PARTS)
def test_entries_by_index_arrays_are_rows_forward_and_backward(part, dtype):
    x = ag.Graph().input("x", (6, 4), dtype)
    loss = chain(PARTS[part](chain(x))).sum()
    feeds = {"x": numbers((6, 4), dtype, False)}
    assert check([loss], feeds) == ["table"]
    backward = check([loss], feeds, backward=True, wrt=[x])
    assert {*backward} <= {"table", "last_writes"}


@each("part", [*PARTS])
@each("dtype", ["bool", "int64", "int32", "uint8", "complex64", "complex128"])
def test_entries_of_any_dtype_by_index_arrays_have_the_same_bits(dtype, part):
    x = ag.Graph().input("x", (6, 4), dtype)
    y = ops.concatenate([x, x])[3:9]
    try:
        found = PARTS[part](y)
    except GraphTypeError:  # of numbers alone
        return
    values = np.random.default_rng(4).integers(0, 2 if dtype == "bool" else 9, (6, 4))
    feeds = {"x": (values * (1 + 2j if dtype[0] == "c" else 1)).astype(dtype)}
    check([ops.stack([y, y]), found, ops.stack([found, found])], feeds)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
BY_LABEL = {
    "rows": lambda y, i: y[i],
    "columns": lambda y, i: y[:, i],
    "one of each row": lambda y, i: y[np.arange(4), i],
    "pairs": lambda y, i: y[i, i],
    "along rows": lambda y, i: ops.take_along_axis(y, ops.expand_dims(i, 1), 1),
    "every second": lambda y, i: y[i[::2]] * y[:, i[::-2]].sum(),
    "columns added": lambda y, i: ops.index_add(y, 1, i, y),
    "columns put": lambda y, i: ops.index_put(y, (..., i), y * 2.0),
    "picked": ops.pick,
    "embedded": lambda y, i: ops.embedding(i, y),
    "one-hot": lambda y, i: y * ops.one_hot(i, 4, y.dtype),
    "cross entropy": lambda y, i: y * ops.cross_entropy(y, i),
    "positions": lambda y, i: ops.gather_nd(y, ops.stack([i.astype("int64")] * 2, 1)),
}


def by_label(form, integers):
    """Return a loss that reads or writes a matrix by an index array, the matrix, and feeds."""
    g = ag.Graph()
    x, i = g.input("x", (4, 4)), g.input("i", (4,), integers)
    loss = chain(BY_LABEL[form](chain(x), i)).sum()
    values = numbers((4, 4), "float32", False)
    return loss, x, {"x": values, "i": np.array([3, 0, 3, 1], integers)}


@pytest.mark.parametrize("integers", INTEGERS)
@each("form", BY_LABEL)
def test_index_arrays_of_any_dtype_are_rows_forward_and_backward(form, integers):
    loss, x, feeds = by_label(form, integers)
    assert check([loss], feeds) == ["table"]
    assert {*check([loss], feeds, backward=True, wrt=[x])} <= {"table", "last_writes"}


def laid_otherwise(value):
    """Return arrays of the same numbers in other layouts: with gaps, and in Fortran's order."""
    spread = np.zeros((*value.shape, 2), value.dtype)
    spread[..., 0] = value
    return spread[..., 0], np.asfortranarray(value), value[::-1].copy()[::-1]


@each("form", BY_LABEL)
def test_feeds_of_any_layout_are_indexed_with_the_same_bits(form):
    loss, x, feeds = by_label(form, "int32")
    for name in feeds:
        for other in laid_otherwise(feeds[name]):
            check([loss], feeds | {name: other}, backward=True, wrt=[x])


@each("form", BY_LABEL)
@each("wrong", [4, -5, 127])
def test_an_index_array_that_names_nothing_fails_as_from_python_in_every_form(wrong, form):
    loss, x, feeds = by_label(form, "int8")
    bad, texts = feeds | {"i": np.array([3, wrong, 3, wrong], np.int8)}, []
    for kind, options in ((ag.LispMachine, {}), (ag.TapeMachine, {"native": "wait"})):
        with kind([loss], wrt=[x], **options) as machine:
            good = machine.run_sync(feeds, backward=True)[x].grad
            for backward in (False, True):
                with pytest.raises(NodeError, match="ind(ex|ices)") as failed:
                    machine.run_sync(bad, backward=backward)
                texts.append(str(failed.value))
            assert machine.run_sync(feeds, backward=True)[x].grad.tobytes() == good.tobytes()
    assert texts[:2] == texts[2:]


@each("form", [lambda x, i, v: ops.gather(x, 1, i), lambda x, i, v: ops.scatter_add(x, 1, i, v)])
def test_sizes_of_a_run_that_do_not_fit_an_index_fail_as_from_python(form, caplog):
    g = ag.Graph()
    x, i, v = g.input("x", ("n", 4)), g.input("i", ("m", 2), "int64"), g.input("v", ("m", 2))
    loss = chain(form(chain(x), i, v)).sum()
    feeds = {name: np.zeros((6, 2), dtype) for name, dtype in (("i", "int64"), ("v", "float32"))}
    with ag.TapeMachine([loss], native="wait") as machine:
        machine.run_sync(feeds | {"x": np.ones((6, 4), "float32")})
        with pytest.raises(NodeError, match="index 3 is out of bounds for axis 0 with size 3"):
            machine.run_sync(feeds | {"x": np.ones((3, 4), "float32")})
    assert not caplog.records


@each(
    "dims, form",
    [
        ((4, "n"), lambda x, i: x[i]),
        (("n", 4), lambda x, i: x[:, i]),
        (("n", 4), lambda x, i: ops.index_add(x, 1, i, x)),
        (("n", 4), lambda x, i: ops.index_put(x, (..., i), x * 2.0)),
        ((4, "n"), lambda x, i: ops.index_add(x, 0, i, x)),
        ((4, 4, "n"), lambda x, i: x[:, i]),
        ((4, 4, "n"), lambda x, i: ops.index_put(x, (slice(None), i), x * 2.0)),
    ],
)
def test_an_index_into_an_array_without_elements_is_no_row(dims, form, monkeypatch):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    g = ag.Graph()
    x, i = g.input("x", dims), g.input("i", (4,), "int64")
    loss = (form(x * 2.0, i) * 2.0).sum()
    with ag.TapeMachine([loss], wrt=[x], native="wait") as machine:
        for size in (4, 0, 4):
            value = np.ones([size if dim == "n" else dim for dim in dims], "float32")
            run = machine.run_sync({"x": value, "i": np.array([3, 0, -1, 3])}, backward=True)
            assert run[x].grad.shape == value.shape
            assert size or run[loss].value == 0.0


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


@pytest.mark.usefixtures("values_share_memory")
def test_views_of_constants_are_rows():
    x, many = ag.Graph().input("x", (6, 4)), numbers((4, 6), "float32", False)
    turned = x.graph.constant(many).transpose()
    wide = ops.broadcast_to(x.graph.constant(many[0, :4]), (6, 4))
    in_other_order = x.graph.constant(np.asfortranarray(many))
    feeds = {"x": numbers((6, 4), "float32", False)}
    assert check([chain(chain(x) * turned + wide), turned, wide], feeds) == ["table"]
    loss = (chain(x) * turned - wide).sum()
    assert check([loss, turned[1:]], feeds, backward=True, wrt=[x]) == ["table"]
    check([chain((x * in_other_order.transpose()).sum(0)), in_other_order[1:]], feeds)


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
        copied={one.id for one in results}, code_row=None, classes=None, views=(),
    )  # fmt: skip
    return table_rows.Written(stretch, {})


@each("char", "fd")
def test_a_cast_that_would_go_through_int64_and_lose_numbers_is_no_row(char):
    x = ag.Graph().input("x", (6,), "uint64")
    step = x.astype(np.dtype(char).name)
    assert check([chain(step)], {"x": np.arange(6, dtype="uint64") << 61}) == ["astype", "table"]
    with pytest.raises(spots.Unfit):
        written([step], [x], [step])


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
