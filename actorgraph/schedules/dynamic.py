"""Dynamic schedules: every device does what is ready, by a fixed preference.

Devices with credits do 1F1B without a list: they prefer a ready backward pass, and start a forward
pass only while fewer than p - d microbatches are in flight on device d.  The result is an ordinary
`Schedule`: the order to which this rule leads for given costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Literal, Unpack

from actorgraph.errors import ScheduleError, shown
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.model import Costs, Model, Setting, at_least, check_size, listed
from actorgraph.schedules.notation import Action
from actorgraph.schedules.simulation import Links


def dynamic(
    *,
    stages: int,
    microbatches: int,
    costs: Costs,
    credits: int | Sequence[int] | None = None,  # noqa: A002 - the term of flow control
    prefer: Literal["forward", "backward"] = "backward",
    split: bool = False,
    **setting: Unpack[Setting],
) -> Schedule:
    """Return the schedule of devices that do whatever is ready.

    Parameters
    ----------
    stages, microbatches : int
        One stage for each device.
    costs : sequence
        As `simulate` takes them; they decide what is ready first.
    credits : int or sequence of int, optional
        The most microbatches whose activations a device holds; by default p - d for device d of p,
        which makes 1F1B.  The number of microbatches is no limit.
    prefer : str
        The direction to take first when both are ready: ``"backward"`` or ``"forward"``.
    split : bool
        Whether backward passes are split; a W is done when nothing else is ready.
    **setting
        Latency and the like, as `simulate` takes them.

    Returns
    -------
    Schedule
        With the same setting, `simulate` returns the times that led to this order.

    Raises
    ------
    ScheduleError
        A number is invalid.

    Examples
    --------
    >>> import actorgraph as ag
    >>> print(ag.pipeline.dynamic(stages=2, microbatches=3, costs=(1, 1, 1)).grid())
    0 | 0F0  0F1       0BW0 0F2  0BW1      0BW2
    1 |      1F0  1BW0 1F1  1BW1 1F2  1BW2
    """
    p, m = at_least("stages", stages, 1), at_least("microbatches", microbatches, 1)
    check_size(p, 1, m)
    if not isinstance(prefer, str) or prefer not in ("forward", "backward"):
        raise ScheduleError(f"prefer is {shown(prefer)}; it can be 'forward' or 'backward'")
    if split is not True and split is not False:
        raise ScheduleError(f"split is {shown(split)}; it can be True or False")
    limits: list[Any] = [p - d for d in range(p)]
    if credits is not None:
        limits = [credits] * p if isinstance(credits, int) else listed("credits", credits)
    if len(limits) != p:
        raise ScheduleError(f"credits has {len(limits)} entries, but there are {p} devices")
    limits = [at_least("credits", limit, 1) for limit in limits]
    sizes = ("activation_size", "weight_size")
    times: dict[str, Any] = {key: value for key, value in setting.items() if key not in sizes}
    model = Model(range(p), costs, **times)
    devices = [_Device(d, limits[d], prefer == "forward", split) for d in range(p)]
    devices[0].ready["F"] = list(range(m))
    _Play(devices, model).run()
    return Schedule(tuple(tuple(device.lane) for device in devices), "dynamic")


class _Device:
    """The state of a device: its actions so far, the ready ones, and the microbatches it holds."""

    def __init__(self, number: int, limit: int, first: bool, split: bool) -> None:
        self.number = number
        self.credits = limit
        self.kinds: list[str] = ["B", "F", "W"] if split else ["BW", "F"]
        if first:
            self.kinds[:2] = self.kinds[1::-1]
        self.backward = self.kinds[first]
        self.ready: dict[str, list[int]] = {kind: [] for kind in self.kinds}
        self.lane: list[Action] = []
        self.held = 0
        self.busy = False

    def choose(self) -> Action | None:
        """Return the next action, if one is ready."""
        for kind in self.kinds:
            if self.ready[kind] and (kind != "F" or self.held < self.credits):
                self.held += kind == "F"
                action = Action(self.number, kind, heappop(self.ready[kind]))  # type: ignore[arg-type]
                self.lane.append(action)
                return action
        return None


class _Play:
    """A discrete-event simulation of all devices."""

    def __init__(self, devices: list[_Device], model: Model) -> None:
        self.devices = devices
        self.model = model
        self.links = Links(range(len(devices)), model)
        self.events: list[tuple[Any, int, Callable[[], object]]] = []
        self.numbers = count()  # of events, which happen in this order if their times are equal

    def run(self) -> None:
        """Simulate to the end; all events of one time come before the choices at that time."""
        now: Any = 0
        while True:
            for device in self.devices:
                action = None if device.busy else device.choose()
                if action is not None:
                    device.busy = True
                    end = now + self.model.duration(device.number, (action,))
                    self._at(end, partial(self._end, device, action, end))
            if not self.events:
                return
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, _, happens = heappop(self.events)
                happens()

    def _at(self, time: Any, happens: Callable[[], object]) -> None:
        heappush(self.events, (time, next(self.numbers), happens))

    def _end(self, device: _Device, action: Action, now: Any) -> None:
        """End an action, and send its result."""
        device.busy = False
        stage, kind, microbatch, _ = action
        if kind in ("W", "BW"):
            device.held -= 1
        elif kind == "B":
            heappush(device.ready["W"], microbatch)
        elif stage == len(self.devices) - 1:
            heappush(device.ready[device.backward], microbatch)
        forward = kind == "F"
        receiver = stage + (1 if forward else -1)
        if kind != "W" and 0 <= receiver < len(self.devices):
            ready = self.devices[receiver].ready["F" if forward else device.backward]
            arrive = partial(heappush, ready, microbatch)
            self._at(self.links.arrival(stage, forward, now), arrive)
