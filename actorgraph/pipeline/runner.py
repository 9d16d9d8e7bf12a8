"""`Pipeline`: training steps in microbatches, on one lane for each device of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean as mean
from time import perf_counter
from typing import Any, Unpack, final

import numpy as np

from actorgraph import devices, instrument
from actorgraph.autodiff.reverse import check_differentiable
from actorgraph.errors import (
    FeedError,
    GraphError,
    GraphTypeError,
    MachineClosedError,
    ScheduleError,
    ShapeError,
    printable,
)
from actorgraph.graph import Node, as_nodes, topological_order
from actorgraph.machines.admission import fitted
from actorgraph.machines.batching import Batching, BatchSlice
from actorgraph.machines.claim import Claim
from actorgraph.machines.event_loops import in_event_loop, loop_notifier
from actorgraph.machines.feeds import by_node, check_dims
from actorgraph.machines.life import Lifetime
from actorgraph.machines.options import allowed
from actorgraph.machines.process import THIS
from actorgraph.machines.rows import Reduce
from actorgraph.machines.run import Run
from actorgraph.options import choice, text, whole
from actorgraph.pipeline.blocking import check_lanes
from actorgraph.pipeline.claims import claim_of
from actorgraph.pipeline.cutting import cut_by_placement, placed
from actorgraph.pipeline.lanes import Lanes
from actorgraph.pipeline.staged import Microbatch, StagedPlan
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.dynamic import dynamic
from actorgraph.schedules.model import Setting
from actorgraph.schedules.orders import ORDERS
from actorgraph.schedules.orders import schedule as named
from actorgraph.schedules.simulation import Simulation, simulate

__all__ = ["Pipeline"]


@final
class Pipeline(Lifetime):
    """Losses and gradients of batches, microbatch by microbatch, in the order of a schedule.

    Each device of the schedule is a lane: an actor that does the actions of its list one after the
    other, while the other lanes do theirs.  The result of a run does not depend on the schedule, on
    workers or on timing: its bits are those of the same microbatches run one after another, their
    gradients added in order.  It is that of the whole batch within rounding: sums and means over
    rows are joined as such, and what feeds alone tell of a batch, such as the sum of a mask, how
    many targets count or what they weigh, is computed of the whole batch when a run starts.  A
    loss that cannot be joined, such as the root of a mean, is refused with what to write instead.

    But an op that looks over rows which parameters have changed sees those of its microbatch.  So
    batch norm normalises by the mean and variance of each microbatch, as in other pipelines, and
    its running statistics are updated once for each, in their order.  Random ops draw anew in each
    microbatch.

    A lane may begin with a later run where the next action of an earlier one has to wait: so a
    stream fills the bubble at the end of a batch with the beginning of the next one.  Each run
    reads parameters when it is admitted, so with updates in between, later runs in flight see the
    weights as they were before.

    An asynchronous op runs on the event loop of the run's caller, while its lane waits for it: the
    order of the list is kept, and other lanes go on.

    Parameters
    ----------
    loss : Node
        A float scalar.
    wrt : node, or list of nodes, optional
        What gradients are taken with respect to; default all parameters of the graph.
    stages : int, optional
        Number of devices.  Default as many as ``with graph.stage(...)`` was used for.  Where no
        node was placed the graph is cut at the first run, by predicted cost and the bytes that
        travel.
    schedule : str or Schedule
        A name (`pipeline.SCHEDULES`), ``"dynamic"``, or actions.  ``"dynamic"`` keeps no list: a
        lane does a backward action where one is ready, else the next forward action while it holds
        fewer microbatches than its credits, p - d for device d of p.
    microbatches : int, optional
        How many a batch is cut into; a `Schedule` knows.
    split : str
        The symbolic dim along which feeds are cut.  Terms of the loss without it count once.
    reduce : "mean" or "sum", optional
        What an op makes of the rows that takes the dim away without showing how, such as one of
        your own.
    outputs : iterable of Node
        What else runs return: concatenated along the dim, or joined as the loss is.
    chunks, extra_warmup : int, optional
        Options of named schedules, see `pipeline.schedule`.
    workers : int, optional
        Threads that may work at once; default one for each lane.
    max_in_flight : int
        Runs in flight at once; more wait.
    max_bytes : int, optional
        What all runs in flight may allocate.  Runs wait until what they can hold at most fits; one
        that does not fit by the schedule goes one microbatch after another.
    seed : int
        As for machines: permutes the ready order, never a result.

    Raises
    ------
    GraphTypeError, ShapeError
        The loss is no float scalar, or it or an output cannot be cut along the dim and joined.
    ScheduleError
        The schedule cannot be made, or does not fit the stages or microbatches.

    Examples
    --------
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
        self,
        loss: Node,
        wrt: Any = None,
        *,
        stages: int | None = None,
        schedule: str | Schedule = "1f1b",
        microbatches: int | None = None,
        split: str = "batch",
        reduce: Reduce | None = None,
        outputs: Any = (),
        chunks: int | None = None,
        extra_warmup: int = 0,
        workers: int | None = None,
        max_in_flight: int = 2,
        max_bytes: int | None = None,
        seed: int = 0,
    ) -> None:
        losses = as_nodes(loss)
        if len(losses) != 1:
            raise GraphError(f"a pipeline has one loss, got {len(losses)}; name others as outputs=")
        (loss,) = losses
        text("split", split)
        self.graph = loss.graph
        self.outputs = () if outputs is None else tuple(as_nodes(outputs))
        parameters = [node for node in self.graph.parameters if node.dtype.kind in "fcV"]
        chosen = parameters if wrt is None else as_nodes(wrt, self.graph)
        check_differentiable(chosen, "wrt")
        self.wrt: tuple[Node, ...] = tuple(self.graph.lift(node) for node in chosen)
        self.loss = loss
        self._credits: list[int] | None = None
        given = loss, *self.outputs, *self.wrt
        self._placed = _placement(given)
        self.schedule = self._schedule(schedule, stages, microbatches, chunks, extra_warmup)
        if self._placed is not None and self._placed != self.schedule.stages:
            raise ScheduleError(
                f"nodes are placed in {self._placed} stages, but {self.schedule!r} has "
                f"{self.schedule.stages}; place nodes in as many, or take another schedule"
            )
        self._inputs = {node.name: node for node in self.graph.inputs}
        self.batching = self._batching(split, reduce)
        lanes = self.schedule.devices
        super().__init__(
            workers=lanes if workers is None else workers,
            seed=seed,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
        )
        self._plan: StagedPlan | None = None

    def _schedule(
        self,
        given: str | Schedule,
        stages: int | None,
        microbatches: int | None,
        chunks: int | None,
        extra_warmup: int,
    ) -> Schedule:
        if isinstance(given, Schedule):
            told = [
                ("stages", stages, given.devices, "devices"),
                ("microbatches", microbatches, given.microbatches, "microbatches"),
            ]
            for what, number, has, unit in told:
                if number not in (None, has):
                    raise ScheduleError(f"{what} is {number}, but {given!r} has {has} {unit}")
            return given
        if microbatches is None:
            raise ScheduleError(
                f"the schedule {given!r} by name needs to know how many: microbatches=4"
            )
        if stages is None:
            if self._placed is None:
                raise ScheduleError(
                    "how many stages? Give stages= (--stages of the command), "
                    "or place nodes with `with graph.stage(0): ...`"
                )
            known = ORDERS.get(given) if isinstance(given, str) else None
            stages = self._placed // (chunks or (1 if known is None else known.chunks))
        if isinstance(given, str) and given == "dynamic":
            made = dynamic(stages=stages, microbatches=microbatches, costs=(1, 1, 1))
            self._credits = [stages - device for device in range(stages)]
            return made
        return named(
            given, stages=stages, microbatches=microbatches, chunks=chunks,
            extra_warmup=extra_warmup,
        )  # fmt: skip

    def _batching(self, split: str, reduce: Reduce | None) -> Batching:
        if self.loss.ndim or self.loss.dtype.kind not in "fV":
            raise GraphTypeError(f"the loss has to be a float scalar, got {self.loss!r}")
        if reduce is not None:
            choice("reduce", reduce, ("mean", "sum"))
        found = Batching((self.loss, *self.outputs), self.wrt, dim=split, reduce=reduce)
        if not found.rows.varies(self.loss):
            raise ShapeError(
                f"the loss {self.loss!r} does not depend on an input with dim {split!r}, but for "
                "what is known of feeds alone: there is nothing to cut into microbatches"
            )
        return found

    # -- runs -----------------------------------------------------------------------------------

    async def run(
        self, feeds: Mapping[Any, Any], *, timeout_s: float | None = None, priority: int = 0
    ) -> Run:
        """Run a batch and return the ended `Run`: ``run[loss].value``, ``run[W].grad``.

        Works in asyncio and trio.  Cancelling the caller cancels the run and returns when the
        actions already running end.

        Parameters
        ----------
        feeds : dict
            Array for each input, by name or node, of the whole batch; not copied.
        timeout_s : float, optional
            Seconds after which the run fails with `TimeoutError`.
        priority : int
            Lower is more urgent.

        Raises
        ------
        FeedError
            Before anything starts, for what does not fit the graph, or too few rows.
        NodeError
            An op failed.
        MemoryLimitError
            The run does not fit into `max_bytes`.
        MachineClosedError, TimeoutError
        """
        run = self._prepare(feeds, priority, looped=True)
        self._launch(run, timeout_s)
        return await run

    def run_sync(
        self, feeds: Mapping[Any, Any], *, timeout_s: float | None = None, priority: int = 0
    ) -> Run:
        """Run a batch from a plain thread; blocks it, and it works along.

        Parameters, results and errors are those of `run`.

        Raises
        ------
        GraphError
            Called inside a running event loop, or inside an op of this pipeline.
        """
        self.refuse_blocking("run_sync", "await pipeline.run(...)")
        run = self._prepare(feeds, priority, looped=False)
        if run.plan.compiled.needs_loop:
            return self._run_on_own_loop(run, timeout_s)
        return self._run_here(run, timeout_s)

    def start(
        self, feeds: Mapping[Any, Any], *, timeout_s: float | None = None, priority: int = 0
    ) -> Run:
        """Start a batch and return its run at once; await it, or call its ``result()``.

        Raises
        ------
        GraphError
            There are asynchronous ops, and no event loop that they could run on.
        """
        looped = in_event_loop()
        run = self._prepare(feeds, priority, looped=looped)
        self._refuse_without_loop(run, looped=looped)
        self._launch(run, timeout_s)
        return run

    def _prepare(self, feeds: Mapping[Any, Any], priority: int, *, looped: bool) -> Run:
        """Check everything that a run is given, and make it."""
        if self._closed:
            raise MachineClosedError("the pipeline was closed; make a new one")
        started = perf_counter() if instrument.listening else None
        arrays, sizes = self.batching.bind(by_node(feeds, self._inputs, "feed"))
        self._check_rows(sizes[self.batching.dim])
        given = self.batching.cut(arrays, sizes, self.schedule.microbatches)
        symbols = [sizes | {self.batching.dim: one.rows} for one in given]
        plan = self._planned(symbols[0])
        for one in symbols:
            check_dims(plan.compiled.checked, one)
        core = self._started()
        plan, claim = self._fitted(plan, symbols[0])
        number = core.next_number()
        parts = []
        for cut, sizes in zip(given, symbols, strict=True):
            run = Run(core, plan, plan.bind(sizes), number, priority)
            run.microbatch = cut.number
            leaves = self._leaves(plan, cut, number)
            run.regular = all(leaf is None or leaf.flags.c_contiguous for leaf in leaves)
            parts.append(Microbatch(cut, run, leaves))
        batch = Run(core, plan, parts[0].run.binding, number, whole("priority", priority))
        batch.microbatches, batch.claim = parts, claim
        batch.leaves = [None for leaf in plan.compiled.joint.leaves if leaf.kind != "variable"]
        batch.host = loop_notifier() if looped else None
        if started is not None:
            instrument.tell("on_feeds", batch, started, perf_counter())
        return batch

    def _fitted(
        self, plan: StagedPlan, largest: Mapping[str, int]
    ) -> tuple[StagedPlan, Claim | None]:
        """Return the plan by which a batch fits into `max_bytes`, and what it claims."""
        if self.max_bytes is None:
            return plan, None
        found, _, claim = fitted(
            plan,
            plan.bind(largest),
            True,
            self.max_bytes,
            self.workers,
            claim_of,
            StagedPlan.one_by_one,
        )
        assert isinstance(found, StagedPlan)
        return found, claim

    def _check_rows(self, rows: int) -> None:
        microbatches = self.schedule.microbatches
        if rows < microbatches:
            raise FeedError(
                f"{self.batching.dim} is {rows}: cannot be cut into {microbatches} microbatches; "
                "feed at least as many rows, or take fewer microbatches"
            )

    def _leaves(self, plan: StagedPlan, part: BatchSlice, number: int) -> list[Any]:
        """Return the values of the leaves; those of variables are taken at the admission."""
        one = np.ones((), self.loss.dtype)
        brought = {
            "feed": part.feeds, "whole": part.whole,
            "seed": self.batching.seeds({self.loss: one}, part),
        }  # fmt: skip
        draw = number * self.schedule.microbatches + part.number
        leaves: list[Any] = []
        for leaf in plan.compiled.joint.leaves:
            if leaf.kind == "variable":
                leaves.append(None)
            elif leaf.kind == "run_number":
                leaves.append(np.array(draw, np.int64))
            else:
                leaves.append(brought[leaf.kind][leaf.source])
        return leaves

    def _planned(self, symbols: Mapping[str, int]) -> StagedPlan:
        if self._plan is None:
            with THIS.starting:  # two threads may ask for a first run
                if self._plan is None:
                    plan = StagedPlan(
                        self.batching, self.loss, self.outputs, self.wrt, self.schedule,
                        devices.get("cpu"), allowed(None, True), symbols, Lanes, self._credits,
                    )  # fmt: skip
                    check_lanes(plan)
                    self._plan = self._plans["backward"] = plan
        return self._plan

    # -- looking at it ------------------------------------------------------------------------

    def stages(self) -> list[list[Node]]:
        """Return the nodes of each stage; known from the first run on.

        Raises
        ------
        GraphError
            There was no run yet.
        """
        return self._after_a_run("stages").stages

    def costs(self) -> list[tuple[float, float, float]]:
        """Return for each stage the seconds of F, B and W as measured, for `simulate`.

        They are means of the latest turns, so that their sums are what runs take; the turns of a
        first run count only where there are no others.  Where the schedule does not split backward
        passes, B is the whole of them and W is 0.  The first stage has no B: nobody waits for the
        gradients of feeds, which belong to W.

        Raises
        ------
        GraphError
            There was no run yet.
        """
        plan = self._after_a_run("costs")
        times: list[list[float]] = [[] for _ in plan.partition.tasks]
        for network in self._networks():
            for found, latest in zip(times, getattr(network, "times", ()), strict=True):
                found += list(latest)[self.schedule.microbatches :] or list(latest)
        means = {
            (task.region.index, task.direction): mean(found)
            for task, found in zip(plan.partition.tasks, times, strict=True)
            if found
        }
        return [
            (
                means.get((stage, "forward"), 0.0),
                means.get((stage, "backward"), 0.0),
                means.get((stage, "weights"), 0.0),
            )
            for stage in range(self.schedule.stages)
        ]

    def simulate(self, **setting: Unpack[Setting]) -> Simulation:
        """Return what the schedule should take by `costs`, in seconds.

        Parameters
        ----------
        **setting
            Latency and the like, as `pipeline.simulate` takes them.

        Raises
        ------
        GraphError
            There was no run yet.
        """
        return simulate(self.schedule, costs=self.costs(), **setting)

    def _after_a_run(self, what: str) -> StagedPlan:
        if self._plan is None:
            raise GraphError(f"{what} are known after a first run")
        return self._plan

    def __repr__(self) -> str:
        what = printable(f"{self.loss.name}, {self.schedule.name}")
        return f"<Pipeline of {what} ({self._state()})>"


def _placement(given: Sequence[Node]) -> int | None:
    """Return in how many stages the user has placed what these nodes depend on."""
    nodes = topological_order(given)
    return len(cut_by_placement(nodes)) if placed(nodes) else None
