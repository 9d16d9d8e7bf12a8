"""The stand-in for CuPy in the place of CuPy, for tests that ask for a `world`."""

import sys
import threading

import pytest

import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices import products


@pytest.fixture
def world(request, monkeypatch):
    """CuPy, with streams that are late by a seed."""
    made = stand_in.World(getattr(request, "param", 0))
    monkeypatch.setattr(stand_in, "world", made)
    for name, module in stand_in.MODULES.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(products, "library", lambda version: stand_in.graphs.CuBLAS())
    monkeypatch.setattr(products, "_LARGE", 1024)
    yield made
    devices._known.pop("cuda:0", None)
    left = [thread.name for thread in threading.enumerate() if "cuda" in thread.name]
    assert left == []
