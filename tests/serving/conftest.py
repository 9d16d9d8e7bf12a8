"""What the tests of serving share."""

import pytest

from tests.machines.conftest import anyio_backend, no_thread_is_left
from tests.serving._models import new_gate

__all__ = ["anyio_backend", "no_thread_is_left"]


@pytest.fixture
def gate():
    """Give the gate that each run has to pass."""
    return new_gate()
