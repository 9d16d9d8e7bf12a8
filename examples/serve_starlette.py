"""A served module in an application of Starlette: a handler of its own, and the mounted protocol.

`uvicorn FILE:app` serves it.
"""

from contextlib import asynccontextmanager
from functools import partial

import anyio
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import actorgraph as ag

net = ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.ReLU(), ag.nn.Linear(8, 2))
server = ag.serving.Server({"request_timeout_s": 2.0})
model = server.add("net", net, example={"x": np.zeros((1, 4), "float32")}, max_batch_size=32)


@asynccontextmanager
async def lifespan(app):
    async with server:  # warms the models up, and drains them at the end
        yield


async def predict(request):
    rows = np.array(await request.json(), "float32")  # the body has to be read before
    ask = partial(model.infer, {"x": rows})
    answer = await ag.serving.cancel_on_disconnect(request, ask)
    return JSONResponse(answer["output"].tolist())


async def refused(request, error):
    return JSONResponse({"error": str(error), "code": error.code}, error.status)


routes = [Route("/predict", predict, methods=["POST"]), Mount("/ml", ag.serving.asgi(server))]
app = Starlette(
    routes=routes, lifespan=lifespan, exception_handlers={ag.serving.ServingError: refused}
)


async def main():
    async with lifespan(app):
        messages = [{"type": "http.request", "body": b"[[1, 2, 3, 4], [5, 6, 7, 8]]"}]

        async def receive():
            return messages.pop() if messages else await anyio.sleep_forever()

        answer = await predict(Request({"type": "http"}, receive))
    print(f"answered {answer.body.decode()}")
    assert answer.body.count(b",") == 3


if __name__ == "__main__":
    anyio.run(main)
