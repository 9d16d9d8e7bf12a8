"""A schedule: the actions of every device of a pipeline, as lists.

A schedule is data.  It has the order of actions, never their times: the simulator and the actors
read the same lists.  Every `Schedule` can be executed, because it is checked when it is made.

A *device* works through one list, its lane.  A *stage* is a part of the model; a device holds one
stage or several, its *chunks*.  Times and memory are in `simulation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, cast

from actorgraph.errors import ScheduleError, shown
from actorgraph.schedules.grids import Bar, draw
from actorgraph.schedules.notation import KINDS, Action, Kind, Notation, parse, read, write

Step = tuple[Action, ...]
"""An action, or two joined ones, that a device does at a time."""


@dataclass(frozen=True)
class Schedule:
    """The actions of each device in order, checked: complete, none twice, and executable.

    A schedule without any backward actions is for forward passes alone.

    Parameters
    ----------
    lanes : sequence of sequence of Action
        The actions of each device, in order; an action may be a plain tuple (stage, kind,
        microbatch).
    name : str
        For tables and errors.

    Raises
    ------
    ScheduleError
        If an action is missing or listed twice, if a stage is on two devices, or if devices would
        wait for each other forever.

    Examples
    --------
    >>> import actorgraph as ag
    >>> two = ag.pipeline.Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"])
    >>> print(two.grid())
    0 | 0F0  0F1       0BW0      0BW1
    1 |      1F0  1BW0 1F1  1BW1
    """

    lanes: Sequence[Sequence[Action]]
    name: str = "custom"

    def __post_init__(self) -> None:
        lanes = [tuple(map(_action, _listed(lane))) for lane in _listed(self.lanes)]
        object.__setattr__(self, "lanes", tuple(lanes))
        _check_complete(self)
        _ = self.order  # raises if there is none

    @classmethod
    def parse(cls, lanes: Iterable[str], name: str = "custom") -> Schedule:
        """Return the schedule of a text for each device, such as ``"0F0 0BW0 0F1 0BW1"``.

        Parameters
        ----------
        lanes : iterable of str
            Actions as `Action` prints them, separated by blanks.
        name : str
            For tables and errors.

        Raises
        ------
        ScheduleError
            As by the class, and for text that is no action.
        """
        return cls([[*map(parse, line.split())] for line in lanes], name)

    def save(self, path: str | Path, *, notation: Notation = "actorgraph") -> None:
        """Write a CSV file with a row for each device, a cell for each action.

        Parameters
        ----------
        path : path
            Overwritten if it exists.
        notation : str
            ``"actorgraph"``: cells as `Action` prints them.  ``"torch"``: the letters of
            ``torch.distributed.pipelining``, which writes I for B, and B for BW.
        """
        write(path, self.lanes, notation)

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.name!r}: {self.devices} devices, {self.stages} stages, "
            f"{self.microbatches} microbatches>"
        )

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.lanes)

    @cached_property
    def microbatches(self) -> int:
        """Number of microbatches."""
        return 1 + max(action.microbatch for lane in self.lanes for action in lane)

    @cached_property
    def device_of(self) -> tuple[int, ...]:
        """The device of every stage."""
        devices = {
            action.stage: device for device, lane in enumerate(self.lanes) for action in lane
        }
        return tuple(device for _, device in sorted(devices.items()))

    @cached_property
    def trains(self) -> bool:
        """Whether there are backward actions."""
        return any(action.kind != "F" for lane in self.lanes for action in lane)

    @cached_property
    def splits(self) -> bool:
        """Whether gradients of weights are actions of their own."""
        return any(action.kind == "W" for lane in self.lanes for action in lane)

    @cached_property
    def lane_names(self) -> tuple[str, ...]:
        """The names of the devices in recordings, after their stages."""
        held: list[list[str]] = [[] for _ in self.lanes]
        for stage, device in enumerate(self.device_of):
            held[device].append(str(stage))
        return tuple(f"stage{'s' * (len(one) > 1)} {', '.join(one)}" for one in held)

    @property
    def stages(self) -> int:
        """Number of stages of the model, over all devices."""
        return len(self.device_of)

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """The number of stages on each device."""
        held = Counter(self.device_of)
        return tuple(held[device] for device in range(self.devices))

    @cached_property
    def order(self) -> tuple[tuple[int, Step], ...]:
        """All steps as (device, step), in an order in which one worker could do them."""
        return _Walk(self).order()

    @cached_property
    def peak_activations(self) -> tuple[Fraction, ...]:
        """The most activations that each device holds at a time.

        The unit is those of one microbatch for all stages of one device.  Activations are held from
        the start of F to the end of BW, or of W if the backward pass is split.
        """
        return tuple(Fraction(_peak(lane), chunks) for lane, chunks in zip(self.lanes, self.chunks))

    def in_sequence(self) -> Schedule:
        """Return a schedule of one microbatch after another, which holds only one at a time.

        Examples
        --------
        >>> print(Schedule.parse(["0F0 0F1 0BW0 0BW1", "1F0 1BW0 1F1 1BW1"]).in_sequence().grid())
        0 | 0F0            0BW0 0F1            0BW1
        1 |      1F0  1BW0           1F1  1BW1
        """
        lanes = [
            [action._replace(joined=False) for action in sorted(lane, key=_place_in_sequence)]
            for lane in self.lanes
        ]
        return Schedule(lanes, f"{self.name}, in sequence")

    def grid(self) -> str:
        """Draw the order as if all steps took equally long: a row for each device."""
        results = Numbering(self)
        ends: dict[int, int] = {}
        free = [0] * self.devices
        bars: list[list[Bar]] = [[] for _ in self.lanes]
        for device, step in self.order:
            sent = [ends[needed] for needed in map(results.received, step) if needed is not None]
            start = max(free[device], *sent, 0)
            free[device] = start + 1
            ends.update((results.of(action), start + 1) for action in step if action.kind != "W")
            bars[device].append(Bar(start, start + 1, "".join(map(str, step)), step[0].kind))
        widest = max(len(bar.label) for row in bars for bar in row)
        return draw(bars, cells=widest + 1, idle=" ")


def load(path: str | Path, *, notation: Notation = "actorgraph", name: str = "") -> Schedule:
    """Read a schedule from a CSV file, as `Schedule.save` writes it.

    Parameters
    ----------
    path : path
        A row for each device, a cell for each action; empty cells are skipped.
    notation : str
        ``"actorgraph"`` or ``"torch"``, see `Schedule.save`.
    name : str
        By default the name of the file.

    Raises
    ------
    ScheduleError
        If a cell is no action, or the schedule is invalid; see `Schedule`.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import actorgraph as ag
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "schedule.csv"
    >>> ag.pipeline.schedule("1f1b", stages=2, microbatches=4).save(path)
    >>> ag.pipeline.load(path).stages
    2
    """
    return Schedule(read(path, notation), name or Path(path).stem)


def _place_in_sequence(action: Action) -> tuple[int, bool, int, str]:
    stage, kind, microbatch, _ = action
    return microbatch, kind != "F", stage if kind == "F" else -stage, kind


def _action(given: Any) -> Action:
    if type(given) is Action:
        return given
    if not isinstance(given, tuple) or not 3 <= len(given) <= 4:
        raise ScheduleError(f"an action is a tuple (stage, kind, microbatch), got {shown(given)}")
    stage, kind, microbatch = given[:3]
    if not (_is_number(stage) and isinstance(kind, str) and _is_number(microbatch)):
        raise ScheduleError(
            f"an action is (stage, kind, microbatch): two whole numbers and, between them, one or "
            f"two letters; got {shown(given)}"
        )
    return Action(int(stage), cast(Kind, kind), int(microbatch), *given[3:])


def _is_number(given: Any) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool)


def _listed(given: Any) -> Iterable[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ScheduleError(f"a schedule is a list of actions for each device, got {shown(given)}")
    return given


class Numbering:
    """Numbers the results of actions: forward and backward of each stage and microbatch."""

    def __init__(self, schedule: Schedule) -> None:
        self.row = 2 * schedule.microbatches  # of one stage
        self.end = self.row * schedule.stages

    def of(self, action: Action) -> int:
        """Return the number of an action's result; a W has none, and gets that of its B."""
        stage, kind, microbatch, _ = action
        return self.row * stage + 2 * microbatch + (kind != "F")

    def received(self, action: Action) -> int | None:
        """Return the result that an action needs of the previous or next stage, if any."""
        kind = action.kind
        if kind == "W":
            return None
        number = self.of(action) - self.row if kind == "F" else self.of(action) + self.row
        return number if 0 <= number < self.end else None

    def name(self, number: int) -> tuple[int, str]:
        """Return the stage of a result, and words for it."""
        stage, rest = divmod(number, self.row)
        direction = "backward" if rest % 2 else "forward"
        return stage, f"the {direction} action of stage {stage} for microbatch {rest // 2}"


def steps_of(lane: Sequence[Action]) -> list[Step]:
    """Return the steps of a lane."""
    steps: list[Step] = []
    for action in lane:
        if action.joined:
            steps[-1] += (action,)
        else:
            steps.append((action,))
    return steps


def _peak(lane: Sequence[Action]) -> int:
    """Return the most microbatches held at a time, summed over chunks."""
    held = most = 0
    for step in steps_of(lane):
        held += sum(action.kind == "F" for action in step)
        most = max(most, held)
        held -= sum(action.kind in ("W", "BW") for action in step)
    return most


def _check_complete(schedule: Schedule) -> None:
    """Raise unless every stage has all its actions once for every microbatch, on one device."""
    if not schedule.lanes or not all(schedule.lanes):
        empty = [device for device, lane in enumerate(schedule.lanes) if not lane]
        what = f"device {empty[0]} has no action" if empty else "there is no device"
        raise ScheduleError(f"{what}; every device needs at least one action")
    seen: dict[tuple[int, str, int], int] = {}
    home: dict[int, int] = {}
    for device, lane in enumerate(schedule.lanes):
        for position, action in enumerate(lane):
            if action.kind not in KINDS or action.stage < 0 or action.microbatch < 0:
                raise ScheduleError(
                    f"device {device} lists {action[:3]}; an action is (stage, kind, microbatch): "
                    f"stage and microbatch count from 0, and the kind is one of {', '.join(KINDS)}"
                )
            if seen.setdefault(action[:3], device) != device or (
                home.setdefault(action.stage, device) != device
            ):
                raise ScheduleError(
                    f"stage {action.stage} is on device {home[action.stage]} and on device "
                    f"{device}, which lists {action}; a stage stays on one device"
                )
            _check_joined(device, lane, position)
    if len(seen) < sum(map(len, schedule.lanes)):
        doubled = Counter(action[:3] for lane in schedule.lanes for action in lane)
        key, count = doubled.most_common(1)[0]
        text = "{}{}{}".format(*key)
        raise ScheduleError(f"device {seen[key]} lists {text} {count} times instead of once")
    for stage in range(1 + max(home)):
        if stage not in home:
            raise ScheduleError(f"no device lists stage {stage}, but one lists stage {max(home)}")
        for microbatch in range(schedule.microbatches):
            _check_microbatch(stage, microbatch, seen, home[stage], schedule.trains)


def _check_joined(device: int, lane: Sequence[Action], position: int) -> None:
    action = lane[position]
    if not action.joined:
        return
    before = lane[position - 1] if position else None
    if before is None or before.joined or (before.kind == "F") == (action.kind == "F"):
        raise ScheduleError(
            f"device {device} joins {action} to {before}; only a forward and a backward "
            "action that follow each other can be joined, in pairs"
        )


def _check_microbatch(
    stage: int, microbatch: int, seen: dict[tuple[int, str, int], int], device: int, trains: bool
) -> None:
    listed = {kind for kind in KINDS if (stage, kind, microbatch) in seen}
    if listed in (({"F", "BW"}, {"F", "B", "W"}) if trains else ({"F"},)):
        return
    doubled = listed & {"B", "W"} if "BW" in listed else set()
    if doubled:
        raise ScheduleError(
            f"device {device} lists {stage}BW{microbatch} and {stage}{min(doubled)}{microbatch}: "
            "BW is B and W at once; remove one of them"
        )
    wanted = KINDS[:3] if listed & {"B", "W"} else ("F", "BW") if trains else ("F",)
    missing = " and ".join(f"{stage}{kind}{microbatch}" for kind in wanted if kind not in listed)
    raise ScheduleError(
        f"device {device} does not list {missing}; a stage needs F and either BW or both B and W "
        "for every microbatch"
    )


class _Walk:
    """Finds an executable order of all lanes, or raises."""

    def __init__(self, schedule: Schedule) -> None:
        self.results = Numbering(schedule)
        self.device_of = schedule.device_of
        self.lanes = [steps_of(lane) for lane in schedule.lanes]
        self.position = [0] * schedule.devices
        self.done = bytearray(self.results.end)
        self.waiting: dict[int, int] = {}  # result to the device that waits for it

    def order(self) -> tuple[tuple[int, Step], ...]:
        order: list[tuple[int, Step]] = []
        ready = list(range(len(self.lanes)))
        while ready:
            self._advance(ready.pop(), order, ready)
        if len(order) < sum(map(len, self.lanes)):
            raise ScheduleError(self._blocked())
        return tuple(order)

    def _advance(self, device: int, order: list[tuple[int, Step]], ready: list[int]) -> None:
        """Append the steps that a device can do now."""
        steps = self.lanes[device]
        for position in range(self.position[device], len(steps)):
            step = steps[position]
            for action in step:
                missing = self._missing(action)
                if missing is not None:
                    self.position[device] = position
                    self.waiting[missing] = device
                    return
            order.append((device, step))
            for action in step:
                if action.kind != "W":
                    result = self.results.of(action)
                    self.done[result] = True
                    if result in self.waiting:
                        ready.append(self.waiting.pop(result))
        self.position[device] = len(steps)

    def _missing(self, action: Action) -> int | None:
        """Return a result that the action needs and that is not done yet."""
        kind = action.kind
        if kind != "F":
            own = self.results.of(action) - (kind != "W")  # W needs its B, others their forward
            if not self.done[own]:
                return own
        received = self.results.received(action)
        return None if received is None or self.done[received] else received

    def _blocked(self) -> str:
        """Describe a cycle of devices, each waiting for a later action of the next."""
        waits = {device: result for result, device in self.waiting.items()}
        path: list[int] = [next(iter(waits))]
        while path.count(path[-1]) < 2:
            path.append(self.device_of[self.results.name(waits[path[-1]])[0]])
        cycle = path[path.index(path[-1]) : -1]
        return "this order cannot be executed: " + "; ".join(
            self._waiting_for(device, *self.results.name(waits[device])) for device in cycle
        )

    def _waiting_for(self, device: int, stage: int, wanted: str) -> str:
        other = self.device_of[stage]
        now, then = (
            "".join(map(str, self.lanes[who][self.position[who]])) for who in (device, other)
        )
        later = (
            "comes later in its list" if other == device else f"device {other} does after {then}"
        )
        return f"device {device} cannot start {now} before {wanted}, which {later}"
