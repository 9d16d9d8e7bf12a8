"""A graph, its derivatives, and a machine that trains it: awaited and from a plain thread."""

import anyio
import numpy as np

import actorgraph as ag

g = ag.Graph("mlp")
x = g.input("x", shape=("batch", 64), dtype="float32")  # dims: int, symbol or None
t = g.input("t", shape=("batch",), dtype="int64")
W = g.parameter("W", np.zeros((64, 10), "float32"))  # trainable; W.value reads and sets it
b = g.parameter("b", np.zeros(10, "float32"))
logits = x @ W + b  # operators, ag.ops.*, and NumPy functions build nodes
loss = ag.ops.cross_entropy(logits, t)
dW, db = ag.gradients(loss, [W, b])  # symbolic: ordinary nodes of the same graph

images, labels = ag.data.digits()
feeds = {"x": images, "t": labels}
solver = ag.solvers.Adam(lr=1e-2)


async def main():
    async with ag.ActorMachine([loss, logits], wrt=[W, b], workers=2) as machine:
        for _ in range(200):
            run = await machine.run(feeds, backward=True)  # cotangents through reverse channels
            solver.step([run[W], run[b]])  # a result is a Dual: it has .value and .grad
        run = await machine.run(feeds, tangents={"b": np.ones(10, "float32")})  # forward mode
        assert abs(run[loss].tangent) < 1e-5  # to raise all logits alike changes nothing
        accuracy = np.mean(run[logits].value.argmax(axis=1) == labels)
        print(f"loss {run[loss].value:.3f}, accuracy {accuracy:.3f}")
        assert accuracy > 0.95


anyio.run(main)  # asyncio and trio alike

with ag.ActorMachine([loss, dW], wrt=[W, b]) as machine:  # from plain threads and the REPL
    run = machine.run_sync(feeds, backward=True)
    assert np.array_equal(run[W].grad, run[dW].value)  # the same fragments, the same bits
