"""`Stages`: the placement of a pipeline's stages on devices, and the transfers between them.

The tasks of a stage launch on one lane of its device, in the order of the schedule, without
waiting: events order what travels.  So a pipeline's lane runs far ahead of the device.  A copy to a
device starts when the action that needs it is launched, a copy of a result when that is launched; a
lane waits for the latter at the end of a run, and goes on with later runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, final

from actorgraph.devices import Device, Handed, Lane, Placement, base
from actorgraph.errors import GraphError, ScheduleError
from actorgraph.graph import Graph, Node
from actorgraph.lower.cuts import Costs, Cut
from actorgraph.lower.joint import Joint
from actorgraph.lower.kernels import Waiting
from actorgraph.lower.regions import TaskSpec, connect
from actorgraph.lower.residents import Brought, Residents, launching
from actorgraph.schedules.actions import Schedule


@final
class Stages(Residents):
    """The placement of a pipeline's stages.

    `devices` has one for each device of the schedule, or one for all; a node that the user has
    placed decides for its stage.  Another number of them raises `ScheduleError`.
    """

    def __init__(self, graph: Graph, devices: Sequence[Device], schedule: Schedule) -> None:
        if len(devices) == 1:
            devices = [*devices] * schedule.devices
        if len(devices) != schedule.devices:
            raise ScheduleError(
                f"devices= names {len(devices)}, but {schedule!r} has {schedule.devices}; name one "
                "for each, or one for all"
            )
        super().__init__(graph, devices, 1)
        self._schedule = schedule

    def cut(self, cut: Cut) -> Cut:
        """Return the cut itself."""
        return cut

    def connected(
        self, tasks: list[TaskSpec], result_of: Mapping[Node, int], joint: Joint, costs: Costs,
        symbols: Mapping[str, int],
    ) -> tuple[list[TaskSpec], list[Lane | None]]:  # fmt: skip
        """Return the tasks of stages with ports and sends, and the lane of each."""
        self.sources(joint)
        specs = connect(tasks, result_of)
        count = self._schedule.stages
        lanes = [self._lane_of(stage, specs, joint) for stage in range(count)]
        stage_of = {
            step.id: spec.region.index
            for spec in specs
            if spec.region.index < count
            for step in spec.steps
        }
        lane_of_spec = []
        for spec in specs:
            stage = spec.region.index
            if stage >= count:  # a sum of gradients from several stages
                stage = min([stage_of.get(part.id, 0) for s in spec.steps for part in s.inputs])
            lane_of_spec.append(lanes[stage])
        return specs, lane_of_spec

    def _lane_of(self, stage: int, specs: Sequence[TaskSpec], joint: Joint) -> Lane | None:
        steps = [step for spec in specs if spec.region.index == stage for step in spec.steps]
        named = {
            self._explicit[source.id]: source
            for source in [joint.source(step) for step in steps]
            if source.id in self._explicit
        }
        if len(named) > 1:
            one, other, *_ = named
            raise ScheduleError(
                f"nodes of stage {stage} are placed on {_place(one)} ({named[one].name!r}) and on "
                f"{_place(other)} ({named[other].name!r}); a stage runs in one place"
            )
        home = Placement(self._devices[self._schedule.device_of[stage]], None)
        where = next(iter(named), home)
        if where.device.is_host:
            return None
        for step in steps:
            if step.op.waits or step.op.kernel is not None:
                raise GraphError(
                    f"node {step.name!r} of stage {stage} runs on the host only, as asynchronous "
                    f"ops, loops and branches do, but the stage is on {where.device.name}; "
                    "place the stage on 'cpu'"
                )
        return where.device.lane(where.lane or 0)

    def kernel(
        self, step: Node, found: Any, lane: Lane | None, joint: Joint, *, fetch: bool | str
    ) -> Any:
        """Return the function that a program calls for a step of a stage."""
        return found if lane is None else launching(lane, step, joint, found)

    # -- values -----------------------------------------------------------------------------------

    def at(self, value: Any, lane: Lane | None) -> Any:
        """Return a value on a task's lane; for the host perhaps as a copy that has not ended."""
        if lane is not None:
            brought = value if isinstance(value, Brought) else Brought(value, "edges")
            there = isinstance(value, Handed) and value.lane.device is lane.device
            return value if there else self.bring(brought, lane.device, None)
        if not isinstance(value, Brought):
            return self.fetch(value, "edges")
        with base.issuing:
            if None not in value.on:
                value.on[None] = self.fetch(value.value, "edges")
            return value.on[None]

    @staticmethod
    def mark(values: Iterable[Any]) -> None:
        """Have other lanes wait for these values, not for what is launched after them."""
        for value in values:
            if isinstance(value, Handed):
                value.mark()

    def added(self, total: Any, value: Any) -> Any:
        """Return the sum of two values, on their device."""
        if not isinstance(total, Handed):
            return total + value
        lane = total.lane
        return lane.launch(lane.device.xp.add, [total, value], name=base.ADDED)


def is_fetched(value: Any) -> bool:
    """Return whether a value is a copy to the host, ended or not."""
    return isinstance(value, Handed) and value.lane is value.lane.device.lane("out")


def arrived(value: Any) -> Any:
    """Return the array of a copy to the host that has ended; other values unchanged."""
    return value.result() if is_fetched(value) else value


def _place(where: Any) -> str:
    return where.device.name if where.lane is None else f"{where.device.name} lane {where.lane}"


def _await_copies(answer: Callable[[Callable[[], Any]], None], values: Sequence[Handed]) -> None:
    """Answer True when copies to the host are done: the last one of each lane ends last."""
    last = {one.lane: one for one in sorted(values, key=attrgetter("seq"))}
    left = iter(last.values())

    def go_on() -> None:
        for copy in left:
            assert copy.event is not None
            copy.event.then(go_on)
            return
        answer(partial(bool, True))

    go_on()


COMPLETION = Waiting(_await_copies, "lane", None)
"""The op by which a lane waits for copies to the host."""
