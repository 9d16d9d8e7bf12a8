"""A served module in an application of FastAPI: lifespan, dependency, mounted protocol.

`uvicorn FILE:app` serves it.
"""

from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

import anyio
import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Request

import actorgraph as ag

net = ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.ReLU(), ag.nn.Linear(8, 2))
server = ag.serving.Server({"request_timeout_s": 2.0})
server.add("net", net, example={"x": np.zeros((1, 4), "float32")}, max_batch_size=32)


@asynccontextmanager
async def lifespan(app):
    async with server:  # warms the models up, and drains them at the end
        yield


def served() -> ag.serving.ServedModel:
    return server.model("net")


app = FastAPI(lifespan=lifespan)
app.mount("/ml", ag.serving.asgi(server))


@app.post("/predict")
async def predict(
    request: Request,
    rows: list[list[float]],
    model: Annotated[ag.serving.ServedModel, Depends(served)],
) -> list[list[float]]:
    ask = partial(model.infer, {"x": np.array(rows, "float32")})
    try:
        answer = await ag.serving.cancel_on_disconnect(request, ask)
    except ag.serving.ServingError as error:
        raise HTTPException(error.status, str(error)) from error
    return answer["output"].tolist()


async def main():
    async with lifespan(app):
        request = Request({"type": "http"}, anyio.sleep_forever)  # whose client stays
        rows = await predict(request, [[1.0, 2.0, 3.0, 4.0]] * 3, served())
    assert np.shape(rows) == (3, 2)
    print(f"{len(rows)} rows answered")


if __name__ == "__main__":
    anyio.run(main)
