"""The nets of `models` for PyTorch and JAX, with the weights of ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks._harness import Trial, installed

Weights = dict[str, Any]


def torch(
    build: Callable[[Any], Any], weights: Weights, x: Any, backward: bool, threads: int,
    scope: ExitStack,
) -> Trial:  # fmt: skip
    """The same net, eager, on so many threads."""
    installed("torch")
    import torch

    net, given = build(torch.nn), torch.from_numpy(x)
    net.load_state_dict({name: torch.from_numpy(one.copy()) for name, one in weights.items()})
    net.train(backward)

    @torch.inference_mode()
    def forward() -> list[Any]:
        return [_first(net(given))]

    def both() -> list[Any]:
        net.zero_grad()
        loss = _first(net(given)).square().mean()
        loss.backward()
        return [loss.detach(), next(net.parameters()).grad]

    run = both if backward else forward
    return Trial(run, before=partial(torch.set_num_threads, threads))


def torch_stacked(
    build: Callable[[Any], Any], weights: Weights, x: Any, backward: bool, scope: ExitStack
) -> Trial:
    """An ensemble whose weights lie in stacks, mapped over by `torch.vmap`."""
    installed("torch")
    import torch

    one, given = build(torch.nn).nets[0], torch.from_numpy(x)
    stacks = {name: torch.from_numpy(stack) for name, stack in _stacked(weights).items()}
    every = torch.vmap(partial(torch.func.functional_call, one), in_dims=(0, None))

    @torch.inference_mode()
    def forward() -> list[Any]:
        return [every(stacks, given)]

    def both() -> list[Any]:
        for stack in stacks.values():
            stack.grad = None
            stack.requires_grad_()
        loss = every(stacks, given).square().mean()
        loss.backward()
        return [loss.detach(), stacks["0.weight"].grad[0]]

    return Trial(both if backward else forward, before=partial(torch.set_num_threads, 2))


def _stacked(weights: Weights) -> Weights:
    import numpy as np

    inner = [name.removeprefix("nets.0.") for name in weights if name.startswith("nets.0.")]
    count = len(weights) // len(inner)
    return {name: np.stack([weights[f"nets.{i}.{name}"] for i in range(count)]) for name in inner}


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def jax(name: str, weights: Weights, first: str, x: Any, backward: bool, scope: ExitStack) -> Trial:
    """The same net as a compiled function of its weights."""
    installed("jax")
    import jax

    net = {"LSTM": lstm, "transformer": transformer, "ResNet": resnet, "ensemble": ensemble}[name]
    given = jax.numpy.asarray(x)
    held = _stacked(weights) if name == "ensemble" else weights
    own = {key: jax.numpy.asarray(one) for key, one in held.items() if one.dtype.kind == "f"}
    forward = jax.jit(partial(net, backward))
    slopes = jax.jit(jax.value_and_grad(lambda w, x: (net(True, w, x) ** 2).mean()))

    def both() -> list[Any]:
        loss, found = jax.block_until_ready(slopes(own, given))
        return [loss, found["0.weight"][0] if name == "ensemble" else found[first]]

    return Trial(both if backward else lambda: [forward(own, given).block_until_ready()])


def lstm(_: bool, w: Weights, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(state: Any, gates: Any) -> Any:
        hidden, cell = state
        enter, forget, new, out = jnp.split(gates + hidden @ w["weight_hh_l0"].T, 4, axis=-1)
        enter, forget, out = map(jax.nn.sigmoid, (enter, forget, out))
        cell = forget * cell + enter * jnp.tanh(new)
        hidden = out * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((x.shape[1], w["weight_hh_l0"].shape[1]), x.dtype)
    gates = x @ w["weight_ih_l0"].T + w["bias_ih_l0"] + w["bias_hh_l0"]
    return jax.lax.scan(step, (start, start), gates)[1]


def transformer(_: bool, w: Weights, x: Any, heads: int = 4) -> Any:
    import jax
    import jax.numpy as jnp

    def linear(of: str, x: Any, divider: str = ".") -> Any:
        return x @ w[f"{of}{divider}weight"].T + w[f"{of}{divider}bias"]

    def norm(of: str, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * scale * w[f"{of}.weight"] + w[f"{of}.bias"]

    batch, length, width = x.shape
    parts = linear("self_attn.in_proj", x, "_").reshape(batch, length, 3, heads, width // heads)
    q, k, v = jnp.moveaxis(parts, 2, 0).transpose(0, 1, 3, 2, 4)
    looked = jax.nn.softmax(q @ k.swapaxes(2, 3) / (width // heads) ** 0.5) @ v
    joined = looked.transpose(0, 2, 1, 3).reshape(x.shape)
    x = norm("norm1", x + linear("self_attn.out_proj", joined))
    return norm("norm2", x + linear("linear2", jax.nn.relu(linear("linear1", x))))


def resnet(trains: bool, w: Weights, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def conv(of: str, x: Any, step: int) -> Any:
        weight = w[f"{of}.weight"]
        pad = weight.shape[-1] // 2
        return jax.lax.conv_general_dilated(x, weight, (step, step), [(pad, pad)] * 2)

    def norm(of: str, x: Any) -> Any:
        mean, spread = w[f"{of}.running_mean"], w[f"{of}.running_var"]
        if trains:
            mean, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
        scale = w[f"{of}.weight"] * jax.lax.rsqrt(spread + 1e-5)
        return x * scale[:, None, None] + (w[f"{of}.bias"] - mean * scale)[:, None, None]

    x = jax.nn.relu(norm("norm", conv("stem", x, 1)))
    for block in range(6):
        at, step = f"blocks.{block}.", 1 + (block in (2, 4))
        y = jax.nn.relu(norm(f"{at}norm1", conv(f"{at}conv1", x, step)))
        y = norm(f"{at}norm2", conv(f"{at}conv2", y, 1))
        x = jax.nn.relu(y + (conv(f"{at}short", x, step) if step > 1 else x))
    return jnp.mean(x, (2, 3)) @ w["out.weight"].T + w["out.bias"]


def ensemble(_: bool, w: Weights, x: Any) -> Any:
    import jax

    def one(w: Weights, x: Any) -> Any:
        for layer in (0, 2):
            x = jax.nn.relu(x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"])
        return x @ w["4.weight"].T + w["4.bias"]

    return jax.vmap(one, (0, None))(w, x)
