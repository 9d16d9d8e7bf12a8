"""What all tests share."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_rates_of_this_machine(tmp_path_factory):
    """Predict by the default rates, whatever `actorgraph calibrate` has stored for the user."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
