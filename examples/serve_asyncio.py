"""A graph inside an asyncio service: concurrent clients over TCP, a deadline for each request."""

import asyncio
import json

import numpy as np

import actorgraph as ag

WIDTH, LAYERS = 256, 16
g = ag.Graph("service")
h = x = g.input("x", shape=("rows", WIDTH))
for i in range(LAYERS):
    h = np.tanh(h @ g.parameter(f"W{i}", np.eye(WIDTH, dtype="float32")))
score = h.mean()


def expected(value):
    for _ in range(LAYERS):
        value = np.tanh(value)
    return value


async def answer(machine, request):
    rows = np.full((request["rows"], WIDTH), request["value"], "float32")
    try:
        run = await machine.run({"x": rows}, timeout_s=request["timeout_s"])
    except TimeoutError:
        return {"error": "too late"}
    return {"score": run[score].value.item()}


async def ask(port, value, rows=4, timeout_s=10.0):
    request = {"value": value, "rows": rows, "timeout_s": timeout_s}
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(json.dumps(request).encode() + b"\n")
    reply = json.loads(await reader.readline())
    writer.close()
    return reply


async def main():
    async with ag.ActorMachine([score], workers=2, max_in_flight=4) as machine:

        async def serve(reader, writer):
            reply = await answer(machine, json.loads(await reader.readline()))
            writer.write(json.dumps(reply).encode() + b"\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            impatient = asyncio.create_task(ask(port, 1.0, rows=4096, timeout_s=0.001))
            replies = await asyncio.gather(*(ask(port, i / 10) for i in range(20)))
            assert await impatient == {"error": "too late"}  # and nobody else noticed
    assert all(np.isclose(replies[i]["score"], expected(i / 10), rtol=1e-4) for i in range(20))
    print(f"{len(replies)} clients answered, one was too impatient")


asyncio.run(main())
