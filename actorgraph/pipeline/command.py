"""`actorgraph pipeline run FILE.py:function`: runs a batch by schedules, and measures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from actorgraph._target import outputs_and_feeds
from actorgraph.errors import GraphError
from actorgraph.graph import as_nodes
from actorgraph.pipeline.measuring import Measured, measure
from actorgraph.pipeline.runner import Pipeline
from actorgraph.schedules.actions import Schedule


def run(
    target: str, schedules: Sequence[Any], *, stages: int | None, microbatches: int, runs: int,
    **options: Any,
) -> list[Measured]:  # fmt: skip
    """Build the graph of a target and measure it by each schedule; return the fastest first.

    The first output is the loss, others are outputs of the pipeline, which takes the options too;
    gradients are those of all parameters.  Blocks until the runs have ended.  Raises `GraphError`
    as `outputs_and_feeds` and `Pipeline` do, and for a graph without parameters.
    """
    outputs, feeds = outputs_and_feeds(target)
    nodes = as_nodes(outputs)
    if not nodes:
        raise GraphError(f"{target} returns no outputs; the first is the loss")
    loss, *others = nodes
    if not any(node.dtype.kind in "fcV" for node in loss.graph.parameters):
        raise GraphError(
            f"{target} builds a graph without parameters; a pipeline computes gradients of "
            "weights: make some with graph.parameter(...)"
        )
    with ExitStack() as scope:
        pipelines = []
        for schedule in schedules:
            pipeline = Pipeline(
                loss,
                outputs=others,
                stages=None if isinstance(schedule, Schedule) else stages,
                schedule=schedule,
                microbatches=None if isinstance(schedule, Schedule) else microbatches,
                **options,
            )
            pipelines.append(scope.enter_context(pipeline))
        return measure(pipelines, feeds, runs=runs)
