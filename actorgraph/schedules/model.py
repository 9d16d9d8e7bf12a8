"""Durations of steps and messages, exact for exact inputs.

Whole numbers and fractions stay exact: all times are multiples of the largest unit that divides
them, so that the simulator adds integers.  A single float makes all of them floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm
from numbers import Integral, Rational, Real
from operator import index
from typing import Any, SupportsIndex, TypedDict, TypeGuard

from actorgraph.errors import ScheduleError, shown
from actorgraph.schedules.actions import Step

Amount = int | float | Fraction
"""A time, size or speed, in any unit."""

MOST_ACTIONS = 100_000
"""The most forward actions of a schedule."""

_LARGEST = 10**100

Costs = Sequence[Amount] | Sequence[Sequence[Amount]]
"""(F, B, W) of all stages of a device for one microbatch, or (F, B, W) for each stage itself."""

PerDevice = Amount | Sequence[Amount]
"""One amount for all devices, or one for each."""

PerLink = Amount | Mapping[tuple[int, int], Amount]
"""One amount for all links between devices, or one for each (from, to)."""


class Setting(TypedDict, total=False):
    """The keywords of `simulate` for devices and links, for functions that pass them on."""

    t_fb: Amount | None
    latency: PerLink
    bandwidth: PerLink | None
    message_size: Amount
    speeds: PerDevice
    activation_size: PerDevice
    weight_size: PerDevice


class Model:
    """Durations in whole multiples of one unit, or floats.

    Parameters
    ----------
    device_of : sequence of int
        The device of each stage.
    costs, t_fb, latency, bandwidth, message_size, speeds
        As `simulate` takes them.

    Raises
    ------
    ScheduleError
        An amount is no number or negative, or does not fit the number of stages or devices.
    """

    def __init__(
        self, device_of: Sequence[int], costs: Costs, *, t_fb: Amount | None = None,
        latency: PerLink = 0, bandwidth: PerLink | None = None, message_size: Amount = 0,
        speeds: PerDevice = 1,
    ) -> None:  # fmt: skip
        devices = 1 + max(device_of)
        rates = per_device("speeds", speeds, devices, positive=True)
        times: dict[Any, Amount] = {}
        for stage, (forward, inputs, weights) in enumerate(_by_stage(device_of, costs)):
            rate = rates[device_of[stage]]
            parts = {"F": forward, "B": inputs, "W": weights, "BW": inputs + weights}
            times.update({(stage, kind): time / rate for kind, time in parts.items()})
        if t_fb is not None:
            block = amount("t_fb", t_fb)
            times.update({("block", d): block / rate for d, rate in enumerate(rates)})
        size = amount("message_size", message_size)
        links = {pair for a, b in pairwise(device_of) if a != b for pair in ((a, b), (b, a))}
        for pair in sorted(links):
            times["delay", *pair] = _of_link("latency", latency, pair)
            times["sending", *pair] = (
                0
                if bandwidth is None
                else size / _of_link("bandwidth", bandwidth, pair, positive=True)
            )
        self._times, self._unit = _in_units(times)

    def duration(self, device: int, step: Step) -> Any:
        """The time that a step takes."""
        if len(step) == 2 and ("block", device) in self._times:
            return self._times["block", device]
        return sum(self._times[action.stage, action.kind] for action in step)

    def link(self, *pair: int) -> tuple[Any, Any]:
        """The times that a message occupies a link, and then takes to arrive."""
        return self._times["sending", *pair], self._times["delay", *pair]

    def time(self, count: Any) -> Amount:
        """Convert a number of units to the user's unit."""
        return count if self._unit is None else plain(Fraction(count, self._unit))


def amount(what: str, given: Any, *, positive: bool = False) -> Amount:
    """Return a number that is not negative, or raise with its name.

    Very large and small ones are refused, so that sums and quotients stay in range.
    """
    found: Amount = -1
    if isinstance(given, Real) and given is not True and given is not False:
        whole = int(given) if isinstance(given, Integral) else given
        found = Fraction(whole) if isinstance(whole, Rational) else float(given)
    in_range = found == 0 or 1 / _LARGEST <= found <= _LARGEST
    fine = isinstance(found, Fraction) and found.denominator > _LARGEST
    if not in_range or fine or (positive and not found):
        least = "above 0" if positive else "of at least 0"
        raise ScheduleError(
            f"{what} is {shown(given)}; expected a number {least}, of at most 100 digits"
        )
    return found


def at_least(what: str, number: SupportsIndex, least: int) -> int:
    """Return a whole number in range, or raise with its name."""
    try:
        value = least - 1 if isinstance(number, bool) else index(number)
    except TypeError:
        value = least - 1
    if not least <= value <= MOST_ACTIONS:
        raise ScheduleError(
            f"{what} is {shown(number)}; it has to be a whole number from {least} on, at most "
            f"{MOST_ACTIONS:,}"
        )
    return value


def listed(what: str, given: Any) -> list[Any]:
    """Return the items of an iterable other than a string, or raise with its name."""
    if not _is_iterable(given) or isinstance(given, (str, bytes)):
        raise ScheduleError(f"{what} has to be a list, got {shown(given)}")
    return list(given)


def check_size(devices: int, chunks: int, microbatches: int) -> None:
    """Raise for a schedule that is too large to make."""
    if devices * chunks * microbatches > MOST_ACTIONS:
        raise ScheduleError(
            f"{devices} devices with {chunks} stages each and {microbatches} microbatches make "
            f"{devices * chunks * microbatches:,} pairs of stage and microbatch; "
            f"a schedule has at most {MOST_ACTIONS:,}"
        )


def per_device(
    what: str, given: PerDevice, devices: int, *, positive: bool = False
) -> list[Amount]:
    """Return one amount for each device."""
    if not _is_iterable(given):
        return [amount(what, given, positive=positive)] * devices
    amounts = [amount(f"{what}[{i}]", one, positive=positive) for i, one in enumerate(given)]
    if len(amounts) != devices:
        raise ScheduleError(f"{what} has {len(amounts)} entries, but there are {devices} devices")
    return amounts


def plain(number: Amount) -> Amount:
    """Return an int for a whole fraction, other numbers unchanged."""
    if isinstance(number, Fraction) and number.denominator == 1:
        return number.numerator
    return number


def are_by_stage(costs: Costs) -> bool:
    """Return whether the costs are a triple for each stage of the model."""
    return _is_iterable(costs) and any(
        _is_iterable(one) and not isinstance(one, str) for one in costs
    )


def _is_iterable(given: Any) -> TypeGuard[Iterable[Any]]:
    """Return whether a value is iterable; a 0-d array is not."""
    return isinstance(given, Iterable) and bool(getattr(given, "ndim", 1))


def _by_stage(device_of: Sequence[int], costs: Costs) -> list[list[Amount]]:
    """Return F, B and W of each stage."""
    given: list[Any] = list(costs) if _is_iterable(costs) else [costs]
    if not are_by_stage(costs):
        whole = _triple("costs", given)
        chunks = Counter(device_of)
        return [[time / chunks[device] for time in whole] for device in device_of]
    if len(given) != len(device_of):
        raise ScheduleError(
            f"costs has {len(given)} entries, but there are {len(device_of)} stages; expected "
            "(F, B, W) for all of them or one such triple for each"
        )
    return [_triple(f"costs[{stage}]", one) for stage, one in enumerate(given)]


def _triple(what: str, given: Any) -> list[Amount]:
    parts = list(given) if _is_iterable(given) else [given]
    if len(parts) != 3:
        raise ScheduleError(
            f"{what} is {shown(given)}; expected three times: forward, backward to the inputs, "
            "backward to the weights"
        )
    return [amount(f"{name} of {what}", part) for name, part in zip("FBW", parts)]


def _of_link(what: str, given: PerLink, pair: tuple[int, int], *, positive: bool = False) -> Amount:
    if not isinstance(given, Mapping):
        return amount(what, given, positive=positive)
    if pair not in given:
        raise ScheduleError(f"{what} has no entry for {pair}, the link from device to device")
    return amount(f"{what}[{pair}]", given[pair], positive=positive)


def _in_units(times: dict[Any, Amount]) -> tuple[dict[Any, Any], int | None]:
    """Return all times as multiples of 1 / unit and the unit; floats and None if one is a float."""
    exact = [time for time in times.values() if not isinstance(time, float)]
    if len(exact) < len(times):
        return {key: float(time) for key, time in times.items()}, None
    unit = lcm(*(Fraction(time).denominator for time in exact))
    return {key: int(time * unit) for key, time in times.items()}, unit
