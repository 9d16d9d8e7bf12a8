"""Requests of several lengths in one batch."""

from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, ShapeError
from tests._each import each
from tests._until import until
from tests.serving._models import Asked, entered, gated

pytestmark = pytest.mark.anyio


def masked():
    """Return a model: the mean of a request's values, and those values less their mean."""
    g = ag.Graph("masked")
    x = g.input("x", ("rows", "time"), "float64")
    mask = g.input("mask", ("rows", "time"), "float64")
    mean = (gated(x - 1.0) * mask).sum(axis=1) / mask.sum(axis=1)
    return {"mean": mean, "centred": x - mean[:, None]}


def lengths(*sizes):
    """Return a request of a row for each size of values that count up to it."""
    return [{"x": np.arange(1.0, size + 1)[None]} for size in sizes]


async def answers(gate, model, requests):
    """Return the answers of requests that wait for a worker together."""
    async with anyio.create_task_group() as tasks:
        first = Asked(tasks, partial(model.infer, requests[0]))
        await entered(gate)
        rest = [Asked(tasks, partial(model.infer, one)) for one in requests[1:]]
        await until(lambda: model.queued == len(rest))
        gate.open(len(requests))
        for one in (first, *rest):
            await one.done.wait()
    return [one.result for one in (first, *rest)]


def check(requests, found):
    for request, answer in zip(requests, found, strict=True):
        x = request["x"]
        np.testing.assert_allclose(answer["mean"], x.mean(axis=1), rtol=1e-14)
        np.testing.assert_allclose(answer["centred"], x - x.mean(axis=1)[:, None], atol=1e-14)
        assert answer["centred"].shape == x.shape


async def test_requests_of_several_lengths_make_one_batch_and_get_their_own_length(gate):
    async with ag.serving.Server() as server:
        model = server.add("mean", masked(), mask="mask", max_batch_size=8)
        requests = lengths(2, 3, 5, 1)
        check(requests, await answers(gate, model, requests))
    assert gate.calls == 2


async def test_buckets_join_what_is_filled_up_to_the_same_length(gate):
    async with ag.serving.Server() as server:
        model = server.add("mean", masked(), mask="mask", max_batch_size=8, buckets=[4, 8])
        requests = lengths(2, 3, 5, 1, 7, 9)
        check(requests, await answers(gate, model, requests))
    assert gate.calls == 4  # the first, those to 4, those to 8, and the one beyond


async def test_clients_are_not_asked_for_the_mask(gate):
    gate.open()
    async with ag.serving.Server() as server:
        model = server.add("mean", masked(), mask="mask", max_batch_size=8)
        assert list(model.signature.inputs) == ["x"]
        check(lengths(3), [await model.infer(*lengths(3))])


def grown():
    g = ag.Graph()
    x, mask = g.input("x", ("rows", "time")), g.input("mask", ("rows", "time"))
    return {"y": np.concatenate([x * mask, mask], axis=1)}


def flat():
    g = ag.Graph()
    return {"y": g.input("x", ("rows", "time")) * g.input("mask", ("rows",))[:, None]}


@each(
    "build, options, error, says",
    [
        (masked, {"mask": "msk", "max_batch_size": 8}, GraphError, "no input: 'msk'; did you"),
        (masked, {"mask": "mask"}, GraphError, "set max_batch_size= too"),
        (flat, {"mask": "mask", "max_batch_size": 8}, ShapeError, "needs two dims, 'rows' and"),
        (grown, {"mask": "mask", "max_batch_size": 8}, ShapeError, "are padded along 'time' only"),
        (masked, {"mask": "mask", "buckets": [8, 4]}, ValueError, "buckets have to increase"),
        (masked, {"mask": "mask", "buckets": 4}, GraphError, "a tuple of lengths"),
    ],
)
def test_what_cannot_be_padded_is_refused(build, options, error, says):
    with ag.serving.Server() as server, pytest.raises(error, match=says):
        server.add("mean", build(), **options)
