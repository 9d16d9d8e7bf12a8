"""The tasks of a schedule's actions: the steps of F, B and W of every stage.

A stage is a region of the joint graph: its forward nodes and the fragments that differentiate them.
The sum of a weight's cotangents belongs to the stage that uses the weight.  If several stages use
it, the sum belongs to none and is a task of its own, for which only the end of the run waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from actorgraph.graph import Node
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.lower.regions import TaskSpec, by_region, leaving_of, split_backward


def stage_tasks(joint: Joint, stages: Sequence[Sequence[Node]], *, split: bool) -> list[TaskSpec]:
    """Cut the joint graph of a microbatch into the tasks of stages, not yet connected.

    `stages` are the user's nodes of each.  With `split` the schedule has B and W apart, and an
    action BW is B followed by W.  The region of stage s has the index s; its directions
    ``"forward"``, ``"backward"`` and ``"weights"`` are F, B and W, or F and BW.  A stage may lack
    some: the first has no B if no feed is differentiated.  Regions after the stages hold sums for
    leaves.
    """
    stage_of = {node: number for number, stage in enumerate(stages) for node in stage}
    groups: list[list[Node]] = [[] for _ in stages]
    leaves: list[list[Node]] = []
    users = _users(joint)
    for owner in joint.owners:
        user_stages = {stage_of.get(joint.source(user)) for user in users.get(owner, (owner,))}
        stage = user_stages.pop() if len(user_stages) == 1 else None
        if stage is None:
            leaves.append([owner])
        else:
            groups[stage].append(owner)
    tasks = by_region(joint, [*groups, *leaves])
    if not split:
        return tasks
    leaving = leaving_of(tasks)
    for spec in list(tasks):
        if spec.direction == "backward" and spec.region.index < len(stages):
            inputs, weights = split_backward(spec, leaving)
            if not inputs:
                spec.direction = "weights"
            elif weights:
                spec.steps = inputs
                tasks.append(TaskSpec(len(tasks), spec.region, "weights", weights))
    return tasks


def _users(joint: Joint) -> dict[Node, set[Node]]:
    """Return, for each leaf that owns a sum, the nodes whose cotangents it adds."""
    users: dict[Node, set[Node]] = {}
    for step in joint.order:
        leaf = owner_of(step)
        if leaf.is_leaf:
            owners = {owner_of(part) for part in step.inputs if not part.is_leaf}
            users.setdefault(leaf, set()).update(owners - {leaf})
    return users
