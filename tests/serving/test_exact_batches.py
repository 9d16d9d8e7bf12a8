"""Answers that are the same to the last bit whatever is in their batch."""

from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from tests._until import until
from tests.serving._models import Asked

on_both_loops = pytest.mark.anyio
DRAW = np.random.default_rng(0)


def mlp(g, x):
    for number, (wide, narrow) in enumerate([(64, 128), (128, 128), (128, 10)]):
        weight = DRAW.standard_normal((wide, narrow)).astype("float32")
        x = ag.ops.tanh(x @ g.parameter(f"w{number}", weight) + np.float32(0.1))
    return ag.ops.softmax(x, axis=-1)


def normed(g, x):
    y = ag.ops.exp(x.reshape((-1, 8, 8)).swapaxes(1, 2)).sum(axis=1)
    return (y - y.mean(axis=1, keepdims=True)) / (y.std(axis=1, keepdims=True) + 1.0)


def convolved(g, x):
    kernel = g.parameter("kernel", DRAW.standard_normal((4, 1, 3, 3)).astype("float32"))
    return ag.ops.relu(ag.ops.conv2d(x.reshape((-1, 1, 8, 8)), kernel, padding=1))


async def _awaits(xp, x):
    return x


awaited = ag.ops.define("exact_awaits", scheme="f[*s] -> f[*s]", forward=_awaits)


def added(server, build, **config):
    g = ag.Graph()
    x = g.input("x", ("rows", 64), "float32")
    return server.add("net", {"y": build(g, x)}, max_batch_size=64, **config)


@on_both_loops
@pytest.mark.parametrize("build", [mlp, normed, convolved])
async def test_an_answer_has_the_bits_that_it_has_alone(build):
    requests = [DRAW.standard_normal((n, 64)).astype("float32") for n in (1, 3, 1, 8, 2, 1, 5)]
    async with ag.serving.Server() as server:
        g = ag.Graph()
        outputs = {"y": build(g, g.input("x", ("rows", 64), "float32"))}
        config = {"max_batch_size": 64, "exact_batches": True}
        single = server.add("single", outputs, **config)
        alone = [(await single.infer({"x": one}))["y"].tobytes() for one in requests]
        model = server.add("net", outputs, batch_wait_s=20.0, request_timeout_s=60.0, **config)
        full = [*requests, DRAW.standard_normal((43, 64)).astype("float32")]
        async with anyio.create_task_group() as tasks:
            asked = [Asked(tasks, partial(model.infer, {"x": one})) for one in full]
            together = [(await one.answer()).tobytes() for one in asked]
    assert model.counts["executions"] == 1
    assert together[:-1] == alone


@on_both_loops
async def test_companions_of_other_values_change_no_bit():
    request = DRAW.standard_normal((2, 64)).astype("float32")
    found = set()
    async with ag.serving.Server() as server:
        model = added(server, mlp, exact_batches=True)
        for others in range(6):
            async with anyio.create_task_group() as tasks:
                more = [DRAW.standard_normal((k + 1, 64)).astype("float32") for k in range(others)]
                asked = [
                    Asked(tasks, partial(model.infer, {"x": one}))
                    for one in (*more, request, *more)
                ]
                await until(lambda: all(one.done.is_set() for one in asked))  # noqa: B023
            found.add(asked[others].result["y"].tobytes())
    assert len(found) == 1


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda g, x: ag.ops.dropout(x, 0.5), "draws by the number of the run"),
        (lambda g, x: awaited(x), "not applied to parts of a batch"),
        (lambda g, x: (x.T * 2.0).T, "the first dim of"),
    ],
)
def test_what_does_not_allow_it_is_refused_by_name(build, says):
    with ag.serving.Server() as server, pytest.raises(ag.GraphError, match=says) as raised:
        added(server, build, exact_batches=True)
    assert "built at" in str(raised.value)


def test_a_machine_of_the_users_is_refused():
    x = ag.Graph().input("x", ("rows", 2))
    machine = ag.TapeMachine([x * 2.0])
    with (
        ag.serving.Server() as server,
        pytest.raises(ag.GraphError, match="needs outputs of a graph"),
    ):
        server.add("twice", machine, max_batch_size=4, exact_batches=True)
