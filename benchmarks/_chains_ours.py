"""The chains graph on our machines, and the cost of the smallest calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from benchmarks._chains_arrays import CountingTanh
from benchmarks._harness import Trial, at_median, awaited
from benchmarks._work import (
    Array,
    Built,
    chain_arrays,
    chains,
    one_tanh,
    twenty,
    twenty_arrays,
    twenty_ops,
)

if TYPE_CHECKING:
    import actorgraph as ag

# The features that each setting leaves on, beside those of the graph itself.
ALWAYS = "feed validation, Dual, run tag"


def machine_trial(
    kind: str, *, backward: bool, features: str = ALWAYS, **settings: object
) -> Callable[[ExitStack], Trial]:
    """Run machine `kind`; forward returns all chain ends, backward the loss and x's gradient."""

    def build(scope: ExitStack) -> Trial:
        built = chains()
        run = _runner(built, kind, settings, scope, backward=backward)
        with ExitStack() as counting_scope:
            tanh = CountingTanh()
            counting_scope.enter_context(mock.patch.object(np, "tanh", tanh))
            _runner(built, kind, settings, counting_scope, backward=backward)()
        nodes = _tanh_nodes(built.ends)
        facts: dict[str, object] = {"features on": features, "tanh nodes": nodes}
        return Trial(run, executions=tanh.calls, facts=facts)

    return build


def _runner(
    built: Built, kind: str, settings: dict[str, object], scope: ExitStack, *, backward: bool
) -> Callable[[], Sequence[Array]]:
    import actorgraph as ag

    outputs = [built.loss] if backward else list(built.ends)
    wrt = [built.x] if backward else []
    machine = scope.enter_context(getattr(ag, kind)(outputs, wrt=wrt, **settings))
    feeds = {"x": chain_arrays()[0]}

    def forward() -> list[Array]:
        run = machine.run_sync(feeds)
        return [run[end].value for end in built.ends]

    def forward_backward() -> list[Array]:
        run = machine.run_sync(feeds, backward=True)
        return [run[built.loss].value, run[built.x].grad]

    return forward_backward if backward else forward


def _tanh_nodes(ends: Sequence[ag.Node]) -> int:
    """How many different nodes of the user's graph are a tanh."""
    seen: set[ag.Node] = set()
    stack = list(ends)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.inputs)
    return sum(node.op is not None and node.op.name == "tanh" for node in seen)


def numpy_call(_: ExitStack) -> Trial:
    """Call the bare array function that `run_sync` of one node is compared with."""
    x, _scales = chain_arrays()
    return Trial(lambda: [np.tanh(x)])


def run_sync_call(scope: ExitStack) -> Trial:
    """Call `run_sync` on a graph with one node."""
    import actorgraph as ag

    built = one_tanh()
    machine = scope.enter_context(ag.ActorMachine(built.ends))
    feeds, end = {"x": chain_arrays()[0]}, built.ends[0]
    return Trial(lambda: [machine.run_sync(feeds)[end].value])


def numpy_twenty(_: ExitStack) -> Trial:
    """Call the 20 ops on arrays, one after the other."""
    arrays = twenty_arrays()
    return at_median(lambda: [twenty_ops(*arrays)])


def twenty_call(kind: str) -> Callable[[ExitStack], Trial]:
    """Call `run_sync` of machine `kind` on a graph of 20 ops."""

    def build(scope: ExitStack) -> Trial:
        import actorgraph as ag

        built = twenty()
        nodes = sum(not node.is_leaf for node in built.graph.nodes)
        assert nodes == 20, f"{nodes} ops, not 20"
        machine = scope.enter_context(getattr(ag, kind)(built.ends, wrt=[]))
        feeds, end = {"x": twenty_arrays()[0]}, built.ends[0]
        return at_median(lambda: [machine.run_sync(feeds)[end].value])

    return build


def to_thread_call(scope: ExitStack) -> Trial:
    """Await nothing on another thread: what asyncio itself costs."""
    runner = scope.enter_context(asyncio.Runner())
    return awaited(runner.get_loop(), lambda: asyncio.to_thread(_nothing))


def run_await_call(scope: ExitStack) -> Trial:
    """Await `machine.run` of a graph with one node."""
    import actorgraph as ag

    runner = scope.enter_context(asyncio.Runner())
    machine = scope.enter_context(ag.ActorMachine(one_tanh().ends))
    feeds = {"x": chain_arrays()[0]}
    return awaited(runner.get_loop(), lambda: machine.run(feeds))


def _nothing() -> None:
    pass
