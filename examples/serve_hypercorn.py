"""The protocol under trio: Hypercorn serves it, a client asks over a socket."""

import json
import logging
from functools import partial

import hypercorn.trio
import numpy as np
import trio
from hypercorn.config import Config

import actorgraph as ag

rng = np.random.default_rng(0)
W = rng.normal(size=(4, 2))
x = ag.Graph("linear").input("x", ("rows", 4), "float64")
server = ag.serving.Server()
server.add("linear", {"y": x @ W}, max_batch_size=32)
app = ag.serving.asgi(server)


async def ask(port, rows):
    tensor = {"name": "x", "datatype": "FP64", "shape": rows.shape, "data": rows.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST /v2/models/linear/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}"
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
        answer = b"".join([chunk async for chunk in stream])
    (output,) = json.loads(answer.partition(b"\r\n\r\n")[2])["outputs"]
    return np.array(output["data"]).reshape(output["shape"])


async def main():
    config = Config()
    config.bind, config.loglevel = ["127.0.0.1:0"], "ERROR"
    ended = trio.Event()
    serve = partial(hypercorn.trio.serve, app, config, shutdown_trigger=ended.wait)
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(serve)
        port = int(address.rpartition(":")[2])
        for count in range(1, 9):
            rows = rng.normal(size=(count, 4))
            np.testing.assert_allclose(await ask(port, rows), rows @ W)
        ended.set()  # the lifespan of the application drains the server
    assert not server.ready
    print("8 requests answered under trio")


if __name__ == "__main__":
    logging.disable()
    trio.run(main)
