"""A model whose runs have to pass a gate, and may be made to fail."""

from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np

import actorgraph as ag
from actorgraph.testing._gate import OpGate

_gates = [OpGate()]
_bad = [None, None]  # a run with this value fails, with this error


def new_gate(bad=None, error=ArithmeticError):
    """Return a fresh gate, which the op goes through from now on; it adds 1."""
    _gates[0], _bad[:] = OpGate(), (bad, error)
    return _gates[0]


def _through(xp, x):
    y = _gates[0](xp, x)
    if _bad[0] is not None and (x == _bad[0]).any():
        raise _bad[1]("a bad row")
    return y


gated = ag.ops.define("serving_gate", scheme="f[*s] -> f[*s]", forward=_through)

_inner = [None]


async def _asks(xp, x):
    return (await _inner[0].infer({"x": x}))["y"]


_asking = ag.ops.define("serving_asks", scheme="f[*s] -> f[*s]", forward=_asks)


def asking(inner):
    """Return a model that asks another for each of its answers."""
    _inner[0] = inner
    return {"y": _asking(ag.Graph("outer").input("x", ("rows", 2), "float64"))}


def outputs():
    """Return a model: y = 2 x + 1 for each row, behind the gate."""
    x = ag.Graph("served").input("x", ("rows", 2), "float64")
    return {"y": gated(x * 2.0)}


def rows(*values):
    """Return a request with a row for each value."""
    return {"x": np.array([[value, value] for value in values], "float64")}


def expected(*values):
    return rows(*values)["x"] * 2 + 1


@asynccontextmanager
async def served(**config):
    """Serve these outputs; give the model, and tasks for requests."""
    async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
        yield server.add("double", outputs(), **config), tasks


async def entered(gate):
    """Wait until one more run stands at the gate, without blocking the loop."""
    await anyio.to_thread.run_sync(gate.wait_entered)


class Asked:
    """A request in a task of its own."""

    def __init__(self, tasks, call):
        self.result = self.error = None
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()
        tasks.start_soon(self._ask, call)

    async def _ask(self, call):
        with self.scope:
            try:
                self.result = await call()
            except Exception as error:
                self.error = error
        self.done.set()

    async def answer(self):
        await self.done.wait()
        if self.error is not None:
            raise self.error
        return self.result["y"]
