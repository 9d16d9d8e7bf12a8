"""What tests of loops that are made side by side share."""

import pytest

from actorgraph.control import layers


@pytest.fixture
def made(monkeypatch):
    """How many layers were made side by side, each time; blocks may be as short as they like."""
    monkeypatch.setattr(layers, "_LEAST_US", 0.01)
    found, tiles = [], layers._tiles

    def noted(layers, cuts):
        found.append(len(layers))
        return tiles(layers, cuts)

    monkeypatch.setattr(layers, "_tiles", noted)
    return found
