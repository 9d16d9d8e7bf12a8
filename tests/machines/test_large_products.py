"""Large matrix products are cut into tiles that idle workers share; bits never depend on who."""

import os
import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import blas

RANDOM = np.random.default_rng(5)
FEEDS = {"x": RANDOM.normal(size=(128, 520)).astype("f")}
MACHINES = [
    pytest.param(ag.LispMachine, {"workers": 1}, id="lisp"),
    pytest.param(ag.LispMachine, {"workers": 2}, id="lisp 2"),
    pytest.param(ag.TapeMachine, {"workers": 1}, id="tape"),
    pytest.param(ag.TapeMachine, {"workers": 3}, id="tape 3"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="actor"),
    pytest.param(ag.ActorMachine, {"workers": 3}, id="actor 3"),
    pytest.param(ag.ActorMachine, {"workers": 3, "fuse": "none"}, id="actor per node 3"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all", "seed": 4}, id="actor all"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
SHARING = [
    pytest.param(ag.TapeMachine, id="tape"),
    pytest.param(ag.LispMachine, id="lisp"),
    pytest.param(ag.ActorMachine, id="actor"),
]
sharing = pytest.mark.parametrize("machine_type", SHARING)


def layers():
    """Two large layers in a row, so that only tiles can use a second worker."""
    graph = ag.Graph()
    h = graph.input("x", ("batch", 520), "float32")
    random = np.random.default_rng(6)
    for width in (520, 530):
        weights = random.normal(size=(h.dims[1], width)).astype("f") / 20
        h = np.tanh(h @ graph.parameter(f"W{width}", weights))
    return (h * h).mean()


@pytest.fixture(scope="module")
def expected():
    loss = layers()
    with ag.LispMachine([loss], workers=1) as machine:
        return values(machine.run_sync(FEEDS, backward=True), loss)


def values(run, loss):
    return [run[loss].value, run["W520"].grad, run["W530"].grad]


@machines
def test_values_and_gradients_have_the_same_bits_everywhere(machine_type, options, expected):
    loss = layers()
    with machine_type([loss], **options) as machine:
        for _ in range(3):
            for found, want in zip(
                values(machine.run_sync(FEEDS, backward=True), loss), expected, strict=True
            ):
                np.testing.assert_array_equal(found, want)


@pytest.mark.anyio
@pytest.mark.parametrize("machine_type", [ag.TapeMachine, ag.ActorMachine])
async def test_awaited_runs_have_the_same_bits_too(machine_type, expected):
    loss = layers()
    async with machine_type([loss], workers=2) as machine:
        run = await machine.run(FEEDS, backward=True)
    for found, want in zip(values(run, loss), expected, strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.fixture
def provider(monkeypatch):
    """Return a function that has machines multiply by what it is given."""

    def install(multiply):
        own = blas.Provider("numpy", "of a test", multiply)
        monkeypatch.setattr(blas, "provider", lambda: own)

    return install


@sharing
def test_an_idle_worker_computes_tiles_of_another(machine_type, provider):
    both = threading.Barrier(2)
    threads = set()

    def multiply(x, y, out):
        both.wait(20)  # broken unless two threads are here
        threads.add(threading.get_ident())
        np.matmul(x, y, out)

    provider(multiply)
    loss = layers()
    with machine_type([loss], workers=2) as machine:
        machine.run_sync(FEEDS)
    assert len(threads) == 2


@sharing
def test_one_worker_computes_all_tiles_itself(machine_type, provider):
    threads = []

    def multiply(x, y, out):
        threads.append(threading.get_ident())
        np.matmul(x, y, out)

    provider(multiply)
    with machine_type([layers()], workers=1) as machine:
        machine.run_sync(FEEDS)
    assert len(threads) > 2
    assert set(threads) == {threading.get_ident()}


@sharing
def test_a_tile_that_fails_in_a_helper_fails_the_run_with_its_node(machine_type, provider):
    both = threading.Barrier(2)
    caller = threading.get_ident()
    broken = [True]

    def multiply(x, y, out):
        if broken:
            both.wait(20)
            if threading.get_ident() != caller:
                raise MemoryError("no room for a tile")
        np.matmul(x, y, out)

    provider(multiply)
    loss = layers()
    with machine_type([loss], workers=2) as machine:
        with pytest.raises(ag.NodeError, match=r"matmul.*no room for a tile") as caught:
            machine.run_sync(FEEDS)
        assert isinstance(caught.value.__cause__, MemoryError)
        broken.clear()
        assert np.isfinite(machine.run_sync(FEEDS)[loss].value)


def test_errstate_of_the_caller_holds_in_helpers():
    x = ag.Graph().input("x", (512, 512), "float32")
    huge = {"x": np.full((512, 512), 3e38, "f")}
    with ag.TapeMachine([x @ (x + 1.0)], workers=2) as machine:
        with (
            np.errstate(over="raise", invalid="raise"),
            pytest.raises(ag.NodeError, match="overflow encountered"),
        ):
            machine.run_sync(huge)
        with np.errstate(over="ignore"):
            assert np.isinf(machine.run_sync(huge)[machine.graph.nodes[-1]].value).all()


def test_runs_of_many_threads_share_workers():
    loss = layers()
    found = []

    def run(machine):
        found.extend(machine.run_sync(FEEDS)[loss].value for _ in range(5))

    with ag.ActorMachine([loss], workers=3) as machine:
        threads = [threading.Thread(target=run, args=(machine,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 20
    assert len({value.tobytes() for value in found}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_after_fork_computes_the_same(expected):
    loss = layers()
    with ag.TapeMachine([loss], workers=2) as machine:
        machine.run_sync(FEEDS, backward=True)
        child = os.fork()
        if not child:
            run = machine.run_sync(FEEDS, backward=True)
            same = map(np.array_equal, values(run, loss), expected)
            os._exit(0 if all(same) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
