"""`Pipeline`: training steps in microbatches, on one lane for each device of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from statistics import fmean as mean
from typing import Any, Literal, Unpack, final

from actorgraph.devices import Device
from actorgraph.errors import GraphError, GraphTypeError, ScheduleError, ShapeError
from actorgraph.graph import Node, as_nodes
from actorgraph.lower.cuts import Cut, fewest
from actorgraph.machines.base import Machine
from actorgraph.machines.batching import Batching
from actorgraph.machines.options import checked_devices
from actorgraph.machines.rows import Reduce
from actorgraph.options import choice, flag, positive, text
from actorgraph.pipeline.automatic import Choice, Chosen
from actorgraph.pipeline.batches import Microbatches
from actorgraph.pipeline.choosing import scheduled
from actorgraph.pipeline.devices import Stages
from actorgraph.pipeline.staged import StagedPlan, costs_of
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.model import Setting
from actorgraph.schedules.orders import Name
from actorgraph.schedules.simulation import Simulation, simulate


@final
class Pipeline(Machine):
    """Losses and gradients of batches, microbatch by microbatch, in the order of a schedule.

    Each device of the schedule is a lane: an actor that does the actions of its list in order,
    while the other lanes do theirs.  The result of a run does not depend on the schedule, on
    workers or on timing: its bits are those of the same microbatches run one after another, with
    gradients added in order.  It equals that of the whole batch up to rounding: sums and means over
    rows are joined, and values that depend on feeds alone, such as the sum of a mask, the number of
    valid targets or their weights, are computed for the whole batch when a run starts.  A loss that
    cannot be joined, such as the root of a mean, is refused with what to write instead.

    An op that combines rows that depend on parameters sees only the rows of its microbatch.  So
    batch norm normalises by the mean and variance of each microbatch, as in other pipelines, and
    updates its running statistics once for each, in order.  Random ops draw anew in each
    microbatch.

    If the next action of a run has to wait, a lane may start with a later run: so a stream fills
    the bubble at the end of a batch with the beginning of the next.  Each run reads parameters when
    it is admitted, so later runs in flight do not see updates made meanwhile.

    An asynchronous op runs on the event loop of the run's caller.  Its lane waits for it in this
    run, so the order of the list is kept, and other lanes go on.

    Parameters
    ----------
    loss : Node
        A float scalar.
    wrt : node, or list of nodes, optional
        What gradients are taken with respect to; default all parameters of the graph.
    stages : int or "auto", optional
        Number of devices.  Default the number of stages of ``with graph.stage(...)``.  If no node
        was placed, the first run cuts the graph by predicted cost and the bytes to send.
    schedule : str or Schedule
        A name (`pipeline.SCHEDULES`), ``"dynamic"``, or actions.  ``"dynamic"`` has no list: a lane
        does a backward action if one is ready, else the next forward action while it holds fewer
        microbatches than its credits, p - d for device d of p.
    microbatches : int or "auto", optional
        Number of parts of a batch; a `Schedule` has its own.  Those of stages, schedule and
        microbatches that are ``"auto"`` are chosen by the first run: it tries a pipeline on this
        batch for each number of microbatches worth trying, and simulates with the measured costs.
        If one core would be faster with the whole batch, a warning and `explain` say so.
    split : str
        The symbolic dim along which feeds are cut.  Terms of the loss without it count once.
    reduce : "mean" or "sum", optional
        What an op does that removes the dim in a way that is not known, such as one of your own.
    outputs : iterable of Node
        Further results of runs: concatenated along the dim, or joined as the loss is.
    chunks, extra_warmup : int, optional
        Options of named schedules, see `pipeline.schedule`.
    workers : int, optional
        Threads that may work at once; default one for each lane.
    max_in_flight : int
        Runs in flight at once; more wait.
    max_bytes : int or dict, optional
        The bytes that all runs in flight may allocate, on each device or by its name.  A run waits
        until the most that it can hold fits; one that never fits by the schedule runs one
        microbatch after another.
    training : bool
        False: runs compute forward actions only by default, as with ``wrt=[]``.  The schedule then
        needs no backward actions.
    seed, exact, jit, passes, watch
        As for machines.
    devices : iterable of str or Device
        Where the stages run: one for each device of the schedule, or one for all.  A stage with
        nodes placed by the user (`device`, `node.on`) runs there.

    Raises
    ------
    GraphTypeError, ShapeError
        The loss is not a float scalar, or it or an output cannot be cut along the dim and joined.
    ScheduleError
        The schedule cannot be made, or does not fit the stages or microbatches.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=("batch", 2))
    >>> with g.stage(0):
    ...     h = np.tanh(x @ g.parameter("W0", np.ones((2, 2), "float32")))
    >>> with g.stage(1):
    ...     loss = (h @ g.parameter("W1", np.ones((2, 1), "float32"))).mean()
    >>> with ag.pipeline.Pipeline(loss, schedule="1f1b", microbatches=2) as pipeline:
    ...     run = pipeline.run_sync({"x": np.ones((4, 2), "float32")})
    >>> run["W1"].grad.round(3)
    array([[0.964],
           [0.964]], dtype=float32)
    """

    def __init__(
        self, loss: Node, wrt: Any = None, *, stages: int | Literal["auto"] | None = None,
        schedule: Name | Literal["auto", "dynamic"] | Schedule = "1f1b",
        microbatches: int | Literal["auto"] | None = None, split: str = "batch",
        reduce: Reduce | None = None, outputs: Any = (), chunks: int | None = None,
        extra_warmup: int = 0, workers: int | None = None, max_in_flight: int = 2,
        max_bytes: int | Mapping[Any, int] | None = None, seed: int = 0, training: bool = True,
        exact: bool = True, jit: bool | Literal["wait"] = False, passes: Any = None,
        watch: Iterable[str] = (), devices: Iterable[str | Device] = ("cpu",),
    ) -> None:  # fmt: skip
        losses = as_nodes(loss)
        if len(losses) != 1:
            raise GraphError(f"a pipeline has one loss, got {len(losses)}; name others as outputs=")
        others = [] if outputs is None else as_nodes(outputs)
        names = outputs if isinstance(outputs, Mapping) else [node.name for node in others]
        super().__init__(
            {losses[0].name: losses[0], **dict(zip(names, others, strict=True))}, wrt=wrt,
            workers=workers, exact=exact, jit=jit, passes=passes, seed=seed,
            max_in_flight=max_in_flight, max_bytes=max_bytes, watch=watch,
        )  # fmt: skip
        text("split", split)
        self._actors_only = True
        self._trains = flag("training", training) and bool(self.wrt)
        numbers: dict[str, Any] = {"stages": stages, "microbatches": microbatches}
        chosen: Choice | Chosen
        given = checked_devices(devices, self.jit)
        on_host = self._placing is None and all(one.is_host for one in given)
        if any(isinstance(one, str) and one == "auto" for one in (schedule, *numbers.values())):
            if not on_host:
                raise ScheduleError(
                    "what is 'auto' is measured on the CPU: with stages on devices give stages=, "
                    "schedule= and microbatches="
                )
            for name, number in numbers.items():
                if not (number is None or (isinstance(number, str) and number == "auto")):
                    positive(name, number)
            if isinstance(schedule, Schedule):
                raise ScheduleError(f"{schedule!r} is complete; nothing is left to be chosen")
            chosen = Choice(
                tuple(self.outputs.values()), self.wrt, stages, schedule, microbatches, chunks,
                extra_warmup, self.workers,
                self._trial(split=split, reduce=reduce, max_bytes=max_bytes, jit=jit),
            )  # fmt: skip
        else:
            made, credit = scheduled(
                schedule, (*self.outputs.values(), *self.wrt), chunks=chunks,
                extra_warmup=extra_warmup, **numbers,
            )  # fmt: skip
            chosen = Chosen(made, credit, "")
            self._placing = None if on_host else Stages.of(self.graph, given, made)
            if workers is None:
                self.workers = made.devices
            if self._trains and not made.trains:
                raise ScheduleError(
                    f"{made!r} has forward actions only; set training=False, or take a schedule "
                    "with backward actions"
                )
        if reduce is not None:
            choice("reduce", reduce, ("mean", "sum"))
        if self._trains and (self.loss.ndim or self.loss.dtype.kind not in "fV"):
            raise GraphTypeError(f"the loss has to be a float scalar, got {self.loss!r}")
        self._batches = Microbatches(
            tuple(self.outputs.values()), self.wrt, dim=split, reduce=reduce,
            chosen=chosen, trains=self._trains,
        )  # fmt: skip
        if not self.batching.rows.varies(self.loss):
            raise ShapeError(
                f"the loss {self.loss!r} does not depend on an input with dim {split!r}, except by "
                "values of feeds alone: there is nothing to cut into microbatches"
            )

    def _trial(self, **options: Any) -> Callable[..., Pipeline]:
        """Return a function that makes pipelines of the same outputs, by other schedules."""
        (_, loss), *others = self.outputs.items()
        return partial(
            Pipeline, loss, self.wrt, outputs=dict(others), workers=self.workers, exact=self.exact,
            training=self._trains, passes=self.passes, seed=self.seed, **options,
        )  # fmt: skip

    @property
    def loss(self) -> Node:
        """The first output."""
        return next(iter(self.outputs.values()))

    @property
    def schedule(self) -> Schedule:
        """The actions of each device, in order."""
        return self._made.schedule

    @property
    def batching(self) -> Batching:
        """How batches are cut, and results joined."""
        return self._made.batching

    @property
    def _made(self) -> Microbatches:
        assert isinstance(self._batches, Microbatches)
        return self._batches

    def _cut(self) -> Cut:
        return fewest  # unused: a `StagedPlan` has its own cut, which needs sizes

    # -- inspection ---------------------------------------------------------------------------

    def stages(self) -> list[list[Node]]:
        """Return the nodes of each stage; known after the first run.

        Raises
        ------
        GraphError
            There was no run yet.
        """
        return self._staged("stages").stages

    def stage_costs(self) -> list[tuple[float, float, float]]:
        """Return the measured seconds of F, B and W of each stage, for `simulate`.

        They are means of the latest turns, so that they add up to the time of runs; the turns of a
        first run count only if there are no others.  If the schedule does not split backward
        passes, B is the whole of them and W is 0.  The first stage has no B: no stage waits for the
        gradients of feeds, which belong to W.

        Raises
        ------
        GraphError
            There was no run yet.
        """
        plan = self._staged("costs")
        times: list[list[float]] = [[] for _ in plan.partition.tasks]
        for network in [one for one in self._networks() if one.plan is plan]:
            for found, latest in zip(times, getattr(network, "times", ()), strict=True):
                found += list(latest)[self.schedule.microbatches :] or list(latest)
        means: dict[tuple[int, str], float] = {
            (task.region.index, task.direction): mean(found)
            for task, found in zip(plan.partition.tasks, times, strict=True)
            if found
        }
        return costs_of(means, self.schedule.stages)

    def simulate(self, **setting: Unpack[Setting]) -> Simulation:
        """Return the simulation of the schedule by `stage_costs`, in seconds.

        Parameters
        ----------
        **setting
            Latency and the like, as `pipeline.simulate` takes them.

        Raises
        ------
        GraphError
            There was no run yet.
        """
        return simulate(self.schedule, costs=self.stage_costs(), **setting)

    def _staged(self, what: str) -> StagedPlan:
        """Return the plan of the mode that ran first."""
        for plan in self._plans.values():
            assert isinstance(plan, StagedPlan)
            return plan
        raise GraphError(f"{what} are known after a first run")
