"""Callbacks: stops, files, rates; and that what was saved goes on with the same bits."""

import csv
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from tests.train._cases import arrays, loader_of, network, state_of, trainer_of

ROOT = Path(__file__).parents[2]
FIGURES = ["accuracy", "f1", "perplexity"]
SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"


def test_early_stopping_bears_its_patience_and_restores_the_best():
    stopping = ag.train.EarlyStopping("val_loss", patience=2, restore_best=True)
    trainer = trainer_of(solver=ag.solvers.SGD(lr=0.5), callbacks=[stopping])
    history = trainer.fit(loader_of(), epochs=60, validation=arrays(40, seed=1))
    losses = history["val_loss"]
    best = int(np.argmin(losses))
    assert len(losses) == best + 1 + 3 < 60
    assert trainer.evaluate(arrays(40, seed=1))["loss"] == losses[best]


@pytest.mark.parametrize(("monitor", "mode"), [("val_accuracy", "max"), ("val_loss", "min")])
def test_the_direction_follows_from_the_name(monitor, mode):
    assert ag.train.EarlyStopping(monitor)._best.mode == mode


def test_a_figure_that_is_not_there_is_named():
    trainer = trainer_of(callbacks=[ag.train.EarlyStopping("val_los")])
    with pytest.raises(GraphError, match="no figure 'val_los' to watch; did you mean 'val_loss'"):
        trainer.fit(loader_of(), epochs=1, validation=arrays())


def test_rates_of_epochs_and_of_plateaus_are_set_and_recorded():
    rate = ag.train.LearningRate(lambda epoch: 0.1 / 2**epoch)
    history = trainer_of(callbacks=[rate]).fit(loader_of(), epochs=3)
    assert history["lr"] == [0.1, 0.05, 0.025]
    plateau = ag.solvers.schedules.plateau(1e-9, factor=0.5, patience=0, threshold=0.5)
    trainer = trainer_of(solver=ag.solvers.SGD(lr=plateau))
    assert trainer.fit(loader_of(), epochs=3)["lr"] == [1e-9, 5e-10, 2.5e-10]


def test_csv_has_a_row_for_each_epoch(tmp_path):
    table = tmp_path / "history.csv"
    trainer = trainer_of(metrics=["accuracy", "confusion"], callbacks=[ag.train.CSV(table)])
    history = trainer.fit(loader_of(), epochs=2, validation=arrays())
    rows = [*csv.DictReader(table.read_text().splitlines())]
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert [float(row["val_accuracy"]) for row in rows] == history["val_accuracy"]
    assert "confusion" not in rows[0]


def test_tensorboard_gets_the_figures(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX import SummaryWriter

    told = []

    class Recording(SummaryWriter):
        def add_scalar(self, tag, value, step):
            told.append((tag, step))
            super().add_scalar(tag, value, step)

    board = ag.train.TensorBoard(tmp_path)
    board._make = Recording
    trainer_of(callbacks=[board]).fit(loader_of(), epochs=1, validation=arrays())
    assert {("training/loss", 5), ("validation/loss", 5), ("training/lr", 5)} <= set(told)
    assert [*tmp_path.glob("events.*")]


def test_tensorboard_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(GraphError, match=r"pip install 'actorgraph\[tensorboard\]'"):
        ag.train.TensorBoard(tmp_path)


def test_the_best_and_the_last_checkpoint_are_kept(tmp_path):
    saving = ag.train.Checkpoint(tmp_path, monitor="val_loss", keep=2)
    trainer = trainer_of(solver=ag.solvers.SGD(lr=2.0), callbacks=[saving])
    losses = trainer.fit(loader_of(), epochs=6, validation=arrays(40, seed=1))["val_loss"]
    assert len([*(tmp_path / "last").iterdir()]) == 2
    best = network()
    assert ag.io.load(tmp_path / "best", model=best)["epoch"] == int(np.argmin(losses)) + 1
    assert trainer_of(best).evaluate(arrays(40, seed=1))["loss"] == min(losses)


def resumed_bits(path, *, stop_after):
    """Train until a step, and go on in another trainer from what was saved."""

    class Stop(ag.train.Callback):
        def on_step(self, trainer):
            if trainer.step == stop_after:
                raise KeyboardInterrupt

    def parts():
        plateau = ag.solvers.schedules.plateau(0.02, patience=0)
        stopping = ag.train.EarlyStopping("loss", patience=3)
        saving = ag.train.Checkpoint(path, every_steps=3)
        callbacks, solver = [stopping, saving], ag.solvers.Adam(lr=plateau)
        return trainer_of(solver=solver, callbacks=callbacks, metrics=FIGURES)

    trainer = parts()
    trainer.callbacks.append(Stop())
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(loader_of(), epochs=4)
    trainer = parts()
    history = trainer.fit(loader_of(), epochs=4, resume=path)
    return state_of(trainer), trainer.step, [history[name] for name in ("loss", "lr", *FIGURES)]


@pytest.mark.parametrize("stop_after", [1, 4, 5, 11])
def test_what_was_interrupted_goes_on_with_the_same_bits(tmp_path, stop_after):
    plateau = ag.solvers.schedules.plateau(0.02, patience=0)
    whole = trainer_of(solver=ag.solvers.Adam(lr=plateau), metrics=FIGURES)
    history = whole.fit(loader_of(), epochs=4, resume=tmp_path / "nothing")
    wanted = state_of(whole), 20, [history[name] for name in ("loss", "lr", *FIGURES)]
    assert resumed_bits(tmp_path, stop_after=stop_after) == wanted


@pytest.mark.parametrize("stop_after", [5, 12])
def test_early_stopping_ends_alike_where_it_goes_on_from_a_checkpoint(tmp_path, stop_after):
    class Interrupt(ag.train.Callback):
        def on_step(self, trainer):
            if trainer.step == stop_after:
                raise KeyboardInterrupt

    def parts(*more):
        # The loss falls, so the first epoch is the best, and the third one too many.
        stopping = ag.train.EarlyStopping("loss", mode="max", patience=1, restore_best=True)
        return trainer_of(callbacks=[stopping, *more, ag.train.Checkpoint(tmp_path)])

    whole = parts()
    whole.fit(loader_of(), epochs=9)
    assert whole.epoch == 3
    again = parts()
    again.fit(loader_of(), epochs=9, resume=tmp_path)
    assert (again.epoch, state_of(again)) == (3, state_of(whole))
    shutil.rmtree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        parts(Interrupt()).fit(loader_of(), epochs=9)
    resumed = parts()
    resumed.fit(loader_of(), epochs=9, resume=tmp_path)
    assert (resumed.epoch, state_of(resumed)) == (3, state_of(whole))
    resumed.fit(loader_of(), epochs=1)
    assert resumed.epoch == 4  # another training


def test_a_callback_of_a_moment_that_there_is_not_is_refused():
    with pytest.raises(GraphError, match=r"Late.on_epoch_end would never be called.*'on_epoch'"):

        class Late(ag.train.Callback):
            def on_epoch_end(self, trainer):
                pass


CHILD = """
import sys
import actorgraph as ag
from tests.train._cases import loader_of, trainer_of

class Say(ag.train.Callback):
    def on_step(self, trainer):
        print(trainer.step, flush=True)

trainer = trainer_of(callbacks=[Say(), ag.train.Checkpoint(sys.argv[1], every_steps=2)])
trainer.fit(loader_of(workers=1), epochs=8, resume=sys.argv[1])
"""


@pytest.mark.soak
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGKILL")
def test_a_training_that_is_killed_at_any_moment_resumes_bitwise(tmp_path):
    whole = trainer_of()
    whole.fit(loader_of(), epochs=8)
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)) if SOAK else 5)
    kills, path = 0, tmp_path / "0"
    while kills < (50 if SOAK else 2):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as child:
            for _ in range(int(rng.integers(1, 12))):
                child.stdout.readline()
            for _ in range(int(rng.integers(0, 200_000))):  # some part of a step
                pass
            child.send_signal(signal.SIGKILL)
            kills += child.wait(timeout=30) == -signal.SIGKILL
        if child.returncode == 0:
            assert_ended_like(whole, path)
            path = tmp_path / str(kills)
    resumed = trainer_of(callbacks=[ag.train.Checkpoint(path)])
    resumed.fit(loader_of(), epochs=8, resume=path)
    assert state_of(resumed) == state_of(whole)


def assert_ended_like(whole, path):
    ended = trainer_of()
    assert ag.io.load(path / "last", model=ended.model)["step"] == whole.step
    assert state_of(ended) == state_of(whole)
