"""`BatchPrograms`: a model's machines for batches, one for each kind of batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, shown
from actorgraph.machines import ActorMachine, TapeMachine
from actorgraph.nn import Module
from actorgraph.nn._arrays import fed, held, made_for
from actorgraph.node import Node
from actorgraph.parameters import Buffer
from actorgraph.pipeline import Pipeline
from actorgraph.solvers import LBFGS, AbstractSolver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorgraph.machines import Run


class NonFiniteLoss(GraphError):
    """The loss of a step is NaN or infinite; the step has changed nothing."""


@final
class TrainingBatch:
    """Inputs and target of a batch, as leaves of a tree.

    Parameters
    ----------
    given : tuple
        ``(*inputs, target)``, each an array or a tree of arrays.
    """

    def __init__(self, given: Any) -> None:
        if not isinstance(given, (tuple, list)) or len(given) < 2:
            raise GraphError(
                f"a batch has to be a tuple (*inputs, target) of arrays, got {shown(given)}; "
                "ag.data.DataLoader(ag.data.ArrayDataset(x, y), 32) gives batches of arrays, a "
                "loader's collate= or transform= others"
            )
        self.leaves, self.structure = _arrays(tuple(given))
        sizes = [len(leaf) for leaf in self.leaves if leaf.ndim]
        self.rows = sizes[0] if sizes else 1

    @property
    def target(self) -> Any:
        """The second argument of the loss."""
        return unflatten(self.structure, self.leaves)[-1]


def _arrays(tree: Any) -> tuple[list[Any], Structure]:
    leaves, structure = flatten(tree)
    return [np.asarray(leaf) for leaf in leaves], structure


class BatchProgram(NamedTuple):
    """A machine's function of batches.

    Attributes
    ----------
    now, later : callable
        ``(feeds, run_number=) -> run``, blocking, and as a coroutine function.
    loss : Node
        Without a loss, the first node of the prediction.
    prediction : list of Node
    result : Structure
        The structure of the prediction.
    """

    now: Callable[..., Run]
    later: Callable[..., Awaitable[Run]]
    loss: Node
    prediction: list[Node]
    result: Structure

    def predicted(self, run: Run) -> Any:
        """Return the prediction of a run, as arrays."""
        return unflatten(self.result, [run[node].value for node in self.prediction])


@final
class BatchPrograms:
    """Programs of a model, a loss and a solver.

    Parameters
    ----------
    model : Module
    loss : callable
        ``(prediction, target) -> scalar``, on nodes.
    solver : AbstractSolver or LBFGS
    machine : callable
        ``(outputs, wrt=parameters) -> Machine``; a pipeline is used for training steps only.

    Attributes
    ----------
    buffers : list of Buffer
        The buffers of the model.
    """

    def __init__(self, model: Module, loss: Any, solver: Any, machine: Any) -> None:
        self._model, self._loss, self._solver, self._machine = model, loss, solver, machine
        self._staged = getattr(machine, "func", machine) is Pipeline
        self._forward = partial(ActorMachine if self._staged else machine, wrt=[])
        self._known: dict[Any, Any] = {}
        self._held: tuple[int, ...] = ()
        self.buffers: list[Buffer] = []

    def refresh(self) -> None:
        """Forget all programs if the model has other parameters now."""
        if held(self._model) != self._held:
            self._known.clear()
            self._update_held()

    def _update_held(self) -> None:
        self._held, self.buffers = held(self._model), self._model.buffers()

    def training(self, batch: TrainingBatch, *, predicts: bool) -> BatchProgram:
        """Return the program of a training step; with `predicts` it also returns predictions."""
        return self._made(batch.leaves, batch.structure, f"training {predicts}")

    def evaluating(self, batch: TrainingBatch) -> BatchProgram:
        """Return the program of loss and prediction."""
        return self._made(batch.leaves, batch.structure, "evaluating")

    def predicting(self, inputs: tuple[Any, ...]) -> tuple[BatchProgram, dict[str, Any]]:
        """Return the program of predictions, and its feeds for these inputs."""
        leaves, structure = _arrays(inputs)
        return self._made(leaves, structure, "predicting"), fed(leaves)

    def watching(self, batch: TrainingBatch, kind: str) -> BatchProgram:
        """Return a program that fails at the first node of the loss that is "nan" or "inf"."""
        return self._made(batch.leaves, batch.structure, kind)

    def _made(self, leaves: list[Any], structure: Structure, kind: str) -> BatchProgram:
        make = partial(self._make, structure, kind)
        key = partial(tuple, (kind, structure))
        name = type(self._model).__name__.lower()
        program: BatchProgram = made_for(leaves, self._known, key, make, name)
        return program

    def _make(self, structure: Structure, kind: str, nodes: list[Node]) -> BatchProgram:
        parts = unflatten(structure, nodes)
        inputs, target = (parts, None) if kind == "predicting" else (parts[:-1], parts[-1])
        with _mode(self._model, training=kind not in ("evaluating", "predicting")):
            prediction, result = flatten(self._model(*inputs))
            wrong = [one for one in prediction if not isinstance(one, Node)]
            if wrong or not prediction:
                raise GraphTypeError(
                    f"{type(self._model).__name__}.forward returned "
                    f"{shown(wrong[0]) if wrong else 'nothing'}, expected nodes"
                )
            if kind == "predicting":
                machine = self._forward(prediction)
                return BatchProgram(
                    machine.run_sync, machine.run, prediction[0], prediction, result
                )
            loss = _scalar(self._loss(unflatten(result, prediction), target))
        self._update_held()  # the call may have made parameters
        outputs = [loss, *prediction]
        if kind == "evaluating":
            machine = self._forward(outputs)
            return BatchProgram(machine.run_sync, machine.run, loss, prediction, result)
        if kind in ("nan", "inf"):
            machine = TapeMachine([loss], wrt=[], watch=(kind,))
            return BatchProgram(machine.run_sync, machine.run, loss, [], result)
        step = self._step(outputs if kind == "training True" else [loss], nodes[0])
        return BatchProgram(*step, loss, prediction, result)

    def _step(self, outputs: Sequence[Node], fed_in: Node) -> tuple[Any, Any]:
        """Return the functions of a step, blocking and as a coroutine function."""
        loss, *others = dict.fromkeys(outputs)
        parameters = [node for node in loss.graph.parameters if node.dtype.kind in "fcV"]
        if self._staged:
            rows = fed_in.shape[0] if fed_in.ndim else None
            machine = self._machine(loss, parameters, outputs=others, split=str(rows))
        else:
            machine = self._machine([loss, *others], wrt=parameters)
        check = None if getattr(self._solver, "skip_nonfinite", False) else partial(_check, loss)
        if isinstance(self._solver, AbstractSolver):
            step = machine.compile_step(self._solver, check=check)
            return step, step.run
        return (
            partial(_stepped_now, machine, parameters, self._solver, check),
            partial(_stepped_later, machine, parameters, self._solver, check),
        )


def _stepped_now(
    machine: Any, parameters: Any, solver: Any, check: Any, feeds: Any, *, run_number: int
) -> Any:
    """Run, then update: for a foreign solver, or one that needs several runs."""
    options = {"backward": True, "run_number": run_number}
    run = machine.run_sync(feeds, **options)
    if check is not None:
        check(run)
    if not isinstance(solver, LBFGS):
        solver.step([run[node] for node in parameters])
        return run
    taken = [node.held for node in parameters]
    loss = next(iter(machine.outputs.values()))

    def closure() -> Any:
        run = machine.run_sync(feeds, **options)
        for node in parameters:
            node.held.grad = run[node].grad
        return run[loss].value

    solver.step(taken, closure)
    return run


async def _stepped_later(
    machine: Any, parameters: Any, solver: Any, check: Any, feeds: Any, *, run_number: int
) -> Any:
    if isinstance(solver, LBFGS):
        raise GraphError("L-BFGS blocks, for it runs several times a step; use fit, not afit")
    run = await machine.run(feeds, backward=True, run_number=run_number)
    if check is not None:
        check(run)
    solver.step([run[node] for node in parameters])
    return run


def _check(loss: Node, duals: Mapping[Any, Any] | Run) -> None:
    value = duals[loss].value
    if not isfinite(value):
        raise NonFiniteLoss(f"the loss is {value}")


def _scalar(loss: Any) -> Node:
    if not isinstance(loss, Node):
        raise GraphTypeError(f"the loss function has to return a node, got {shown(loss)}")
    if loss.ndim:
        raise ShapeError(
            f"the loss has dims {loss.shape}, expected a scalar; take its .mean() or .sum()"
        )
    return loss


@contextmanager
def _mode(model: Module, *, training: bool) -> Iterator[None]:
    """Set the mode of a model inside a ``with``, and restore each module's own after."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode
