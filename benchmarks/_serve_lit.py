"""The class that LitServe sends to its worker for `benchmarks.serve`."""

import os
from typing import Any

import litserve as ls
import numpy as np

from benchmarks._serve_peers import SHAPES, torch_of

MODEL = os.environ.get("BENCHMARK_MODEL", "MLP")


class Net(ls.LitAPI):
    """A module of PyTorch, batched."""

    def setup(self, device: Any) -> None:
        """Make it, in the worker."""
        self.forward = torch_of(MODEL)

    def decode_request(self, request):  # an annotation would be FastAPI's
        """Return the row of a request."""
        return np.array(request["x"], "float32").reshape(SHAPES[MODEL])

    def batch(self, inputs: Any) -> Any:
        """Return the rows of a batch."""
        return np.stack(inputs)

    def predict(self, x: Any) -> Any:
        """Return what the net gives for rows."""
        return self.forward(x)

    def unbatch(self, output: Any) -> Any:
        """Return the answer of each request."""
        return list(output)

    def encode_response(self, output: Any) -> Any:
        """Return what JSON can say."""
        return {"y": output.tolist()}
