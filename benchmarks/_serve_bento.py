"""The service that BentoML loads by its name for `benchmarks.serve`."""

import os
from typing import Any

import bentoml
import numpy as np

from benchmarks._serve_peers import BATCH, SHAPES, torch_of

MODEL = os.environ.get("BENCHMARK_MODEL", "MLP")


@bentoml.service(workers=1, traffic={"max_concurrency": 1000})
class Net:
    """A module of PyTorch, batched adaptively."""

    def __init__(self) -> None:
        self.forward = torch_of(MODEL)

    @bentoml.api(batchable=True, max_batch_size=BATCH, max_latency_ms=1000)
    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return what the net gives for rows."""
        found: Any = self.forward(x.astype("float32").reshape(-1, *SHAPES[MODEL]))
        return np.asarray(found)
