"""One training step of an MLP in NumPy, PyTorch and JAX, and its bare matrix products."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks._harness import Trial, installed
from benchmarks._work import Array

if TYPE_CHECKING:
    import jax

CLASSES = 10
LR = 0.01
# Steps after which every system has to have the same loss.
CHECKED_STEPS = 10


@dataclass(frozen=True)
class Size:
    """Batch, inputs and hidden units of the MLP I-H-H-10."""

    batch: int
    inputs: int
    hidden: int

    @property
    def name(self) -> str:
        """Name a column."""
        return f"batch {self.batch}, I={self.inputs}, H={self.hidden}"

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the weights."""
        return (self.inputs, self.hidden), (self.hidden, self.hidden), (self.hidden, CLASSES)


@dataclass(frozen=True)
class Stepper:
    """A system that trains: `step` returns the loss before it, `reset` restores the first weights.

    `threads` is what BLAS gets: machines of ours limit it to one for as long as they are open.
    """

    reset: Callable[[], object]
    step: Callable[[], Any]
    threads: int = 1


Build = Callable[[ExitStack], Trial]


def data(size: Size) -> tuple[Array, Array]:
    """Draw a batch of inputs and labels."""
    draw = np.random.default_rng(4)
    x = draw.standard_normal((size.batch, size.inputs), dtype="float32")
    return x, draw.integers(0, CLASSES, size.batch)


def first_weights(size: Size) -> list[Array]:
    """Draw weights and biases: W1, b1, W2, b2, W3, b3."""
    draw = np.random.default_rng(5)
    found: list[Array] = []
    for rows, columns in size.layers:
        weight = draw.standard_normal((rows, columns), dtype="float32") * np.sqrt(2 / rows)
        found += [weight.astype("float32"), np.zeros(columns, "float32")]
    return found


class NumPyMLP:
    """The step as a careful person writes it: every array of the step is a buffer."""

    def __init__(self, size: Size) -> None:
        self.x, labels = data(size)
        self.rows, self.labels = np.arange(size.batch), labels
        self.first = first_weights(size)
        self.weights = [array.copy() for array in self.first]
        self.gradients = [np.empty_like(array) for array in self.first]
        self.values = [np.empty((size.batch, n), "float32") for _, n in size.layers]
        self.cts = [np.empty_like(value) for value in self.values]
        self.positive = [np.empty(value.shape, bool) for value in self.values]
        self.column = np.empty((size.batch, 1), "float32")

    def reset(self) -> None:
        """Restore the first weights."""
        for array, first in zip(self.weights, self.first, strict=True):
            array[...] = first

    def step(self) -> np.float32:
        """Go forward, back and down; return the loss before."""
        (w1, b1, w2, b2, w3, b3), (h1, h2, logits) = self.weights, self.values
        for value, x, w, b in ((h1, self.x, w1, b1), (h2, h1, w2, b2), (logits, h2, w3, b3)):
            np.matmul(x, w, out=value)
            value += b
            if value is not logits:
                np.maximum(value, 0, out=value)
        ct, column = self.cts[2], self.column
        np.max(logits, axis=1, keepdims=True, out=column)
        logits -= column
        np.exp(logits, out=ct)
        np.sum(ct, axis=1, keepdims=True, out=column)
        picked = logits[self.rows, self.labels]
        loss: np.float32 = (np.log(column[:, 0]) - picked).mean()
        ct /= column
        ct[self.rows, self.labels] -= 1
        ct /= len(self.rows)
        for layer in (2, 1, 0):
            below = self.values[layer - 1] if layer else self.x
            np.matmul(below.T, self.cts[layer], out=self.gradients[2 * layer])
            np.sum(self.cts[layer], axis=0, out=self.gradients[2 * layer + 1])
            if layer:
                ct, positive = self.cts[layer - 1], self.positive[layer - 1]
                np.matmul(self.cts[layer], self.weights[2 * layer].T, out=ct)
                np.greater(below, 0, out=positive)
                ct *= positive
        for array, gradient in zip(self.weights, self.gradients, strict=True):
            gradient *= LR
            array -= gradient
        return loss


def numpy_stepper(size: Size, threads: int, _: ExitStack) -> Stepper:
    """NumPy with buffers, on so many BLAS threads."""
    model = NumPyMLP(size)
    return Stepper(model.reset, model.step, threads)


def torch_stepper(size: Size, threads: int, _: ExitStack) -> Stepper:
    """PyTorch eager with its own SGD, on so many threads inside ops."""
    installed("torch")
    import torch

    x, labels = map(torch.from_numpy, data(size))
    first = [torch.from_numpy(array) for array in first_weights(size)]
    weights = [array.clone().requires_grad_() for array in first]
    w1, b1, w2, b2, w3, b3 = weights
    solver = torch.optim.SGD(weights, lr=LR, foreach=size.hidden < 100)

    def reset() -> None:
        torch.set_num_threads(threads)
        with torch.no_grad():
            for array, start in zip(weights, first, strict=True):
                array.copy_(start)

    def step() -> torch.Tensor:
        solver.zero_grad()
        hidden = torch.relu(torch.addmm(b1, x, w1))
        hidden = torch.relu(torch.addmm(b2, hidden, w2))
        loss = torch.nn.functional.cross_entropy(torch.addmm(b3, hidden, w3), labels)
        loss.backward()
        solver.step()
        return loss.detach()

    return Stepper(reset, step)


def jax_stepper(size: Size, _: ExitStack) -> Stepper:
    """One jitted step that gives back new weights in the memory of the old ones."""
    installed("jax")
    import jax
    import jax.numpy as jnp

    x, labels = map(jnp.asarray, data(size))
    first = first_weights(size)
    state: list[Any] = []

    def loss_of(weights: list[jax.Array], x: jax.Array, labels: jax.Array) -> jax.Array:
        w1, b1, w2, b2, w3, b3 = weights
        hidden = jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2)
        logs = jax.nn.log_softmax(hidden @ w3 + b3)
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    @partial(jax.jit, donate_argnums=0)
    def train(weights: list[jax.Array], x: jax.Array, labels: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, labels)
        return [w - LR * g for w, g in zip(weights, gradients, strict=True)], loss

    def reset() -> None:
        state[:] = [[jnp.array(array) for array in first]]

    def step() -> Any:
        state[0], loss = jax.block_until_ready(train(state[0], x, labels))
        return loss

    return Stepper(reset, step)


def products(size: Size) -> list[tuple[Array, Array, Array]]:
    """List operands and result of the matrix products of a step, transposed as they come."""
    ones = {
        shape: np.ones(shape, "float32")
        for layer in size.layers
        for shape in (layer, (size.batch, layer[0]), (size.batch, layer[1]))
    }
    found = []
    for number, (rows, columns) in enumerate(size.layers):
        x, weight, y = ones[size.batch, rows], ones[rows, columns], ones[size.batch, columns]
        found += [(x, weight, np.empty_like(y)), (x.T, y, np.empty_like(weight))]
        if number:
            found.append((y, weight.T, np.empty_like(x)))
    return found


def numpy_products(size: Size, threads: int, _: ExitStack) -> Trial:
    """Nothing but the matrix products, by NumPy: a floor."""
    pending = products(size)

    def run() -> None:
        for left, right, out in pending:
            np.matmul(left, right, out=out)

    return Trial(run, before=partial(set_blas_threads, threads))


def torch_products(size: Size, threads: int, _: ExitStack) -> Trial:
    """Nothing but the matrix products, by PyTorch: a floor."""
    installed("torch")
    import torch

    pending = [tuple(map(torch.from_numpy, arrays)) for arrays in products(size)]

    @torch.inference_mode()
    def run() -> None:
        for left, right, out in pending:
            torch.mm(left, right, out=out)

    return Trial(run, before=lambda: torch.set_num_threads(threads))


def set_blas_threads(threads: int) -> None:
    """Give NumPy's BLAS so many threads until somebody says otherwise."""
    threadpool_limits(threads, user_api="blas")
