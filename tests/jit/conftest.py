"""What tests of compiled steps share."""

import pytest

from actorgraph.jit import groups
from actorgraph.jit.compiler import COMPILER


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory):
    """Machine code goes to a directory of the module's own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
    assert [one.error for one in COMPILER._known.values() if one.error is not None] == []


@pytest.fixture
def eager(monkeypatch):
    """Fuse whatever can be, of any size."""
    monkeypatch.setattr(groups, "FEWEST", 1)
