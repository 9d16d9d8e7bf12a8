"""`Machine`: the public surface of all machines, which differ in how they cut a plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias, get_args
from weakref import WeakSet

import numpy as np

from actorgraph import instrument
from actorgraph.autodiff.reverse import check_differentiable
from actorgraph.devices import Device
from actorgraph.devices.cpu import available_cores
from actorgraph.errors import GraphError, GraphTypeError, MachineClosedError, printable
from actorgraph.graph import Graph, Node, as_nodes
from actorgraph.keywords import answering, refusal
from actorgraph.lower.cuts import Cut, by_cost, checked, one_per_node
from actorgraph.lower.joint import Mode
from actorgraph.machines.capacities import Capacities
from actorgraph.machines.claim import fitted
from actorgraph.machines.compiled import Compiled, compiled
from actorgraph.machines.event_loops import in_event_loop, loop_notifier
from actorgraph.machines.feeds import by_node, check_like, mode_of, trains
from actorgraph.machines.life import INLINE_US, SYNC_US, Lifetime
from actorgraph.machines.options import checked_jit, checked_native, checked_passes, placed
from actorgraph.machines.plan import Plan
from actorgraph.machines.process import THIS
from actorgraph.machines.run import Run
from actorgraph.machines.step import Check, Step
from actorgraph.machines.tuner import Tuner, checked_costs
from actorgraph.options import choice, choices, flag, whole
from actorgraph.tiles import here

if TYPE_CHECKING:
    from actorgraph.channels import ChannelStatistics
    from actorgraph.machines.check import Report
    from actorgraph.machines.holdings import LiveBytes
    from actorgraph.machines.inspection import MemoryPlan
    from actorgraph.solvers import AbstractSolver

INLINE_SIZE = 4096
"""Most elements fed to a small run with dims of None, for which no cost can be predicted."""

_FORWARD = Mode()
_NORMAL = 0  # the priority of most runs
Fuse: TypeAlias = Literal["none", "auto", "all"]
_FUSE = get_args(Fuse)
_WATCH = ("nan", "inf")


@answering
class Machine(Lifetime):
    """Base class of machines.

    Parameters
    ----------
    outputs : node, or list or dict of nodes
        What a run computes; the keys of a dict are names for reading results, too.
    wrt : node, or list or dict of nodes, optional
        What gradients are taken with respect to; default all parameters of the graph.
    workers : int, optional
        Threads that may work on this machine at once; default the cores this process may use.
    fuse : "none", "auto", "all" or callable
        ``"none"``: one actor per node.  ``"all"``: as few actors as possible.  ``"auto"``: the
        machine chooses.  A callable is your own cut, ``(joint, costs) -> tasks``; see `lower.cuts`.
    exact : bool
        False allows rewriting that changes bits, to numerically stable forms; see `ag.rewrite`.
    jit : bool or "wait"
        Compile elementwise steps, sums, softmax and cross entropy, and the updates of compiled
        steps, with llvmlite (the extra ``jit``); needs ``exact=False``.  Values stay within 1e-6
        (float32) and 1e-13 (float64) of the largest term.  Products, convolutions over one or two
        axes, and batch and layer normalisation use machine code of our own (Linux on x86-64), which
        sums in a fixed order, other than NumPy's, and is shared with idle workers.  Compiled code
        does not warn of overflow or division by zero.  True compiles in the background; ``"wait"``
        blocks the first run of a mode until everything is compiled.  Ignored with `watch`, and by
        `LispMachine`.
    native : bool or "wait", optional
        Run small steps as tables of NumPy's inner loops, bit for bit, without Python and the GIL.
        The rows are written in the background after some runs; with ``"wait"`` before the first.
        Default True if llvmlite is installed (the extra ``native``) and ``ACTORGRAPH_NATIVE`` is
        not 0.  Ignored with `watch` and `max_bytes`.
    passes : iterable of Pass or str, optional
        Rewriting passes; default all that `exact` allows, ``()`` for none.  With `watch`, late
        passes, which change no bit, are left out.
    seed : int
        0 for the natural ready order; any other number permutes it.  Results never depend on it.
    max_in_flight : int
        Runs in flight at once; further runs wait.
    capacity : int or dict, optional
        Most messages in a channel; default `max_in_flight`.  A dict gives it by edge,
        ``{(producer, consumer): int}``, or for all edges out of a node, ``{producer: int}``, by
        node or name; it holds for values and for the cotangents that come back (see `check`).
    max_bytes : int or dict, optional
        Bytes that the runs in flight may allocate together, on each device, or by device or name
        (``{"cuda:0": 10**9}``), predicted from the dims of feeds.  Runs wait until they fit; one
        that never would is refused.  Not counted: dims of None, what an op allocates inside of its
        call, and the user's feeds, parameters and results (but copies of feeds on devices are).
    device : str or Device
        Where nodes without a placement run: ``"cpu"``, or ``"virtual:0"``, a device of host threads
        (see `devices`).
    devices : iterable of str or Device, optional
        Several devices, in place of `device`.
    lanes : int
        Lanes of each device but the CPU; independent nodes run side by side on them.
    captured : bool
        On a GPU, launch as CUDA graphs what can be; `explain` says what cannot, and why.
    watch : tuple of "nan" and "inf"
        Fail the run at the first node whose result has one.
    costs : dict, optional
        Microseconds of forward nodes, by node or name, such as another machine's ``costs()``:
        regions are cut by these instead of predicted and measured time.
    statistics : bool
        Whether channels count and time their messages (see `channels`).

    Raises
    ------
    GraphTypeError, GraphError, ValueError
        Outputs and wrt are not nodes of one graph, a wrt is no float, an option is out of range.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (3,))
    >>> with ag.TapeMachine([x * x]) as machine:
    ...     isinstance(machine, ag.Machine)
    True
    """

    _interpreter: Callable[..., Any] | None = None
    """Makes what replaces generated programs, if anything: see `LispMachine`."""

    _trains = False
    """Whether runs differentiate the first output by default."""

    def __init__(
        self, outputs: Any, *, wrt: Any = None, workers: int | None = None,
        fuse: Fuse | Cut = "auto", exact: bool = True, jit: bool | Literal["wait"] = False,
        native: bool | Literal["wait"] | None = None, passes: Any = None, seed: int = 0,
        max_in_flight: int = 8, capacity: int | Mapping[Any, int] | None = None,
        max_bytes: int | Mapping[Any, int] | None = None, device: str | Device = "cpu",
        devices: Iterable[str | Device] | None = None, lanes: int = 1, captured: bool = False,
        watch: Iterable[str] = (), costs: Mapping[Any, float] | None = None,
        statistics: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(outputs, Graph):
            raise GraphTypeError(f"a machine takes outputs such as [loss], not {outputs!r}")
        nodes = as_nodes(outputs)
        if not nodes:
            raise GraphError(f"a machine needs at least one output node, got {outputs!r}")
        self.graph: Graph = nodes[0].graph
        super().__init__(
            workers=available_cores() if workers is None else workers,
            seed=seed,
            max_in_flight=max_in_flight,
            max_bytes=max_bytes,
            capacities=Capacities.checked(self.graph, capacity),
            statistics=flag("statistics", statistics),
        )
        for node in nodes:
            self.graph.lift(node)
        names = list(outputs) if isinstance(outputs, Mapping) else [node.name for node in nodes]
        self.outputs: dict[str, Node] = dict(zip(names, nodes, strict=True))
        parameters = [node for node in self.graph.parameters if node.dtype.kind in "fcV"]
        chosen = parameters if wrt is None else as_nodes(wrt, self.graph)
        check_differentiable(chosen, "wrt")
        self.wrt: tuple[Node, ...] = tuple(self.graph.lift(node) for node in chosen)
        self.fuse: Fuse | Cut = fuse if callable(fuse) else choice("fuse", fuse, _FUSE)
        self.watch = choices("watch", watch, _WATCH)
        self.exact = flag("exact", exact)
        self.passes = checked_passes(passes, self.exact)
        self.jit = checked_jit(jit, self.exact)
        # A table's memory exists before a run, so that no run could claim it.
        self.native = checked_native(native) if max_bytes is None else False
        requested = [device] if devices is None else devices
        self.device, self._placing = placed(self, requested, lanes, captured)
        self._given_costs = checked_costs(self.graph, costs)
        self._actors_only = self._cut() is one_per_node or bool(self.seed) or self._statistics
        beside = self._cut() is by_cost and not self._actors_only
        self._strands = self.workers if beside else 1
        self._step_plans: WeakSet[Plan] = WeakSet()  # a step keeps its machine alive
        self._inputs = {node.name: node for node in self.graph.inputs}

    # -- how machines differ --------------------------------------------------------------------

    @abstractmethod
    def _cut(self) -> Cut:
        """Return how the graph is divided into tasks, see `lower.cuts`."""

    # -- runs -----------------------------------------------------------------------------------

    async def run(
        self, feeds: Mapping[Any, Any] | None = None, *,
        backward: bool | Mapping[Any, Any] | None = None, tangents: Mapping[Any, Any] | None = None,
        timeout_s: float | None = None, priority: int = 0, run_number: int | None = None,
        fetch: bool = True, **unknown: Never,
    ) -> Run:  # fmt: skip
        """Run the graph and return the ended `Run`.

        Works in asyncio and trio.  Cancelling the caller cancels the run, and returns when the
        operations that are running end.

        Parameters
        ----------
        feeds : dict
            Array for each input, by name or node.  It is not copied: do not write to it before the
            run has ended.
        backward : bool or dict, optional
            True differentiates the first output, a scalar.  ``{output: seed}`` seeds any outputs
            with arrays or scalars.  Default False; True for a pipeline that trains.
        tangents : dict, optional
            ``{name or node: array}``: forward mode along these directions.
        timeout_s : float, optional
            Seconds after which the run fails with `TimeoutError`.
        priority : int
            Lower is more urgent.
        run_number : int, optional
            Key of random ops, together with the graph's seed: the same number repeats a run.
            Default the count of the machine's runs.
        fetch : bool
            False leaves results on their devices: ``run[node].value`` is then a `devices.Handed`,
            which has a ``.fetch()`` and may be fed to a machine of that device.

        Raises
        ------
        FeedError
            A feed does not fit the graph; raised before anything starts.
        NodeError
            An op failed.
        MemoryLimitError
            The run does not fit into `max_bytes`.
        MachineClosedError, TimeoutError, DeadlockError
        """
        if unknown:
            raise refusal(self.run, (), unknown)
        run = self._prepare(feeds, backward, tangents, priority, run_number, host=None, fetch=fetch)
        return await self._run_soon(run, timeout_s)

    def run_sync(
        self, feeds: Mapping[Any, Any] | None = None, *,
        backward: bool | Mapping[Any, Any] | None = None, tangents: Mapping[Any, Any] | None = None,
        timeout_s: float | None = None, priority: int = 0, run_number: int | None = None,
        fetch: bool = True, **unknown: Never,
    ) -> Run:  # fmt: skip
        """Run the graph from a plain thread, which is blocked and works as one of the workers.

        Parameters, results and errors are those of `run`.

        Raises
        ------
        GraphError
            Called inside a running event loop (await `run` there; IPython's kernel is allowed),
            or inside an op of the same machine.
        """
        if unknown:
            raise refusal(self.run_sync, (), unknown)
        if in_event_loop() or getattr(here, "held", None) is not None:
            self.refuse_blocking("run_sync", "await machine.run(...)")
        run = self._prepare(feeds, backward, tangents, priority, run_number, host=None, fetch=fetch)
        return self._run_now(run, timeout_s)

    def _run_now(self, run: Run, timeout_s: float | None = None) -> Run:
        """Run to the end in the calling thread, which works as one of the workers."""
        if run.plan.compiled.needs_loop:
            return self._run_on_own_loop(run, timeout_s, looped=self._small(run))
        if timeout_s is None and self._small(run, SYNC_US) and run.core.run_directly(run):
            if run.dead is not None:
                raise run.dead
            return run
        return self._run_here(run, timeout_s)

    def start(
        self, feeds: Mapping[Any, Any] | None = None, *,
        backward: bool | Mapping[Any, Any] | None = None, tangents: Mapping[Any, Any] | None = None,
        timeout_s: float | None = None, priority: int = 0, run_number: int | None = None,
        fetch: bool = True, **unknown: Never,
    ) -> Run:  # fmt: skip
        """Start a run and return it at once; await it, or call its ``result()``.

        Parameters are those of `run`; feeds that do not fit raise here.
        """
        if unknown:
            raise refusal(self.start, (), unknown)
        in_loop = in_event_loop()
        host = loop_notifier() if in_loop else None
        run = self._prepare(feeds, backward, tangents, priority, run_number, host=host, fetch=fetch)
        return self._begin(run, timeout_s, in_loop=in_loop)

    def compile_step(self, solver: AbstractSolver[Any], *, check: Check | None = None) -> Step:
        """Return a training step ``step(feeds) -> Run``: gradients and update in one call.

        It differentiates the first output, a scalar, and updates every wrt, each a parameter, by
        `solver`.  All gradients are computed before the first write, and a failure leaves every
        parameter unchanged.  On `TapeMachine`, with one worker, and for short steps, gradients and
        update are one program in the calling thread.

        Parameters
        ----------
        solver : AbstractSolver
            Shares its state with ``solver.step``.
        check : callable, optional
            Takes the Duals of the outputs by node before each update, and stops it by raising.

        Returns
        -------
        Step
            Call it, or ``await step.run(feeds)``.

        Raises
        ------
        GraphError, ShapeError
            `solver` is no solver, a wrt no parameter, or the first output no scalar.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> g = ag.Graph()
        >>> w = g.parameter("w", np.array([1.0, 2.0]))
        >>> loss = (w * w).sum()
        >>> with ag.TapeMachine([loss]) as machine:
        ...     step = machine.compile_step(ag.solvers.SGD(lr=0.25))
        ...     [float(step()[loss].value) for _ in range(3)]
        [5.0, 1.25, 0.3125]
        """
        return Step(self, solver, check)

    def _small(self, run: Run, sequential_us: float = INLINE_US) -> bool:
        """Return whether the calling thread may compute the run at once, without actors.

        Options that ask for one actor per node, another ready order or statistics exclude it, and
        so do assignments to buffers, which keep the order of runs.  A mode that is one sequence may
        take `sequential_us`, any other `INLINE_US`.
        """
        plan = run.plan
        one = self._one_task or plan.sequential is not None
        return (
            run.binding.run_us < (sequential_us if one else INLINE_US)
            and plan.compiled.allows_direct
            and not self._actors_only
            and not (plan.compiled.unsized and sum(map(np.size, run.leaves)) > INLINE_SIZE)
        )

    def _prepare(
        self, feeds: Any, backward: Any, tangents: Any, priority: int, run_number: int | None,
        host: Callable[[Callable[[], object]], object] | None, plan: Plan | None = None,
        number: int | None = None, fetch: bool | Literal["values"] = True,
    ) -> Run:  # fmt: skip
        """Check the arguments of a run, and make it.

        `plan` replaces that of the mode; `number` is reused from a run that was not started.
        """
        if self._closed:
            raise MachineClosedError("the machine was closed; make a new one")
        started = perf_counter() if instrument.listening else None
        if run_number is not None:
            run_number = whole("run_number", run_number)
        if backward is None:
            backward = self._trains and tangents is None
        if backward is True and tangents is None:
            mode, seeds = self._first_mode
        elif backward is False and tangents is None:
            mode, seeds = _FORWARD, {}
        else:
            mode, seeds = mode_of(self.graph, self.outputs, backward, tangents)
        if fetch is not True:
            mode = replace(mode, fetch=fetch)
        if self._batches is not None:
            fed = {} if feeds is None else by_node(feeds, self._inputs, "feed")
            run: Run = self._batches.run(self, fed, mode, seeds, priority, run_number, host)
        else:
            plan = self._plan(mode) if plan is None else plan
            trusted = backward is True and tangents is None
            run = self._run_of(
                plan, feeds, seeds, priority, host,
                number=number, drawn=run_number, trusted=trusted,
            )  # fmt: skip
        if started is not None:
            instrument.tell("on_feeds", run, started, perf_counter())
        return run

    def _run_of(
        self, plan: Plan, feeds: Any, seeds: Mapping[Node, Any], priority: int,
        host: Callable[[Callable[[], object]], object] | None, *, number: int | None = None,
        drawn: int | None = None, trusted: bool = False,
    ) -> Run:  # fmt: skip
        """Return a run of a plan, not started; start the machine's core if there is none.

        `trusted` says that seeds are arrays that fit, and need no check.  `number` is unique in the
        core, by default the next one.  Random ops draw by `drawn`, default `number`.
        """
        if priority is not _NORMAL:
            priority = whole("priority", priority)
        arrays, binding, regular = plan.repeats.find(feeds) or plan.checked(
            feeds, self._inputs, self._placing
        )
        core = self._core
        if core is None or core.closed or core.process != THIS.id:  # inlined `Core.is_alive`
            core = self._started()
        number = next(core.numbers) if number is None else number
        leaves: list[Any] = [*arrays] if plan.compiled.only_fed else []
        fed = iter(arrays)
        for kind, source in () if leaves else plan.compiled.passed:
            if kind == "feed":
                leaves.append(next(fed))
            elif kind == "run_number":
                leaves.append(np.array(number if drawn is None else drawn, np.int64))
            elif trusted:
                leaves.append(seeds[source])
            else:
                leaves.append(check_like(seeds[source], source, binding.symbols, kind))
                regular = regular and leaves[-1].flags.c_contiguous
        claim = None
        if self.max_bytes is not None:
            workers = core.scheduler.workers
            plan, binding, claim = fitted(plan, binding, regular, self.max_bytes, workers)
        run = Run(core, plan, binding, number, priority)
        run.leaves, run.regular, run.claim = leaves, regular, claim
        run.host = host
        return run

    @cached_property
    def _first_mode(self) -> tuple[Mode, dict[Node, Any]]:
        """The mode of ``backward=True``, the most frequent one, and its seed."""
        mode, seeds = mode_of(self.graph, self.outputs, True, None)
        return mode, {node: np.asarray(one, node.dtype) for node, one in seeds.items()}

    def _plan(self, mode: Mode) -> Plan:
        plan = self._plans.get(mode.key) or self._known(mode)
        tuner = self._tuners.get(mode.key)
        if tuner is not None and tuner.is_due():
            core = self._started()
            with core.lock:
                if tuner.plan is plan:  # else another thread was faster
                    replaced = tuner.look(self._networks(), tries=self.max_bytes is None)
                    if replaced is not None:
                        core.networks.drop_idle(core.admission.runs, replaced)
                plan = self._plans[mode.key] = tuner.plan
                if tuner.is_done():
                    self._tuners.pop(mode.key, None)
        return plan

    def _known(self, mode: Mode) -> Plan:
        """Return the plan of a mode, made if there is none; it need not be cut yet."""
        plan = self._plans.get(mode.key)
        if plan is None and self._batches is not None:
            raise self._batches.unplanned()
        if plan is None:
            cut = checked(self._cut())
            if self._placing is not None:
                cut = self._placing.cut(cut)
            made = Plan(self._compiled(mode), cut, costs=self._given_costs, workers=self.workers)
            plan = self._plans.setdefault(mode.key, made)  # another thread may have been faster
            if made is plan and plan.weighs and self._given_costs is None:
                self._tuners[mode.key] = Tuner(plan)
        return plan

    def _compiled(self, mode: Mode) -> Compiled:
        return compiled(
            self.outputs, self.wrt, mode, self.device, self.watch, self._interpreter,
            self.passes, self.jit, self._placing, self.native, self._strands,
        )  # fmt: skip

    # -- inspection ----------------------------------------------------------------------------

    @property
    def transfers(self) -> dict[str, int]:
        """Number of copies to, from and between devices so far, by what was copied.

        The keys are "parameters", "feeds", "results" and "edges", which are values between nodes.
        A parameter is copied again only when it has changed.
        """
        none = dict.fromkeys(("parameters", "feeds", "edges", "results"), 0)
        return none if self._placing is None else dict(self._placing.transfers)

    def _all_plans(self) -> list[Plan]:
        return [*self._plans.values(), *self._step_plans]

    @property
    def source(self) -> str:
        """The programs generated so far, with node names as comments."""
        from actorgraph.machines import inspection

        return inspection.source(self._all_plans(), self._networks())

    def channels(self) -> list[ChannelStatistics]:
        """Return the state of every channel: depth, and with ``statistics=True`` peaks and waits.

        Takes no lock.  A channel carries what one task sends to another: values, cotangents (in
        reverse channels) and residuals.  With ``statistics=True`` it counts the messages sent and
        received and the most that it held, and times how long messages waited in it.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", (2,))
        >>> x2 = (x * 2.0).named("double")
        >>> y = np.tanh(x2).named("y")
        >>> with ag.ActorMachine(y, fuse="none", statistics=True) as machine:
        ...     _ = machine.run_sync({"x": np.ones(2, "float32")})
        ...     [_, edge] = machine.channels()
        >>> edge.name, edge.direction, edge.depth, edge.sent, edge.received, edge.peak_depth
        ('double -> y', 'forward', 0, 1, 1, 1)
        >>> 0 < edge.waited_s == edge.longest_wait_s
        True
        """
        return [c.statistics() for network in self._networks() for c in network.channels]

    def check(
        self,
        lanes: Iterable[Iterable[tuple[Any, str, int]]] = (),
        *,
        credits: Mapping[Any, int] | None = None,  # noqa: A002 - the word for it
        backward: bool | Mapping[Any, Any] | None = None,
    ) -> Report:
        """Check whether a mode can deadlock, without running it; see `machines.check.Report`.

        Capacities alone never deadlock: the oldest run can always advance.  Fixed orders of tasks,
        and credits beside those of the channels, can.  With ``fuse="auto"`` the first run of a mode
        cuts it into tasks; until then one task per node is checked.

        Parameters
        ----------
        lanes : iterable of iterables of (node or name, kind, run)
            For each worker its actions in order.  The node names the task that computes it.  The
            kind is ``"F"``, ``"B"``, or ``"W"`` for gradients of weights if these are a task of
            their own; runs count from 0.  Tasks in no lane may run in any order.
        credits : dict, optional
            ``{((node, kind), (node, kind)): n}``: the first task may be at most n runs ahead of
            the second.
        backward : bool or dict, optional
            The mode, as in `run`.  Default forward and backward, as in a training step, if the
            machine has a wrt and its first output is a scalar with a gradient; else forward.

        Raises
        ------
        GraphError
            There is no such task, or it is in two lanes, or twice in one.

        Examples
        --------
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", (2,))
        >>> a = (x * 2.0).named("a")
        >>> b, c = (a + 1.0).named("b"), (a - 1.0).named("c")
        >>> machine = ag.ActorMachine([b, c], fuse="none", capacity={"a": 1})
        >>> machine.check().ok
        True
        >>> turns = [("b", "F", 0), ("b", "F", 1), ("c", "F", 0), ("c", "F", 1)]
        >>> print(machine.check([turns]))
        forward, 3 tasks, cut one_per_node: can block
          lane 0 is at 'b' of run 1, which waits for a message in a -> b
          'a' is at run 1, which waits for room in a -> c (capacity 1)
          raise the capacity of a -> c from 1 to 2
        """
        from actorgraph.machines import check  # rarely needed

        if backward is None:
            backward = trains(self.outputs, self.wrt)
        mode, _ = mode_of(self.graph, self.outputs, backward, None)
        return check.report(self, self._known(mode), lanes, {} if credits is None else credits)

    def busiest(self, count: int = 5) -> list[tuple[str, str, float, int]]:
        """Return (node name, op name, seconds, firings) of the nodes that took longest.

        All turns of about 10 us and more are timed, and one in 16 of the others; the figures are
        extrapolated.  A region of several nodes is named after its first.  The time of runs that
        the calling thread computed is divided among nodes by predicted cost.
        """
        from actorgraph.machines import inspection

        return inspection.busiest(self._all_plans(), self._networks(), count)

    def costs(self) -> dict[str, float]:
        """Return the microseconds of forward calls by node name, predicted or refined by measuring.

        They hold for the sizes bound last.  A machine made with ``costs=`` of them cuts its regions
        by them once, and never again.
        """
        from actorgraph.machines import inspection

        return inspection.costs(self._plans.values())

    def explain(self) -> str:
        """Return a text: what runs where and why, predicted and measured costs, placement."""
        from actorgraph.machines import inspection

        return inspection.explain(self._all_plans(), self._networks(), self.workers)

    def memory_plan(self) -> list[MemoryPlan]:
        """Return the planned memory of each mode that has run.

        Nothing is measured; figures hold for the sizes bound last.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", shape=(64, 10))
        >>> with ag.TapeMachine([np.tanh(np.tanh(np.tanh(x)))]) as machine:
        ...     _ = machine.run_sync({"x": np.zeros((64, 10), "float32")})
        ...     [plan] = machine.memory_plan()
        >>> plan.peak_bytes, plan.bound_bytes, plan.buffered
        (5120, 5120, 2)
        """
        from actorgraph.machines import inspection

        return inspection.memory_plan(self._all_plans(), lends=self.max_bytes is None)

    def memory(self) -> LiveBytes:
        """Return the bytes held now, by owner: parameters, arenas, results, feeds, scratch.

        Its ``peak`` has the most of each so far.
        """
        from actorgraph.machines.holdings import live_bytes  # rarely needed

        return live_bytes(self, self.graph, self._core, self._all_plans())

    def _repr_html_(self) -> str:
        from actorgraph.notebook import verbatim

        return verbatim(str(self.explain()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {printable(', '.join(self.outputs))} ({self._state()})>"
