"""Whole models against PyTorch with the same weights: ResNet-18, LSTM, transformer.

A model is written once, on the functions that a backend gives it, and both get the same arrays.
Images are chosen so that no unit stands at a kink, where rounding alone decides its gradient.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
functional = torch.nn.functional
DTYPES = ["float32", "float64"]

OURS = SimpleNamespace(
    conv2d=ag.ops.conv2d,
    batch_norm=lambda x, s, b: ag.ops.batch_norm(x, s, b).y,
    layer_norm=lambda x, s, b: ag.ops.layer_norm(x, x.shape[-1], s, b),
    relu=ag.ops.relu,
    gelu=ag.ops.gelu,
    max_pool2d=ag.ops.max_pool2d,
    global_pool=lambda x: ag.ops.adaptive_avg_pool2d(x, 1),
    cross_entropy=ag.ops.cross_entropy,
    embedding=lambda index, w: ag.ops.embedding(w, index),
    attention=lambda q, k, v: ag.ops.scaled_dot_product_attention(q, k, v, is_causal=True),
    lstm_cell=ag.ops.lstm_cell,
    transpose=ag.ops.transpose,
    ints=np.asarray,
)
THEIRS = SimpleNamespace(
    conv2d=functional.conv2d,
    batch_norm=lambda x, s, b: functional.batch_norm(x, None, None, s, b, training=True),
    layer_norm=lambda x, s, b: functional.layer_norm(x, x.shape[-1:], s, b),
    relu=torch.relu,
    gelu=functional.gelu,
    max_pool2d=functional.max_pool2d,
    global_pool=lambda x: functional.adaptive_avg_pool2d(x, 1),
    cross_entropy=functional.cross_entropy,
    embedding=functional.embedding,
    attention=lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    lstm_cell=lambda x, state, *weights: torch.lstm_cell(x, state, *weights),
    transpose=lambda x, axes: x.permute(axes),
    ints=torch.tensor,
)


class Weights(dict):
    """Arrays by name, drawn when a model first asks for them."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(3)

    def draw(self, name, shape, kind):
        if name not in self:
            fan_in = max(1, int(np.prod(shape[1:])))
            value = self.rng.normal(size=shape) / np.sqrt(fan_in)
            self[name] = (value * 0.1 + (kind == "scale") if kind != "matrix" else value).astype(
                "f4"
            )
        return self[name]


def compare(model, dtype, *shape):
    """Compare the loss and the gradients of all weights and inputs."""
    values = [np.random.default_rng(1).normal(size=shape).astype(dtype)]
    tolerance = {"float32": 1e-4, "float64": 1e-9}[dtype]
    weights, tensors, graph, nodes = Weights(), {}, ag.Graph(), {}

    def theirs(name, *shape, kind="matrix"):
        if name not in tensors:
            value = torch.tensor(weights.draw(name, shape, kind).astype(dtype))
            tensors[name] = value.requires_grad_()
        return tensors[name]

    def ours(name, *shape, kind="matrix"):
        if name not in nodes:
            value = weights.draw(name, shape, kind).astype(dtype)
            nodes[name] = graph.parameter(name, value)
        return nodes[name]

    inputs = [torch.tensor(value, requires_grad=True) for value in values]
    model(THEIRS, theirs, *inputs).backward()
    wanted = {name: tensor.grad.numpy() for name, tensor in tensors.items()}
    xs = [graph.input(f"x{i}", value.shape, dtype) for i, value in enumerate(values)]
    loss = model(OURS, ours, *xs)
    wrt = [*nodes.values(), *xs]
    with ag.ActorMachine([loss], wrt=wrt, workers=2) as machine:
        run = machine.run_sync(dict(zip(xs, values, strict=True)), backward=True)
    pairs = [(run[nodes[name]].grad, value) for name, value in wanted.items()]
    pairs += [(run[x].grad, tensor.grad.numpy()) for x, tensor in zip(xs, inputs, strict=True)]
    pairs.append((run[loss].value, model(THEIRS, theirs, *inputs).detach().numpy()))
    assert len(pairs) == len(wrt) + 1
    largest = max(np.abs(value).max() for _, value in pairs)
    for got, value in pairs:
        assert got.dtype == dtype
        scale = max(np.abs(value).max(), 1e-3 * largest)
        np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance * scale)


# -- ResNet-18 --------------------------------------------------------------------------------


def norm(f, w, name, x, channels):
    scale, bias = (w(f"{name}.{k}", channels, kind=k) for k in ("scale", "bias"))
    return f.batch_norm(x, scale, bias)


def block(f, w, name, x, before, channels, stride):
    y = f.conv2d(x, w(f"{name}.a", channels, before, 3, 3), stride=stride, padding=1)
    y = f.relu(norm(f, w, f"{name}.na", y, channels))
    y = f.conv2d(y, w(f"{name}.b", channels, channels, 3, 3), padding=1)
    y = norm(f, w, f"{name}.nb", y, channels)
    if stride != 1 or before != channels:
        x = f.conv2d(x, w(f"{name}.skip", channels, before, 1, 1), stride=stride)
        x = norm(f, w, f"{name}.ns", x, channels)
    return f.relu(y + x)


def resnet18(f, w, x):
    width = 8
    x = f.conv2d(x, w("stem", width, 3, 7, 7), stride=2, padding=3)
    x = f.relu(norm(f, w, "stem.n", x, width))
    x = f.max_pool2d(x, 3, stride=2, padding=1)
    before = width
    for stage in range(4):
        channels = width * 2**stage
        for number in range(2):
            stride = 2 if stage and not number else 1
            x = block(f, w, f"{stage}.{number}", x, before, channels, stride)
            before = channels
    x = f.global_pool(x).reshape(-1, before)
    logits = x @ w("head", before, 10) + w("head.b", 10, kind="bias")
    return f.cross_entropy(logits, f.ints([1, 7, 3]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_resnet18_equals_that_of_pytorch(dtype):
    compare(resnet18, dtype, 3, 3, 64, 64)


# -- LSTM -------------------------------------------------------------------------------------


def lstm(f, w, x):
    hidden = 12
    parameters = [
        w("w_ih", 4 * hidden, 5), w("w_hh", 4 * hidden, hidden),
        w("b_ih", 4 * hidden, kind="bias"), w("b_hh", 4 * hidden, kind="bias"),
    ]  # fmt: skip
    state = (x[0][:, :1] * w("h0", 1, hidden), x[0][:, :1] * w("c0", 1, hidden))
    for step in range(7):
        state = f.lstm_cell(x[step], state, *parameters)
    return f.cross_entropy(state[0] @ w("head", hidden, 4), f.ints([0, 3, 1, 1]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_lstm_equals_that_of_pytorch(dtype):
    compare(lstm, dtype, 7, 4, 5)


# -- transformer ------------------------------------------------------------------------------


def heads(f, x, count):
    batch, length, features = (int(dim) for dim in x.shape)
    return f.transpose(x.reshape(batch, length, count, features // count), (0, 2, 1, 3))


def affine_norm(f, w, name, x):
    scale, bias = (w(f"{name}.{k}", 16, kind=k) for k in ("scale", "bias"))
    return f.layer_norm(x, scale, bias)


def transformer(f, w, x):
    tokens = f.ints([[1, 4, 2, 2, 0], [3, 3, 1, 0, 4]])
    x = x + f.embedding(tokens, w("table", 5, 16)) + w("places", 5, 16)
    for layer in range(2):
        y = affine_norm(f, w, f"{layer}.n1", x)
        q, k, v = (heads(f, y @ w(f"{layer}.{name}", 16, 16), 4) for name in "qkv")
        y = f.transpose(f.attention(q, k, v), (0, 2, 1, 3)).reshape(2, 5, 16)
        x = x + y @ w(f"{layer}.out", 16, 16)
        y = affine_norm(f, w, f"{layer}.n2", x)
        x = x + f.gelu(y @ w(f"{layer}.up", 16, 32)) @ w(f"{layer}.down", 32, 16)
    logits = (affine_norm(f, w, "last", x) @ w("head", 16, 5)).reshape(10, 5)
    return f.cross_entropy(logits, f.ints([4, 2, 2, 0, 1, 3, 1, 0, 4, 2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_transformer_equals_that_of_pytorch(dtype):
    compare(transformer, dtype, 2, 5, 16)
