"""A training holds as many bytes after its last steps as after its first."""

import gc
import tracemalloc
from functools import partial

import pytest

import actorgraph as ag
from actorgraph.devices import native
from tests._soak import SOAK
from tests.train._cases import loader_of, trainer_of

STEPS = 5000 if SOAK else 200

HISTORY_BYTES = 200
"""What the history grows by in an epoch, at most."""


class Live(ag.train.Callback):
    """Looks at live bytes after some steps, when all that is made once has been made."""

    def __init__(self, places):
        self.places, self.bytes = places, []

    def on_step(self, trainer):
        if trainer.step in self.places:
            gc.collect()
            self.bytes.append(tracemalloc.get_traced_memory()[0])


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine])
def test_live_bytes_are_constant_over_many_steps(kind):
    epochs = STEPS // 5
    live = Live({STEPS // 4, STEPS // 2, STEPS - 5})  # at the same place of an epoch
    tables = native.expected() is None and "wait"  # else they are written in the middle
    machine = partial(kind, native=tables)
    trainer = trainer_of(machine=machine, callbacks=[live], metrics=["accuracy"])
    tracemalloc.start()
    try:
        trainer.fit(loader_of(), epochs)
    finally:
        tracemalloc.stop()
    first, *later = live.bytes
    assert max(later) - first < HISTORY_BYTES * epochs + 5_000
