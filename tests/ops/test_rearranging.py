"""Moving, repeating, cutting and padding: values and gradients against NumPy, symbolic dims."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from actorgraph.machines import LispMachine
from tests._each import each
from tests._evaluate import evaluate

X = np.arange(24.0).reshape(2, 3, 4) ** 1.5
ops = ag.ops

CALLS = {
    "ravel": (lambda x: ops.ravel(x), lambda a: a.ravel()),
    "flatten": (lambda x: ops.flatten(x), lambda a: a.ravel()),
    "flatten from 1": (lambda x: ops.flatten(x, 1), lambda a: a.reshape(2, 12)),
    "flatten to -2": (lambda x: ops.flatten(x, 0, -2), lambda a: a.reshape(6, 4)),
    "permute": (lambda x: ops.permute(x, 2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "permute by a tuple": (lambda x: ops.permute(x, (0, -1, 1)), lambda a: a.transpose(0, 2, 1)),
    "moveaxis": (lambda x: ops.moveaxis(x, 0, -1), lambda a: np.moveaxis(a, 0, -1)),
    "moveaxis of two": (
        lambda x: ops.moveaxis(x, (0, 1), (-1, 0)),
        lambda a: np.moveaxis(a, (0, 1), (-1, 0)),
    ),
    "flip": (lambda x: ops.flip(x), lambda a: np.flip(a)),
    "flip of axes": (lambda x: ops.flip(x, (0, -1)), lambda a: np.flip(a, (0, -1))),
    "roll": (lambda x: ops.roll(x, 5), lambda a: np.roll(a, 5)),
    "roll along": (lambda x: ops.roll(x, -3, 1), lambda a: np.roll(a, -3, 1)),
    "roll along two": (
        lambda x: ops.roll(x, (1, 2), (0, -1)),
        lambda a: np.roll(a, (1, 2), (0, 2)),
    ),
    "repeat": (lambda x: ops.repeat(x, 3), lambda a: np.repeat(a, 3)),
    "repeat along": (lambda x: ops.repeat(x, 2, -1), lambda a: np.repeat(a, 2, -1)),
    "repeat each": (lambda x: ops.repeat(x, [2, 0, 1], 1), lambda a: np.repeat(a, [2, 0, 1], 1)),
    "repeat by one": (lambda x: ops.repeat(x, [2], 1), lambda a: np.repeat(a, [2], 1)),
    "tile": (lambda x: ops.tile(x, 2), lambda a: np.tile(a, 2)),
    "tile to more dims": (lambda x: ops.tile(x, (2, 1, 3, 1)), lambda a: np.tile(a, (2, 1, 3, 1))),
    "tile to nothing": (lambda x: ops.tile(x, (0, 1)), lambda a: np.tile(a, (0, 1))),
    "pad": (lambda x: ops.pad(x, 1), lambda a: np.pad(a, 1)),
    "pad with a value": (
        lambda x: ops.pad(x, ((0, 1), (2, 0), (0, 0)), constant_values=-1.5),
        lambda a: np.pad(a, ((0, 1), (2, 0), (0, 0)), constant_values=-1.5),
    ),
    "split": (lambda x: ops.split(x, 2, -1)[1], lambda a: np.split(a, 2, -1)[1]),
    "split by sizes": (lambda x: ops.split(x, (1, 3), 2)[1], lambda a: a[:, :, 1:]),
    "unstack": (lambda x: ops.unstack(x, 1)[2], lambda a: a[:, 2]),
    **{
        f"pad {mode}": (
            lambda x, mode=mode: ops.pad(x, ((1, 0), (3, 2), (0, 5)), mode),
            lambda a, mode=mode: np.pad(a, ((1, 0), (3, 2), (0, 5)), mode),
        )
        for mode in ("edge", "reflect", "symmetric", "wrap")
    },
}
NEEDS_INTS = ("unstack",)


@each("shape", [(2, 3, 4), ("a", "b", "c"), (None, None, None)])
@each("name", CALLS)
def test_value_and_gradient_are_those_of_numpy(name, shape):
    if name in NEEDS_INTS and shape != (2, 3, 4):
        return
    ours, theirs = CALLS[name]
    x = ag.Graph().input("x", shape, "float64")
    y = ours(x)
    positions = theirs(np.arange(X.size).reshape(X.shape))
    wanted = theirs(X)
    weights = np.sin(np.arange(wanted.size)).reshape(wanted.shape)
    (dx,) = ag.gradients((y * weights).sum(), [x])
    value, gradient = evaluate([y, dx], {x: X})
    np.testing.assert_array_equal(value, wanted)
    assert y.ndim == wanted.ndim
    if shape == X.shape:
        assert y.shape == wanted.shape
    # Every entry of the result is one of x (or of the border, which NumPy pads with 0 or -1).
    inside = np.zeros_like(X)
    if not name.startswith(("pad", "pad with")) or name[4:] in (
        "edge",
        "reflect",
        "symmetric",
        "wrap",
    ):
        np.add.at(inside.reshape(-1), positions.reshape(-1), weights.reshape(-1))
    else:
        width = [(1, 1)] * 3 if name == "pad" else [(0, 1), (2, 0), (0, 0)]
        inside = weights[tuple(slice(b, b + n) for (b, _), n in zip(width, X.shape, strict=True))]
    np.testing.assert_allclose(gradient, inside, rtol=1e-12, atol=1e-12)


@each("name", CALLS)
def test_dtypes_and_machines_keep_the_meaning(name):
    ours, theirs = CALLS[name]
    for dtype in ("float32", "int16"):
        if dtype == "int16" and name == "pad with a value":
            continue
        x = ag.Graph().input("x", (2, 3, 4), dtype)
        y = ours(x)
        with LispMachine([y]) as machine:
            value = machine.run_sync({"x": X.astype(dtype)})[y].value
        assert value.dtype == dtype
        np.testing.assert_array_equal(value, theirs(X.astype(dtype)))


def test_symbolic_dims_have_readable_results():
    x = ag.Graph().input("x", ("n", 6))
    assert ops.flatten(x).shape == (6 * x.shape[0],)
    assert ops.repeat(x, 2, 0).shape == (2 * x.shape[0], 6)
    assert ops.repeat(x, x.shape[0], 1).shape == ("n", 6 * x.shape[0])
    assert ops.tile(x, (2, 3)).shape == (2 * x.shape[0], 18)
    assert ops.pad(x, ((1, 2), (0, 0))).shape == (x.shape[0] + 3, 6)
    assert [part.shape for part in ops.split(x, 3, 1)] == [("n", 2)] * 3
    assert ops.roll(x, 1).shape == ("n", 6)
    assert ops.flip(x).shape == ("n", 6)


def test_scalars_and_empty_arrays_are_arrays_too():
    g = ag.Graph()
    s, e = g.input("s", (), "float64"), g.input("e", (0, 3), "float64")
    nodes = [ops.ravel(s), ops.flatten(s), ops.tile(s, 3), ops.repeat(s, 2), ops.flip(s),
             ops.roll(s, 2), ops.pad(s, 3), ops.flatten(e), ops.flip(e), ops.tile(e, (2, 2)),
             ops.pad(e, 1), ops.roll(e, 1, 0), ops.repeat(e, 2, 0)]  # fmt: skip
    a, b = np.array(2.0), np.zeros((0, 3))
    wanted = [a.ravel(), a.ravel(), np.tile(a, 3), np.repeat(a, 2), a, a, a, b.ravel(), b,
              np.tile(b, (2, 2)), np.pad(b, 1), b, b]  # fmt: skip
    for got, want in zip(evaluate(nodes, {s: a, e: b}), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_changes_nothing_is_the_node_itself():
    x = ag.Graph().input("x", (2, 3))
    assert ops.flatten(x, 1, 1) is x
    assert ops.pad(x, 0) is x
    assert ops.pad(x, 0, "edge") is x
    assert ops.moveaxis(x, 1, 1) is x
    assert ops.roll(x, (), ()) is x


def test_padding_with_a_node_sends_it_the_gradient_of_the_border():
    g = ag.Graph()
    x, v = g.input("x", (2, 3), "float64"), g.input("v", (), "float64")
    y = ops.pad(x, ((1, 0), (0, 2)), constant_values=v)
    weights = np.arange(15.0).reshape(3, 5)
    dx, dv = ag.gradients((y * weights).sum(), [x, v])
    values = evaluate([dx, dv], {x: np.ones((2, 3)), v: np.array(3.0)})
    np.testing.assert_array_equal(values[0], weights[1:, :3])
    assert values[1] == weights.sum() - weights[1:, :3].sum()


def test_parts_of_a_symbol_have_to_add_up_in_the_run():
    x = ag.Graph().input("x", ("n", 2), "float64")
    third, sized = ops.split(x, 3)[1], ops.split(x, (2, 4))[1]
    with LispMachine([third]) as machine:
        np.testing.assert_array_equal(
            machine.run_sync({"x": np.arange(12.0).reshape(6, 2)})[third].value, [[4, 5], [6, 7]]
        )
        with pytest.raises(FeedError, match=r"needs n == 3\*floordiv\(n, 3\), .* has 7 and 6"):
            machine.run_sync({"x": np.zeros((7, 2))})
    with LispMachine([sized]) as machine, pytest.raises(FeedError, match="has 7 and 6"):
        machine.run_sync({"x": np.zeros((7, 2))})


def test_parts_of_an_unknown_dim_have_to_add_up_in_the_run():
    x = ag.Graph().input("x", (None,), "float64")
    assert ops.split(x, 3)[0].shape == (None,)
    assert ops.split(x, [2, 4])[1].shape == (4,)
    for node in (ops.split(x, 3)[0], ops.split(x, [2, 4])[1]):
        with pytest.raises(ValueError, match="a dim of 7 cannot be split into"):
            evaluate(node, {x: np.zeros(7)})


def test_sizes_of_parts_may_be_dims():
    x = ag.Graph().input("x", ("n", 4), "float64")
    n = x.shape[0]
    head, tail = ops.split(x, (2, n - 2))
    assert (head.shape, tail.shape) == ((2, 4), (n - 2, 4))
    value = np.arange(20.0).reshape(5, 4)
    got = evaluate([head, tail], {x: value})
    np.testing.assert_array_equal(got[0], value[:2])
    np.testing.assert_array_equal(got[1], value[2:])


@each(
    ("call", "error", "text"),
    [
        (lambda x: ops.flatten(x, 3), ShapeError, "flatten: axis 3 is not an int in"),
        (lambda x: ops.flatten(x, 2, 1), ShapeError, "start_axis 2 stands behind end_axis 1"),
        (lambda x: ops.permute(x, 0, 1), ShapeError, "does not name each axis"),
        (lambda x: ops.moveaxis(x, (0, 1), 2), ShapeError, "different numbers of axes"),
        (lambda x: ops.moveaxis(x, (0, 0), (1, 2)), ShapeError, "names a dim twice"),
        (lambda x: ops.flip(x, 3), ShapeError, "flip: axis 3"),
        (lambda x: ops.roll(x, 1.5), GraphTypeError, "roll: a shift is an int, got 1.5"),
        (lambda x: ops.roll(x, (1, 2), 0), ShapeError, "roll: 2 shifts for 1 axes"),
        (lambda x: ops.repeat(x, -1), GraphTypeError, "non-negative int, got -1"),
        (lambda x: ops.repeat(x, 1.5), GraphTypeError, "non-negative int, got 1.5"),
        (lambda x: ops.repeat(x, [1, 2], 1), ShapeError, "3 and 2"),
        (lambda x: ops.tile(x, -1), ShapeError, "got -1"),
        (lambda x: ops.tile(x, (None, 1)), ShapeError, "number of copies is an int or a dim"),
        (lambda x: ops.pad(x, -1), ShapeError, r"negative; to cut entries off use x\[1:-1\]"),
        (lambda x: ops.pad(x, 1.5), GraphTypeError, "widths are ints, got 1.5"),
        (lambda x: ops.pad(x, ((1, 2), (3, 4))), ShapeError, "no pair for each axis"),
        (lambda x: ops.pad(x, 1, "mean"), GraphTypeError, "mode 'mean' is not one of constant"),
        (lambda x: ops.pad(x, 1, "edge", 2), GraphTypeError, "has no meaning in mode 'edge'"),
        (lambda x: ops.split(x, 2, 1), ShapeError, "cannot be split into 2 equal parts"),
        (lambda x: ops.split(x, (1, 1), 1), ShapeError, "the sizes .* add up to"),
        (lambda x: ops.split(x, 0), ShapeError, "at least one part"),
        (lambda x: ops.split(x, "ab"), GraphTypeError, "a number or a list of sizes, got 'ab'"),
        (lambda x: ops.unstack(x, 3), ShapeError, "unstack: axis 3"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_built(call, error, text):
    with pytest.raises(error, match=text):
        call(ag.Graph().input("x", (2, 3, 4)))


def test_unstack_of_a_symbol_says_to_index():
    with pytest.raises(ShapeError, match=r"known only in a run; index the node, x\[i\]"):
        ops.unstack(ag.Graph().input("x", ("n", 3)))


def test_an_empty_dim_has_no_edge_to_copy():
    with pytest.raises(ShapeError, match="an empty dim has no entries to pad with in mode 'edge'"):
        ops.pad(ag.Graph().input("x", (0, 3)), 1, "edge")


def test_known_defect_gorgonia_concat_gradient_slices_axis_0_whatever_the_axis():
    """Systems 1.12, number 15: also for the parts of split along a later axis."""
    x = ag.Graph().input("x", (2, 4), "float64")
    left, right = ops.split(x, 2, 1)
    (dx,) = ag.gradients(
        (ops.concatenate([right, left * 3], 1) * np.arange(8.0).reshape(2, 4)).sum(), [x]
    )
    np.testing.assert_array_equal(
        evaluate(dx, {x: np.ones((2, 4))})[0], [[6, 9, 0, 1], [18, 21, 4, 5]]
    )


def test_known_defect_attributes_absent_from_hashes_merge_different_nodes():
    """Systems 1.12, number 10: also where attributes differ by a multiple of 256."""
    x = ag.Graph().input("x", (600, 4))
    different = [
        ops.roll(x, 1, 0), ops.roll(x, 257, 0), ops.roll(x, 1, 1), ops.pad(x, 1, "reflect"),
        ops.pad(x, 1, "symmetric"), ops.pad(x, 1), ops.pad(x, 257), ops.pad(x, 1, "constant", 1.0),
        ops.repeat(x, 2, 0), ops.repeat(x, 2, 1), ops.repeat(x, 258, 0), ops.tile(x, 2),
        ops.sort(x, 0), ops.sort(x, 0, descending=True), ops.argsort(x, 1), ops.argsort(x, 0),
        ops.topk(x, 2)[1], ops.topk(x, 2, largest=False)[1], *ops.split(x, 2, 0),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    assert ops.roll(x, 1, -2) is different[0]
    assert ops.pad(x, ((1, 1), (1, 1)), "reflect") is different[3]


def test_known_defect_gorgonia_reshape_gradient_overwrites_instead_of_adding():
    """Systems 1.12, number 15."""
    x = ag.Graph().input("x", (2, 3), "float64")
    (dx,) = ag.gradients(ops.ravel(x).sum() + ops.flatten(x).sum() + (x * x).sum(), [x])
    np.testing.assert_array_equal(evaluate(dx, {x: np.ones((2, 3))})[0], np.full((2, 3), 4.0))


# -- PyTorch ----------------------------------------------------------------------------------


def _torch_cases():
    return {
        "flatten": (lambda x: ops.flatten(x, 1, 2), lambda t: t.flatten(1, 2)),
        "permute": (lambda x: ops.permute(x, 2, 0, 1), lambda t: t.permute(2, 0, 1)),
        "moveaxis": (lambda x: ops.moveaxis(x, 0, 2), lambda t: t.moveaxis(0, 2)),
        "flip": (lambda x: ops.flip(x, (0, 2)), lambda t: t.flip(0, 2)),
        "roll": (lambda x: ops.roll(x, (1, -2), (0, 2)), lambda t: t.roll((1, -2), (0, 2))),
        "repeat": (lambda x: ops.repeat(x, 3, 1), lambda t: t.repeat_interleave(3, 1)),
        "tile": (lambda x: ops.tile(x, (2, 1, 3)), lambda t: t.tile(2, 1, 3)),
        "split": (lambda x: ops.split(x, [1, 2], 1)[1], lambda t: t.split([1, 2], 1)[1]),
        "unstack": (lambda x: ops.unstack(x, 1)[2], lambda t: t.unbind(1)[2]),
        "pad": (
            lambda x: ops.pad(x, ((0, 0), (0, 2), (1, 3)), constant_values=0.5),
            lambda t: _pad(t, (1, 3, 0, 2), "constant", 0.5),
        ),
        "pad edge": (
            lambda x: ops.pad(x, ((0, 0), (0, 2), (1, 3)), "edge"),
            lambda t: _pad(t[None], (1, 3, 0, 2), "replicate")[0],
        ),
        "pad reflect": (
            lambda x: ops.pad(x, ((0, 0), (2, 1), (1, 3)), "reflect"),
            lambda t: _pad(t[None], (1, 3, 2, 1), "reflect")[0],
        ),
        "pad wrap": (
            lambda x: ops.pad(x, ((0, 0), (2, 1), (1, 3)), "wrap"),
            lambda t: _pad(t[None], (1, 3, 2, 1), "circular")[0],
        ),
    }


def _pad(tensor, *args):
    import torch

    return torch.nn.functional.pad(tensor, *args)


@pytest.mark.oracle
@each("name", _torch_cases())
def test_value_and_gradient_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    ours, theirs = _torch_cases()[name]
    x = ag.Graph().input("x", X.shape, "float64")
    y, t = ours(x), torch.tensor(X, requires_grad=True)
    z = theirs(t)
    (dx,) = ag.gradients((y * y * y).sum(), [x])
    (z**3).sum().backward()
    value, gradient = evaluate([y, dx], {x: X})
    np.testing.assert_array_equal(value, z.detach().numpy())
    np.testing.assert_allclose(gradient, t.grad.numpy(), rtol=1e-9)
