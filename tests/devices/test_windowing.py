"""Windows that machine code moves: the bits of NumPy's form, and its warnings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native, windowing
from actorgraph.ops import windows
from tests._guard import Guard
from tests._soak import drawn

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no machine code: {native.expected()}"
)


@pytest.fixture(scope="module")
def moves():
    native.RUNTIME.clear, native.RUNTIME.test = native.flags()
    return windowing.Moves()


@pytest.fixture
def counted(moves):
    """Count the moves that are made while a test runs."""
    made = []

    def counting(*given):
        done = moves(*given)
        made.extend([given[-1]] * done)
        return done

    return counting, made


@st.composite
def frames(draw):
    axes = draw(st.integers(1, 3))
    many = st.integers(1, (70, 20, 6)[axes - 1])
    sizes = draw(st.tuples(*[many] * axes))
    kernel, stride, dilation = [draw(st.tuples(*[st.integers(1, 3)] * axes)) for _ in range(3)]
    padding = draw(st.tuples(*[st.tuples(st.integers(0, 4), st.integers(0, 4))] * axes))
    padding = tuple(
        (low, high + max(0, gap * (width - 1) + 1 - size - low - high))
        for (low, high), size, width, gap in zip(padding, sizes, kernel, dilation)
    )
    return windows.frame_of(sizes, kernel, stride, dilation, padding)


def form(moves, call):
    token = windows.MOVES.set(moves)
    try:
        return call().tobytes()
    finally:
        windows.MOVES.reset(token)


@drawn(60, soak=5000)
@given(
    frames(),
    st.sampled_from("fd"),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 9),
)
def test_drawn_windows_have_the_bits_of_numpy(counted, frame, char, batch, channels, last, seed):
    counting, made = counted
    made.clear()
    entries, axes = int(np.prod(frame.kernel)), len(frame.sizes)
    rng, guard, dtype = np.random.default_rng(seed), Guard(at_begin=seed % 2), np.dtype(char)
    x = guard.array((batch, channels, *frame.sizes), dtype)
    x[...] = rng.normal(size=x.shape)
    x[x < -1.5] = -0.0
    shape = batch, channels, entries, *frame.outs

    def filled():
        room = guard.array((batch, *frame.outs, channels, entries) if last else shape, dtype)
        room.fill(0)
        if not last:
            return room
        return room.transpose(0, axes + 1, axes + 2, *range(1, axes + 1))

    columns = filled()
    columns[...] = rng.normal(size=shape)
    columns[np.abs(columns) < 0.2] = -0.0

    def copied():
        return windows.to_columns(np, x, frame, filled())

    def added():
        return windows.from_columns(np, columns, frame, guard.array(x.shape, dtype))

    for call in (copied, added):
        assert form(counting, call) == form(None, call)
    nothing = all(0 in np.empty(x.shape)[part].shape for _, part in windows.taps(frame))
    assert made == ([] if nothing else [False, True])


def test_an_overflow_of_a_sum_warns_as_from_numpy_and_gives_its_bits(counted):
    counting, made = counted
    frame = windows.frame_of((9,), (3,), (1,), (1,), ((0, 0),))
    columns = np.full((1, 1, 3, 7), 3e38, "f")

    def added():
        return windows.from_columns(np, columns, frame, np.empty((1, 1, 9), "f"))

    with np.errstate(over="ignore"):
        wanted = form(None, added)
        assert form(counting, added) == wanted
    with pytest.warns(RuntimeWarning, match="overflow encountered in add"):
        assert form(counting, added) == wanted
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        form(counting, added)
    assert made == [True]


def test_what_does_not_fit_is_moved_by_numpy(counted):
    counting, made = counted
    frame = windows.frame_of((9,), (3,), (1,), (1,), ((0, 0),))
    for kind in ("complex128", "int64", ">f4"):
        x = np.arange(9).astype(kind).reshape(1, 1, 9)

        def copied(x=x):
            return windows.to_columns(np, x, frame, np.zeros((1, 1, 3, 7), x.dtype))

        assert form(counting, copied) == form(None, copied)
    assert made == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolutions_of_machines_move_windows_by_machine_code_with_the_same_bits(
    dtype, monkeypatch
):
    used = []
    call = windowing.Moves.__call__
    monkeypatch.setattr(
        windowing.Moves, "__call__", lambda *given: used.append(given[-1]) or call(*given)
    )
    g, rng = ag.Graph(), np.random.default_rng(3)
    x = g.input("x", (16, 16, 24, 24), dtype)  # too large for rows
    w = g.parameter("w", rng.normal(size=(24, 16, 3, 3)).astype(dtype))
    y = ops.conv2d(x, w, stride=1, padding=1) + ops.conv2d(x * 2.0, w, stride=1, padding=1)
    loss = ops.square(ops.unfold(ops.conv2d(y, np.ones((4, 24, 1, 1), dtype)), 2)).sum()
    feeds = {"x": rng.normal(size=(16, 16, 24, 24)).astype(dtype)}
    found = []
    for machine in (ag.LispMachine, ag.TapeMachine):
        options = {} if machine is ag.LispMachine else {"native": "wait"}
        with machine([loss], wrt=[x, w], **options) as one:
            run = one.run_sync(feeds, backward=True)
            found.append([run[loss].value.tobytes(), *[run[n].grad.tobytes() for n in (x, w)]])
        if machine is ag.LispMachine:
            assert used == []
    assert found[0] == found[1]
    assert set(used) == {False, True}


def test_an_overflow_raises_where_jit_has_compiled_a_convolution():
    x = ag.Graph().input("x", (4, 8, 32, 32), "float32")
    y = ops.conv2d(x, np.full((8, 8, 3, 3), 1e30, "f"), padding=1)
    with ag.ActorMachine([y], exact=False, jit="wait", native="wait") as machine:
        with np.errstate(over="ignore"):
            machine.run_sync({"x": np.ones((4, 8, 32, 32), "f")})
        with np.errstate(over="raise"), pytest.raises(ag.NodeError, match="overflow"):
            machine.run_sync({"x": np.full((4, 8, 32, 32), 1e30, "f")})
