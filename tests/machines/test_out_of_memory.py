"""A run whose memory cannot be had fails by itself: the next is right, and nothing is kept."""

import gc
import tracemalloc
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from time import sleep

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.machines.partition import Partition
from actorgraph.testing._examples import results
from tests import _allocator
from tests._soak import SOAK

WIDTH = 90
"""A square of it has more than `RECYCLED_BYTES`."""

ENDLESS = 10**9


@pytest.fixture(autouse=True)
def no_tables(monkeypatch):
    """Have all memory asked for by steps: who writes tables goes on without what he cannot have."""
    monkeypatch.setenv("ACTORGRAPH_NATIVE", "0")


@pytest.fixture
def allocator():
    with _allocator.replaced() as found:
        yield found


def model():
    """Return outputs and parameters: branches, a view, sums of cotangents, large results."""
    graph = ag.Graph("model")
    rng = np.random.default_rng(0)
    x = graph.input("x", ("n", WIDTH), "float64")
    w = graph.parameter("W", rng.normal(size=(WIDTH, WIDTH)))
    b = graph.parameter("b", rng.normal(size=WIDTH))
    h = ag.ops.tanh(x @ w + b)
    gated = h * ag.ops.sigmoid(h) + h
    loss = (gated * gated).mean()
    return [loss, gated, h.transpose()], [w, b]


def feeds(rows=WIDTH):
    return {"x": np.random.default_rng(rows).normal(size=(rows, WIDTH))}


def error_of(call):
    try:
        call()
    except BaseException as error:
        return error
    return None


def check_every_failure(allocator, attempt, *, reserves=False):
    """Check what `attempt(rows)` does where its first allocation fails, its second, and so on.

    One that `reserves` memory goes on where it gets none, and needs it later or not at all.

    Sizes are known ones and new ones; one allocation fails, or all from then on.  Only a soak tries
    every place for each of these.
    """
    expected = attempt(WIDTH)
    assert attempt(WIDTH) == expected
    for count, known in ((1, True), (1, False), (ENDLESS, False)):
        place, stride = 0, 1 if SOAK or known else 3
        while allocator.failed or not place:
            rows = WIDTH if known else WIDTH + 1 + place // stride
            with allocator.failing(place, count):
                raised = error_of(partial(attempt, rows))
            assert allocator.failed or not raised
            assert raised or reserves or not allocator.failed
            if raised is not None:
                assert isinstance(raised, ag.NodeError), raised
                assert isinstance(raised.__cause__, MemoryError)
            del raised
            assert attempt(WIDTH) == expected
            place += stride


MODES = {
    "forward": lambda rows: {},
    "backward": lambda rows: {"backward": True},
    "tangents": lambda rows: {"tangents": {"x": np.ones((rows, WIDTH))}},
}
WAYS = {
    "run_sync": lambda machine, fed, **mode: machine.run_sync(fed, **mode),
    "start": lambda machine, fed, **mode: machine.start(fed, **mode).result(),
    "stream": lambda machine, fed, **mode: [*machine.stream([fed] * 3, **mode)][-1],
}
MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "auto"}, id="auto"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none", "capacity": 1}, id="none"),
    pytest.param(ag.ActorMachine, {"workers": 3, "fuse": "all"}, id="all"),
    pytest.param(ag.ActorMachine, {"workers": 2, "max_bytes": 10_000_000}, id="max_bytes"),
    pytest.param(
        ag.ActorMachine,
        {"workers": 2, "fuse": "all", "jit": "wait", "exact": False},
        id="jit",
        marks=pytest.mark.skipif(
            find_spec("llvmlite") is None, reason="the extra jit is not installed"
        ),
    ),
]


@pytest.mark.parametrize(
    ("mode", "way"),
    [(mode, "run_sync") for mode in MODES]
    + [(mode, "stream") for mode in (MODES if SOAK else ["backward"])],
)
@pytest.mark.parametrize(("machine_type", "options"), MACHINES)
def test_each_allocation_of_a_run_may_fail(allocator, machine_type, options, mode, way):
    outputs, wrt = model()
    given = {rows: (feeds(rows), MODES[mode](rows)) for rows in range(WIDTH, 2 * WIDTH)}
    with machine_type(outputs, wrt=wrt, **options) as machine:

        def attempt(rows):
            fed, asked = given[rows]
            return results(WAYS[way](machine, fed, **asked), [*outputs, *wrt])

        check_every_failure(allocator, attempt)


@pytest.mark.parametrize("way", ["run_sync", "start"])
@pytest.mark.parametrize(("machine_type", "options"), MACHINES)
def test_a_run_that_finds_no_memory_leaves_none_behind(allocator, machine_type, options, way):
    outputs, wrt = model()
    usual, large = feeds(), feeds(20 * WIDTH)
    run = partial(WAYS[way], backward=True)
    with (
        machine_type(outputs, wrt=wrt, **options | {"max_bytes": None}) as machine,
        traced_bytes() as kept_bytes,
    ):
        for _ in range(4):
            run(machine, usual)
        before, place = kept_bytes(), 0
        while allocator.failed or not place:
            with allocator.failing(place, ENDLESS), suppress(ag.NodeError):
                run(machine, large)
            if allocator.failed:
                arenas = machine._core.networks.arenas
                wait_until(machine._core.scheduler.quiet)
                assert kept_bytes() - before < large["x"].nbytes / 2
                assert arenas.count == len(arenas.idle) == arenas.bytes == 0
            place += 1
        assert place > 3


@contextmanager
def traced_bytes():
    """Yield what tells how many bytes are held, without those that wait for no collection."""
    tracemalloc.start()
    gc.collect()
    gc.disable()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        gc.enable()
        tracemalloc.stop()


def wait_until(told):
    while not told():
        sleep(0)


async def _later(xp, x):
    await anyio.lowlevel.checkpoint()
    return x + 1.0


later = ag.ops.define(
    "memory_later", scheme="f[*s] -> f[*s]", forward=_later, vjp=(lambda ct, y, x: ct,)
)


@pytest.mark.parametrize("kind", ["lisp", "tape", "auto", "none", "pipeline"])
def test_each_allocation_around_an_asynchronous_op_may_fail(allocator, kind):
    (_, gated, _), wrt = model()
    loss = (later(gated * 2.0) * gated).mean()
    machine = {
        "lisp": partial(ag.LispMachine, [loss], wrt=wrt),
        "tape": partial(ag.TapeMachine, [loss], wrt=wrt),
        "auto": partial(ag.ActorMachine, [loss], wrt=wrt, workers=2),
        "none": partial(ag.ActorMachine, [loss], wrt=wrt, workers=2, fuse="none"),
        "pipeline": partial(ag.pipeline.Pipeline, loss, wrt, stages=2, microbatches=3, split="n"),
    }[kind]()
    given = {rows: feeds(rows) for rows in range(WIDTH, 2 * WIDTH)}
    options = {} if kind == "pipeline" else {"backward": True}
    with machine:

        def attempt(rows):
            run = anyio.run(partial(machine.run, given[rows], **options))
            return results(run, [loss, *wrt])

        check_every_failure(allocator, attempt, reserves=kind == "pipeline")


@pytest.mark.parametrize(("machine_type", "options"), MACHINES)
def test_a_run_that_finds_no_memory_assigns_to_no_buffer(allocator, machine_type, options):
    graph = ag.Graph()
    x = graph.input("x", ("n", WIDTH), "float64")
    mean, count = graph.buffer("mean", np.zeros(WIDTH)), graph.buffer("count", np.zeros(WIDTH))
    y = x - mean
    graph.assign(mean, mean * 0.5 + x.mean(axis=0), on=y)
    graph.assign(count, count + 1.0, on=y)
    fed, place = feeds(), 0
    expected = np.zeros(WIDTH)
    with machine_type([y], **options) as machine:
        while allocator.failed or not place:
            with allocator.failing(place):
                raised = error_of(partial(machine.run_sync, fed))
            if allocator.failed:
                assert isinstance(raised.__cause__, MemoryError)
                np.testing.assert_array_equal(mean.value, expected)
                np.testing.assert_array_equal(count.value, place)
                run = machine.run_sync(fed)
                np.testing.assert_array_equal(run[y].value, fed["x"] - expected)
                assert not np.array_equal(mean.value, expected)
                expected = mean.value.copy()
            place += 1
        assert place > 3


def test_a_run_whose_network_cannot_be_made_ready_fails_by_itself(monkeypatch):
    outputs, wrt = model()
    with ag.ActorMachine(outputs, wrt=wrt, workers=2, fuse="all") as machine:
        expected = results(machine.run_sync(feeds()), outputs)
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "layout", refuse_memory)
            with pytest.raises(ag.GraphError, match="MemoryError: not even for names"):
                machine.start(feeds(WIDTH + 1)).result()
        assert results(machine.run_sync(feeds()), outputs) == expected


def refuse_memory(*_):
    raise MemoryError("not even for names")


SOLVERS = [ag.solvers.SGD, partial(ag.solvers.SGD, momentum=0.5), ag.solvers.Adam]
KINDS = [
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 2}, id="auto"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none"}, id="none"),
]


@pytest.mark.parametrize("make", SOLVERS, ids=["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("machine_type", "options"), KINDS)
def test_a_step_that_finds_no_memory_changes_nothing(allocator, machine_type, options, make):
    sizes = [feeds(WIDTH + number) for number in range(100)]

    @contextmanager
    def training():
        outputs, wrt = model()
        with machine_type(outputs, wrt=wrt, **options) as machine:
            step = machine.compile_step(make(lr=0.1))
            yield step, lambda: [node.value for node in wrt]

    with training() as (step, values), training() as (other_step, other_values):
        held = []
        for place in range(100):
            held.append(values())  # so that a step cannot write into the arrays before
            with allocator.failing(place):
                raised = error_of(partial(step, sizes[place]))
            if not allocator.failed:
                break
            assert isinstance(raised, ag.GraphError)
            assert isinstance(raised.__cause__, MemoryError)
            step(sizes[0])
            other_step(sizes[0])
            for one, other in zip(values(), other_values(), strict=True):
                np.testing.assert_array_equal(one, other)
        assert 3 < place < 99


@pytest.mark.parametrize(
    ("schedule", "way"),
    [("gpipe", "run_sync"), ("1f1b", "stream"), ("zb-h1", "start"), ("dynamic", "run_sync")],
)
def test_each_allocation_of_a_pipeline_may_fail(allocator, schedule, way):
    outputs, wrt = model()
    loss, gated, _ = outputs
    given = {rows: feeds(rows) for rows in range(WIDTH, 2 * WIDTH)}
    with ag.pipeline.Pipeline(
        loss, wrt, outputs=[gated], stages=2, schedule=schedule, microbatches=3, split="n",
    ) as pipeline:  # fmt: skip

        def attempt(rows):
            return results(WAYS[way](pipeline, given[rows]), [loss, gated, *wrt])

        check_every_failure(allocator, attempt, reserves=True)


LARGEST = 2**23
"""Rows of a feed of 32 MB whose outer product has 2**48 bytes: more than a process can have."""


@pytest.mark.soak
@pytest.mark.anyio
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fuse", ["auto", "none"])
async def test_a_service_goes_on_under_requests_that_are_too_large(fuse):
    x = ag.Graph().input("x", ("n", 1))
    products = np.tanh(x * 0.5) * x.transpose()
    y = (np.tanh(products) + products).sum(axis=0)
    fed = [{"x": np.random.default_rng(n).normal(size=(n, 1)).astype("f")} for n in (3, 90, 200)]
    with ag.LispMachine([y]) as lisp:
        right = [(await lisp.run(feeds))[y].value for feeds in fed]
    too_large = {"x": np.zeros((LARGEST, 1), "float32")}

    async def ask(machine, number):
        if number % 50 == 7:
            with pytest.raises(ag.NodeError, match="MemoryError: Unable to allocate") as caught:
                await machine.run(too_large)
            assert isinstance(caught.value.__cause__, MemoryError)
        else:
            run = await machine.run(fed[number % 3])
            np.testing.assert_array_equal(run[y].value, right[number % 3])

    async def serve(machine, count):
        for first in range(0, count, 10):
            async with anyio.create_task_group() as requests:
                for number in range(first, first + 10):
                    requests.start_soon(ask, machine, number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async with ag.ActorMachine([y], workers=2, fuse=fuse) as machine:
        tracemalloc.start()
        try:
            before = await serve(machine, 100)
            after = await serve(machine, 10_000 if SOAK else 200)
        finally:
            tracemalloc.stop()
        arenas = machine._core.networks.arenas
        assert arenas.count == len(arenas.idle) <= 2
        assert after - before < 500_000


def test_admission_counts_what_is_there_after_a_failure(allocator):
    outputs, wrt = model()
    usual, large = feeds(), feeds(4 * WIDTH)
    with ag.ActorMachine(outputs, wrt=wrt, workers=2, fuse="all", max_bytes=2**24) as machine:
        expected = results(machine.run_sync(usual, backward=True), outputs)
        arenas = machine._core.networks.arenas
        kept = arenas.bytes
        for place in range(20):
            with allocator.failing(place, ENDLESS), suppress(ag.NodeError):
                machine.run_sync(large, backward=True)
            if not allocator.failed:
                break
            assert arenas.count == arenas.bytes == 0
            runs = [machine.start(usual, backward=True) for _ in range(6)]
            assert [results(run.result(), outputs) for run in runs] == [expected] * 6
            assert arenas.bytes == kept
            assert arenas.count == len(arenas.idle) <= 2
        assert place > 3


def test_more_bytes_than_numpy_can_count_are_more_than_there_is_memory_for():
    x = ag.Graph().input("x", ("n", 1, 1), "float64")
    cube = np.tanh(x * x.transpose(1, 0, 2) * x.transpose(1, 2, 0))
    total = (cube * 2.0 + cube).sum()
    with ag.ActorMachine([total], fuse="all") as machine:
        for _ in range(2):
            with pytest.raises(ag.NodeError, match="MemoryError: ") as caught:
                machine.run_sync({"x": np.zeros((2**22, 1, 1))})
            assert isinstance(caught.value.__cause__, MemoryError)
        assert machine.run_sync({"x": np.zeros((3, 1, 1))})[total].value == 0
