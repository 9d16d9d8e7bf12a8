"""The schedule of a pipeline: a given one, or one made for a name, stages and microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actorgraph.errors import ScheduleError
from actorgraph.graph import Node, topological_order
from actorgraph.pipeline.cutting import cut_by_placement, placed
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.dynamic import dynamic
from actorgraph.schedules.orders import ORDERS
from actorgraph.schedules.orders import schedule as named


def scheduled(
    given: Any, nodes: Sequence[Node], *, stages: int | None, microbatches: int | None,
    chunks: int | None, extra_warmup: int,
) -> tuple[Schedule, list[int] | None]:  # fmt: skip
    """Return a schedule, and for a dynamic one the credits of its lanes.

    Parameters are those of `Pipeline`; `nodes` are its outputs and wrt.  Raises `ScheduleError` if
    the options contradict each other, or the placement of nodes.
    """
    count = placed_stages(nodes)
    if isinstance(given, Schedule):
        settings = [
            ("stages", stages, given.devices, "devices"),
            ("microbatches", microbatches, given.microbatches, "microbatches"),
        ]
        for what, number, has, unit in settings:
            if number not in (None, has):
                raise ScheduleError(f"{what} is {number}, but {given!r} has {has} {unit}")
        return _fitting(given, count), None
    if microbatches is None:
        raise ScheduleError(
            f"the schedule {given!r} needs the number of microbatches, such as microbatches=4"
        )
    if stages is None:
        if count is None:
            raise ScheduleError(
                "how many stages? Give stages= (--stages of the command), "
                "or place nodes with `with graph.stage(0): ...`"
            )
        stages = devices_of(count, given, chunks)
    if isinstance(given, str) and given == "dynamic":
        schedule = dynamic(stages=stages, microbatches=microbatches, costs=(1, 1, 1))
        return _fitting(schedule, count), [stages - device for device in range(stages)]
    schedule = named(
        given, stages=stages, microbatches=microbatches, chunks=chunks, extra_warmup=extra_warmup
    )
    return _fitting(schedule, count), None


def devices_of(count: int, given: str | Schedule, chunks: int | None) -> int:
    """Return the number of devices for so many stages."""
    known = ORDERS.get(given) if isinstance(given, str) else None
    return count // (chunks or (1 if known is None else known.chunks))


def placed_stages(nodes: Sequence[Node]) -> int | None:
    """Return the number of stages in which the user has placed nodes, None for no placement."""
    order = topological_order(nodes)
    return len(cut_by_placement(order)) if placed(order) else None


def _fitting(made: Schedule, count: int | None) -> Schedule:
    if count not in (None, made.stages):
        raise ScheduleError(
            f"nodes are placed in {count} stages, but {made!r} has {made.stages}; place nodes in "
            "as many, or take another schedule"
        )
    return made
