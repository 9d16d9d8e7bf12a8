"""What tests of compiled steps share."""

import pytest

from actorgraph.jit import groups


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory):
    """Machine code goes to a directory of the module's own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def eager(monkeypatch):
    """Fuse whatever can be, of any size."""
    monkeypatch.setattr(groups, "FEWEST", 1)
