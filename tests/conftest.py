"""What all tests share."""

import gc
import os

import pytest


@pytest.fixture(scope="module", autouse=True)
def older_objects_are_not_looked_at():
    """Keep what is there before a module's first test out of garbage collections.

    Some tests collect garbage again and again.  With 21,000 tests collected, and with Numba, that
    took 0.5 s a time and more, so that a test ran out of time on a machine under load, in the
    middle of whatever it did, and others failed for it.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()  # what comes after the tests may ask who refers to what, as hypothesis does


@pytest.fixture(scope="session", autouse=True)
def no_rates_of_this_machine(tmp_path_factory):
    """Predict by the default rates, whatever `actorgraph calibrate` has stored for the user."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
