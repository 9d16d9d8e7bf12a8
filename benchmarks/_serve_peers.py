"""Servers that `benchmarks.serve` asks over HTTP and gRPC: ``python -m ... SYSTEM MODEL PORT``.

Each serves the MLP or the convolution net at ``/`` and takes a row as raw float32, or as a list in
JSON where its framework reads nothing else.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.serve import DEADLINE_S, DIGIT, ROW, computed, digits, mlp, torch_digits, torch_mlp

SHAPES = {"MLP": ROW.shape[1:], "digits": DIGIT.shape[1:]}
BATCH, WAIT_S = 64, 0.001


def torch_of(model: str) -> Callable[[Any], Any]:
    """Return what PyTorch computes of rows."""
    return torch_mlp() if model == "MLP" else torch_digits()


def fastapi(model: str, port: int, forward: Callable[[Any], Any]) -> None:
    """A thread of the pool for each request."""
    import uvicorn
    from fastapi import FastAPI, Request, Response

    app = FastAPI()

    async def predict(request: Request) -> Response:
        x = np.frombuffer(await request.body(), "float32").reshape(1, *SHAPES[model])
        y = await asyncio.to_thread(forward, x)
        return Response(y.tobytes(), media_type="application/octet-stream")

    predict.__annotations__ = {"request": Request, "return": Response}
    app.post("/", response_model=None)(predict)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def litserve(model: str, port: int) -> None:
    """Its batches, in one worker process."""
    os.environ["BENCHMARK_MODEL"] = model  # before the class is imported, here and there
    import litserve as ls

    from benchmarks._serve_lit import Net

    net = Net(max_batch_size=BATCH, batch_timeout=WAIT_S)
    served = ls.LitServer(net, accelerator="cpu")
    served.run(port=port, log_level="warning", generate_client_file=False, access_log=False)


def ray(model: str, port: int) -> None:
    """Its batches, in one replica."""
    import threading

    from ray import serve

    class Net:
        def __init__(self) -> None:
            self.forward = torch_of(model)

        @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT_S)
        async def rows(self, rows: list[Any]) -> list[Any]:
            return list(self.forward(np.stack(rows)))

        async def __call__(self, request: Any) -> Any:
            from starlette.responses import Response

            x = np.frombuffer(await request.body(), "float32").reshape(SHAPES[model])
            return Response((await self.rows(x)).tobytes())

    serve.start(http_options={"port": port, "host": "127.0.0.1"})
    serve.run(serve.deployment(max_ongoing_requests=200)(Net).bind(), route_prefix="/")
    threading.Event().wait()


def bentoml(model: str, port: int) -> None:
    """Its batches, in one worker process."""
    os.environ["BENCHMARK_MODEL"] = model
    target = "benchmarks._serve_bento:Net"
    command = [sys.executable, "-m", "bentoml", "serve", target, "--port", str(port)]
    os.execv(sys.executable, [*command, "--host", "127.0.0.1"])


def ours(model: str, port: int, workers: int | None = None, **config: Any) -> None:
    """`actorgraph serve`, with gRPC at the next port."""
    import actorgraph as ag
    from actorgraph.serving.command import Endpoint, serve

    x, y = mlp() if model == "MLP" else digits()
    server = ag.serving.Server()
    machine = ag.ActorMachine({"y": y}, wrt=[], workers=workers)
    server.add("net", machine, inputs=[x], **{"max_queued": 100_000, **config})
    serve(server, Endpoint(port=port, grpc_port=port + 1, access_log=False))


SYSTEMS: dict[str, Callable[[str, int], None]] = {
    "FastAPI, NumPy": lambda model, port: fastapi(model, port, computed),
    "FastAPI, PyTorch": lambda model, port: fastapi(model, port, torch_of(model)),
    "LitServe": litserve,
    "BentoML": bentoml,
    "Ray Serve": ray,
    "ours": ours,
    "ours batched": lambda model, port: ours(model, port, max_batch_size=BATCH),
    "ours bounded": lambda model, port: ours(  # a core is left to the loop and the clients
        model, port, workers=1, max_queued=BATCH, request_timeout_s=DEADLINE_S
    ),
}

if __name__ == "__main__":
    SYSTEMS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
