"""Proves that lanes with lists, or with credits, reach the end of a batch.

A `Schedule` is checked when it is made, for stages that form a chain.  Here the token game of
`Machine.check` is played with the tasks of the graph and their actual messages; a microbatch is a
run of the game.  Inboxes have room for everything, and a lane starts a later batch only if the
earlier one waits for others, so checking one batch suffices.
"""

from __future__ import annotations

from actorgraph.errors import ScheduleError
from actorgraph.lower.deadlock import Action, Arc, Credit, check
from actorgraph.pipeline.staged import KINDS, StagedPlan


def check_lanes(plan: StagedPlan) -> None:
    """Raise `ScheduleError` unless every lane reaches the end of its list; in linear time.

    The error names a cycle of lanes, each waiting for the next.
    """
    schedule, stages = plan.schedule, plan.schedule.stages
    tasks = [
        f"{KINDS[spec.direction]} of stage {spec.region.index}"
        if spec.region.index < stages
        else f"the sum for {spec.name}"
        for spec in plan.partition.tasks
    ]
    pairs = {
        (plan.task_of[number], index): None
        for index, task in enumerate(plan.stage_tasks)
        for number in task.inputs
        if number in plan.task_of
    }
    edges = [
        Arc(source, target, None, f"{tasks[source]} -> {tasks[target]}", fifo=False)
        for source, target in pairs
    ]
    every = range(schedule.microbatches)
    free = range(len(tasks)) if plan.credits is not None else plan.unstaged
    lanes: list[list[Action]] = [
        [
            (index, microbatch)
            for stage, kind, microbatch, _ in lane
            for index in plan.tasks_of(stage, kind)
        ]
        for lane in (schedule.lanes if plan.credits is None else ())
    ]
    shown = len(lanes)
    lanes += [[(index, microbatch) for microbatch in every] for index in free]
    bounds = []
    for device, limit in enumerate(plan.credits or ()):
        spender, giver = plan.at.get((device, "forward")), plan.at.get((device, "backward"))
        if spender is not None and giver is not None:
            bounds.append(Credit(spender, giver, limit, f"microbatches on device {device}"))
    verdict = check(tasks, edges, lanes, bounds, shown=shown, unit="microbatch")
    if not verdict.ok:
        raise ScheduleError(
            f"{schedule!r} would never end: {'; '.join(verdict.blocked)}; "
            "change the order of a lane"
        )
