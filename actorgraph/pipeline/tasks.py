"""What the actions of a schedule compute: the steps of F, B and W of every stage.

A stage is a region of the joint graph: its forward nodes and the fragments that differentiate them.
Sums of cotangents that meet at a weight belong to the stage that uses it.  Those of a weight used
in several stages belong to none; they are tasks of their own, and nobody waits for them but the end
of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from actorgraph.graph import Node
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.lower.regions import TaskSpec, by_region, leaving_of, split_backward


def stage_tasks(joint: Joint, stages: Sequence[Sequence[Node]], *, split: bool) -> list[TaskSpec]:
    """Cut a joint graph into the tasks of stages, not yet connected.

    Parameters
    ----------
    joint : Joint
        Of the mode that a microbatch runs in.
    stages : sequence of sequence of Node
        The user's nodes of each stage, as `cut_by_cost` and `cut_by_placement` return them.
    split : bool
        Whether the schedule has B and W apart; where it has both kinds of backward passes, BW is
        B and then W.

    Returns
    -------
    list of TaskSpec
        The region of stage s has the index s; its directions ``"forward"``, ``"backward"`` and
        ``"weights"`` are F, B and W, or F and BW.  A stage may lack some: the first has no B where
        no feed is differentiated.  Regions behind the stages hold sums for leaves.
    """
    stage_of = {node: number for number, stage in enumerate(stages) for node in stage}
    groups: list[list[Node]] = [[] for _ in stages]
    leaves: list[list[Node]] = []
    users = _users(joint)
    for owner in joint.owners:
        found = {stage_of.get(joint.source(user)) for user in users.get(owner, (owner,))}
        stage = found.pop() if len(found) == 1 else None
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
    """Return whose cotangents the leaves sum that own steps."""
    users: dict[Node, set[Node]] = {}
    for step in joint.order:
        leaf = owner_of(step)
        if leaf.is_leaf:
            owners = {owner_of(part) for part in step.inputs if not part.is_leaf}
            users.setdefault(leaf, set()).update(owners - {leaf})
    return users
