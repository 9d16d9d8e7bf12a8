"""What the tests of machines share."""

import threading

import pytest

import actorgraph as ag
from actorgraph.lower import fusion
from tests.machines._faults import new_gate

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none"}, id="actor per node"),
    pytest.param(ag.ActorMachine, {"workers": 2}, id="actor"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def passing():
    """Give the gate that runs have to pass, which is open in the end."""
    found = new_gate()
    yield found
    found.open(1000)


PASSING = ("actorgraph-collector", "actorgraph-blas", "actorgraph compiler")
"""They end by themselves; the first closes a machine that some test before has dropped."""


def new_threads(before):
    """Return the threads of the library that are not among those of `before`."""
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        if thread.name in PASSING:
            thread.join(20)
    return [one for one in new if one.is_alive() and one.name.startswith("actorgraph")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every test has to close its machines; then no thread of the library remains."""
    before = set(threading.enumerate())
    yield
    left = new_threads(before)
    assert not left, f"threads are left: {left}"


@pytest.fixture
def every_turn_is_worth_a_worker(monkeypatch):
    """Have even the smallest op offered to idle workers, so that threads really meet."""
    monkeypatch.setattr(fusion, "HEAVY_US", 0.0)
