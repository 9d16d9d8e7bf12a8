"""A served module in an application of Litestar: a handler of its own, and the mounted protocol.

`uvicorn FILE:app` serves it.
"""

from contextlib import asynccontextmanager
from functools import partial

import anyio
import numpy as np
from litestar import Litestar, Request, Response, asgi, post

import actorgraph as ag

net = ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.ReLU(), ag.nn.Linear(8, 2))
server = ag.serving.Server({"request_timeout_s": 2.0})
model = server.add("net", net, example={"x": np.zeros((1, 4), "float32")}, max_batch_size=32)


@asynccontextmanager
async def lifespan(app):
    async with server:  # warms the models up, and drains them at the end
        yield


@post("/predict", status_code=200)
async def predict(request: Request) -> list[list[float]]:
    rows = np.array(await request.json(), "float32")  # the body has to be read before
    ask = partial(model.infer, {"x": rows})
    answer = await ag.serving.cancel_on_disconnect(request, ask)
    return answer["output"].tolist()


def refused(request: Request, error: ag.serving.ServingError) -> Response:
    return Response({"error": str(error), "code": error.code}, status_code=error.status)


app = Litestar(
    [predict, asgi("/ml", is_mount=True, copy_scope=True)(ag.serving.asgi(server))],
    lifespan=[lifespan],
    exception_handlers={ag.serving.ServingError: refused},
    logging_config=None,
)


async def main():
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": [], "app": app}
    scope["query_string"] = b""
    given, inbox = anyio.create_memory_object_stream(1)
    answer, sent = anyio.create_memory_object_stream(2)
    given.send_nowait({"type": "http.request", "body": b"[[1, 2, 3, 4], [5, 6, 7, 8]]"})
    async with lifespan(app), given, inbox, answer, sent:
        await app(scope, inbox.receive, answer.send)
        assert sent.receive_nowait()["status"] == 200
        print(f"answered {sent.receive_nowait()['body'].decode()}")


if __name__ == "__main__":
    anyio.run(main)
