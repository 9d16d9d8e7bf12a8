"""The laws of machines, which hold for every cut.

A law gets ``make(outputs, **options)``, which returns a new machine with these options.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np

from actorgraph import ops
from actorgraph.errors import MachineClosedError, NodeError, RunCancelled
from actorgraph.graph import Graph
from actorgraph.machines import Machine
from actorgraph.node import Node
from actorgraph.op import Op
from actorgraph.testing._examples import (
    EXAMPLES,
    check_in_turn,
    check_overlapping,
    expected,
    results,
)
from actorgraph.testing._gate import OpGate, beyond, gated
from actorgraph.testing._laws import Laws, check_made, claim, on, raises, same_bits

Make = Callable[..., Machine]

MACHINE_LAWS = Laws()
"""The laws of machines: functions of ``make(outputs, **options)``."""

_law = MACHINE_LAWS.law
_ONES = {"x": np.ones(2)}


def check_machine(make: Make) -> None:
    """Raise if a machine breaks a law of machines.

    On graphs with fan-out, repeated inputs, tied weights, several outputs, no rows, integers,
    buffers, random ops and more, values, gradients and tangents have the bits of `LispMachine`, for
    runs in turn and overlapping.  Streams are in order, a run that fails or is cancelled does not
    affect others, ops may be asynchronous, and `close` ends runs in flight.

    Parameters
    ----------
    make : callable
        ``make(outputs, **options)`` returns a new machine, such as the class itself.

    Raises
    ------
    AssertionError
        The text says which law, on which graph and node, what was got and what was expected.

    Examples
    --------
    >>> from functools import partial
    >>> import actorgraph as ag
    >>> ag.testing.check_machine(partial(ag.ActorMachine, workers=1, fuse="none"))
    """
    check_made(MACHINE_LAWS, make, "a machine of outputs")


# -- values ---------------------------------------------------------------------------------------


@_law
def values_gradients_and_tangents_have_the_bits_of_the_sequential_machine(make: Make) -> None:
    for name, build in EXAMPLES.items():
        example = build()
        nodes, wanted = expected(example)
        with make(example.outputs, wrt=example.wrt) as machine, on(f"on the graph {name!r}"):
            check_in_turn(machine, example, nodes, wanted)


@_law
def runs_that_overlap_have_the_bits_of_runs_in_turn(make: Make) -> None:
    for name, build in EXAMPLES.items():
        example = build()
        if example.graph.buffers:
            continue  # their values depend on which runs have ended
        nodes, wanted = expected(example)
        with make(example.outputs, wrt=example.wrt) as machine, on(f"on the graph {name!r}"):
            check_overlapping(machine, example, nodes, wanted)


# -- streams --------------------------------------------------------------------------------------


def _squared() -> Node:
    x = Graph().input("x", (), "float64")
    return (x * x).named("y")


def _source(count: int) -> Iterator[dict[str, float]]:
    for number in range(count):
        yield {"x": float(number)}


@_law
def runs_of_a_stream_come_in_the_order_of_the_source(make: Make) -> None:
    for backward in (False, True):
        y = _squared()
        with make(y, wrt=[y.graph["x"]]) as machine:
            runs = list(machine.stream(_source(30), backward=backward))
        values = [float(run["y"].value) for run in runs]
        claim(values == [n**2 for n in range(30)], f"got {values}, expected squares in order")
        if backward:
            grads = [float(run["x"].grad) for run in runs]
            claim(grads == [2 * n for n in range(30)], f"got {grads}, expected 0, 2, 4 to 58")


# -- runs that fail, and runs that are cancelled --------------------------------------------------


def _refuses_fours(xp: Any, x: Any) -> Any:
    if round(float(np.log(x))) % 5 == 4:
        raise ValueError("not this one")
    return x


_PICKY = Op(
    "testing_picky", "f[*s] -> f[*s]", _refuses_fours, checked=True, vjp=(lambda ct, y, x: ct,)
)


@_law
def a_run_that_fails_among_others_fails_alone(make: Make) -> None:
    graph = Graph()
    x = graph.input("x", (), "float64")
    y = graph.apply(_PICKY, [ops.exp(x)], {}) * 3.0
    with make([y], wrt=[x]) as machine:
        runs = [machine.start({"x": float(i)}, backward=True) for i in range(20)]
        for i, run in enumerate(runs):
            if i % 5 == 4:
                with raises(NodeError, "(?s)testing_picky.*not this one"):
                    run.result()
            else:
                same_bits(run.result()[y].value, np.exp(float(i)) * 3, f"the value of run {i}")
                same_bits(run[x].grad, np.exp(float(i)) * 3, f"the gradient of run {i}")


@_law
def neighbours_of_a_run_that_is_cancelled_have_the_right_bits(make: Make) -> None:
    gate = OpGate()
    y = gated(gate)
    with make([y], wrt=[]) as machine:
        before = machine.start({"x": np.full(2, 1.0)})
        gate.wait_entered()
        doomed = machine.start({"x": np.full(2, 2.0)})
        after = machine.start({"x": np.full(2, 3.0)})
        claim(doomed.cancel(), "cancel() of a run in flight returned False")
        gate.open(3)
        same_bits(before.result()[y].value, beyond(1.0), "the run before")
        same_bits(after.result()[y].value, beyond(3.0), "the run after")
        with raises(RunCancelled, "run 1 was cancelled"):
            doomed.result()
        claim(not doomed.cancel(), "cancel() of a run that has ended returned True")
        claim(gate.calls == 2, "an op of a run that had been cancelled before was called")


@_law
def a_run_can_be_cancelled_while_it_is_queued(make: Make) -> None:
    gate = OpGate()
    y = gated(gate)
    with make([y], wrt=[], max_in_flight=1) as machine:
        first = machine.start(_ONES)
        gate.wait_entered()
        queued = machine.start(_ONES)
        claim(not queued.done, "a run is done that had to wait for another")
        claim(queued.cancel(), "cancel() of a queued run returned False")
        claim(queued.done, "a queued run that was cancelled is not done")
        with raises(RunCancelled, "run 1 was cancelled"):
            queued.result()
        gate.open()
        first.result()


# -- buffers --------------------------------------------------------------------------------------


def _counter() -> tuple[Any, Node]:
    """X -> y = x + count;  count <- count + 1 in every run that computes y."""
    graph = Graph()
    x = graph.input("x", (), "float64")
    count = graph.buffer("count", np.array(0.0))
    y = x + count
    graph.assign(count, count + 1.0, on=y)
    return count, y


@_law
def a_run_reads_the_buffer_and_commits_its_new_value(make: Make) -> None:
    count, y = _counter()
    with make(y) as machine:
        values = [float(machine.run_sync({"x": 10.0})[y].value) for _ in range(3)]
    claim(values == [10.0, 11.0, 12.0], f"got {values}, expected 10, 11, 12")
    claim(count.value == 3.0, f"the buffer is {count.value} after three runs, expected 3")


@_law
def a_run_that_does_not_compute_the_node_assigns_nothing(make: Make) -> None:
    count, y = _counter()
    with make(y.graph["x"] * 2.0) as machine:
        machine.run_sync({"x": 1.0})
    claim(count.value == 0.0, f"the buffer is {count.value}, expected 0")


@_law
def a_failed_run_assigns_nothing(make: Make) -> None:
    count, y = _counter()
    with make(ops.exp(y), watch=("inf",)) as machine:
        with np.errstate(over="ignore"), raises(NodeError, "Inf"):
            machine.run_sync({"x": 1e6})
        claim(count.value == 0.0, f"the buffer is {count.value} after a failed run, expected 0")
        machine.run_sync({"x": 1.0})
    claim(count.value == 1.0, f"the buffer is {count.value} after the next run, expected 1")


# -- event loops ----------------------------------------------------------------------------------


def _on_every_loop(main: Callable[[], Awaitable[None]]) -> None:
    for backend in ("asyncio", "trio"):
        if find_spec(backend) is not None:
            anyio.run(main, backend=backend)


@_law
def many_awaited_runs_overlap(make: Make) -> None:
    example = EXAMPLES["fan out"]()
    nodes, wanted = expected(example)

    async def main() -> None:
        async with make(example.outputs, wrt=example.wrt, max_in_flight=3) as machine:

            async def call(number: int) -> None:
                feeds, mode = example.runs()[number]
                got = results(await machine.run(feeds, **mode), nodes)
                claim(got == wanted[number], f"run {number} has other bits than alone")

            async with anyio.create_task_group() as group:
                for i in range(40):
                    group.start_soon(call, i % len(wanted))

    _on_every_loop(main)


class _Service:
    """The forward of an asynchronous op."""

    def __init__(self) -> None:
        self.raises: type[BaseException] | None = None
        self.threads: set[int] = set()
        self.inside = 0

    async def __call__(self, xp: Any, x: Any) -> Any:
        self.threads.add(threading.get_ident())
        self.inside += 1
        try:
            await anyio.lowlevel.checkpoint()
            if self.raises is not None:
                raise self.raises("from the service")
            return x * 2
        finally:
            self.inside -= 1


def _branches(service: _Service) -> list[Node]:
    graph = Graph()
    x = graph.input("x", (2,), "float64")
    op = Op("testing_remote", "f[*s] -> f[*s]", service, checked=True, runs_on="loop")
    return [ops.tanh(graph.apply(op, [x * float(k)], {})) for k in (1, 2, 3)]


def _answers(run: Any, outputs: list[Node]) -> None:
    for factor, output in enumerate(outputs, start=1):
        wanted = np.tanh(np.full(2, 2.0 * factor))
        np.testing.assert_allclose(run[output].value, wanted, err_msg=f"branch {factor}")


@_law
def an_asynchronous_op_runs_on_the_callers_loop(make: Make) -> None:
    async def main() -> None:
        service = _Service()
        outputs = _branches(service)
        async with make(outputs) as machine:
            for _ in range(2):
                _answers(await machine.run(_ONES), outputs)
        claim(service.threads == {threading.get_ident()}, "the op ran in another thread")

    _on_every_loop(main)


@_law
def a_failing_service_is_a_node_error_and_the_next_run_is_right(make: Make) -> None:
    async def main() -> None:
        service = _Service()
        outputs = _branches(service)
        async with make(outputs) as machine:
            for raised in (ValueError, MemoryError, SystemExit):
                service.raises = raised
                with raises(NodeError, f"{raised.__name__}: from the service") as caught:
                    await machine.run(_ONES)
                error = caught[0]
                claim(error.op == "testing_remote", f"the error names the op {error.op!r}")
                claim(isinstance(error.__cause__, raised), f"its cause is {error.__cause__!r}")
            service.raises = None
            _answers(await machine.run(_ONES), outputs)
        claim(service.inside == 0, f"{service.inside} calls are still under way")

    _on_every_loop(main)


# -- the end --------------------------------------------------------------------------------------


@_law
def closing_ends_runs_in_flight_and_queued(make: Make) -> None:
    gate = OpGate()
    machine = make([gated(gate)], wrt=[], max_in_flight=1)
    runs = [machine.start(_ONES) for _ in range(3)]
    gate.wait_entered()
    runs[-1].add_done_callback(gate.open)  # the queued run ends while the first is at the gate
    machine.close()
    for run in runs:
        with raises(MachineClosedError, "was closed during run"):
            run.result()
    claim(gate.inside == 0, "close() returned while an op was running")
    with raises(MachineClosedError, "closed"):
        machine.run_sync(_ONES)
    machine.close()
