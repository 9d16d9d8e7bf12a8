"""What the tests of machines share."""

import threading

import pytest

from actorgraph.lower import fusion


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every test has to close its machines; then no thread of the library remains."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    left = [thread for thread in left if thread.name.startswith("actorgraph")]
    assert not left, f"threads are left: {left}"


@pytest.fixture
def every_turn_is_worth_a_worker(monkeypatch):
    """Have even the smallest op offered to idle workers, so that threads really meet."""
    monkeypatch.setattr(fusion, "HEAVY_US", 0.0)
