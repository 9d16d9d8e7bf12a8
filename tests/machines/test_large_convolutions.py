"""Idle workers take blocks of large convolutions; bits never depend on who computes them."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.ops import convolution
from tests.machines.test_large_products import machines, sharing

RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.normal(size=(7, 16, 32, 30)).astype("f")
KERNEL = (RANDOM.normal(size=(48, 16, 3, 3)) / 12).astype("f")


def filtered(stride=1):
    """One convolution with more than 2^26 flops, whose gradients have as many."""
    graph = ag.Graph()
    x = graph.input("x", ("batch", 16, 32, 30), "float32")
    y = ops.conv2d(x, graph.parameter("w", KERNEL), padding=1, stride=stride)
    return (y * y).mean(), x


def values(run, loss, x):
    return [run[loss].value, run[loss.graph["w"]].grad, run[x].grad]


@pytest.fixture(scope="module")
def expected():
    loss, x = filtered()
    with ag.LispMachine([loss], wrt=[x, loss.graph["w"]], workers=1) as machine:
        return values(machine.run_sync({"x": IMAGES}, backward=True), loss, x)


@machines
def test_values_and_gradients_have_the_same_bits_everywhere(machine_type, options, expected):
    loss, x = filtered()
    with machine_type([loss], wrt=[x, loss.graph["w"]], **options) as machine:
        for _ in range(2):
            run = machine.run_sync({"x": IMAGES}, backward=True)
            for found, want in zip(values(run, loss, x), expected, strict=True):
                np.testing.assert_array_equal(found, want)


def test_gradients_are_those_of_the_images_one_by_one(expected):
    total, pulled = 0.0, []
    loss, x = filtered()
    with ag.TapeMachine([loss], wrt=[x, loss.graph["w"]], workers=1) as machine:
        for image in IMAGES:
            run = machine.run_sync({"x": image[None]}, backward=True)
            total = total + run[loss.graph["w"]].grad / len(IMAGES)
            pulled.append(run[x].grad[0] / len(IMAGES))
    np.testing.assert_allclose(expected[1], total, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(expected[2], pulled, rtol=1e-4, atol=1e-7)


@sharing
@pytest.mark.parametrize(
    ("wrt", "inside"), [((), "to_columns"), (("w",), "to_columns"), (("x",), "from_columns")]
)
def test_an_idle_worker_takes_blocks_of_another(machine_type, wrt, inside, monkeypatch):
    both, threads = threading.Barrier(2), set()
    own = getattr(convolution, inside)

    def meeting(*args):
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            both.wait(20)  # broken unless two threads come here
        return own(*args)

    loss, x = filtered()
    nodes = [x if name == "x" else loss.graph[name] for name in wrt]
    with machine_type([loss], wrt=nodes, workers=2) as machine:
        monkeypatch.setattr(convolution, inside, meeting)
        machine.run_sync({"x": IMAGES}, backward=bool(wrt))
    assert len(threads) == 2
