"""The chains graph by hand in NumPy, as generated source, in JAX and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks._harness import Trial, installed
from benchmarks._work import DEPTH, Array, chain_arrays

Unary = Callable[[Array], Array]
TANH = np.tanh  # the true one, also while a counting one stands in its place


class CountingTanh:
    """np.tanh that knows how often it ran."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        self.calls += 1
        return TANH(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Answer for the ufunc, whose `nin` and the like a library may ask."""
        return getattr(TANH, name)


def executions(program: Callable[[Unary], object]) -> int:
    """How often one run of the program calls the tanh it is given."""
    tanh = CountingTanh()
    program(tanh)
    return tanh.calls


def numpy_forward(x: Array, scales: Sequence[Array], tanh: Unary = np.tanh) -> list[Array]:
    """Run the loop a careful person writes by hand: the baseline of the table."""
    ends = []
    for scale in scales:
        value = x * scale
        for _ in range(DEPTH):
            value = tanh(value)
        ends.append(value)
    return ends


def numpy_backward(x: Array, scales: Sequence[Array], tanh: Unary = np.tanh) -> list[Array]:
    """Return the sum of the chain ends and its gradient by x, by hand."""
    ends = []
    dx = np.zeros_like(x)
    one = np.ones_like(x)
    for scale in scales:
        value = x * scale
        kept = [value := tanh(value) for _ in range(DEPTH)]
        ct = one
        for value in reversed(kept):
            ct = ct * (one - value * value)
        dx += ct * scale
        ends.append(kept[-1])
    return [np.stack(ends).sum(), dx]


def numpy_trial(
    program: Callable[[Array, Sequence[Array], Unary], list[Array]],
) -> Callable[[ExitStack], Trial]:
    """Make a trial of one of the loops above."""

    def build(_: ExitStack) -> Trial:
        x, scales = chain_arrays()
        count = executions(lambda tanh: program(x, scales, tanh))
        return Trial(lambda: program(x, scales, np.tanh), executions=count)

    return build


def generated(_: ExitStack) -> Trial:
    """Make the prototype of a fused program: straight-line source without a loop, in place."""
    x, scales = chain_arrays()
    lines = ["def program(x, scales, mul, tanh):"]
    for number in range(len(scales)):
        lines.append(f"    v{number} = mul(x, scales[{number}])")
        lines += [f"    tanh(v{number}, v{number})"] * DEPTH
    names = ", ".join(f"v{number}" for number in range(len(scales)))
    namespace: dict[str, Callable[..., list[Array]]] = {}
    exec("\n".join([*lines, f"    return [{names}]"]), namespace)
    program = namespace["program"]
    count = executions(lambda tanh: program(x, scales, np.multiply, tanh))
    return Trial(lambda: program(x, scales, np.multiply, np.tanh), executions=count)


def jax_trial(*, backward: bool) -> Callable[[ExitStack], Trial]:
    """Jit one function of x; the factors are constants, as in our graph."""

    def build(_: ExitStack) -> Trial:
        installed("jax")
        import jax
        import jax.numpy as jnp

        x, scales = chain_arrays()

        def forward(x: jax.Array) -> list[jax.Array]:
            return numpy_forward(x, scales, jnp.tanh)

        def loss(x: jax.Array) -> jax.Array:
            return jnp.stack(forward(x)).sum()

        program = jax.jit(jax.value_and_grad(loss) if backward else forward)
        count = str(jax.make_jaxpr(forward)(x)).count("tanh ")
        device_x = jnp.asarray(x)
        return Trial(lambda: jax.block_until_ready(program(device_x)), executions=count)

    return build


def torch_trial(*, backward: bool) -> Callable[[ExitStack], Trial]:
    """Run eagerly; backward is from the sum of the ends to x, the only leaf with a gradient."""

    def build(_: ExitStack) -> Trial:
        installed("torch")
        import torch

        x_array, scale_arrays = chain_arrays()
        x = torch.from_numpy(x_array)
        scales = [torch.from_numpy(scale) for scale in scale_arrays]
        leaf = x.clone().requires_grad_()

        @torch.inference_mode()
        def forward() -> list[torch.Tensor]:
            return numpy_forward(x, scales, torch.tanh)

        def forward_backward() -> list[torch.Tensor]:
            leaf.grad = None
            loss = torch.stack(numpy_forward(leaf, scales, torch.tanh)).sum()
            loss.backward()
            return [loss.detach(), leaf.grad]

        run = forward_backward if backward else forward
        count = _torch_tanh_calls(run)
        return Trial(run, before=lambda: torch.set_num_threads(1), executions=count)

    return build


def _torch_tanh_calls(run: Callable[[], object]) -> int:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[object] = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.tanh.default:
                calls.append(func)
            return func(*args, **(kwargs or {}))

    with Count():
        run()
    return len(calls)
