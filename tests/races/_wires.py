"""Small machines without threads: a core whose pool keeps the jobs for the threads of a test."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import cache
from typing import Any

import numpy as np

import actorgraph as ag
from actorgraph import devices
from actorgraph.lower import program
from actorgraph.lower.cuts import one_per_node
from actorgraph.lower.joint import Mode
from actorgraph.machines import core as core_module
from actorgraph.machines import network as network_module
from actorgraph.machines.capacities import Capacities
from actorgraph.machines.compiled import compiled
from actorgraph.machines.core import Core
from actorgraph.machines.plan import Plan
from actorgraph.machines.run import Run
from actorgraph.node_actor import Message
from actorgraph.scheduler import Scheduler
from tests.races._interleave import pause


class Jobs:
    """A pool that starts nothing."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Scheduler, int]] = deque()
        self.calls: deque[Callable[[], None]] = deque()  # of ops that wait

    def retain(self, workers: int) -> None: ...

    def release(self, workers: int, join: bool = True) -> None: ...

    def submit(self, scheduler: Scheduler, slot: int) -> None:
        self.jobs.append((scheduler, slot))

    def wait(self, scheduler: Scheduler, call: Callable[[], None]) -> bool:
        self.calls.append(call)
        return True

    def work_off(self) -> None:
        """Do what the pool's threads would do with the jobs that there are."""
        while self.jobs or self.calls:
            if self.calls:
                self.calls.popleft()()
                continue
            scheduler, slot = self.jobs.popleft()
            scheduler.work(slot)


class Slots(deque):
    """The free slots of a scheduler; none may be given back by two."""

    def append(self, slot: int) -> None:
        assert slot not in self, f"slot {slot} was held twice"
        super().append(slot)


class InFlight(dict):
    """The runs in flight, and the most that there were."""

    most = 0

    def __setitem__(self, number: int, run: Run) -> None:
        super().__setitem__(number, run)
        self.most = max(self.most, len(self))


def join() -> tuple[list[Any], bool]:
    """Two actors feed the two ports of a third."""
    x = ag.Graph().input("x", shape=(2,), dtype="float64")
    return [np.sin(x) + np.cos(x)], False


def fan() -> tuple[list[Any], bool]:
    """Three consumers of one value, whose cotangents meet again; float32, so that order shows."""
    x = ag.Graph().input("x", shape=(16,), dtype="float32")
    h = np.tanh(x)
    factors = np.float32(17.0), np.float32(5.0)
    return [(np.sin(h) * factors[0] + np.exp(h) + np.cos(h) * factors[1]).sum()], True


def chain() -> tuple[list[Any], bool]:
    """Three actors in a row; the first is a result too."""
    x = ag.Graph().input("x", shape=(2,), dtype="float64")
    h = np.sin(x)
    return [np.cos(np.exp(h)), h], False


def twins() -> tuple[list[Any], bool]:
    """Two results that two actors deliver."""
    x = ag.Graph().input("x", shape=(2,), dtype="float64")
    return [np.sin(x), np.cos(x)], False


_asked = ag.ops.define(
    "races_asked", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x + 1.0, blocking=True
)
_asked_in_turn = ag.ops.define(
    "races_asked_in_turn",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: x + 1.0,
    blocking=True,
    concurrency=1,
)


def asked() -> tuple[list[Any], bool]:
    """An op that waits, between two actors."""
    x = ag.Graph().input("x", shape=(2,), dtype="float64")
    return [np.cos(_asked(np.sin(x)))], False


def asked_in_turn() -> tuple[list[Any], bool]:
    """Two ops that wait, one call at a time."""
    x = ag.Graph().input("x", shape=(2,), dtype="float64")
    return [_asked_in_turn(np.sin(x)) + _asked_in_turn(x)], False


_asked_of_two = ag.ops.define(
    "races_asked_of_two",
    scheme="f[*s] -> f[*s] -> f[*s]",
    forward=lambda xp, x, y: x - y,
    blocking=True,
)


def asked_of_two() -> tuple[list[Any], bool]:
    """An op that waits, of two values that a run brings."""
    graph = ag.Graph()
    x, y = [graph.input(name, shape=(2,), dtype="float64") for name in "xy"]
    return [_asked_of_two(x, y)], False


@cache
def plan_of(build: Callable[[], tuple[list[Any], bool]]) -> Plan:
    outputs, backward = build()
    wrt = outputs[0].graph.inputs if backward else ()
    mode = Mode("backward", (outputs[0],)) if backward else Mode()
    names = {f"out{i}": node for i, node in enumerate(outputs)}
    plan = Plan(compiled(names, wrt, mode, devices.get("cpu")), one_per_node)
    plan.bind({})
    return plan


def feed_of(plan: Plan, number: int) -> np.ndarray:
    leaf = next(leaf for leaf in plan.compiled.joint.leaves if leaf.kind == "feed")
    return (np.arange(1.0, 1.0 + leaf.source.shape[0]) / 7 + number).astype(leaf.source.dtype)


class Machine:
    """A core with one plan, its network made beforehand, and a count of how often a run ended."""

    def __init__(
        self,
        build: Callable[[], tuple[list[Any], bool]] = join,
        *,
        workers: int = 2,
        max_in_flight: int = 2,
        capacity: int | None = None,
        core: type[Core] = Core,
        scheduler: type[Scheduler] = Scheduler,
        text: TextBug | None = None,
        message: type[Message] = Message,
    ) -> None:
        self.plan = plan_of(build)
        self.pool = Jobs()
        self.runs: list[Run] = []
        self.direct: list[Run] = []  # computed without actors
        self.ends: dict[int, int] = {}
        with (
            _replaced(core_module, "POOL", self.pool),
            _replaced(core_module, "Scheduler", scheduler),
        ):
            self.core = core(workers=workers, seed=0, max_in_flight=max_in_flight,
                             capacities=Capacities(capacity), counted=False)  # fmt: skip
        self.core.admission.in_flight = self.in_flight = InFlight()
        self.scheduler = self.core.scheduler
        self.scheduler.free = Slots(self.scheduler.free)
        lower = program.lower if text is None else _lower_with(text)
        with (
            _replaced(network_module, "lower", lower),
            _replaced(network_module, "Message", message),
        ):
            first = Run(self.core, self.plan, self.plan.bind({}), -1, 0)
            self.network = self.core.networks.of(first, [])
        assert text is None or text.planted
        finish = self.core.finish

        def counting(run: Run) -> None:
            self.ends[run.number] = self.ends.get(run.number, 0) + 1
            finish(run)

        self.core.finish = counting  # type: ignore[method-assign]

    def run(self) -> Run:
        """Make a run, not started."""
        plan, core = self.plan, self.core
        run = Run(core, plan, plan.bind({}), next(core.numbers), 0)
        run.leaves = [
            feed_of(plan, run.number)
            if leaf.kind == "feed"
            else np.ones(leaf.source.shape, leaf.source.dtype)
            for leaf in plan.compiled.joint.leaves
            if leaf.kind != "parameter"
        ]
        run.context = copy_context()
        self.runs.append(run)
        return run

    def start(self, run: Run, slot: int | None = None) -> None:
        self.core.start(run, slot)

    def begin(self, count: int) -> None:
        """Start runs without a thread having been offered anything yet."""
        for _ in range(count):
            self.start(self.run())

    def serve(self, until: Callable[[], bool]) -> None:
        """Be a thread of the pool."""
        while True:
            try:
                scheduler, slot = self.pool.jobs.popleft()
            except IndexError:
                if until():
                    return
                pause()
                continue
            scheduler.work(slot)

    def answer(self, until: Callable[[], bool]) -> None:
        """Be a thread in which ops wait."""
        while True:
            try:
                call = self.pool.calls.popleft()
            except IndexError:
                if until():
                    return
                pause()
                continue
            call()

    def check(self, *, dead: tuple[Run, ...] = ()) -> None:
        """Check what holds for every interleaving, after the jobs left over have been done."""
        self.pool.work_off()
        assert self.in_flight.most <= self.core.admission.max_in_flight, "too many runs in flight"
        assert sorted(self.scheduler.free) == list(range(self.scheduler.workers)), "a slot was lost"
        for run in self.runs:
            assert run.done, f"{run} did not end"
            if run.dead is None:
                same(run, expected(self.plan, run.number))
                if run in self.direct:
                    continue
                assert not any(run.tokens)
                assert self.ends[run.number] == 1, f"{run} ended {self.ends[run.number]} times"
            else:
                assert run in dead, f"{run} died of {run.dead!r}"
        assert not self.in_flight
        assert not self.core.admission.queued
        assert not self.scheduler.any_ready()


def same(run: Run, wanted: list[np.ndarray]) -> None:
    for got, value in zip(values(run), wanted, strict=True):
        assert got.tobytes() == value.tobytes(), f"{run}: {got} instead of {value}"


def values(run: Run) -> list[np.ndarray]:
    duals = [run[node] for node in run.plan.names.nodes]
    return [array for dual in duals for array in (dual.value, dual.grad) if array is not None]


_expected: dict[Any, list[np.ndarray]] = {}


def expected(plan: Plan, number: int) -> list[np.ndarray]:
    """Return what one worker computes for the run of this number, alone in a fresh machine."""
    key = id(plan), number
    if key not in _expected:
        builds = join, fan, chain, twins, asked, asked_in_turn, asked_of_two
        build = next(f for f in builds if plan_of(f) is plan)
        alone = Machine(build, workers=1, max_in_flight=1)
        while len(alone.runs) <= number:
            run = alone.run()
        alone.start(run)
        alone.pool.work_off()
        _expected[key] = values(run)
    return _expected[key]


class _replaced:
    def __init__(self, module: Any, name: str, value: Any) -> None:
        self.module, self.name, self.value = module, name, value

    def __enter__(self) -> None:
        self.before = getattr(self.module, self.name)
        setattr(self.module, self.name, self.value)

    def __exit__(self, *_: object) -> None:
        setattr(self.module, self.name, self.before)


def _lower_with(bug: TextBug) -> Callable[..., Any]:
    """Return a `lower` that plants the bug in each program in which it finds its place."""

    def lower(*args: Any, **named: Any) -> Any:
        made = program.lower(*args, **named)
        text = bug.plant(made.text)
        filename, make = program._compiled(text)
        return dataclasses.replace(made, text=text, filename=filename, make=make)

    return lower


class TextBug:
    """Rewriting rules for generated text; `planted` counts the programs that they have changed."""

    def __init__(self, *rules: tuple[str, str]) -> None:
        self.rules = [(re.compile(pattern, re.MULTILINE), new) for pattern, new in rules]
        self.planted = 0

    def plant(self, text: str) -> str:
        changed = text
        for pattern, new in self.rules:
            changed = pattern.sub(new, changed)
        self.planted += changed != text
        return changed
