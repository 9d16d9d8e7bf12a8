"""What the tests of this folder share."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def threads_are_kept_for_all(threads_are_kept):
    """Open and close machines cheaply; how threads come and go is tested elsewhere."""
