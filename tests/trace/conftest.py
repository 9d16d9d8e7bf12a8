"""What the tests of tracing share: small machines of every kind."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import instrument


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def nobody_listens_afterwards():
    yield
    assert instrument.listening == ()


class Model:
    """x -> tanh(x @ W) -> two branches -> loss, and feeds."""

    def __init__(self):
        self.graph = g = ag.Graph("model")
        self.x = g.input("x", shape=("batch", 3))
        self.W = g.parameter("W", np.full((3, 3), 0.1, "float32"))
        h = np.tanh(self.x @ self.W).named("h")
        self.loss = (h.sum().named("left") * h.mean().named("right")).named("loss")
        self.feeds = {"x": np.ones((2, 3), "float32")}

    def actors(self, **options):
        return ag.ActorMachine([self.loss], **{"fuse": "none", "workers": 2, **options})


@pytest.fixture
def model():
    return Model()
