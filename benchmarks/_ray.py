"""Starting Ray in this process, where the place allows it."""

from __future__ import annotations

import warnings
from contextlib import ExitStack

from benchmarks._harness import Unavailable, installed


def started(scope: ExitStack) -> None:
    """Start Ray until the scope ends, or raise Unavailable with what forbids it."""
    installed("ray")
    import ray

    # Ray forks to start its daemons; JAX, loaded by then, warns about every fork.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
    try:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=200_000_000,
        )
    except Exception as error:  # a sandbox may forbid any part of what Ray starts
        first_line = (str(error).splitlines() or [""])[0]
        raise Unavailable(
            f"Ray could not start here: {type(error).__name__}: {first_line}"
        ) from error
    scope.callback(ray.shutdown)
