"""Convolutions: against PyTorch to second order, symbolic dims, padding, errors."""

from functools import partial

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.ops import windows
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

CONVOLUTIONS = [
    (1, ((2, 3, 7), (4, 3, 3), (4,)), {}),
    (1, ((2, 4, 9), (6, 2, 2)), {"stride": 2, "padding": 1, "dilation": 3, "groups": 2}),
    (2, ((2, 3, 5, 6), (4, 3, 3, 2), (4,)), {"stride": (2, 1), "padding": (1, 2)}),
    (2, ((2, 3, 5, 6), (4, 3, 1, 1), (4,)), {}),
    (2, ((2, 3, 5, 6), (4, 3, 1, 1), (4,)), {"stride": 2}),
    (2, ((1, 4, 6, 5), (4, 1, 3, 3)), {"groups": 4, "padding": 1}),
    (2, ((1, 4, 6, 5), (8, 1, 3, 3)), {"groups": 4, "stride": 2, "dilation": (1, 2)}),
    (2, ((2, 2, 5, 6), (3, 2, 2, 3)), {"padding": "same", "dilation": (2, 1)}),
    (2, ((2, 2, 5, 6), (3, 2, 2, 3)), {"padding": "valid"}),
    (2, ((0, 2, 5, 6), (3, 2, 2, 3), (3,)), {}),
    (3, ((1, 2, 4, 3, 5), (2, 2, 2, 1, 3), (2,)), {"stride": (1, 2, 2), "padding": 1}),
    (1, ((3, 7), (2, 3, 3), (2,)), {}),
    (2, ((2, 5, 6), (3, 2, 3, 1)), {"padding": "same"}),
]
TRANSPOSED = [
    (1, ((2, 3, 4), (3, 4, 3), (4,)), {}),
    (1, ((2, 4, 4), (4, 2, 3)), {"stride": 3, "padding": 1, "groups": 2, "dilation": 2}),
    (2, ((2, 3, 4, 3), (3, 2, 3, 2), (2,)), {"stride": 2, "output_padding": (1, 0)}),
    (2, ((1, 4, 3, 4), (4, 1, 3, 3)), {"groups": 4, "padding": 1, "stride": (2, 1)}),
    (2, ((3, 4, 3), (3, 2, 3, 2), (2,)), {"dilation": 2, "output_padding": 1}),
    (3, ((1, 2, 3, 2, 3), (2, 2, 2, 1, 3), (2,)), {"stride": (1, 2, 2), "padding": 1}),
    (
        3,
        ((4, 3, 2, 3), (4, 1, 2, 2, 1)),
        {"groups": 2, "output_padding": (1, 0, 1), "stride": 2},
    ),
]


@pytest.mark.oracle
@each("axes, shapes, settings", CONVOLUTIONS)
def test_convolution_equals_that_of_pytorch_to_second_order(axes, shapes, settings):
    def theirs(torch, *tensors):
        return getattr(torch.nn.functional, f"conv{axes}d")(*tensors, **settings)

    def ours(*nodes):
        return getattr(ag.ops, f"conv{axes}d")(*nodes, **settings)

    compare(ours, theirs, draw(*shapes))


@pytest.mark.oracle
@each("axes, shapes, settings", TRANSPOSED)
def test_transposed_convolution_equals_that_of_pytorch_to_second_order(axes, shapes, settings):
    def theirs(torch, *tensors):
        return getattr(torch.nn.functional, f"conv_transpose{axes}d")(*tensors, **settings)

    def ours(*nodes):
        return getattr(ag.ops, f"conv_transpose{axes}d")(*nodes, **settings)

    compare(ours, theirs, draw(*shapes))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "shapes", "settings"),
    [
        ("conv1d", ((2, 4, 9), (6, 2, 2), (6,)), {"stride": 2, "padding": 1, "groups": 2}),
        ("conv2d", ((2, 3, 4, 3), (2, 3, 3, 2)), {"dilation": (1, 2)}),
        ("conv_transpose1d", ((2, 4, 4), (4, 2, 3)), {"stride": 3, "padding": 1, "groups": 2}),
    ],
)
def test_convolutions_of_complex_numbers_equal_those_of_pytorch(name, shapes, settings):
    compare(
        lambda *nodes: getattr(ag.ops, name)(*nodes, **settings),
        lambda torch, *tensors: getattr(torch.nn.functional, name)(*tensors, **settings),
        [real + 1j * imag for real, imag in zip(draw(*shapes), draw(*shapes, seed=9), strict=True)],
    )


@pytest.mark.oracle
def test_batches_of_many_blocks_equal_those_of_pytorch(monkeypatch):
    monkeypatch.setattr("actorgraph.ops.convolution._BLOCK", 700)  # two images of 288
    monkeypatch.setattr("actorgraph.ops.convolution._LEAST", 1)
    compare(
        lambda x, w: ag.ops.conv2d(x, w, padding=1),
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1),
        draw((5, 2, 4, 4), (3, 2, 3, 3)),
    )


@pytest.mark.oracle
def test_im2col_and_col2im_are_unfold_and_fold_of_pytorch():
    def ours(x):
        rows = ag.ops.im2col(x, (2, 3), stride=(2, 1), padding=1, dilation=(1, 2))
        return ag.ops.swapaxes(rows.reshape(2, -1, 18), 1, 2)

    def theirs(torch, x):
        return torch.nn.functional.unfold(x, (2, 3), stride=(2, 1), padding=1, dilation=(1, 2))

    compare(ours, theirs, draw((2, 3, 5, 6)))
    compare(
        lambda c: ag.ops.col2im(c, (5, 4), (2, 2), stride=2, padding=(1, 0)),
        lambda torch, c: torch.nn.functional.fold(
            c.reshape(2, 6, 12).transpose(1, 2), (5, 4), (2, 2), stride=2, padding=(1, 0)
        ),
        draw((2, 3, 2, 12)),
    )


def test_fold_takes_the_padding_that_unfold_takes():
    x = ag.Graph().input("x", (1, 2, 5, 4), "float64")
    columns = ag.ops.unfold(x, 3, padding="same")
    assert ag.ops.fold(columns, (5, 4), 3, padding="same") is ag.ops.fold(
        columns, (5, 4), 3, padding=1
    )


@pytest.mark.parametrize("machine", [ag.TapeMachine, partial(ag.TapeMachine, native=False)])
def test_columns_of_unfold_are_written_where_its_result_has_them(machine, monkeypatch):
    """Written as rows and turned, a result of 5 MB takes three times as long."""
    reads = []
    moved = windows.to_columns

    def noted(xp, x, frame, columns):
        reads.append(columns.flags.c_contiguous)
        return moved(xp, x, frame, columns)

    monkeypatch.setattr(windows, "to_columns", noted)
    g = ag.Graph()
    x, y = g.input("x", (2, 3, 6, 7), "float32"), g.input("y", (2, 27, 42), "float32")
    columns, image = ag.ops.unfold(x, 3, padding=1), ag.ops.fold(y, (6, 7), 3, padding=1)
    with machine([columns, image], wrt=[x, y]) as machine:
        seeds = {columns: np.ones((2, 27, 42), "f"), image: np.ones((2, 3, 6, 7), "f")}
        feeds = {"x": np.ones((2, 3, 6, 7), "f"), "y": np.ones((2, 27, 42), "f")}
        machine.run_sync(feeds, backward=seeds)
    assert reads == [True, True]


@each("stride", [1, 2, 3])
@each("size", [1, 5, 6, 7])
@each("dims", ["fixed", "symbolic", "unknown"])
def test_same_padding_gives_size_over_stride_entries_for_every_stride(stride, size, dims):
    g = ag.Graph()
    given = {"fixed": size, "symbolic": "n", "unknown": None}[dims]
    x = g.input("x", (1, 1, given), "float64")
    w = np.arange(1.0, 5.0).reshape(1, 1, 4)
    value = np.arange(1.0, size + 1).reshape(1, 1, size)
    y = ag.ops.conv1d(x, w, stride=stride, padding="same")
    outs = -(-size // stride)
    total = max((outs - 1) * stride + 4 - size, 0)
    padded = np.pad(value[0, 0], (total // 2, total - total // 2))
    wanted = [padded[i * stride : i * stride + 4] @ w[0, 0] for i in range(outs)]
    got, gradient = evaluate([y, *ag.gradients(y.sum(), [x])], {x: value})
    np.testing.assert_allclose(got[0, 0], wanted)
    assert gradient.shape == value.shape


@each("dims", [("n", 2, "h", "w"), (None, 2, None, None), (None, None, 5, None)])
@each("name", ["conv2d", "conv_transpose2d", "im2col"])
def test_dims_that_only_a_run_knows_give_the_same_to_second_order(name, dims):
    value, weight = draw((3, 2, 5, 7), (2, 2, 3, 3))
    results = []
    for shape in (dims, value.shape):
        g = ag.Graph()
        x, w = g.input("x", shape, "float64"), g.input("w", weight.shape, "float64")
        if name == "im2col":
            y = ag.ops.im2col(x, 3, stride=2, padding=1).sum(0) * w.sum()
        else:
            y = getattr(ag.ops, name)(x, w, stride=2, padding=1)
        first = ag.gradients((y * y).sum(), [x, w])
        second = ag.gradients((first[0] * first[0]).sum() + (first[1] * first[1]).sum(), [x, w])
        results.append(evaluate([y, *first, *second], {x: value, w: weight}))
    for symbolic, fixed in zip(*results, strict=True):
        np.testing.assert_allclose(symbolic, fixed, rtol=1e-12)


@pytest.mark.parametrize("machine", [ag.LispMachine, ag.TapeMachine, ag.ActorMachine])
def test_machines_bind_the_dims_of_convolutions(machine):
    g = ag.Graph()
    x = g.input("x", ("batch", 1, "h", "w"), "float32")
    w = g.parameter("w", np.ones((2, 1, 3, 3), "float32"))
    loss = ag.ops.conv2d(x, w, stride=2, padding="same").sum()
    with machine([loss]) as running:
        for shape in ((1, 1, 4, 6), (2, 1, 5, 3)):
            run = running.run_sync({"x": np.ones(shape, "float32")}, backward=True)
            assert run[w].grad.shape == w.shape
            assert run[loss].value > 0


def test_convolution_keeps_float32():
    g = ag.Graph()
    x, w = g.input("x", (1, 2, 4)), g.input("w", (3, 2, 2))
    y = ag.ops.conv1d(x, w, np.ones(3, "float32"))
    nodes = [y, *ag.gradients(y.sum(), [x, w])]
    feeds = {x: np.ones((1, 2, 4), "float32"), w: np.ones((3, 2, 2), "float32")}
    assert {value.dtype.name for value in evaluate(nodes, feeds)} == {"float32"}


def test_an_infinite_value_outside_of_a_window_does_not_reach_it():
    x = ag.Graph().input("x", (1, 1, 4), "float64")
    value = np.array([[[1.0, 2.0, 3.0, np.inf]]])
    (y,) = evaluate(ag.ops.conv1d(x, np.ones((1, 1, 2))), {x: value})
    np.testing.assert_array_equal(y, [[[3, 5, np.inf]]])


@each(
    "arguments, settings, error, text",
    [
        (((1, 3, 5), (2, 3, 3)), {}, ShapeError, "weight has to have rank 4"),
        (((3, 5), (2, 3, 3, 3)), {}, ShapeError, "takes arrays of rank 4"),
        (((1, 3, 5, 5), (2, 2, 3, 3)), {}, ShapeError, "channels of the input and of the weight"),
        (((1, 4, 5, 5), (3, 2, 3, 3)), {"groups": 2}, ShapeError, "3 features cannot be divided"),
        (((1, 3, 2, 5), (2, 3, 3, 3)), {}, ShapeError, "window of 3 entries, 1 apart, does not"),
        (((1, 3, 5, 5), (2, 3, 3, 3)), {"stride": 0}, ShapeError, "stride is one int >= 1"),
        (((1, 3, 5, 5), (2, 3, 3, 3)), {"stride": (1, 2, 3)}, ShapeError, "one int or 2 of them"),
        (((1, 3, 5, 5), (2, 3, 3, 3)), {"padding": -1}, ShapeError, "padding is one int >= 0"),
        (((1, 3, 5, 5), (2, 3, 3, 3)), {"dilation": 0}, ShapeError, "dilation is one int >= 1"),
        (((1, 3, 5, 5), (2, 3, 3, 3)), {"padding": "full"}, GraphTypeError, "'same', 'valid' or"),
        (((1, 3, 5, 5), (2, 3, 3, "k")), {}, ShapeError, "kernel has to have known sizes"),
    ],
)
def test_wrong_convolutions_are_explained(arguments, settings, error, text):
    g = ag.Graph()
    x, w = (g.input(f"x{i}", shape) for i, shape in enumerate(arguments))
    with pytest.raises(error, match=text):
        ag.ops.conv2d(x, w, **settings)


def test_wrong_transposed_convolutions_are_explained():
    g = ag.Graph()
    x, w = g.input("x", (1, 3, 5)), g.input("w", (3, 2, 3))
    with pytest.raises(
        ShapeError, match=r"output_padding \(2,\) has to be below the stride \(2,\)"
    ):
        ag.ops.conv_transpose1d(x, w, stride=2, output_padding=2)
    with pytest.raises(GraphTypeError, match="padding is ints or pairs of ints, got 'same'"):
        ag.ops.conv_transpose1d(x, w, padding="same")
    with pytest.raises(ShapeError, match="padding leaves a result of the sizes"):
        ag.ops.conv_transpose1d(x, w, padding=9)


def test_dtypes_of_convolutions_do_not_mix():
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match="conv: mixed dtypes"):
        ag.ops.conv1d(g.input("x", (1, 1, 4)), np.ones((1, 1, 2)))


def test_a_window_that_does_not_fit_raises_in_the_run():
    x = ag.Graph().input("x", (1, 1, "n"), "float64")
    with pytest.raises(ShapeError, match="does not fit in size 1"):
        evaluate(ag.ops.conv1d(x, np.ones((1, 1, 2))), {x: np.ones((1, 1, 1))})


def test_settings_of_windows_are_part_of_a_nodes_identity():
    """Regression: Gorgonia's hash of im2col leaves out the dilation."""
    x = ag.Graph().input("x", (1, 1, 9))
    settings = [{}, {"dilation": 2}, {"stride": 2}, {"padding": 1}]
    assert len({ag.ops.im2col(x, 3, **more) for more in settings}) == 4


def test_a_pointwise_kernel_with_a_stride_and_padding_at_the_end_skips_entries():
    x = ag.Graph().input("x", (1, 1, 2), "float64")
    y = ag.ops.conv1d(x, np.full((1, 1, 1), 5.0), stride=2, padding=((0, 1),))
    (got,) = evaluate([y], {x: np.array([[[2.0, 3.0]]])})
    np.testing.assert_array_equal(got, [[[10.0, 0.0]]])
