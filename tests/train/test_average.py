"""A moving average of weights is its formula, goes on after a stop, and gives weights back."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from tests.train._cases import loader_of, state_of, trainer_of


class Note(ag.train.Callback):
    def __init__(self):
        self.weights = []

    def on_step(self, trainer):
        self.weights.append(np.array(trainer.model[0].weight.array))


def test_the_average_is_its_formula_and_stays_where_asked():
    note = Note()
    trainer = trainer_of(callbacks=[note, ag.train.EMA(0.9, keep=True)])
    trainer.fit(loader_of(), epochs=2)
    wanted = note.weights[0].astype("float64")
    for weight in note.weights[1:]:
        wanted = 0.9 * wanted + 0.1 * weight
    np.testing.assert_allclose(trainer.model[0].weight.value, wanted, rtol=1e-5)


def test_averages_apply_for_a_while_and_to_their_own_model_only():
    average = ag.train.EMA(0.9)
    trainer = trainer_of(callbacks=[average])
    trainer.fit(loader_of(), epochs=1)
    before = state_of(trainer)
    with average.applied(trainer.model):
        assert state_of(trainer) != before
    assert state_of(trainer) == before
    with pytest.raises(GraphError, match="averages are of other parameters; they differ in 0.bias"):
        average.apply(ag.nn.Sequential())


def test_averages_go_on_with_the_same_bits(tmp_path):
    def parts(path):
        return [ag.train.EMA(0.9, keep=True), ag.train.Checkpoint(path)]

    whole = trainer_of(callbacks=parts(tmp_path / "whole"))
    whole.fit(loader_of(), epochs=3)
    trainer_of(callbacks=[ag.train.EMA(0.9), parts(tmp_path / "two")[1]]).fit(loader_of(), epochs=2)
    resumed = trainer_of(callbacks=parts(tmp_path / "two"))
    resumed.fit(loader_of(), epochs=3, resume=tmp_path / "two")
    assert state_of(resumed) == state_of(whole)
