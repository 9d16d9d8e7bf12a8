"""Pipelines, and runs of them that end in ways that were drawn."""

import numpy as np

from actorgraph.pipeline import SCHEDULES


def drawn_pipeline(rng, model, seed):
    return model.pipeline(
        rng.choice([*SCHEDULES, "dynamic"]), rng.choice([1, 2, 3]), rng.choice([1, 3, 5]),
        workers=rng.choice([1, 2, 4]), max_in_flight=rng.choice([1, 2, 4]), seed=seed,
    )  # fmt: skip


def drawn_run(rng, pipeline, feeds):
    """Start a run that is to end in a way that was drawn; return the way and the run."""
    what = rng.choice(["whole", "whole", "urgent", "failing", "cancelled", "late"])
    run = pipeline.start(
        {"x": feeds["x"] * np.nan} if what == "failing" else feeds,
        timeout_s=rng.choice([0, 0.001]) if what == "late" else None,
        priority=-(what == "urgent"),
    )
    return what, run
