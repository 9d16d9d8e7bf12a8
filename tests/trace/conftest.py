"""What the tests of tracing share: small machines of every kind."""

from dataclasses import dataclass

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
    assert instrument.listening == set()


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


@pytest.fixture
def recorded(model):
    with model.actors() as machine, ag.trace.record() as t:
        for run in [machine.start(model.feeds, backward=True) for _ in range(12)]:
            run.result()
    return t


@dataclass
class Planned:
    """What a simulator would give to `Trace.predict`."""

    lane: object
    start: object
    end: object
    label: str


def pipelined(schedule="1f1b"):
    """Record a run of a pipeline of two stages and four microbatches, its simulation beside it."""
    g = ag.Graph("pipeline")
    h = g.input("x", shape=("batch", 4))
    for stage in range(2):
        with g.stage(stage):
            h = np.tanh(h @ g.parameter(f"W{stage}", np.eye(4, dtype="float32"))).named(f"h{stage}")
    with g.stage(1):
        loss = h.mean().named("loss")
    with ag.pipeline.Pipeline(loss, schedule=schedule, microbatches=4) as pipeline:
        pipeline.run_sync({"x": np.ones((8, 4), "float32")})
        with ag.trace.record() as t:
            pipeline.run_sync({"x": np.ones((8, 4), "float32")})
        t.predict(pipeline.simulate().timeline)
    return t
