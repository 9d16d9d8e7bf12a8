"""A graph inside a trio program: requests come through a channel, two servers await the machine."""

import numpy as np
import trio

import actorgraph as ag

WIDTH, LAYERS = 256, 16
rng = np.random.default_rng(0)
weights = [rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32") for _ in range(LAYERS)]
g = ag.Graph("service")
x = g.input("x", shape=("rows", WIDTH))
features = x
for i, start in enumerate(weights):
    features = np.tanh(features @ g.parameter(f"W{i}", start))


def expected(rows):
    for W in weights:
        rows = np.tanh(rows @ W)
    return rows


async def serve(machine, requests):
    async for rows, reply in requests:
        run = await machine.run({"x": rows})
        await reply.send(run[features].value)


async def ask(requests, count, answered):
    rows = np.full((count, WIDTH), 1 / count, "float32")
    reply, answer = trio.open_memory_channel(1)
    await requests.send((rows, reply))
    np.testing.assert_allclose(await answer.receive(), expected(rows), rtol=1e-3, atol=1e-5)
    answered.append(count)


async def main():
    answered = []
    async with ag.ActorMachine([features], workers=2) as machine:
        async with trio.open_nursery() as nursery:
            requests, inbox = trio.open_memory_channel(0)
            for _ in range(2):
                nursery.start_soon(serve, machine, inbox.clone())
            inbox.close()
            async with requests, trio.open_nursery() as clients:
                for count in range(1, 17):
                    clients.start_soon(ask, requests, count, answered)
        with trio.move_on_after(0.001) as patience:  # cancels the run with its caller
            await machine.run({"x": np.ones((4096, WIDTH), "float32")})
        assert patience.cancelled_caught
        await machine.run({"x": np.ones((1, WIDTH), "float32")})  # the machine is as good as new
    assert sorted(answered) == list(range(1, 17))
    print(f"{len(answered)} clients answered, one run cancelled by its caller")


trio.run(main)
