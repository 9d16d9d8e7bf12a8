"""The laws of devices, in addition to those of machines.

A law gets ``make()``, which returns a new device, or the name of one.  Values are compared bit for
bit if the device's array module is NumPy, else up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from actorgraph import devices, ops, solvers
from actorgraph.errors import GraphError, MemoryLimitError, NodeError, RunCancelled
from actorgraph.graph import Graph
from actorgraph.machines import ActorMachine, LispMachine, TapeMachine
from actorgraph.op import Op
from actorgraph.testing._gate import OpGate, beyond, gated
from actorgraph.testing._laws import Laws, check_made, claim, on, raises, same_bits

Make = Callable[[], "devices.Device | str"]

DEVICE_LAWS = Laws()
"""The laws of devices: functions of ``make()``."""

_law = DEVICE_LAWS.law


def check_device(make: Make) -> None:
    """Raise if a device breaks a law of devices.

    Values, gradients and tangents are those of the CPU, also on lanes that the user names.  Values
    on the device are not copied needlessly.  Streams keep order and bound their runs.  Runs that
    fail, expire or are cancelled do not affect others.  Failed checks of values are reported.  A
    step trains there, `max_bytes` holds, and memory is released.

    Parameters
    ----------
    make : callable
        ``make()`` returns a device to try, or its name.

    Raises
    ------
    AssertionError
        The text says which law, what was got and what was expected.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.testing.check_device(lambda: "virtual:0")
    """
    check_made(DEVICE_LAWS, make, "a device")


class _Net:
    """Branches that meet, a view, a product and one parameter."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        g = Graph("net")
        self.graph, self.x = g, g.input("x", ("n", 4), "float64")
        self.w = g.parameter("w", draw.normal(size=(4, 3)))
        branches = [ops.tanh(self.x @ self.w + float(i)) for i in range(3)]
        turned = [ops.exp(branch.T * 0.5) for branch in branches]
        self.y = (turned[0] * turned[1] + turned[2]).named("y")
        self.loss = self.y.sum().named("loss")
        self.feeds = {"x": draw.normal(size=(5, 4))}

    def results(self, run: Any) -> list[Any]:
        duals = [run[self.loss], run[self.y], run[self.w]]
        slots = [(dual.value, dual.grad, dual.tangent) for dual in duals]
        return [one for slot in slots for one in slot if one is not None]


def _same(device: devices.Device, got: list[Any], wanted: list[Any], what: str) -> None:
    claim(len(got) == len(wanted), f"{what}: {len(got)} results, expected {len(wanted)}")
    for one, other in zip(got, wanted, strict=True):
        if device.xp is np:
            same_bits(one, other, what)
        else:
            np.testing.assert_allclose(one, other, 1e-9, 1e-9, err_msg=what)


_MODES: dict[str, dict[str, Any]] = {
    "forward": {}, "backward": {"backward": True}, "tangents": {"tangents": {"w": np.ones((4, 3))}},
}  # fmt: skip


@_law
def values_gradients_and_tangents_are_those_of_the_cpu(make: Make) -> None:
    net = _Net()
    with LispMachine([net.loss, net.y]) as machine:
        wanted = {k: net.results(machine.run_sync(net.feeds, **m)) for k, m in _MODES.items()}
    for kind in (LispMachine, TapeMachine, ActorMachine):
        for lanes, fuse in ((1, "auto"), (3, "none")):
            device = devices.get(make())
            options: Any = {"device": device, "lanes": lanes, "fuse": fuse}
            with kind([net.loss, net.y], **options) as machine:
                for name, mode in _MODES.items():
                    for _ in range(2):
                        got = net.results(machine.run_sync(net.feeds, **mode))
                        _same(device, got, wanted[name], f"{kind.__name__}, {name}, {options}")


@_law
def nodes_run_on_the_lanes_that_the_user_names(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    with LispMachine([net.y * 2.0]) as machine:
        (wanted,) = [machine.run_sync(net.feeds)[node].value for node in machine.outputs]
    with devices.device(device, lane=1):
        there = ops.to_device(net.y, device) * 2.0
    placed = there.placement
    claim(placed is not None and placed.device is device, f"a node is placed on {placed}")
    with ActorMachine([there], device="cpu", lanes=2) as machine:
        _same(device, [machine.run_sync(net.feeds)[there].value], [wanted], "on a lane of its own")


@_law
def a_parameter_is_copied_once_and_again_when_it_has_changed(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    first = 0 if device.is_host else 1
    with ActorMachine([net.loss], device=device, lanes=2) as machine:
        for _ in range(3):
            machine.run_sync(net.feeds)
        claim(
            machine.transfers["parameters"] == first, f"three runs copied {machine.transfers} times"
        )
        net.w.value = net.w.value * 2.0
        changed = machine.run_sync(net.feeds)[net.loss].value
        claim(machine.transfers["parameters"] == 2 * first, f"copies are {machine.transfers}")
    with LispMachine([net.loss]) as machine:
        _same(device, [changed], [machine.run_sync(net.feeds)[net.loss].value], "after a change")


@_law
def what_is_left_on_the_device_is_fetched_and_fed_without_a_copy(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    t = net.graph.input("t", (3, "n"), "float64")
    with ActorMachine([net.y], device=device) as machine:
        wanted = machine.run_sync(net.feeds)[net.y].value
        left: Any = machine.run_sync(net.feeds, fetch=False)[net.y].value
        claim(machine.transfers["results"] == (0 if device.is_host else 1), "a result was copied")
        if device.is_host:
            return
        claim(left.device == device.name, f"it is on {left.device}")
        same_bits(left.fetch(), wanted, "what was left there")
    with ActorMachine([t * 2.0], device=device) as machine:
        (got,) = [machine.run_sync({"t": left})[node].value for node in machine.outputs]
        claim(machine.transfers["feeds"] == 0, "a feed was copied that was there")
    same_bits(got, wanted * 2.0, "made of what was left there")
    if device.root.is_host:
        return  # a wrapper of the CPU stands for it
    with ActorMachine([t * 2.0]) as machine, raises(GraphError, "to_device"):
        machine.run_sync({"t": left})


@_law
def a_result_is_the_callers_own(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    with ActorMachine([net.y], device=device) as machine:
        first = machine.run_sync(net.feeds)[net.y].value
        kept = first.copy()
        first += 1.0
        same_bits(machine.run_sync(net.feeds)[net.y].value, kept, "the next run")


@_law
def what_is_brought_to_it_is_a_copy(make: Make) -> None:
    device = devices.get(make())
    if device.root.is_host:
        return
    x = Graph().input("x", (3,), "float64")
    there, given = ops.to_device(x, device), np.arange(3.0)
    with ActorMachine([there], device=device) as machine:
        left: Any = machine.run_sync({"x": given}, fetch=False)[there].value
        given += 1.0
        same_bits(left.fetch(), np.arange(3.0), "a feed on the device, when the caller's changed")


# -- streams --------------------------------------------------------------------------------------


@_law
def a_stream_is_in_order_and_takes_no_more_feeds_than_may_be_in_flight(make: Make) -> None:
    x = Graph().input("x", (2,), "float64")
    y = ops.exp(x * 0.25)
    taken = 0

    def source() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for number in range(20):
            taken += 1
            yield {"x": np.full(2, float(number))}

    device = devices.get(make())
    with ActorMachine([y], device=device, lanes=2) as machine:
        for number, run in enumerate(machine.stream(source(), max_in_flight=3)):
            claim(taken <= number + 5, f"{taken} feeds were taken when run {number} came")
            wanted = np.exp(np.full(2, number * 0.25))
            _same(device, [run[y].value], [wanted], f"run {number} of a stream")


# -- runs that fail, are late or are cancelled ----------------------------------------------------


def _picky(xp: Any, x: Any) -> Any:
    if x.shape[0] == 3:
        raise ValueError("not three")
    return x * 2.0


_PICKY = Op("testing_picky_on_device", "f[*s] -> f[*s]", _picky, checked=True)


@_law
def a_run_that_fails_names_node_and_device_and_fails_alone(make: Make) -> None:
    device = devices.get(make())
    graph = Graph()
    x = graph.input("x", ("n",), "float64")
    y = ops.exp(graph.apply(_PICKY, [x], {}).named("picked"))
    with ActorMachine([y], wrt=[], device=device, lanes=2) as machine:
        runs = [machine.start({"x": np.ones(size)}) for size in (2, 3, 4, 3, 2)]
        for size, run in zip((2, 3, 4, 3, 2), runs, strict=True):
            with on(f"a run of size {size}"):
                if size == 3:
                    with raises(NodeError, "(?s)picked.*not three") as caught:
                        run.result()
                    claim(device.name in caught[0].device, f"it names {caught[0].device!r}")
                else:
                    _same(device, [run.result()[y].value], [np.exp(np.full(size, 2.0))], "value")


@_law
def an_index_that_is_out_of_range_is_told(make: Make) -> None:
    device = devices.get(make())
    graph = Graph()
    x, i = graph.input("x", (4,), "float64"), graph.input("i", (2,), "int64")
    y = ops.exp(x[i].named("picked"))
    with ActorMachine([y], wrt=[], device=device, lanes=2) as machine:
        with raises(NodeError, "(?s)picked.*out of bounds"):
            machine.run_sync({"x": np.ones(4), "i": np.array([0, 4])})
        got = machine.run_sync({"x": np.ones(4), "i": np.array([0, -4])})[y].value
    _same(device, [got], [np.exp(np.ones(2))], "the next run")


@_law
def neighbours_of_a_run_that_is_cancelled_are_right(make: Make) -> None:
    gate, device = OpGate(), devices.get(make())
    gate.open(2)
    y = gated(gate)
    with ActorMachine([y], wrt=[], device=device, max_in_flight=1) as machine:
        first = machine.start({"x": np.ones(2)})
        doomed = machine.start({"x": np.ones(2)})
        last = machine.start({"x": np.full(2, 2.0)})
        if doomed.cancel():
            with raises(RunCancelled, "was cancelled"):
                doomed.result()
        else:
            gate.open()
        _same(device, [first.result()[y].value], [beyond(1.0)], "the run before")
        gate.open()
        _same(device, [last.result()[y].value], [beyond(2.0)], "the run after")


@_law
def a_run_past_its_deadline_is_told_and_the_next_is_right(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    with ActorMachine([net.loss], device=device) as machine:
        wanted = machine.run_sync(net.feeds)[net.loss].value
        with raises(TimeoutError, "run"):
            machine.start(net.feeds, timeout_s=1e-9).result()
        same_bits(machine.run_sync(net.feeds)[net.loss].value, wanted, "the next run")


# -- lives ----------------------------------------------------------------------------------------


@_law
def a_step_changes_parameters_as_on_the_cpu_and_copies_them_once(make: Make) -> None:
    found = []
    for device in (devices.get(make()), devices.get("cpu")):
        net = _Net()
        with ActorMachine([net.loss], device=device, lanes=2) as machine:
            step = machine.compile_step(solvers.Adam(0.1, clip_norm=0.5))
            losses = [step(net.feeds)[net.loss].value for _ in range(3)]
            copied = machine.transfers["parameters"] if machine.transfers else 0
            claim(copied <= 1, f"three steps copied {machine.transfers}")
        found.append([*losses, net.w.value])
    _same(devices.get(make()), found[0], found[1], "after three steps")


@_law
def what_runs_hold_there_is_bounded(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    small = ActorMachine([net.loss], device=device, max_bytes={device: 1})
    with small, raises(MemoryLimitError, "max_bytes is 1"):
        small.run_sync(net.feeds)
    with ActorMachine([net.loss], device=device, max_bytes=10**9) as machine:
        claim(machine.run_sync(net.feeds)[net.loss].value.shape == (), "a run that fits failed")


@_law
def memory_has_come_back_when_a_machine_has_closed(make: Make) -> None:
    net, device = _Net(), devices.get(make())
    with ActorMachine([net.loss, net.y], device=device, lanes=3, fuse="none") as machine:
        for _ in range(3):
            machine.run_sync(net.feeds, backward=True)
    for lane in device._lanes.values():
        lane.settle()
        claim(not lane.dropped and not lane.retired, f"memory of {lane} is still held")
    report: Any = getattr(device, "report", list)()
    claim(not report, f"findings: {report}")
