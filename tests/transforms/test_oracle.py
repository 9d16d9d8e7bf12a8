"""Transforms agree with finite differences and with JAX."""

from itertools import pairwise

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff.trees import flatten, map_leaves, unflatten
from tests.transforms._functions import V, X, close


def model(parameters, x):
    for w, b in parameters["layers"]:
        x = np.tanh(x @ w + b)
    return (x * x).sum() * parameters["scale"]


def random_model():
    rng = np.random.default_rng(5)
    sizes = [4, 5, 3]
    layers = [(rng.normal(size=(m, n)), rng.normal(size=n)) for m, n in pairwise(sizes)]
    return {"layers": layers, "scale": 0.7}, rng.normal(size=(6, 4))


def test_gradients_of_a_model_agree_with_differences():
    parameters, x = random_model()
    found, structure = flatten(ag.grad(model)(parameters, x))
    leaves = flatten(parameters)[0]
    rng, step = np.random.default_rng(6), 1e-6
    directions = [rng.normal(size=np.shape(leaf)) for leaf in leaves]

    def value(by):
        moved = [leaf + by * d for leaf, d in zip(leaves, directions, strict=True)]
        return float(model(unflatten(structure, moved), x))

    slope = (value(step) - value(-step)) / (2 * step)
    assert slope == pytest.approx(
        sum(float((f * d).sum()) for f, d in zip(found, directions, strict=True)), rel=1e-8
    )


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


def same_tree(got, wanted, rtol=1e-10):
    leaves, structure = flatten(got)
    others, other = flatten(wanted)
    assert structure == other
    for one, two in zip(leaves, others, strict=True):
        close(one, np.asarray(two), rtol)
        assert one.dtype == two.dtype


@pytest.mark.oracle
def test_transforms_agree_with_jax_on_a_model(jax):
    parameters, x = random_model()
    tangents = map_leaves(lambda leaf: np.cos(leaf) * 1.0, (parameters, x))

    def jax_model(parameters, x):
        for w, b in parameters["layers"]:
            x = jax.numpy.tanh(x @ w + b)
        return (x * x).sum() * parameters["scale"]

    same_tree(ag.grad(model)(parameters, x), jax.grad(jax_model)(parameters, x))
    same_tree(
        ag.value_and_grad(model, (0, 1))(parameters, x),
        jax.value_and_grad(jax_model, (0, 1))(parameters, x),
    )
    same_tree(
        ag.jvp(model, (parameters, x), tangents), jax.jvp(jax_model, (parameters, x), tangents)
    )
    same_tree(
        ag.vjp(model, parameters, x)[1](2.0), jax.vjp(jax_model, parameters, x)[1](np.float64(2))
    )
    same_tree(
        ag.hvp(model, (parameters, x), tangents),
        jax.jvp(jax.grad(jax_model, (0, 1)), (parameters, x), tangents)[1],
    )


@pytest.mark.oracle
def test_jacobians_and_nesting_agree_with_jax(jax):
    def f(xp, x):
        return {"a": xp.sin(x["u"]) * x["v"], "b": [xp.exp(x["v"]).sum() * x["u"][:1]]}

    def ours(x):
        return f(np, x)

    def theirs(x):
        return f(jax.numpy, x)

    x = {"u": X, "v": V}
    same_tree(ag.jacobian(ours)(x), jax.jacrev(theirs)(x))
    same_tree(ag.jacobian(ag.jacobian(ours))(x), jax.jacfwd(jax.jacrev(theirs))(x))

    def meta(grad, xp, f, x):
        def inner(x):
            step = grad(lambda y: f(xp, y)["a"].sum())(x)
            moved = {name: x[name] - 0.1 * step[name] for name in x}
            return f(xp, moved)["b"][0].sum()

        return grad(inner)(x)

    same_tree(meta(ag.grad, np, f, x), meta(jax.grad, jax.numpy, f, x))


@pytest.mark.oracle
def test_custom_rules_and_checkpoints_agree_with_jax(jax):
    def chain(xp, wrap, x):
        def stage(x):
            return xp.sin(x) * xp.exp(0.1 * x)

        for _ in range(3):
            x = wrap(stage)(x)
        return x.sum()

    def ours(x):
        return chain(np, ag.checkpoint, x)

    def theirs(x):
        return chain(jax.numpy, jax.checkpoint, x)

    close(ag.grad(ours)(X), np.asarray(jax.grad(theirs)(X)), 1e-12)
    close(ag.hessian(ours)(X), np.asarray(jax.hessian(theirs)(X)), 1e-12)
