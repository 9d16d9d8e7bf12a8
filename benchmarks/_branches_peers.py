"""The wide graph in NumPy, PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._harness import Trial, installed
from benchmarks._work import Array, branch_arrays

if TYPE_CHECKING:
    import jax
    import torch

    TorchLayers = Sequence[tuple[torch.Tensor, torch.Tensor]]

Layers = Sequence[tuple[Array, Array]]
Size = tuple[int, int]
Build = Callable[[ExitStack], Trial]


def numpy_branch(x: Array, layers: Layers) -> Array:
    """One branch as a careful person writes it, with the sum and tanh in place."""
    value = x
    for weight, bias in layers:
        value = value @ weight
        value += bias
        np.tanh(value, value)
    return value


def numpy_branch_backward(x: Array, layers: Layers) -> tuple[Array, list[Array]]:
    """One branch, and the gradients of the sum of its end by weights and biases."""
    values = [x]
    for weight, bias in layers:
        value = values[-1] @ weight
        value += bias
        values.append(np.tanh(value, value))
    gradients: list[Array] = []
    ct = np.ones_like(values[-1])
    for depth in range(len(layers) - 1, -1, -1):
        ct *= 1 - values[depth + 1] * values[depth + 1]
        gradients[:0] = [values[depth].T @ ct, ct.sum(axis=0)]
        if depth:
            ct = ct @ layers[depth][0].T
    return values[-1], gradients


def _loss_and_gradients(branches: Sequence[tuple[Array, list[Array]]]) -> list[Array]:
    loss = np.stack([end for end, _ in branches]).sum()
    return [loss, *(gradient for _, gradients in branches for gradient in gradients)]


def numpy_forward(size: Size) -> list[Array]:
    """All branch ends: what every forward row must return."""
    x, branches = branch_arrays(*size)
    return [numpy_branch(x, layers) for layers in branches]


def numpy_backward(size: Size) -> list[Array]:
    """Loss and gradients: what every backward row must return."""
    x, branches = branch_arrays(*size)
    return _loss_and_gradients([numpy_branch_backward(x, layers) for layers in branches])


def numpy_trial(size: Size, *, backward: bool, threads: int) -> Build:
    """NumPy one branch after the other, or one branch per task of a thread pool."""

    def build(scope: ExitStack) -> Trial:
        x, branches = branch_arrays(*size)
        each = numpy_branch_backward if backward else numpy_branch
        over = _map(threads, scope)

        def run() -> list[Array]:
            results = list(over(lambda layers: each(x, layers), branches))
            return _loss_and_gradients(results) if backward else results

        return Trial(run)

    return build


def _map(
    threads: int, scope: ExitStack, initializer: Callable[[], object] | None = None
) -> Callable[..., Iterable[Any]]:
    if threads == 1:
        return map
    return scope.enter_context(ThreadPoolExecutor(threads, initializer=initializer)).map


def torch_trial(size: Size, *, backward: bool, intra: int, threads: int = 1) -> Build:
    """PyTorch eager with `intra` threads inside ops and `threads` Python threads over branches."""

    def build(scope: ExitStack) -> Trial:
        installed("torch")
        import torch

        x_array, branch_layers = branch_arrays(*size)
        x = torch.from_numpy(x_array)
        branches = [
            [(_leaf(weight, backward), _leaf(bias, backward)) for weight, bias in layers]
            for layers in branch_layers
        ]
        half = len(branches) // threads
        parts = [branches[start : start + half] for start in range(0, len(branches), half)]

        def set_threads() -> None:
            torch.set_num_threads(intra)

        # The number of threads inside ops, and inference mode, belong to a Python thread.
        over = _map(threads, scope, set_threads)

        @torch.inference_mode()
        def forward_part(part: Sequence[TorchLayers]) -> list[torch.Tensor]:
            return [_torch_branch(x, layers) for layers in part]

        def backward_part(part: Sequence[TorchLayers]) -> tuple[Any, list[Any]]:
            leaves = [leaf for layers in part for pair in layers for leaf in pair]
            for leaf in leaves:
                leaf.grad = None
            loss = torch.stack([_torch_branch(x, layers) for layers in part]).sum()
            loss.backward()
            return loss.detach(), [leaf.grad for leaf in leaves]

        def forward() -> list[torch.Tensor]:
            return [end for ends in over(forward_part, parts) for end in ends]

        def forward_backward() -> list[torch.Tensor]:
            losses, gradients = zip(*over(backward_part, parts), strict=True)
            return [sum(losses), *(gradient for part in gradients for gradient in part)]

        run = forward_backward if backward else forward
        return Trial(run, before=set_threads)

    return build


def _leaf(array: Array, needs_gradient: bool) -> torch.Tensor:
    import torch

    return torch.from_numpy(array.copy()).requires_grad_(needs_gradient)


def _torch_branch(x: torch.Tensor, layers: TorchLayers) -> torch.Tensor:
    import torch

    value = x
    for weight, bias in layers:
        value = torch.tanh(torch.addmm(bias, value, weight))
    return value


def jax_trial(size: Size, *, backward: bool) -> Build:
    """One jitted function of x and the parameters, on as many threads as JAX likes."""

    def build(_: ExitStack) -> Trial:
        installed("jax")
        import jax
        import jax.numpy as jnp

        x_array, arrays = branch_arrays(*size)
        x, branches = jnp.asarray(x_array), jax.tree.map(jnp.asarray, arrays)

        def forward(x: jax.Array, branches: Any) -> list[jax.Array]:
            ends = []
            for layers in branches:
                value = x
                for weight, bias in layers:
                    value = jnp.tanh(value @ weight + bias)
                ends.append(value)
            return ends

        def loss(branches: Any, x: jax.Array) -> jax.Array:
            return jnp.stack(forward(x, branches)).sum()

        forward_jit = jax.jit(forward)
        backward_jit = jax.jit(jax.value_and_grad(loss))

        def run_forward() -> list[jax.Array]:
            return jax.block_until_ready(forward_jit(x, branches))

        def run_backward() -> list[jax.Array]:
            value, gradients = jax.block_until_ready(backward_jit(branches, x))
            return [value, *jax.tree.leaves(gradients)]

        return Trial(run_backward if backward else run_forward)

    return build
