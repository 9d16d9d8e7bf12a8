"""Machine code of products, convolutions and sums along axes: near to NumPy's, where it fits."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import dense, native
from actorgraph.devices.helpers import Helpers
from actorgraph.graph import build
from actorgraph.lower import quick_rows
from actorgraph.lower.kernels import kernel
from actorgraph.op import REGISTRY
from tests._each import each
from tests._soak import SOAK

ops = ag.ops
pytest.importorskip("llvmlite", reason="the extra jit is not installed")
pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
NEAR = {"float32": 2e-5, "float64": 1e-13}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(quick_rows, "_LEAST_FLOPS", 1.0)
    monkeypatch.setattr(quick_rows, "_LEAST_ROW_FLOPS", 1.0)


@pytest.fixture(autouse=True)
def scratch_of_nan(monkeypatch):
    """Nothing that machine code has not written itself may reach a result."""

    def found(xp, shape, dtype):
        return np.full(shape, 0xFF, np.uint8).view(dtype)

    monkeypatch.setattr(quick_rows, "scratch", found)


def drawn(*shapes, dtype="float32"):
    rng = np.random.default_rng(len(shapes) + sum(map(sum, shapes)))
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def kernel_of(name, arrays, wait=True, **attrs):
    g = ag.Graph()
    nodes = [g.input(f"x{i}", one.shape, one.dtype) for i, one in enumerate(arrays)]
    node = build(REGISTRY[name], *nodes, **attrs)
    return quick_rows.quick_kernel(node, kernel(node, np, {}), {}, wait)


def code_of(kernel):
    [(code, _, _)] = kernel._codes.values()
    return code


def assert_near(got, wanted):
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    rtol = NEAR[wanted.dtype.name]
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * abs(wanted).max(initial=0))


def check(name, arrays, **attrs):
    """Insist that there is machine code and that it is near, with and without a result's memory."""
    kernel = kernel_of(name, arrays, **attrs)
    wanted = kernel.ordinary(*arrays)
    got = kernel(*arrays)
    assert code_of(kernel).call is not None
    assert_near(got, wanted)
    if wanted.ndim:
        out = np.full_like(wanted, np.nan)
        assert kernel(*arrays, out=out) is out
        assert out.tobytes() == got.tobytes()


def turned(shape):
    return *shape[:-2], shape[-1], shape[-2]


PRODUCTS = [
    ((8, 4), (4, 16)), ((1, 1), (1, 8)), ((37, 50), (50, 48)), ((9, 800), (800, 32)),
    ((3, 8, 5), (5, 16)), ((3, 8, 5), (3, 5, 16)), ((2, 1, 4, 6), (3, 6, 8)),
    ((17, 3), (2, 3, 40)), ((100, 33), (33, 64)),
]  # fmt: skip


@each("dtype", NEAR)
@each("left, right", PRODUCTS)
def test_products_are_near_whichever_way_their_operands_lie(left, right, dtype):
    for x_turned, y_turned in ((False, False), (False, True), (True, False)):
        x, y = drawn(
            turned(left) if x_turned else left, turned(right) if y_turned else right, dtype=dtype
        )
        x = x.swapaxes(-1, -2) if x_turned else x
        y = y.swapaxes(-1, -2) if y_turned else y
        check("matmul", [x, y])


@pytest.mark.parametrize("dtype", NEAR)
def test_products_of_few_rows_with_turned_columns_are_near(dtype):
    for rows, depth, columns in ((1, 16, 1), (2, 32, 16), (7, 96, 37), (4, 64, 64), (3, 48, 5)):
        x, y, stack = drawn((rows, depth), (columns, depth), (2, rows, depth), dtype=dtype)
        check("matmul", [x, y.T])
        check("matmul", [stack, np.stack([y.T, -y.T]).swapaxes(1, 2).copy().swapaxes(1, 2)])
        check("matmul", [np.repeat(x, 2, axis=0)[::2], np.repeat(y, 2, axis=0)[::2].T])


def test_products_of_parts_of_arrays_read_no_more_than_these():
    whole, other = drawn((40, 60), (70, 90))
    whole[:, 30:], other[:, 32:] = np.nan, np.nan
    check("matmul", [whole[1:38:2, :30], other[3:63:2, :32]])


FRAMES = [
    # batch, channels, features, sizes, kernel, stride, padding, dilation
    (2, 3, 8, (6, 7), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    (8, 16, 16, (8, 8), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    (1, 4, 16, (9, 20), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    (3, 2, 4, (11, 9), (2, 3), (3, 1), ((0, 2), (1, 0)), (1, 2)),
    (2, 5, 4, (10, 10), (1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    (1, 3, 12, (16, 15), (7, 7), (2, 2), ((3, 3), (3, 3)), (1, 1)),
    (2, 3, 4, (4, 5), (3, 3), (1, 1), ((5, 5), (4, 4)), (1, 1)),
    (5, 2, 4, (12,), (3,), (2,), ((1, 1),), (2,)),
    (2, 5, 4, (1, 8), (3, 4), (3, 1), ((1, 1), (1, 0)), (1, 2)),
]  # fmt: skip


def geometries():
    yield from FRAMES
    rng = np.random.default_rng(19)
    for _ in range(300 if SOAK else 4):
        kernel, stride, dilation = rng.integers(1, [[6, 6], [4, 4], [3, 3]])
        pads = rng.integers(0, 4, (2, 2))
        spans = dilation * (kernel - 1) + 1
        sizes = rng.integers(np.maximum(1, spans - pads.sum(1)), spans + 14)
        batch, channels, features = rng.integers(1, (6, 7, 5))
        yield (
            *map(int, (batch, channels, 4 * features)),
            *[tuple(map(int, one)) for one in (sizes, kernel, stride)],
            tuple(tuple(map(int, pair)) for pair in pads), tuple(map(int, dilation)),
        )  # fmt: skip


@pytest.mark.parametrize("frame", [*geometries()], ids=str)
def test_convolutions_and_their_adjoints_are_near(frame):
    batch, channels, features, sizes, kernel, stride, padding, dilation = frame
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 1}
    x, w = drawn((batch, channels, *sizes), (features, channels, *kernel))
    y = kernel_of("conv", [x, w], size=None, **geometry).ordinary(x, w)
    [ct] = drawn(y.shape)
    check("conv", [x, w], size=None, **geometry)
    check("conv_transpose", [ct, w], size=sizes, extra=(0,) * len(sizes), **geometry)
    check("conv_weight", [x, ct], size=kernel, **geometry)


CENTRED = {"eps": 1e-5, "centred": True}
ALONG = [
    ("sum", [(4, 3, 2, 8)], {"axis": (0, 2, 3), "keepdims": True}),
    ("sum", [(40, 80)], {"axis": (0, 1), "keepdims": False}),
    ("mean", [(9, 64)], {"axis": (1,), "keepdims": False}),
    ("var", [(4, 3, 2, 8)], {"axis": (0, 2, 3), "keepdims": False, "ddof": 1}),
    ("standardize", [(5, 6, 4, 4)], {"axis": (0, 2, 3), **CENTRED}),
    ("standardize", [(3, 7, 128)], {"axis": (2,), **CENTRED}),
    ("inverse_deviation", [(5, 1, 4, 4)], {"axis": (0, 2, 3), **CENTRED}),
    ("standardize_pull", [(5, 6, 4, 4), (5, 6, 4, 4), (1, 6, 1, 1)],
     {"axis": (0, 2, 3), "centred": True}),
    ("softmax", [(6, 5, 20)], {"axis": 2}),
]  # fmt: skip


@each("name, shapes, attrs", ALONG)
def test_sums_along_axes_and_what_is_made_of_them_are_near(name, shapes, attrs):
    for dtype in ("float32",) if name == "softmax" else NEAR:
        check(name, drawn(*shapes, dtype=dtype), **attrs)


@each("name, shapes, attrs", [
    ("matmul", [(4, 5), (5, 3)], {}),
    ("matmul", [(64, 64), (64, 10)], {}),
    ("matmul", [(5,), (5, 4)], {}),
    ("sum", [(4, 5, 8)], {"axis": (1,), "keepdims": False}),
    ("sum", [(64, 16)], {"axis": (0,), "keepdims": False}),
    ("standardize", [(3, 8)], {"axis": (1,), "eps": 0.1, "centred": False}),
    ("softmax", [(4, 8, 8)], {"axis": 1}),
    ("conv", [(1, 4, 5, 5), (4, 2, 3, 3)],
     {"stride": (1, 1), "padding": ((0, 0),) * 2, "dilation": (1, 1), "groups": 2, "size": None}),
    ("conv", [(1, 2, 3, 3, 3), (4, 2, 1, 1, 1)],
     {"stride": (1,) * 3, "padding": ((0, 0),) * 3, "dilation": (1,) * 3, "groups": 1,
      "size": None}),
])  # fmt: skip
def test_what_fits_no_machine_code_has_the_bits_that_it_has_without(name, shapes, attrs):
    arrays = drawn(*shapes)
    kernel = kernel_of(name, arrays, **attrs)
    ordinary = getattr(kernel, "ordinary", kernel)
    assert kernel(*arrays).tobytes() == ordinary(*arrays).tobytes()


def test_a_result_with_gaps_and_operands_without_order_are_what_they_have_to_be():
    x, w = drawn((2, 4, 6, 6), (4, 4, 3, 3))
    geometry = {"stride": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    kernel = kernel_of("conv", [x, w], size=None, **geometry)
    wanted = kernel.ordinary(x, w)
    room = np.zeros((2, 4, 6, 12), "float32")
    kernel(x, w, out=room[..., ::2])
    assert_near(room[..., ::2], wanted)
    assert not room[..., 1::2].any()
    assert_near(kernel(np.asfortranarray(x), w), wanted)


def test_numpy_computes_until_the_machine_code_is_there(monkeypatch):
    waiting = []
    monkeypatch.setattr(quick_rows.BACKGROUND, "submit", lambda work, keep: waiting.append(work))
    quick_rows._code.cache_clear()
    x, y = drawn((21, 19), (19, 24))
    kernel = kernel_of("matmul", [x, y], wait=False)
    assert kernel(x, y).tobytes() == kernel.ordinary(x, y).tobytes()
    [make] = waiting
    make()
    assert code_of(kernel).call is not None
    assert_near(kernel(x, y), x @ y)
    assert len(waiting) == 1


def test_helpers_change_no_bit(monkeypatch):
    helpers = Helpers()
    helpers.count = 1
    helpers.make()
    monkeypatch.setattr(quick_rows, "HELPERS", helpers)
    x, w = drawn((8, 8, 16, 16), (8, 8, 3, 3))
    geometry = {"stride": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    wide = drawn((300, 64), (64, 128))
    for name, arrays, attrs in (
        ("matmul", wide, {}), ("conv", [x, w], {"size": None, **geometry}),
        ("conv_weight", [x, x], {"size": (3, 3), **geometry}),
        ("standardize", [x], {"axis": (0, 2, 3), **CENTRED}),
    ):  # fmt: skip
        kernel = kernel_of(name, arrays, **attrs)
        alone = kernel(*arrays)
        code, result = code_of(kernel), np.empty_like(alone)
        room = (np.empty(code.room, np.uint8),) if code.room else ()
        for _ in range(20):
            result.fill(np.nan)
            assert helpers.call()
            code.call((*arrays, result, *room, helpers.words))
            assert result.tobytes() == alone.tobytes()


def test_helpers_rest_when_they_were_a_hindrance(monkeypatch):
    x, y = drawn((8, 16), (16, 16))
    kernel = kernel_of("matmul", [x, y])
    kernel(x, y)
    code, asked, ticks = code_of(kernel), [], iter([0.0, 1.0] * 3 + [0.0, 9.0] + [0.0, 1.0] * 3)
    monkeypatch.setattr(quick_rows, "_resting", 0)
    monkeypatch.setattr(quick_rows, "_REST", 2)
    monkeypatch.setattr(quick_rows, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(quick_rows.HELPERS, "words", dense.ALONE)
    monkeypatch.setattr(quick_rows.HELPERS, "call", lambda: asked.append(1) or 1)
    monkeypatch.setattr(code, "_tries", 0)
    assert code.room == 0
    for _ in range(7):
        code.share((x, y, np.empty((8, 16), "float32")))
    assert len(asked) == 2  # after three calls alone; not in the two that follow a long one


@each("least, free, shares", [(1.0, True, True), (np.inf, True, False), (1.0, False, False)])
def test_a_long_call_is_shared_where_a_worker_is_free(least, free, shares):
    (x, y), asked = drawn((8, 16), (16, 16)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_rows, "_SHARED_FLOPS", least)
        patch.setattr(quick_rows, "_may_share", lambda: free)
        patch.setattr(quick_rows._Code, "share", lambda *_: asked.append(1))
        kernel_of("matmul", [x, y])(x, y)
    assert bool(asked) is shares


@pytest.mark.parametrize("machine", [ag.TapeMachine, ag.ActorMachine])
@pytest.mark.parametrize("rows", [True, False])
def test_under_an_error_state_that_raises_numpy_computes_products(machine, rows, monkeypatch):
    if not rows:
        monkeypatch.setattr(quick_rows, "_SHARED_FLOPS", 1.0)
    x = ag.Graph().input("x", (8, 16))
    y = x
    for _ in range(8):
        y = (y @ np.full((16, 16), 1e6, "float32")) * 0.5
    feeds = {"x": np.ones((8, 16), "float32")}
    with machine([y], wrt=[], exact=False, jit="wait", native="wait") as made:
        for _ in range(2):
            assert np.isinf(made.run_sync(feeds)[y].value).all()
        with np.errstate(over="raise"), pytest.raises(ag.errors.NodeError, match="overflow"):
            made.run_sync(feeds)
        assert np.isinf(made.run_sync(feeds)[y].value).all()


class Net(ag.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = ag.nn.Conv2d(3, 8, 3, padding=1), ag.nn.BatchNorm2d(8)
        self.down, self.out = ag.nn.Conv2d(8, 8, 3, stride=2), ag.nn.Linear(8, 4)

    def forward(self, x):
        y = self.down(ops.relu(self.norm(self.conv(x))))
        return self.out(y.mean((2, 3)))


NETS = {
    "convolutions": (Net, (3, 3, 9, 8)),
    "a transformer block": (
        lambda: ag.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), (2, 8, 16),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("net", NETS)
def test_nets_with_jit_are_near_to_the_interpreter_in_both_passes(net, rows, monkeypatch):
    if not rows:  # all are steps, as of larger arrays
        monkeypatch.setattr(quick_rows, "_SHARED_FLOPS", 1.0)
    build_net, shape = NETS[net]
    ag.nn.manual_seed(0)
    made = build_net()
    x = made(ag.Graph().input("x", shape))
    loss, feeds = ops.square(x).mean(), {"x": drawn(shape)[0]}
    parameters = list(made.parameters())
    found = []
    for machine, how in (
        (ag.LispMachine, {}), (ag.ActorMachine, {"jit": "wait", "native": "wait", "workers": 2}),
    ):  # fmt: skip
        with machine([loss], wrt=parameters, exact=False, **how) as one:
            for _ in range(3):
                run = one.run_sync(feeds, backward=True)
            found.append([run[loss].value, *[run[p].grad for p in parameters]])
    scale = max(abs(one).max() for one in found[0])
    for wanted, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-6 * scale)
