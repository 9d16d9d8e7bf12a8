"""Recommends a schedule: simulates all, and ranks those that fit by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import le
from typing import Any, Unpack

from actorgraph.errors import ScheduleError
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.model import (
    Costs,
    PerDevice,
    Setting,
    are_by_stage,
    at_least,
    listed,
    per_device,
)
from actorgraph.schedules.orders import ORDERS
from actorgraph.schedules.simulation import Simulation, simulate


def recommend(
    *, stages: int, microbatches: int, costs: Costs, memory: PerDevice | None = None,
    chunks: Sequence[int] = (1, 2), schedules: Iterable[str] | None = None,
    whole: Costs | None = None, **setting: Unpack[Setting],
) -> list[Simulation]:  # fmt: skip
    """Return the simulations of all schedules that fit, the fastest first.

    Parameters
    ----------
    stages : int
        Number of devices.
    microbatches : int
        Of one step.
    costs : sequence
        As `simulate` takes them.  With a triple for each stage of the model, only schedules with
        that many stages are compared.
    memory : number or sequence, optional
        Memory of all devices or of each, in the unit of `activation_size` and `weight_size`; by
        their defaults, in activations of one microbatch.
    chunks : sequence of int
        Possible numbers of stages on a device; ``(1,)`` leaves out all schedules that need two.
    schedules : iterable of str, optional
        Names to compare; by default all.
    whole : (F, B, W), optional
        Times of one device for all stages and the whole batch, to compare as well: rows of small
        microbatches may take longer.
    **setting
        Devices and links, as `simulate` takes them.

    Returns
    -------
    list of Simulation
        By makespan, then by the largest memory peak.  Orders with a warm-up are also tried with
        longer ones.

    Raises
    ------
    ScheduleError
        If none fits; says how much memory the least takes.

    Examples
    --------
    >>> import actorgraph as ag
    >>> for found in ag.pipeline.recommend(stages=4, microbatches=8, costs=(1, 1, 1), memory=4)[:3]:
    ...     print(found.schedule.name, found.makespan)
    zb-h1 chunks=2 51/2
    zb-v 51/2
    zb-h1 27
    >>> best, *_ = recommend(stages=2, microbatches=8, costs=(1, 1, 1), whole=(8, 8, 8))
    >>> best.schedule.name
    'whole batch on one device'
    """
    p = at_least("stages", stages, 1)
    limits = None if memory is None else per_device("memory", memory, p)
    names: list[Any] = list(ORDERS) if schedules is None else listed("schedules", schedules)
    chunks = [at_least("chunks", v, 1) for v in listed("chunks", chunks)]
    if not names:
        raise ScheduleError("schedules is empty; name some, or leave it out for all")
    tried = [
        simulate(
            name,
            stages=p,
            microbatches=microbatches,
            costs=costs,
            chunks=v,
            extra_warmup=extra,
            **setting,
        )
        for name in names
        for v, extra in _options(name, p, chunks, costs)
    ]
    if whole is not None:
        tried.append(_on_one_device(whole, p, microbatches, setting))
    if not tried:
        stages_of = _stages_of(costs) or "any number of"
        raise ScheduleError(
            f"none of {', '.join(map(str, names))} can hold {' or '.join(map(str, chunks))} stages "
            f"on a device, with costs for {stages_of} stages on {p} devices"
        )
    fitting = [
        one for one in tried
        if limits is None or all(map(le, one.peak_memory, limits))
    ]  # fmt: skip
    if not fitting:
        least = min(tried, key=_peak)
        raise ScheduleError(
            f"no schedule fits memory={memory}; {least.schedule.name!r} takes the least, "
            f"{float(_peak(least)):g} on one device. Take less memory per microbatch, or fewer "
            "microbatches"
        )
    return sorted(fitting, key=_rank)


def _on_one_device(costs: Costs, devices: int, microbatches: int, setting: Setting) -> Simulation:
    held = per_device("activation_size", setting.get("activation_size", 1), devices)
    weights = per_device("weight_size", setting.get("weight_size", 0), devices)
    made = Schedule.parse(["0F0 0BW0"], "whole batch on one device")
    activations = microbatches * sum(held)
    return simulate(made, costs=costs, activation_size=activations, weight_size=sum(weights))


def _rank(simulation: Simulation) -> tuple[float, float]:
    return float(simulation.makespan), float(_peak(simulation))


def _peak(simulation: Simulation) -> float:
    return float(max(simulation.peak_memory))


def _options(
    name: str, devices: int, chunks: Sequence[int], costs: Costs
) -> Iterator[tuple[int | None, int]]:
    """Yield chunks and extra warm-ups to try."""
    order = ORDERS.get(name) if isinstance(name, str) else None
    if order is None:
        yield None, 0  # `simulate` raises for the name
        return
    # An interleaved order of one chunk has another name.
    possible = [v for v in chunks if v >= order.chunks] if order.any_chunks else [order.chunks]
    warmups = sorted({0, devices // 2, devices - 1}) if order.has_warmup else [0]
    for v in possible:
        if v in chunks and _stages_of(costs) in (None, devices * v):
            yield from ((v, extra) for extra in warmups)


def _stages_of(costs: Costs) -> int | None:
    """Return the number of stages that the costs are for, None if they are for whole devices."""
    return len(costs) if are_by_stage(costs) else None
