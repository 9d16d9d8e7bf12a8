"""Which schedule to take: all of them simulated, those that fit ranked by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Unpack

from actorgraph.errors import ScheduleError
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.model import (
    Amount,
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
    *,
    stages: int,
    microbatches: int,
    costs: Costs,
    memory: PerDevice | None = None,
    chunks: Sequence[int] = (1, 2),
    schedules: Iterable[str] | None = None,
    whole: Costs | None = None,
    **setting: Unpack[Setting],
) -> list[Simulation]:
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
        What all devices or each have, in the unit of `activation_size` and `weight_size`; with
        the defaults of these, in activations of one microbatch.
    chunks : sequence of int
        How many stages a device may hold; ``(1,)`` leaves out all schedules that need two.
    schedules : iterable of str, optional
        Names to compare; by default all.
    whole : (F, B, W), optional
        What one device takes for all stages and microbatches at once, which is compared too: small
        microbatches may take longer a row.
    **setting
        Devices and links, as `simulate` takes them.

    Returns
    -------
    list of Simulation
        By makespan, then by the largest peak of memory.  Orders with a warm-up are tried with
        longer ones too.

    Raises
    ------
    ScheduleError
        If nothing fits; says what the least is.

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
        raise ScheduleError("schedules are none; name some, or leave it out for all")
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
    fitting = [one for one in tried if limits is None or _fits(one, limits)]
    if not fitting:
        least = min(tried, key=_peak)
        raise ScheduleError(
            f"no schedule fits memory={memory}; the least is taken by {least.schedule.name!r}, "
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


def _fits(simulation: Simulation, limits: Sequence[Amount]) -> bool:
    return all(peak <= limit for peak, limit in zip(simulation.peak_memory, limits))


def _options(
    name: str, devices: int, chunks: Sequence[int], costs: Costs
) -> Iterator[tuple[int | None, int]]:
    """Yield chunks and extra warm-ups to try."""
    order = ORDERS.get(name) if isinstance(name, str) else None
    if order is None:
        yield None, 0  # `simulate` says what is wrong with the name
        return
    # Interleaved orders of one chunk bear another name.
    possible = [v for v in chunks if v >= order.chunks] if order.any_chunks else [order.chunks]
    warmups = sorted({0, devices // 2, devices - 1}) if order.has_warmup else [0]
    for v in possible:
        if v in chunks and _stages_of(costs) in (None, devices * v):
            yield from ((v, extra) for extra in warmups)


def _stages_of(costs: Costs) -> int | None:
    """Return for how many stages the costs are, or None where they are for whole devices."""
    return len(costs) if are_by_stage(costs) else None
