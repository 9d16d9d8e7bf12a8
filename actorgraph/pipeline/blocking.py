"""Whether lanes that keep their lists, or their credits, come to the end of a batch.

A `Schedule` is checked when it is made, for stages that form a chain.  Here the token game of
`Machine.check` is played with the tasks of the graph, and all that they really send each other.
One microbatch stands for a run of the game.  Inboxes have room for everything, and a lane goes on
with a later batch only where the earlier one has to wait for others, so one batch decides.
"""

from __future__ import annotations

from actorgraph.errors import ScheduleError
from actorgraph.lower.deadlock import Action, Arc, Credit, check
from actorgraph.pipeline.staged import DIRECTIONS, StagedPlan

_KINDS = {"forward": "F", "backward": "B", "weights": "W"}


def check_lanes(plan: StagedPlan) -> None:
    """Raise unless every lane comes to the end of its list; time linear in actions and edges.

    Raises
    ------
    ScheduleError
        Names a cycle of lanes, each waiting for the next.
    """
    schedule, stages = plan.schedule, plan.schedule.stages
    tasks = [
        f"{_KINDS[spec.direction]} of stage {spec.region.index}"
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
    lanes = [] if plan.credits is not None else _listed(plan)
    shown = len(lanes)
    lanes += [[(index, microbatch) for microbatch in every] for index in free]
    verdict = check(tasks, edges, lanes, _credits(plan), shown=shown, unit="microbatch")
    if not verdict.ok:
        raise ScheduleError(
            f"{schedule!r} would never come to its end: {'; '.join(verdict.blocked)}; "
            "change the order of a lane"
        )


def _listed(plan: StagedPlan) -> list[list[Action]]:
    """Return the tasks of each lane in the order of its list."""
    return [
        [
            (plan.at[stage, direction], microbatch)
            for stage, kind, microbatch, _ in lane
            for direction in DIRECTIONS[kind]
            if (stage, direction) in plan.at
        ]
        for lane in plan.schedule.lanes
    ]


def _credits(plan: StagedPlan) -> list[Credit]:
    """Return what bounds forward actions where lanes do what is ready."""
    found = []
    for device, limit in enumerate(plan.credits or ()):
        spender, giver = plan.at.get((device, "forward")), plan.at.get((device, "backward"))
        if spender is not None and giver is not None:
            found.append(Credit(spender, giver, limit, f"microbatches on device {device}"))
    return found
