"""Two layers of LSTM over a sequence, and a classifier of its last state, against PyTorch.

::

    x[t] -> cell 0 -> cell 1 -> ... last h -> linear -> cross entropy
              |^        |^
              h, c      h, c
"""

from functools import cache

import numpy as np
import pytest

import actorgraph as ag
from tests.models._pytorch import (
    MACHINES,
    assert_machine_agrees,
    every_machine,
    parameters_of,
    results_of,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
ops = ag.ops

STEPS, BATCH, FEATURES, HIDDEN, CLASSES, LAYERS = 7, 5, 6, 8, 4, 2


@cache
def theirs(dtype):
    """Return the module, its feeds and its results."""
    torch.manual_seed(3)
    module = torch.nn.ModuleDict(
        {
            "lstm": torch.nn.LSTM(FEATURES, HIDDEN, LAYERS),
            "head": torch.nn.Linear(HIDDEN, CLASSES),
        }
    ).to(getattr(torch, dtype))
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=getattr(torch, dtype))
    targets = torch.randint(CLASSES, (BATCH,))
    sequence, (_, cells) = module["lstm"](x)
    logits = module["head"](sequence[-1])
    loss = torch.nn.functional.cross_entropy(logits, targets)
    outputs = {"logits": logits, "sequence": sequence, "cells": cells}
    return module, {"x": x.numpy(), "t": targets.numpy()}, results_of(module, outputs, loss)


def ours(dtype):
    """Return the outputs, the loss first, and the parameters."""
    graph = ag.Graph("lstm")
    x = graph.input("x", (STEPS, "batch", FEATURES), dtype)
    targets = graph.input("t", ("batch",), "int64")
    weights = parameters_of(graph, theirs(dtype)[0])
    zeros = ops.zeros_like(ops.broadcast_to(ops.sum(x[0], -1, keepdims=True), ("batch", HIDDEN)))
    sequence = [x[step] for step in range(STEPS)]
    cells = []
    for layer in range(LAYERS):
        state = zeros, zeros
        names = (f"lstm.{part}_l{layer}" for part in "weight_ih weight_hh bias_ih bias_hh".split())
        cell = [weights[name] for name in names]
        for step, entering in enumerate(sequence):
            state = ops.lstm_cell(entering, state, *cell)
            sequence[step] = state[0]
        cells.append(state[1])
    logits = sequence[-1] @ weights["head.weight"].T + weights["head.bias"]
    outputs = {
        "loss": ops.cross_entropy(logits, targets),
        "logits": logits,
        "sequence": ops.stack(sequence),
        "cells": ops.stack(cells),
    }
    return outputs, weights


@every_machine
def test_lstm_agrees_with_pytorch(machine, dtype):
    kind, options = MACHINES[machine]
    _, feeds, wanted = theirs(dtype)
    assert_machine_agrees(kind, *ours(dtype), feeds, wanted, **options)


def test_gradients_as_nodes_agree_with_pytorch():
    _, feeds, wanted = theirs("float32")
    outputs, weights = ours("float32")
    gradients = dict(zip(weights, ag.gradients(outputs["loss"], weights), strict=True))
    with ag.TapeMachine(gradients) as machine:
        run = machine.run_sync(feeds)
    for name in weights:
        scale = np.abs(wanted[name]).max()
        np.testing.assert_allclose(run[name].value, wanted[name], rtol=1e-4, atol=1e-4 * scale)
