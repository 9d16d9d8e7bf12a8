"""`Trainer`: epochs of steps, validation, and callbacks.

Guarantees:

- a step is atomic for parameters, buffers and the solver;
- callbacks run between steps, in the thread of the caller;
- a resumed training has the same bits: the position in the loader is that of the last complete
  step, and random ops draw by the number of the step.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from math import isfinite
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from actorgraph.autodiff.trees import unflatten
from actorgraph.data import ArrayDataset, DataLoader
from actorgraph.errors import GraphError, GraphTypeError, NodeError, shown
from actorgraph.io import load
from actorgraph.keywords import answering
from actorgraph.machines import ActorMachine
from actorgraph.nn import Module
from actorgraph.nn._arrays import fed
from actorgraph.options import positive
from actorgraph.pipeline import Pipeline
from actorgraph.store import copies, take
from actorgraph.train.callbacks import Callback, callbacks_of
from actorgraph.train.history import History
from actorgraph.train.metrics import Metric, metrics_of
from actorgraph.train.programs import BatchProgram, BatchPrograms, NonFiniteLoss, TrainingBatch

if TYPE_CHECKING:
    from actorgraph.machines import Run

_ROWS = 256
"""Rows of a batch made from plain arrays."""

Work = Generator[tuple[BatchProgram, dict[str, Any], int], "Run", Any]
"""Yields programs to run and is sent the runs, so that one text serves threads and event loops."""


@answering
@final
class Trainer:
    """Trains a module on the batches of a loader.

    A batch is a tuple ``(*inputs, target)``: the model is called on the inputs, the loss on the
    model's result and the target.  A step is compiled if machine and solver support that
    (`Machine.compile_step`).  Batches of other dtypes or dims, except for the number of rows, build
    another graph, once.

    Parameters
    ----------
    model : Module
    loss : callable
        ``(prediction, target) -> scalar`` on nodes, such as ``ag.ops.cross_entropy``.
    solver : AbstractSolver or LBFGS
    metrics : iterable
        Names ("accuracy", "top_5", "f1", "mse", "mae", "confusion", "perplexity"),
        `ag.train.Metric`, or functions ``(prediction, target)`` on arrays, which are averaged over
        rows.
    machine : callable
        ``(outputs, wrt=parameters) -> machine``: a class of machines, or a `functools.partial` of
        one with options.  An `ag.pipeline.Pipeline` computes the training steps, each batch cut
        along its rows; `evaluate` and `predict` do not use stages.
    stages : int, optional
        Train by a pipeline of so many stages, cut by cost, with twice as many microbatches; for
        other options use ``machine=partial(ag.pipeline.Pipeline, stages=2, ...)``.
    callbacks : iterable of Callback, optional
        Default a progress bar if standard error is a terminal.

    Attributes
    ----------
    step, epoch : int
        The number of completed ones.
    epochs : int
        The number of epochs at the end of the training.
    steps_per_epoch : int or None
        None if the loader has no length.
    history : History

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.nn.manual_seed(0)
    >>> points, labels = ag.data.moons(200)
    >>> loader = ag.data.DataLoader(ag.data.ArrayDataset(points, labels), 20, shuffle=True)
    >>> net = ag.nn.Sequential(ag.nn.Linear(2, 16), ag.nn.Tanh(), ag.nn.Linear(16, 2))
    >>> solver = ag.solvers.Adam(lr=0.03)
    >>> trainer = ag.train.Trainer(net, ag.ops.cross_entropy, solver, metrics=["accuracy"])
    >>> history = trainer.fit(loader, epochs=20, validation=(points, labels))
    >>> history["val_accuracy"][-1] > 0.9
    True
    """

    def __init__(
        self, model: Module, loss: Callable[[Any, Any], Any], solver: Any, *,
        metrics: Iterable[Any] = (), machine: Callable[..., Any] = ActorMachine,
        stages: int | None = None, callbacks: Iterable[Callback] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(model, Module):
            raise GraphTypeError(f"a trainer needs an ag.nn.Module, got {shown(model)}")
        if not callable(loss):
            raise GraphTypeError(
                f"the loss has to be a function of two nodes, such as ag.ops.mse_loss, got "
                f"{shown(loss)}"
            )
        if not hasattr(solver, "step") or not hasattr(solver, "state_dict"):
            raise GraphTypeError(
                f"expected a solver, such as ag.solvers.Adam(1e-3), got {shown(solver)}"
            )
        if not callable(machine):
            raise GraphTypeError(
                f"machine= has to make machines, as ag.TapeMachine does, got {shown(machine)}"
            )
        if stages is not None:
            if machine is not ActorMachine:
                raise GraphTypeError(
                    f"stages={stages!r} makes a pipeline, so leave machine={shown(machine)} out; "
                    f"for its options write machine=partial(ag.pipeline.Pipeline, "
                    f"stages={stages!r}, ...)"
                )
            both = 2 * positive("stages", stages)
            machine = partial(Pipeline, stages=stages, microbatches=both)
        self.model, self.loss, self.solver = model, loss, solver
        self.metrics: list[Metric] = metrics_of(metrics)
        self.callbacks = callbacks_of(callbacks)
        self.history = History()
        self.step = self.epoch = self.epochs = 0
        self.steps_per_epoch: int | None = None
        self._programs = BatchPrograms(model, loss, solver, machine)
        self._stopping = self._interrupted = False
        self._totals = _Totals(self.metrics)
        self._loader: Any = None
        self._place: Any = None  # the loader's state after the last complete step

    # -- training -------------------------------------------------------------------------------

    def fit(
        self, loader: Iterable[Any], epochs: int, *, validation: Any = None, resume: Any = None,
    ) -> History:  # fmt: skip
        """Train for some epochs and return the history.

        After Ctrl-C the current step is completed, callbacks are called (`Checkpoint` saves), and
        `KeyboardInterrupt` is raised.  A second Ctrl-C raises it at once.

        Parameters
        ----------
        loader : iterable of batches
            Iterated once for each epoch.
        epochs : int
            The number of further epochs; with `resume`, the total number.
        validation : iterable of batches, or tuple of arrays, optional
            Evaluated after each epoch.
        resume : path-like, optional
            The directory of a `Checkpoint` callback: resumes from its last state, also in the
            middle of an epoch.  An empty directory starts from the beginning.

        Raises
        ------
        GraphError
            The loss is NaN or infinite (the text names the layer), or the loader gave no batch.
        """
        with self._interrupts():
            return _driven(self._fit(loader, epochs, validation, resume))  # type: ignore[no-any-return]

    async def afit(
        self, loader: Iterable[Any], epochs: int, *, validation: Any = None, resume: Any = None,
    ) -> History:  # fmt: skip
        """Train as `fit` does, without blocking the event loop while a step runs.

        Batches are made in the loop's thread, unless the loader has workers.  Cancelling waits for
        the running operations to end, and calls the callbacks.
        """
        work = self._fit(loader, epochs, validation, resume)
        history: History = await _awaited(work, blocking=False)
        return history

    def stop(self) -> None:
        """End the training after the current step or epoch; for callbacks."""
        self._stopping = True

    def figures(self) -> dict[str, Any]:
        """Return the loss and the metrics of the epoch so far."""
        return self._totals.figures()

    def _fit(self, loader: Any, epochs: int, validation: Any, resume: Any) -> Work:
        if not hasattr(loader, "__iter__"):
            raise GraphTypeError(
                f"a loader has to be iterable over batches, got {shown(loader)}; "
                "ag.data.DataLoader(dataset, 32) is one"
            )
        positive("epochs", epochs)
        self._loader, self._place = loader, _state_of(loader)
        self._programs.refresh()
        self._stopping, self._totals = False, _Totals(self.metrics)
        if resume is not None:
            self.epochs = epochs
            self._resume(Path(resume))
        else:
            self.epochs = self.epoch + epochs
        self.steps_per_epoch = len(loader) if hasattr(loader, "__len__") else None
        try:
            self._tell("on_begin")
            while self.epoch < self.epochs and not self._stopping:
                yield from self._one_epoch(validation)
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, or the task was cancelled
                self._tell("on_interrupt")
            raise
        finally:
            self._tell("on_end")
        return self.history

    def _one_epoch(self, validation: Any) -> Work:
        started, before = perf_counter(), self.step
        whole = True
        for given in self._loader:
            batch = TrainingBatch(given)
            program = self._programs.training(batch, predicts=bool(self.metrics))
            run = yield from self._stepped(program, batch)
            self._totals.take(program, run, batch)
            self.step += 1
            self._place = _state_of(self._loader)
            self._tell("on_step")
            if self._interrupted:
                raise KeyboardInterrupt
            if self._stopping:
                whole = False
                break
        if self.step == before and self._place == _state_of(self._loader):
            raise GraphError(
                f"the loader gave no batch in epoch {self.epoch + 1}; an iterator is used up after "
                "one epoch: give a DataLoader, or a list of batches"
            )
        self._place = _state_of(self._loader) if whole else self._place
        figures, self._totals = self.figures(), _Totals(self.metrics)
        if validation is not None:
            validated = yield from self._evaluation(_loader_of(validation), self.metrics)
            figures |= {f"val_{name}": value for name, value in validated.items()}
        rate = self.solver.lr
        if hasattr(rate, "tell"):  # a plateau
            rate.tell(figures.get("val_loss", figures["loss"]))
        figures |= {"lr": self._rate(), "seconds": perf_counter() - started}
        self.history.add(figures)
        self.epoch += 1
        self._tell("on_epoch")

    def _stepped(self, program: BatchProgram, batch: TrainingBatch) -> Work:
        """Make a step, or change nothing; if the loss is not finite, find the layer that is."""
        buffers = [(one, one.array) for one in self._programs.buffers]
        try:
            return (yield program, fed(batch.leaves), self.step)
        except BaseException as error:
            # The run may have committed its buffers; the update has not been made.
            take(copies([(one, array) for one, array in buffers if one.array is not array]))
            if not isinstance(error, NonFiniteLoss):
                raise
            problem = error.args[0]
        fed_in = any(one.dtype.kind == "f" and np.isnan(one).any() for one in batch.leaves)
        culprit = "; the batch itself has a NaN" if fed_in else ""
        for kind in ("nan", "inf"):
            watching = self._programs.watching(batch, kind)
            try:
                yield watching, fed(batch.leaves), self.step
            except NodeError as error:
                layer = error.node.rpartition(".")[0]
                where = f"layer {layer!r}, " if layer else ""
                culprit += f"; the first {kind} is that of {where}node {error.node!r} ({error.op})"
                break
        bad = [name for name, one in self.model.named_parameters()
               if not np.isfinite(one.present()).all()]  # fmt: skip
        since = f"; not finite since an earlier step: {', '.join(bad)}" if bad else ""
        raise GraphError(
            f"{problem} in step {self.step} (epoch {self.epoch + 1}){culprit}{since}. The step has "
            "changed nothing. Lower the learning rate, clip gradients (clip_norm= of the solver), "
            "or leave such steps out (skip_nonfinite=True)"
        )

    def _rate(self) -> float:
        rate = getattr(self.solver, "rate", self.solver.lr)
        return float(rate)

    def _tell(self, moment: str) -> None:
        for callback in self.callbacks:
            getattr(callback, moment)(self)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Have the first Ctrl-C wait for the end of a step, unless there is another handler."""
        self._interrupted = False
        plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if not plain or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, number: int, frame: Any) -> None:
        if self._interrupted:
            signal.default_int_handler(number, frame)
        self._interrupted = True

    # -- state ----------------------------------------------------------------------------------

    def parts(self) -> dict[str, Any]:
        """Return the arguments of `ag.io.save` to resume after the last complete step."""
        states = {name: callback.state_dict() for name, callback in self._stateful().items()}
        rate, place = self.solver.lr, self._place
        return {
            "model": self.model,
            "solver": self.solver,
            "loader": None
            if place is None
            else SimpleNamespace(state_dict=partial(deepcopy, place)),
            "step": self.step,
            "epoch": self.epoch,
            "history": self.history.state_dict(),
            "totals": self._totals.state_dict(),
            "callbacks": states,
            "rate": rate.state_dict() if hasattr(rate, "state_dict") else None,
        }

    def _stateful(self) -> dict[str, Any]:
        """Return the callbacks that have a state, by class name and number."""
        found: dict[str, Any] = {}
        for callback in self.callbacks:
            if hasattr(callback, "state_dict"):
                kind = type(callback).__name__
                found[f"{kind} {sum(name.startswith(f'{kind} ') for name in found)}"] = callback
        return found

    def _resume(self, path: Path) -> None:
        last = path / "last"
        if not last.is_dir() or not any(last.glob("checkpoint-*")):
            return
        stateful = self._loader if self._place is not None else None
        state = load(last, model=self.model, solver=self.solver, loader=stateful)
        self._place = _state_of(self._loader)
        self.step, self.epoch = state["step"], state["epoch"]
        self.history.load_state_dict(state["history"])
        self._totals.load_state_dict(state["totals"])
        for name, callback in self._stateful().items():
            if name in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][name])
        if state["rate"] is not None:
            self.solver.lr.load_state_dict(state["rate"])

    # -- evaluation -----------------------------------------------------------------------------

    def evaluate(self, data: Any) -> dict[str, Any]:
        """Return the loss and the metrics of a loader's batches, or of a tuple of arrays."""
        self._programs.refresh()
        figures: dict[str, Any] = _driven(self._evaluation(_loader_of(data), self.metrics))
        return figures

    def _evaluation(self, loader: Iterable[Any], metrics: list[Metric]) -> Work:
        totals = _Totals(metrics)
        for number, given in enumerate(loader):
            batch = TrainingBatch(given)
            program = self._programs.evaluating(batch)
            run = yield program, fed(batch.leaves), number
            totals.take(program, run, batch)
        if not totals.rows:
            raise GraphError("there was no batch to evaluate")
        return totals.figures()

    def predict(self, data: Any, batch_size: int = _ROWS) -> Any:
        """Return the predictions of the model for all rows.

        Parameters
        ----------
        data : array, or iterable of batches
            Inputs; the last entry of a tuple is a target, which is not used.
        batch_size : int
            Rows at once, if `data` is an array.
        """
        self._programs.refresh()
        if isinstance(data, np.ndarray):
            data = DataLoader(data, batch_size)
        return _driven(self._predictions(data))

    def _predictions(self, loader: Iterable[Any]) -> Work:
        batches: list[list[Any]] = []
        program = None
        for number, given in enumerate(loader):
            inputs = tuple(given[:-1]) if isinstance(given, (tuple, list)) else (given,)
            program, feeds = self._programs.predicting(inputs)
            run = yield program, feeds, number
            batches.append([run[node].value for node in program.prediction])
        if program is None:
            raise GraphError("there was no batch to predict")
        joined = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
        return unflatten(program.result, joined)

    def __repr__(self) -> str:
        return f"<Trainer of {type(self.model).__name__}, {self.epoch} epochs done>"


class _Totals:
    """The figures of an epoch so far."""

    def __init__(self, metrics: list[Metric]) -> None:
        # Copies: a callback may evaluate in the middle of an epoch.
        self._metrics, self._loss, self.rows = deepcopy(metrics), 0.0, 0
        for metric in self._metrics:
            metric.reset()

    def take(self, program: BatchProgram, run: Run, batch: TrainingBatch) -> None:
        """Add the results of a batch, unless its loss is not finite: that step was skipped."""
        loss = float(run[program.loss].value)
        if not isfinite(loss):
            return
        self._loss, self.rows = self._loss + loss * batch.rows, self.rows + batch.rows
        if self._metrics:
            prediction, target = program.predicted(run), batch.target
            for metric in self._metrics:
                metric.update(prediction, target)

    def figures(self) -> dict[str, Any]:
        """Return the figures by name; the loss is the mean over rows."""
        loss = self._loss / self.rows if self.rows else float("nan")
        return {"loss": loss, **{one.name: one.compute() for one in self._metrics}}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        metrics = {one.name: one.state_dict() for one in self._metrics}
        return {"loss": self._loss, "rows": self.rows, "metrics": metrics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self._loss, self.rows = state["loss"], state["rows"]
        for metric in self._metrics:
            if metric.name in state["metrics"]:
                metric.load_state_dict(state["metrics"][metric.name])


def _state_of(loader: Any) -> Any:
    return loader.state_dict() if hasattr(loader, "state_dict") else None


def _loader_of(given: Any) -> Iterable[Any]:
    """Return a loader: the given one, or one of a tuple of arrays."""
    if isinstance(given, tuple) and all(isinstance(one, np.ndarray) for one in given):
        return DataLoader(ArrayDataset(*given), _ROWS)
    if not hasattr(given, "__iter__") or isinstance(given, (Mapping, np.ndarray)):
        raise GraphTypeError(f"expected a loader, or a tuple of arrays, got {shown(given)}")
    return given  # type: ignore[no-any-return]


def _driven(work: Work) -> Any:
    """Make the runs of `work`, blocking, and return its result."""
    try:
        _awaited(work, blocking=True).send(None)
    except StopIteration as ended:
        return ended.value


async def _awaited(work: Work, *, blocking: bool) -> Any:
    """Make the runs of `work`, and return its result."""
    go_on: Callable[[], Any] = partial(next, work)
    try:
        while True:
            program, feeds, number = go_on()
            try:
                if blocking:
                    run = program.now(feeds, run_number=number)
                else:
                    run = await program.later(feeds, run_number=number)
                go_on = partial(work.send, run)
            except BaseException as error:  # noqa: BLE001 - raised inside `work`
                go_on = partial(work.throw, error)
    except StopIteration as ended:
        return ended.value
