"""Modules are served as they evaluate."""

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError


def net():
    return ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.Dropout(0.9), ag.nn.Linear(8, 2))


def example(rows=1):
    return {"x": np.linspace(0, 1, 4 * rows, dtype="float32").reshape(rows, 4)}


def test_a_module_is_served_by_an_example_of_its_inputs():
    module = net()
    with ag.serving.Server() as server:
        model = server.add("net", module, example=example(), max_batch_size=8)
        answer = model.infer_sync(example(3))
    assert module.training
    np.testing.assert_allclose(answer["output"], module.eval()(example(3)["x"]), rtol=1e-6)


def test_training_goes_on_and_is_seen_by_the_next_request():
    module = ag.nn.Linear(4, 2)
    with ag.serving.Server() as server:
        model = server.add("net", module, example=example())
        module.weight.value = np.zeros((2, 4), "float32")
        module.bias.value = np.array([1, 2], "float32")
        answer = model.infer_sync(example())
    np.testing.assert_array_equal(answer["output"], [[1, 2]])


class Several(ag.nn.Module):
    def __init__(self, give):
        self.give = give

    def forward(self, x, y):
        return self.give(x + y, x - y)


@pytest.mark.parametrize(
    ("give", "names"),
    [
        (lambda a, b: (a, b), ["output_0", "output_1"]),
        (lambda a, b: {"sum": a, "difference": b}, ["sum", "difference"]),
        (lambda a, b: a, ["output"]),
    ],
)
def test_several_inputs_and_outputs_have_names(give, names):
    given = {"left": np.ones((1, 2), "float32"), "right": np.ones((1, 2), "float32")}
    with ag.serving.Server() as server:
        model = server.add("net", Several(give), example=given)
        answer = model.infer_sync(given)
    assert list(answer) == names
    np.testing.assert_array_equal(answer[names[0]], [[2, 2]])


@pytest.mark.parametrize(
    ("module", "given", "says"),
    [
        (net(), None, "needs an example of its inputs"),
        (net(), {"x": np.float32(1)}, "has no rows"),
        (Several(lambda a, b: 3), {"x": np.ones((1, 2)), "y": np.ones((1, 2))}, "a node, or a"),
    ],
)
def test_a_module_that_cannot_be_served_says_why(module, given, says):
    with ag.serving.Server() as server, pytest.raises(GraphError, match=says):
        server.add("net", module, example=given)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_nets_answer_requests_of_a_batch_as_alone(kind, backend):
    net = getattr(ag.nn, kind)(5, 4, batch_first=True)
    x = ag.Graph().input("x", ("rows", "length", 5), "float32")
    y, found = net(x)[0], {}
    given = np.random.default_rng(0).normal(size=(6, 1, 3, 5)).astype("float32")

    async def served():
        async with ag.serving.Server() as server, anyio.create_task_group() as tasks:
            model = server.add("net", {"y": y}, max_batch_size=6, batch_wait_s=0.05)

            async def ask(number):
                found[number] = (await model.infer({"x": given[number]}))["y"]

            for number in range(len(given)):
                tasks.start_soon(ask, number)

    anyio.run(served, backend=backend)
    for number, one in enumerate(given):
        np.testing.assert_allclose(found[number], net(one)[0], rtol=1e-5, atol=1e-6)
